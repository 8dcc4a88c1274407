"""When one batch is broken, nothing else turns red, and all goes on when it is mended (E2)."""

from __future__ import annotations

import json

import pytest

from tests.end_to_end.dates import Dag, wait_for

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
    max_active_runs={slots},
)
"""
DAYS = [f"2026-01-0{day}" for day in range(1, 6)]


def deploy(dates, name: str, slots: int = 16) -> Dag:
    (dates.folder / "dags" / f"{name}.py").write_text(DAG_FILE.format(name=name, slots=slots))
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
    wait_for(lambda: dag.tasks(f"day_{number}").get(("emit", -1)) in ended, day)


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
    (dag.folder / DAYS[3] / "a.parquet").write_bytes(b"PAR1 truncated")
    for number in range(1, 5):
        trigger(dag, number)
    expected = ["success", "failed", "running", "failed"]
    wait_for(lambda: by_day(dag) == expected, "the broken days")
    wait_for(lambda: waits(dag, 3), "the day behind to wait")
    said = dates.reliability("status")
    assert "txid 2" in said
    assert f"resume-runs {dag.dag_id}" in said

    shown = json.loads(dates.reliability("resume-runs", dag.dag_id, "--json", code=3))
    assert [(one["run_id"], one["txids"]) for one in shown["runs"]] == [
        ("day_2", [2]),
        ("day_4", []),
    ]
    assert by_day(dag) == expected  # without --yes nothing is cleared

    mend(dag)
    dag.deliver(DAYS[3], "man")
    dates.reliability("resume-runs", dag.dag_id, "--yes")
    assert dag.states(4) == ["success"] * 4
    assert dag.counted() == {"man": 3, "mended": 1}
    assert set(dag.tries("day_1").values()) == {1}, "a committed day was cleared"
    assert "no run is left undone" in dates.reliability("resume-runs", dag.dag_id)


@pytest.mark.slow
def test_the_runs_that_wait_make_room_for_the_one_that_they_wait_for(dates):
    """E2, G9: with two run slots, and two runs that wait, a cleared run could never start."""
    dag = deploy(dates, "crowded", slots=2)
    for number in range(1, 5):
        trigger(dag, number)
    expected = ["success", "failed", "running", "running"]
    wait_for(lambda: by_day(dag) == expected, "the days behind to wait")
    wait_for(lambda: waits(dag, 3) and waits(dag, 4), "their tasks to wait")
    mend(dag)
    dag.clear("day_2")
    dates.reliability("resume-runs", dag.dag_id, "--yes")
    assert dag.states(4) == ["success"] * 4
    assert dag.counted() == {"man": 3, "mended": 1}

    dag.deliver(DAYS[4], "broken")
    (dag.folder / "read_as.json").unlink()
    trigger(dag, 5)
    assert dag.states(5)[-1] == "failed"
    dates.reliability("skip", dag.dag_id, "5", "--reason", "a broken file", "--yes")
    dates.reliability("resume-runs", dag.dag_id, "--yes")  # green follows the ledger
    assert dag.states(5) == ["success"] * 5
    assert {txid.split(":")[0] for txid in dag.commits()} == set("12345")
    assert len(dag.commits()) == 5, "nothing is replayed for it"
