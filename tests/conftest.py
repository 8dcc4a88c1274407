"""Fixtures come in plugins, one for each thing that has to run."""

from __future__ import annotations

pytest_plugins = [
    "tests.fix_postgres",
    "tests.fix_spark",
    "tests.fix_pipeline",
    "tests.fix_airflow",
]
