"""Airflow for the end-to-end tests: its four components, once, on the test run's environment.

Beside the example DAGs it reads a folder of the tests' own, whose DAGs go to a stand-in for
spark-submit.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.services.airflow import USER
from reliability.ledger.connection import LedgerConnection
from tests.end_to_end.dates import Dag, Dates, publish
from tests.end_to_end.stand_in import put_command
from tests.end_to_end.users import USERS

HERE = Path(__file__).parent
LOCAL_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"
#: Airflow is to notice at once what is otherwise noticed within 5 to 30 s.
QUICK = {
    "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",
    "AIRFLOW__DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "1",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",  # a task that waits resumes after two
    # but what no test has written anew is not read again and again
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
}
#: A host that stands still for a while, or an API server that is slow, ends no task. By default a
#: scheduler that has stood still for 30 s takes its own tasks for those of a dead one.
PATIENT = {
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "150",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "150",
    "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
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
    return folder


@pytest.fixture(scope="package")
def versions(tmp_path_factory) -> Path:
    """Where a DAG bundle with versions has them; the first is empty."""
    folder: Path = tmp_path_factory.mktemp("versions")
    publish(folder, "0", {})
    return folder


@pytest.fixture(scope="package")
def lineage(request, dates_folder) -> dict[str, str]:
    """Settings of OpenLineage, if a test of this run reads what it tells.

    With them each task loads the provider's listener, a quarter of what its process does.
    """
    if not any(item.path.stem == "test_lineage_in_airflow" for item in request.session.items):
        return {}
    transport = {"type": "file", "log_file_path": str(dates_folder / "lineage"), "append": True}
    return {
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
        "AIRFLOW__OPENLINEAGE__SELECTIVE_ENABLE": "True",  # of DAGs that ask for it
    }


@pytest.fixture(scope="package")
def airflow(environment, dates_folder, versions, lineage):
    """The environment with Airflow up and the DAGs read."""
    stand_in = put_command(dates_folder / "bin")
    users = {USER: "admin", **USERS}
    environment.airflow.passwords_of(*users)
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
            **PATIENT,
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
            "AIRFLOW__CORE__AUTH_MANAGER": "tests.end_to_end.auth_manager.OneDagLess",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(
                f"{name}:{role}" for name, role in users.items()
            ),
            "AIRFLOW_CONN_STAND_IN": json.dumps(
                {"conn_type": "spark", "host": "local", "extra": stand_in}
            ),
            **lineage,
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


#: What Airflow's components say of tasks that they gave up, or that ended otherwise than reported.
COMPLAINTS = re.compile(r"error|critical|heartbeat|timed? ?out|finished with state|killed", re.I)
TOLD_LINES = 60


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Add to a test that failed what Airflow wrote of its DAG: on another host nobody can look."""
    report = yield
    dag, airflow = (item.funcargs.get(name) for name in ("dag", "airflow"))
    if call.when == "call" and call.excinfo and isinstance(dag, Dag) and airflow:
        lines = [*complaints(airflow.state_dir, dag.dag_id)]
        report.sections.append((f"Airflow's complaints of {dag.dag_id}", "\n".join(lines)))
    return report


def complaints(state_dir: Path, dag_id: str) -> Iterator[str]:
    """Yield what the components and a DAG's tasks logged that tells why a task was tried again."""
    for component in ("scheduler", "triggerer", "api-server"):
        log = state_dir / "logs" / f"{component}.log"
        found = [line for line in _lines(log) if dag_id in line and COMPLAINTS.search(line)]
        yield from (f"{component}: {line[:600]}" for line in found[-TOLD_LINES:])
    for second in sorted(state_dir.glob(f"airflow/logs/dag_id={dag_id}/**/attempt=2.log")):
        first = second.with_name("attempt=1.log")
        place = "/".join(first.parts[-4:])
        yield from (f"{place}: {line[:600]}" for line in _lines(first)[-8:])


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.exists() else []


@pytest.fixture
def dag(request, stories) -> Dag:
    """The DAG of the test's story."""
    found: Dag = stories[request.node.get_closest_marker("story").args]
    return found
