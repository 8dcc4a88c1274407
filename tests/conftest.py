"""Fixtures come in plugins, one for each thing that has to run."""

from __future__ import annotations

import pytest

pytest_plugins = [
    "tests.support.fix_postgres",
    "tests.support.fix_spark",
    "tests.support.fix_pipeline",
    "tests.support.fix_engine",
    "tests.support.fix_airflow",
    "tests.support.fix_page",
    "tests.support.rules",
]
END_TO_END = "tests/end_to_end/"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A file is one process's, and all that need Airflow are the same one's: they share it."""
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class ByFile(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return END_TO_END if nodeid.startswith(END_TO_END) else super()._split_scope(nodeid)

    return ByFile(config, log)
