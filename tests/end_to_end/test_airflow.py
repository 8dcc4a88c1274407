"""Through the real scheduler and real spark-submit: a backfill with a kill, a count, two steps.

The tests stand in the order of the story and share one Airflow; each can run alone.
"""

from __future__ import annotations

import os
import subprocess

import psutil
import pytest
from psycopg2.sql import SQL

from dev.demo.backfill import Backfill
from dev.demo.faults import kill_one
from dev.demo.report import compare, expected_tables, read_tables
from tests.end_to_end.dates import wait_for
from tests.support.fix_postgres import rows

pytestmark = pytest.mark.timeout(420)
MONTH = "1998-04"  # `make demo` runs eighteen of them
BACKFILL = Backfill(
    dag_id="cdnow_revenue",
    first=f"{MONTH}-01T00:00:00Z",
    last=f"{MONTH}-01T00:00:00Z",
    max_active_runs=2,
    txids=2,
    what="a month",
)
PATIENCE = 300


def ended(api, backfill):
    states = [run["state"] for run in backfill.runs(api)]
    assert "failed" not in states
    return bool(states) and all(state == "success" for state in states)


@pytest.fixture(scope="package")
def backfilled(airflow, ledger):
    """A backfill of a month in which the driver JVM of one attempt was killed."""
    api = airflow.api()
    BACKFILL.start(api)
    killed = []

    def kill():
        killed.append(kill_one("driver", airflow, ledger, 1))
        return killed[-1] is not None

    wait_for(kill, "an attempt to kill", PATIENCE)
    # while Spark, Airflow and Postgres all work: who listens where?
    pids = {process.pid for process in airflow.processes()}
    addresses = {
        one.laddr[:2]
        for one in psutil.net_connections("tcp")
        if one.pid in pids and one.status == psutil.CONN_LISTEN
    }
    wait_for(lambda: ended(api, BACKFILL), BACKFILL.what, PATIENCE)
    return {"killed": killed[-1], "addresses": addresses}


def test_a_backfill_with_a_killed_driver_is_exact(backfilled, ledger):
    comparisons = compare(read_tables(ledger), expected_tables((MONTH,)))
    assert [c for c in comparisons if not c.is_exact] == []
    name = backfilled["killed"].attempt.split()[-1]
    txid, attempt_id = map(int, name.split(":"))
    attempt_report = (
        "SELECT status FROM reliability.attempt WHERE txid = %(txid)s ORDER BY attempt_id"
    )
    assert rows(ledger, attempt_report, txid=txid) == [("FENCED",), ("COMMITTED",)]
    assert attempt_id == 0


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
    arguments = " ".join(
        " ".join(p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"])
    )
    logs = subprocess.run(
        ["grep", "-rlF", *[word for s in secrets for word in ("-e", s)], str(airflow.state_dir)],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    assert not any(secret in arguments for secret in secrets)
    assert {os.path.basename(path) for path in logs} <= {"passwords.json", "pgpass"}


def test_xcom_carries_ids_only(backfilled, airflow):
    api = airflow.api()
    for run in BACKFILL.runs(api):
        path = f"/api/v2/dags/cdnow_revenue/dagRuns/{run['dag_run_id']}/taskInstances/~/xcomEntries"
        entries = api.get(path)["xcom_entries"]
        others = [entry for entry in entries if not entry["key"].startswith("_link_")]
        assert {entry["task_id"] for entry in others} <= {"emit", "settle"}


@pytest.mark.slow
def test_global_count_emits_all_in_one_run_and_nothing_later(airflow, ledger):
    api = airflow.api()
    api.patch("/api/v2/dags/global_count", {"is_paused": False})

    def trigger():
        run = api.post("/api/v2/dags/global_count/dagRuns", {"logical_date": None})
        path = f"/api/v2/dags/global_count/dagRuns/{run['dag_run_id']}"
        wait_for(lambda: api.get(path)["state"] in ("success", "failed"), path, PATIENCE)
        assert api.get(path)["state"] == "success"

    trigger()
    assert rows(ledger, "SELECT words FROM global_count") == [(19,)]
    trigger()
    assert rows(ledger, "SELECT words FROM global_count") == [(19,)]
    assert rows(
        ledger, "SELECT count(*) FROM reliability.commit_log WHERE topology = 'global_count'"
    ) == [(3,)]


@pytest.mark.slow
def test_two_steps_of_one_attempt_are_two_tasks_and_two_applications(airflow, ledger):
    api = airflow.api()
    api.patch("/api/v2/dags/word_lengths", {"is_paused": False})
    run = api.post("/api/v2/dags/word_lengths/dagRuns", {"logical_date": None})
    path = f"/api/v2/dags/word_lengths/dagRuns/{run['dag_run_id']}"
    wait_for(lambda: api.get(path)["state"] in ("success", "failed"), path, PATIENCE)
    assert api.get(path)["state"] == "success"
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
    states = {t["state"] for t in tasks_of(api, path) if t["task_id"] == "tell"}
    assert states == {"success"}


def tasks_of(api, path):
    return api.get(f"{path}/taskInstances")["task_instances"]


@pytest.mark.slow
def test_a_manual_run_without_a_data_interval_is_red_and_says_why(airflow, ledger):
    api = airflow.api()
    before = rows(ledger, "SELECT count(*) FROM reliability.transaction")
    api.patch("/api/v2/dags/cdnow_revenue", {"is_paused": False})
    run = api.post("/api/v2/dags/cdnow_revenue/dagRuns", {"logical_date": None})
    path = f"/api/v2/dags/cdnow_revenue/dagRuns/{run['dag_run_id']}"
    wait_for(lambda: api.get(path)["state"] in ("success", "failed"), path, PATIENCE)
    assert api.get(path)["state"] == "failed"
    log = api.get(f"{path}/taskInstances/emit/logs/1")
    assert "DATA_INTERVAL_MISSING" in str(log)
    assert "airflow backfill create --dag-id cdnow_revenue" in str(log)
    assert rows(ledger, "SELECT count(*) FROM reliability.transaction") == before


def test_the_ledger_knows_no_live_attempt_when_all_is_done(backfilled, ledger):
    with ledger.transaction() as tx:
        live = tx.all(
            SQL(
                "SELECT topology, txid, attempt_id, status FROM reliability.attempt"
                " WHERE status IN ('PROCESSING', 'SEALING', 'PROCESSED')"
            )
        )
    assert live == []
