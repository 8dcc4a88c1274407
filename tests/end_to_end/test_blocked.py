"""When one batch is broken, nothing else turns red, and all goes on when it is mended (E2)."""

from __future__ import annotations

import json

import pytest

from tests.end_to_end.dates import ENDS, Dag, Dates, story, wait_for

pytestmark = pytest.mark.timeout(900)

DAYS = [f"2026-01-0{day}" for day in range(1, 6)]


def delivered(dates: Dates, name: str) -> Dag:
    """Have a topology whose second day is broken."""
    dag = dates.dag(f"words_{name}")
    for day in DAYS:
        dag.deliver(day, "broken" if day == DAYS[1] else "man")
    dag.unpause()
    return dag


def blocked(dates: Dates) -> Dag:
    """Run four days, the last of which is truncated."""
    dag = delivered(dates, "blocked")
    (dag.folder / DAYS[3] / "a.parquet").write_bytes(b"PAR1 truncated")
    dag.backfill(f"{DAYS[0]}T00:00:00Z", f"{DAYS[3]}T00:00:00Z", max_active_runs=4)
    return dag


@story(blocked)
def test_one_broken_day_turns_no_other_red_and_one_command_resumes_what_is_undone(dates, dag):
    """E2: one truncated file made eleven of twelve months red; a retry asks for nothing new."""
    expected = ["success", "failed", "running", "failed"]
    wait_for(lambda: dag.states_now() == expected, "the broken days")
    first, second, third, fourth = dag.runs()
    wait_for(lambda: waits(dag, third), "the day behind to wait")
    # otherwise a rollback to an interval would keep later ones and take back earlier ones (E3)
    assert [day for _, day in dag.txids()] == DAYS[:3]
    tries = [status for name, status in dag.attempts().items() if name.startswith("2:")]
    assert len(tries) == 2
    assert {*tries} <= {"FAILED", "FENCED"}
    asked = [(kind, what) for txid, kind, what, _ in dag.requests() if txid == 2]
    assert asked == [("backfill", "COMMIT")]
    said = dates.reliability("status")
    assert "txid 2" in said
    assert f"resume-runs {dag.dag_id}" in said

    shown = json.loads(dates.reliability("resume-runs", dag.dag_id, "--json", code=3))
    assert [(one["run_id"], one["txids"]) for one in shown["runs"]] == [(second, [2]), (fourth, [])]
    assert dag.states_now() == expected  # without --yes nothing is cleared

    dag.read_as(broken="mended")
    dag.deliver(DAYS[3], "man")
    dates.reliability("resume-runs", dag.dag_id, "--yes")
    assert dag.states(4) == ["success"] * 4
    assert dag.counted() == {"man": 3, "mended": 1}
    assert set(dag.tries(first).values()) == {1}, "a committed day was cleared"
    assert "no run is left undone" in dates.reliability("resume-runs", dag.dag_id)


def waits(dag: Dag, run_id: str) -> bool:
    """Say whether a task of a run waits without a worker slot."""
    return "deferred" in dag.tasks(run_id).values()


def trigger(dag: Dag, number: int) -> None:
    """Run a day by hand, and wait until its emission has ended: txids follow that order."""
    day = f"2026-01-{number + 1:02d}"
    dag.trigger(
        f"{day}T06:00:00Z",
        data_interval_start=f"{DAYS[number - 1]}T00:00:00Z",
        data_interval_end=f"{day}T00:00:00Z",
        dag_run_id=f"day_{number}",
    )
    wait_for(lambda: dag.tasks(f"day_{number}").get(("emit", -1)) in ENDS, day)


@pytest.mark.slow
@story(delivered, "crowded")
def test_the_runs_that_wait_make_room_for_the_one_that_they_wait_for(dates, dag):
    """E2, G9: with two run slots, and two runs that wait, a cleared run could never start."""
    for number in range(1, 5):
        trigger(dag, number)
    expected = ["success", "failed", "running", "running"]
    wait_for(lambda: dag.states_now() == expected, "the days behind to wait")
    wait_for(lambda: waits(dag, "day_3") and waits(dag, "day_4"), "their tasks to wait")
    dag.read_as(broken="mended")
    dag.clear("day_2")
    dates.reliability("resume-runs", dag.dag_id, "--yes")
    assert dag.states(4) == ["success"] * 4
    assert dag.counted() == {"man": 3, "mended": 1}

    dag.deliver(DAYS[4], "broken")
    dag.read_as()
    trigger(dag, 5)
    assert dag.states(5)[-1] == "failed"
    dates.reliability("skip", dag.dag_id, "5", "--reason", "a broken file", "--yes")
    dates.reliability("resume-runs", dag.dag_id, "--yes")  # green follows the ledger
    assert dag.states(5) == ["success"] * 5
    assert {txid.split(":")[0] for txid in dag.commits()} == set("12345")
    assert len(dag.commits()) == 5, "nothing is replayed for it"
