"""Airflow for the end-to-end tests: its four components, once, on the test run's environment.

Beside the example DAGs it reads a folder of the tests' own, whose DAGs go to a stand-in for
spark-submit.
"""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from dev.demo.backfill import is_known
from reliability.ledger.connection import LedgerConnection
from tests.end_to_end.dates import Dates, publish, wait_for
from tests.end_to_end.users import USERS

HERE = Path(__file__).parent
LOCAL_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"


@pytest.fixture(scope="package")
def dates_folder(tmp_path_factory) -> Path:
    """Where the tests of dates have their DAG files, their input and the stand-in's command."""
    folder: Path = tmp_path_factory.mktemp("dates")
    for name in ("dags", "bin", "input"):
        (folder / name).mkdir()
    for file in ("words_dags.py", "deferring_dags.py"):
        shutil.copy(HERE / file, folder / "dags")
    command = folder / "bin" / "spark3-submit"  # one of the names that the provider allows
    command.write_text('#!/bin/sh\nexec python -m tests.end_to_end.stand_in "$@"\n')
    command.chmod(0o755)
    return folder


@pytest.fixture(scope="package")
def versions(tmp_path_factory) -> Path:
    """Where a DAG bundle with versions has them; the first is empty."""
    folder: Path = tmp_path_factory.mktemp("versions")
    publish(folder, "0", {})
    return folder


@pytest.fixture(scope="package")
def airflow(environment, dates_folder, versions):
    """The environment with Airflow up and the example DAGs read."""
    bundles = [
        {"name": "examples", "classpath": LOCAL_BUNDLE, "kwargs": {}},
        {
            "name": "dates",
            "classpath": LOCAL_BUNDLE,
            "kwargs": {"path": str(dates_folder / "dags"), "refresh_interval": 2},
        },
        {
            "name": "versioned",
            "classpath": "tests.end_to_end.versioned.VersionedFolder",
            "kwargs": {"folder": str(versions), "refresh_interval": 2},
        },
    ]
    lineage = {"type": "file", "log_file_path": str(dates_folder / "lineage"), "append": True}
    stand_in = {"deploy-mode": "client", "spark-binary": "spark3-submit"}
    environment.airflow_settings.update(
        {
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
            "AIRFLOW__CORE__AUTH_MANAGER": "tests.end_to_end.auth_manager.OneDagLess",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(
                f"{name}:{role}" for name, role in {"admin": "admin", **USERS}.items()
            ),
            # what no test has written anew is not read again and again
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
            # a file that a test writes anew is a new version at once, not after 30 s
            "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",
            "AIRFLOW_CONN_STAND_IN": json.dumps(
                {"conn_type": "spark", "host": "local", "extra": stand_in}
            ),
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(lineage),
            "AIRFLOW__OPENLINEAGE__SELECTIVE_ENABLE": "True",  # of DAGs that ask for it
            "DATES_FOLDER": str(dates_folder / "input"),
            "PATH": f"{dates_folder / 'bin'}:{environment.own_env()['PATH']}",
        }
    )
    environment.up(lambda text: None)
    for dag_id in ("cdnow_revenue", "global_count", "word_lengths"):
        wait_for(partial(is_known, environment.api(), dag_id), dag_id, 120)
    yield environment
    environment.airflow.stop()  # idle it still takes an eighth of a core


@pytest.fixture(scope="package")
def ledger(airflow):
    """A session with the ledger that Airflow's tasks use."""
    connection = LedgerConnection("service=reliability", application_name="end to end")
    yield connection
    connection.close()


@pytest.fixture(scope="package")
def dates(airflow, ledger, dates_folder) -> Dates:
    """The topologies of `words.py`, by name."""
    return Dates(airflow=airflow, ledger=ledger, folder=dates_folder)
