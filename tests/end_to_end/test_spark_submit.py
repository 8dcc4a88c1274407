"""Through the real spark-submit: a backfill with a kill, a count, two steps of one attempt."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import psutil
import pytest

from dev.demo.backfill import Backfill
from dev.demo.faults import kill_one
from dev.demo.report import compare, expected_tables, read_tables
from tests.end_to_end.dates import Dag, Dates, story, wait_for
from tests.support.fix_postgres import rows

MONTH = "1997-01"  # `make demo` runs eighteen of them
BACKFILL = Backfill(
    dag_id="cdnow_revenue",
    first=f"{MONTH}-01T00:00:00Z",
    last=f"{MONTH}-01T00:00:00Z",
    max_active_runs=2,
    txids=2,
    what="a month",
)


def a_backfill_with_a_kill(dates: Dates) -> dict[str, Any]:
    """Begin a backfill of a month, and kill the driver JVM of one attempt."""
    dag = dates.dag(BACKFILL.dag_id)
    BACKFILL.start(dag.api)
    killed = []

    def kill() -> bool:
        killed.append(kill_one("driver", dates.airflow, dates.ledger, 1))
        return killed[-1] is not None

    wait_for(kill, "an attempt to kill")
    # while Spark, Airflow and Postgres all work: who listens where, and who was told what?
    pids = {process.pid for process in dates.airflow.processes()}
    addresses = {
        one.laddr[:2]
        for one in psutil.net_connections("tcp")
        if one.pid in pids and one.status == psutil.CONN_LISTEN
    }
    return {
        "dag": dag,
        "killed": killed[-1],
        "addresses": addresses,
        "arguments": arguments_of_all(),
    }


def arguments_of_all() -> str:
    """Return the arguments of every process of this machine."""
    processes = psutil.process_iter(["cmdline"])
    return " ".join(" ".join(process.info["cmdline"] or []) for process in processes)


pytestmark = [pytest.mark.timeout(900), story(a_backfill_with_a_kill)]


@pytest.fixture(scope="module")
def backfilled(stories):
    """The backfill, when it has ended."""
    found = stories[a_backfill_with_a_kill,]
    assert found["dag"].states() == ["success"]
    return found


def test_a_backfill_with_a_killed_driver_is_exact(backfilled, ledger):
    comparisons = compare(read_tables(ledger), expected_tables((MONTH,)))
    assert [c for c in comparisons if not c.is_exact] == []
    killed = backfilled["killed"].attempt.split()[-1]
    txid, attempt_id = killed.split(":")
    attempts = backfilled["dag"].attempts()
    assert [status for name, status in attempts.items() if name.startswith(f"{txid}:")] == [
        "FENCED",
        "COMMITTED",
    ]
    assert attempt_id == "0"
    # a retry asks for nothing new
    asked = [(n, "backfill", "COMMIT", "SATISFIED") for n in (1, 2)]
    assert backfilled["dag"].requests() == asked
    assert {*attempts.values()} == {"FENCED", "COMMITTED"}, "an attempt lives when all is done"


def test_txids_committed_one_after_the_other_without_a_gap(backfilled, ledger):
    assert rows(
        ledger,
        "SELECT commit_number, txid FROM reliability.commit_log"
        " WHERE topology = 'cdnow_revenue' AND replaced_attempt IS NULL ORDER BY 1",
    ) == [(n, n) for n in (1, 2)]


def test_nothing_listens_beyond_this_machine(backfilled):
    assert backfilled["addresses"]
    assert {ip for ip, _ in backfilled["addresses"]} <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def test_no_secret_is_in_an_argument_a_log_or_xcom(backfilled, airflow):
    secrets = [airflow.credentials.password(name) for name in ("airflow", "reliability")]
    logs = subprocess.run(
        ["grep", "-rlF", *[word for s in secrets for word in ("-e", s)], str(airflow.state_dir)],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    assert not any(secret in backfilled["arguments"] + arguments_of_all() for secret in secrets)
    assert {os.path.basename(path) for path in logs} <= {"passwords.json", "pgpass"}


def test_xcom_carries_ids_only(backfilled, airflow):
    [run_id] = backfilled["dag"].runs()
    path = f"/api/v2/dags/cdnow_revenue/dagRuns/{run_id}/taskInstances/~/xcomEntries"
    entries = airflow.api().get(path)["xcom_entries"]
    others = [entry for entry in entries if not entry["key"].startswith("_link_")]
    assert {entry["task_id"] for entry in others} <= {"emit", "settle"}


def run_by_hand(dag: Dag) -> str:
    """Run an example without intervals, with success."""
    dag.unpause()
    run_id = dag.trigger(None)
    assert dag.state(run_id) == "success"
    return run_id


@pytest.mark.slow
def test_global_count_emits_all_in_one_run_and_nothing_later(dates, ledger):
    dag = dates.dag("global_count")
    for _ in range(2):
        run_by_hand(dag)
        assert rows(ledger, "SELECT words FROM global_count") == [(19,)]
    assert len(dag.commits()) == 3


@pytest.mark.slow
def test_two_steps_of_one_attempt_are_two_tasks_and_two_applications(dates, ledger):
    dag = dates.dag("word_lengths")
    run_id = run_by_hand(dag)
    assert rows(ledger, "SELECT length, times FROM word_lengths ORDER BY 1") == [
        (3, 5),
        (5, 2),
        (6, 1),
    ]
    steps = """SELECT step, claimed_by, count(DISTINCT application_id) FROM reliability.attempt_step
                WHERE topology = 'word_lengths' AND status = 'DONE' GROUP BY 1, 2 ORDER BY 1"""
    assert rows(ledger, steps) == [
        ("by_length", "transaction.by_length", 2),
        ("count", "transaction.count", 2),
    ]
    tells = {state for (task, _), state in dag.tasks(run_id).items() if task == "tell"}
    assert tells == {"success"}
