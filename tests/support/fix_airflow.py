"""Airflow's packages, without a database and without any settings of this machine's."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def airflow_home(tmp_path_factory):
    """Prepare the environment for `import airflow`; parsing DAGs needs no more."""
    for name in [name for name in os.environ if name.startswith("AIRFLOW")]:
        del os.environ[name]
    os.environ["AIRFLOW_HOME"] = str(tmp_path_factory.mktemp("airflow"))
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
    os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "True"
