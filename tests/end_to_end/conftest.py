"""Airflow for the end-to-end tests: its four components, once, on the test run's environment.

Beside the example DAGs it reads a folder of the tests' own, whose DAGs go to a stand-in for
spark-submit.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from reliability.ledger.connection import LedgerConnection
from tests.end_to_end.dates import Dag, Dates, publish
from tests.end_to_end.users import USERS

HERE = Path(__file__).parent
LOCAL_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"
#: Airflow is to notice at once what is otherwise noticed within 5 to 30 s.
QUICK = {
    "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",
    "AIRFLOW__DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "1",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",  # a task that waits resumes after two
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
    # but what no test has written anew is not read again and again
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
}


@pytest.fixture(scope="package")
def dates_folder(tmp_path_factory) -> Path:
    """Where the tests of dates have their DAG files, their input and the stand-in's command."""
    folder: Path = tmp_path_factory.mktemp("dates")
    for name in ("dags", "bin", "input"):
        (folder / name).mkdir()
    for name in ("words", "schedule", "deferring", "grouped"):
        shutil.copy(HERE / f"{name}_dags.py", folder / "dags")
    shutil.copy(HERE / "rotating_dag.py", folder / "dags")
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
    """The environment with Airflow up and the DAGs read."""
    lineage = {"type": "file", "log_file_path": str(dates_folder / "lineage"), "append": True}
    stand_in = {"deploy-mode": "client", "spark-binary": "spark3-submit"}
    bundles = [
        _bundle("examples", LOCAL_BUNDLE),
        _bundle("dates", LOCAL_BUNDLE, path=str(dates_folder / "dags"), refresh_interval=1),
        _bundle(
            "versioned",
            "tests.end_to_end.versioned.VersionedFolder",
            folder=str(versions),
            refresh_interval=1,
        ),
    ]
    environment.airflow_settings.update(
        {
            **QUICK,
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
            "AIRFLOW__CORE__AUTH_MANAGER": "tests.end_to_end.auth_manager.OneDagLess",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(
                f"{name}:{role}" for name, role in {"admin": "admin", **USERS}.items()
            ),
            "AIRFLOW_CONN_STAND_IN": json.dumps(
                {"conn_type": "spark", "host": "local", "extra": stand_in}
            ),
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(lineage),
            "AIRFLOW__OPENLINEAGE__SELECTIVE_ENABLE": "True",  # of DAGs that ask for it
            "AIRFLOW__SECRETS__BACKEND": "tests.end_to_end.secrets_in_file.SecretsInFile",
            "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps({"path": str(dates_folder / "secrets")}),
            # a DAG's own connection comes before the service file, not before this variable
            "RELIABILITY_DSN": "",
            "DATES_FOLDER": str(dates_folder / "input"),
            "PATH": f"{dates_folder / 'bin'}:{environment.own_env()['PATH']}",
        }
    )
    environment.up(lambda text: None)
    yield environment
    environment.airflow.stop()  # idle it still takes an eighth of a core


def _bundle(name: str, classpath: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "classpath": classpath, "kwargs": arguments}


@pytest.fixture(scope="package")
def ledger(airflow):
    """A session with the ledger that Airflow's tasks use."""
    connection = LedgerConnection("service=reliability", application_name="end to end")
    yield connection
    connection.close()


@pytest.fixture(scope="package")
def dates(airflow, ledger, dates_folder) -> Dates:
    """Airflow with the DAGs of `words.py`."""
    return Dates(airflow=airflow, ledger=ledger, folder=dates_folder)


@pytest.fixture(scope="package")
def stories(request, dates) -> dict[tuple[Any, ...], Any]:
    """What has set off the stories of this run's tests, and what came of that."""
    marks = [mark for item in request.session.items for mark in item.iter_markers("story")]
    return {begin: begin[0](dates, *begin[1:]) for begin in dict.fromkeys(m.args for m in marks)}


@pytest.fixture
def dag(request, stories) -> Dag:
    """The DAG of the test's story."""
    found: Dag = stories[request.node.get_closest_marker("story").args]
    return found
