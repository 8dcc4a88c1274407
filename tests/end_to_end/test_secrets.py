"""Credentials from a secrets backend of Airflow: where they are seen, and what if they change."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from typing import Any

import httpx
import psutil
import pytest
from psycopg2.sql import SQL, Identifier

from dev.services.airflow_api import AirflowApiError
from reliability.ledger.connection import LedgerConnection
from tests.end_to_end.dates import Dag, Dates, pause, story, wait_for
from tests.end_to_end.rotating import CANARY, DATABASE, DATABASE_CONN_IDS, LEDGER_CONN_ID
from tests.support.fix_postgres import admin_session, rows, run_as_admin

ROLE = "rotating"
PASSWORDS = ("first-hunter2", "second-hunter2")
#: How long Airflow's backend still has the old password.
LATE_SECONDS = 12.0


class Watch(threading.Thread):
    """Notes arguments and environments of all processes of this machine until it is ended."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._seen: set[str] = set()
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(0.2):
            for process in psutil.process_iter():
                try:
                    self._seen.add(f"{process.cmdline()} {process.environ()}")
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue

    def end(self) -> str:
        """Return all that was seen."""
        self._is_over.set()
        self.join()
        return "\n".join(self._seen)


@dataclass(frozen=True)
class Rotated:
    """What was seen of a DAG whose password changed while it ran.

    :param watch: over the processes, from before the first task on
    :param told: the modes of the files that drivers read, and of their folders
    """

    dag: Dag
    watch: Watch
    told: tuple[tuple[int, int], ...]


def a_password_changes_while_spark_runs(dates: Dates) -> Rotated:
    """Hold two drivers, change the role's password, tell Airflow some seconds later."""
    _make_role_and_database(dates)
    _keep(dates, PASSWORDS[0])
    dag = dates.dag("rotating")
    dag.deliver("2026-01-01", "a", "a", "b")
    dag.deliver("2026-01-02", "b", "c")
    dag.hold()
    watch = Watch()
    watch.start()
    dag.unpause()
    wait_for(lambda: _working(dag) == 2, "two drivers at work")
    told = tuple(map(_modes, _files_of_drivers()))
    run_as_admin(f"ALTER ROLE {ROLE} PASSWORD '{PASSWORDS[1]}'")
    dag.let_go()
    pause(LATE_SECONDS)
    _keep(dates, PASSWORDS[1])
    return Rotated(dag, watch, told)


def _make_role_and_database(dates: Dates) -> None:
    run_as_admin(
        f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORDS[0]}' IN ROLE reliability",
        f"ALTER ROLE {ROLE} SET role = reliability",
        f"CREATE DATABASE {DATABASE} OWNER reliability",
    )
    subprocess.run(
        [sys.executable, "-m", "reliability", "migrate", "--database", DATABASE],
        env=dates.airflow.env()
        | {f"RELIABILITY_DSN_{DATABASE.upper()}": f"service=reliability dbname={DATABASE}"},
        check=True,
    )


def _keep(dates: Dates, password: str) -> None:
    """Write the connections into the file of Airflow's secrets backend."""
    host, port, _ = dates.ledger.server()
    own: dict[str, Any] = {"host": host, "port": port, "login": ROLE, "password": password}
    kept = {
        LEDGER_CONN_ID: {**own, "conn_type": "reliability", "schema": "reliability"},
        DATABASE_CONN_IDS[DATABASE]: {**own, "conn_type": "postgres", "schema": DATABASE},
    }
    new = dates.folder / "secrets.new"
    new.write_text(json.dumps(kept))
    new.rename(dates.folder / "secrets")


def _working(dag: Dag) -> int:
    """Return how many attempts have a driver that has reached the ledger."""
    started = [
        started for (started,) in dag.ledger_rows("started_at", "attempt_step", "1") if started
    ]
    return len(started)


def _files_of_drivers() -> list[str]:
    return glob.glob(os.path.join(tempfile.gettempdir(), "reliability-rotating-*", "addresses"))


def _modes(path: str) -> tuple[int, int]:
    return os.stat(path).st_mode & 0o777, os.stat(os.path.dirname(path)).st_mode & 0o777


#: Slow: its story waits for two drivers at once, before those of other tests can begin.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    story(a_password_changes_while_spark_runs),
]


@pytest.fixture(scope="module")
def rotated(stories):
    """The DAG, when its runs have ended."""
    found = stories[a_password_changes_while_spark_runs,]
    assert found.dag.states(least=2) == ["success", "success"]
    return found


