"""Credentials from a secrets backend of Airflow: where they are seen, and what if they change."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from reliability.ledger.connection import LedgerConnection
from tests.end_to_end.dates import Dag, Dates, pause, story, wait_for
from tests.end_to_end.rotating import DATABASE, DATABASE_CONN_IDS, LEDGER_CONN_ID
from tests.support.fix_postgres import admin_session, rows, run_as_admin

ROLE = "rotating"
PASSWORDS = ("first-hunter2", "second-hunter2")
#: How long Airflow's backend still has the old password.
LATE_SECONDS = 12.0


@dataclass(frozen=True)
class Rotated:
    """What was seen of a DAG whose password changed while it ran.

    :param processes: arguments and environments, while Spark ran
    :param told: the modes of the files that drivers read, and of their folders
    """

    dag: Dag
    processes: str
    told: tuple[tuple[int, int], ...]


def a_password_changes_while_spark_runs(dates: Dates) -> Rotated:
    """Hold two drivers, change the role's password, tell Airflow some seconds later."""
    _make_role_and_database(dates)
    _keep(dates, PASSWORDS[0])
    dag = dates.dag("rotating")
    dag.deliver("2026-01-01", "a", "a", "b")
    dag.deliver("2026-01-02", "b", "c")
    dag.hold()
    dag.unpause()
    wait_for(lambda: _working(dag) == 2, "two drivers at work")
    processes, told = _processes(), tuple(map(_modes, _files_of_drivers()))
    run_as_admin(f"ALTER ROLE {ROLE} PASSWORD '{PASSWORDS[1]}'")
    dag.let_go()
    pause(LATE_SECONDS)
    _keep(dates, PASSWORDS[1])
    return Rotated(dag, processes, told)


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


def _processes() -> str:
    """Return arguments and environments of all processes that this user may see."""
    seen = []
    for process in psutil.process_iter():
        try:
            seen.append(f"{process.cmdline()} {process.environ()}")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return "\n".join(seen)


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


def test_no_password_is_in_arguments_environments_logs_conf_events_or_xcom(
    rotated, airflow, dates_folder
):
    """G10: both passwords, wherever somebody else may look."""
    events = [*dates_folder.glob("input/local-*"), *dates_folder.glob("input/eventlog_*")]
    assert events
    assert "process_batch.py" in rotated.processes
    for password in PASSWORDS:
        assert password not in rotated.processes
        found = subprocess.run(
            ["grep", "-rlF", password, str(airflow.state_dir), *map(str, events)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.stdout.split() == []
    with admin_session("airflow") as cursor:
        for table in ("xcom", "trigger", "serialized_dag", "rendered_task_instance_fields"):
            cursor.execute(f"SELECT x::text FROM {table} x")
            assert "hunter2" not in str(cursor.fetchall()), table
