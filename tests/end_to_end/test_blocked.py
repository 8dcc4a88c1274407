"""When one batch is broken, nothing else turns red, and all goes on when it is mended (E2)."""

from __future__ import annotations

import json

import pytest

from dev.services.processes import wait_until
from tests.end_to_end.dates import PATIENCE, Dag

pytestmark = pytest.mark.timeout(420)

DAG_FILE = """
from datetime import datetime, timedelta, timezone

from reliability_airflow import topology_dag
from tests.end_to_end import words

dag = topology_dag(
    words.{name},
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    end_date=datetime(2026, 1, 6, 12, tzinfo=timezone.utc),
    catchup=False,
    conn_id="stand_in",
    default_args={{"retries": 1, "retry_delay": timedelta(seconds=1)}},
)
"""
DAYS = [f"2026-01-0{day}" for day in range(1, 6)]


def deploy(dates, name: str) -> Dag:
    (dates.folder / "dags" / f"{name}.py").write_text(DAG_FILE.format(name=name))
    dag: Dag = dates.dag(f"words_{name}")
    for day in DAYS:
        dag.deliver(day, "broken" if day == DAYS[1] else "man")
    dag.unpause()
    return dag


def trigger(dag: Dag, number: int) -> None:
    """Run a day by hand, and wait until its emission has ended: txids follow that order."""
    day = f"2026-01-{number + 1:02d}"
    dag.trigger(
        f"{day}T06:00:00Z",
        data_interval_start=f"{DAYS[number - 1]}T00:00:00Z",
        data_interval_end=f"{day}T00:00:00Z",
        dag_run_id=f"day_{number}",
    )
    ended = ("success", "failed")
    wait_until(lambda: dag.tasks(f"day_{number}").get(("emit", -1)) in ended, day, PATIENCE)


def by_day(dag: Dag) -> list[str]:
    return [run["state"] for run in dag.runs().values()]


def waits(dag: Dag, number: int) -> bool:
    """Say whether a task of a day waits without a worker slot."""
    return "deferred" in dag.tasks(f"day_{number}").values()


def mend(dag: Dag) -> None:
    (dag.folder / "read_as.json").write_text(json.dumps({"broken": "mended"}))


def test_one_broken_day_turns_no_other_red_and_one_command_resumes_what_is_undone(dates):
    """E2: one truncated file made eleven of twelve months red."""
    dag = deploy(dates, "blocked")
    (dag.folder / DAYS[4] / "a.parquet").write_bytes(b"PAR1 truncated")
    for number in range(1, 6):
        trigger(dag, number)
    expected = ["success", "failed", "running", "running", "failed"]
    wait_until(lambda: by_day(dag) == expected, "the broken days", PATIENCE)
    wait_until(lambda: waits(dag, 3) and waits(dag, 4), "the days behind to wait", PATIENCE)
    said = dates.reliability("status")
    assert "txid 2" in said
    assert f"resume-runs {dag.dag_id}" in said

    shown = json.loads(dates.reliability("resume-runs", dag.dag_id, "--json", code=3))
    assert [(one["run_id"], one["txids"]) for one in shown["runs"]] == [
        ("day_2", [2]),
        ("day_5", []),
    ]
    assert by_day(dag) == expected  # without --yes nothing is cleared

    mend(dag)
    dag.deliver(DAYS[4], "man")
    dates.reliability("resume-runs", dag.dag_id, "--yes")
    assert dag.states(5) == ["success"] * 5
    assert dag.counted() == {"man": 4, "mended": 1}
    assert set(dag.tries("day_1").values()) == {1}, "a committed day was cleared"
    assert "no run is left undone" in dates.reliability("resume-runs", dag.dag_id)


def test_a_run_that_is_red_though_another_has_done_its_txids_turns_green(dates):
    """G9: green follows the ledger, and nothing is replayed for it."""
    dag = deploy(dates, "crowded")
    for number in range(1, 3):
        trigger(dag, number)
    assert dag.states(2) == ["success", "failed"]
    dates.reliability("skip", dag.dag_id, "2", "--reason", "a broken file", "--yes")
    dates.reliability("resume-runs", dag.dag_id, "--yes")
    assert dag.states(2) == ["success", "success"]
    assert dag.commits() == ["1:0", "2:2"]