def test_a_password_that_changes_in_the_middle_fails_no_run(rotated, ledger):
    """S5: the connection is asked again by every session, in tasks, triggerer, driver and Spark."""
    assert rows(ledger, "SELECT word, times FROM rotating ORDER BY 1") == [
        ("a", 2),
        ("b", 2),
        ("c", 1),
    ]
    with LedgerConnection(f"service=reliability dbname={DATABASE}") as vault:
        counted = rows(vault, "SELECT word, times FROM rotating_in_vault ORDER BY 1")
        assert counted == [("a", 2), ("b", 2), ("c", 1)]
    assert rotated.dag.attempts() == {"1:0": "COMMITTED", "2:0": "COMMITTED"}


def test_drivers_read_a_file_of_their_own_which_goes_with_them(rotated):
    assert rotated.told == ((0o600, 0o700), (0o600, 0o700))
    assert _files_of_drivers() == []


def test_no_password_is_where_somebody_else_may_look(rotated, airflow, dates_folder):
    """G10: a connection's, before and after it changed, and those of the environment's pass file.

    Each search has to find the canary, or what is known to be there, so none of them is blind.
    """
    kept = (airflow.credentials.password(name) for name in ("airflow", "reliability"))
    secrets = [*PASSWORDS, *kept]
    processes = rotated.watch.end()
    places = {
        "arguments and environments": (processes, CANARY),
        "event logs": (_files(*dates_folder.glob("input/*local-*")), CANARY),
        "logs": (_files(airflow.state_dir / "logs", airflow.airflow.home / "logs"), CANARY),
        "Airflow's interface": (_answers(rotated.dag), CANARY),
        "the page": (_page(rotated.dag), "1:0"),
        "Airflow's tables": (_tables("airflow"), CANARY),
        "the ledger's tables": (_tables("reliability"), "rotating"),
    }
    for place, (text, known) in places.items():
        assert known in text, f"the search in {place} is blind"
        assert [secret for secret in secrets if secret in text] == [], place
    assert "process_batch.py" in processes
    assert "DATES_FOLDER" in processes


def _files(*places: os.PathLike[str]) -> str:
    """Return the text of files, and of all files in folders."""
    found = subprocess.run(["grep", "-rha", "", *map(str, places)], capture_output=True, check=True)
    return found.stdout.decode(errors="replace")


def _answers(dag: Dag) -> str:
    """Return what Airflow's interface is told of a DAG: all that its pages ask for."""
    of_dag = f"/api/v2/dags/{dag.dag_id}"
    paths = [
        *(f"{of_dag}{each}" for each in ("", "/details", "/tasks", "/dagRuns", "/dagVersions")),
        f"/api/v2/dagSources/{dag.dag_id}",
        *("/api/v2/connections", "/api/v2/variables", "/api/v2/config", "/api/v2/importErrors"),
        f"/api/v2/eventLogs?dag_id={dag.dag_id}",
    ]
    for run_id in dag.runs():
        tasks = f"{of_dag}/dagRuns/{run_id}/taskInstances"
        paths.append(tasks)
        for name, index in dag.tasks(run_id):
            one = f"{tasks}/{name}/{index}" if index >= 0 else f"{tasks}/{name}"
            at = f"?map_index={index}"
            paths += [one, f"{one}/links", f"{tasks}/{name}/xcomEntries{at}"]
            paths.append(f"{tasks}/{name}/logs/1{at}")
    return "\n".join(_answer(dag, path) for path in paths)


def _answer(dag: Dag, path: str) -> str:
    try:
        return json.dumps(dag.api.get(path))
    except AirflowApiError as error:  # such as the configuration, which is not shown by default
        return error.body


def _page(dag: Dag) -> str:
    """Return what the page says, and how it says that it has no address of the other database."""
    shown = f"/reliability/dags/{dag.dag_id}"
    parts = ("", "/txids/1", "/txids/2", "/series", "/calendar")
    headers = {"Authorization": f"Bearer {dag.api.token()}"}
    with httpx.Client(base_url=dag.api.base_url, headers=headers, trust_env=False) as client:
        answers = [client.get(f"{shown}{part}", timeout=60) for part in parts]
    return "\n".join(answer.text for answer in answers)


def _tables(database: str) -> str:
    """Return all rows of all tables of a database."""
    every = (
        "SELECT table_schema, table_name FROM information_schema.tables"
        " WHERE table_type = 'BASE TABLE' AND table_schema NOT LIKE 'pg\\_%'"
        " AND table_schema <> 'information_schema'"
    )
    found = []
    with admin_session(database) as cursor:
        cursor.execute(every)
        for name in cursor.fetchall():
            cursor.execute(SQL("SELECT x::text FROM {} x").format(Identifier(*name)))
            found += [text for (text,) in cursor.fetchall()]
    return "\n".join(found)
