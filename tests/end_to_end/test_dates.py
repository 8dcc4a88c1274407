"""Dates through the real scheduler: which interval a run reads, and what that does to its txids.

A stand-in for spark-submit counts the words (`stand_in.py`); all else is the product. Airflow
mostly waits, so the fixture `stories` sets the runs of all quick tests off at once.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from dev.services.airflow_api import AirflowApiError
from tests.end_to_end.dates import Dag, Dates, scheduled, story, wait_for
from tests.support.fix_postgres import rows

pytestmark = pytest.mark.timeout(900)

PROCESS = ("transaction.process", 0)


# --- what the stories begin with -----------------------------------------------------------------


def held(dates: Dates) -> Dag:
    dag = dates.dag("words_held")
    dag.deliver("2026-01-01", "man", "dog", "man")
    dag.hold()
    dag.unpause()
    return dag


def placed(dates: Dates) -> Dag:
    """Two runs by hand before the schedule makes any."""
    dag = dates.dag("words_placed")
    dag.trigger("2026-01-02T00:00:00Z")
    dag.trigger(
        "2026-01-01T12:00:00Z",
        data_interval_start="2026-01-01T12:00:00Z",
        data_interval_end="2126-01-01T00:00:00Z",
    )
    dag.unpause()
    return dag


def truncated(dates: Dates) -> Dag:
    dag = dates.dag("words_twice")
    dag.deliver("2026-01-01", "man")
    dag.deliver("2026-01-02")
    (dag.folder / "2026-01-02" / "a.parquet").write_bytes(b"PAR1 truncated")
    dag.unpause()
    return dag


def monthly(dates: Dates, name: str, *files: str) -> Dag:
    """Have a DAG with a monthly schedule, whose only run is March's."""
    reshape(dates, name, "@monthly", "(3, 1)")
    return scheduled(dates, name, *files)


def reshape(dates: Dates, name: str, schedule: str, until: str) -> None:
    """Write the file of a DAG whose schedule changes."""
    dates.deploy(name, f"dag(words.{name}, (3, 1), {until}, {schedule=})")


# --- the stories ---------------------------------------------------------------------------------


@pytest.mark.slow
@story(held)
def test_two_runs_of_one_interval_at_once_do_its_work_once(dag):
    wait_for(lambda: dag.attempts() == {"1:0": "PROCESSING"}, "an attempt")
    # its logical date is no tick: it gets the last interval that was complete then
    by_hand = dag.trigger("2026-01-02T06:00:00Z")
    wait_for(lambda: dag.tasks(by_hand).get(PROCESS) == "deferred", "it to wait")
    # and Airflow leaves a run alone that works
    dag.backfill("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "completed")
    dag.let_go()
    assert dag.states(3) == ["success"] * 3  # the schedule's second day has no files
    assert len(dag.runs()) == 3
    assert dag.txids() == [(1, "2026-01-01")]
    assert dag.requests() == [
        (1, "scheduled", "COMMIT", "SATISFIED"),
        (1, "manual", "COMMIT", "SATISFIED"),
    ]
    assert dag.attempts() == {"1:0": "COMMITTED"}
    assert dag.counted() == {"dog": 1, "man": 2}


@pytest.mark.slow
@story(held)
def test_a_run_by_hand_of_an_interval_that_is_done_replays_it_and_adds_what_is_new(dag):
    dag.let_go()
    dag.states(2)
    before = len(dag.requests())
    dag.deliver("2026-01-01", "ape", file="late")
    dag.trigger("2026-01-02T07:00:00Z")
    assert set(dag.states()) == {"success"}
    assert dag.requests()[before:] == [
        (1, "manual", "REPLAY", "SATISFIED"),
        (2, "manual", "COMMIT", "SATISFIED"),
    ]
    assert dag.attempts() == {"1:0": "REPLACED", "1:1": "COMMITTED", "2:0": "COMMITTED"}
    assert dag.counted() == {"ape": 1, "dog": 1, "man": 2}


@pytest.mark.slow
@story(placed)
def test_a_run_by_hand_in_the_place_of_a_scheduled_one_is_refused(dates, dag):
    assert dag.states(3) == ["success", "failed", "failed"]
    _, too_early, in_its_place = dag.runs()
    log = dag.log(in_its_place)
    assert "LOGICAL_DATE_TAKEN" in log
    assert "reads the interval before it, 2026-01-01" in log
    assert "before it is over" in dag.log(too_early)
    assert dag.txids() == []
    # Airflow does not get past it by itself
    assert dag.api.get(f"/api/v2/dags/{dag.dag_id}")["next_dagrun_logical_date"][:10] == (
        "2026-01-02"
    )
    dag.delete(in_its_place)
    wait_for(lambda: len(dag.runs()) == 3, "the scheduled run of that day")
    assert dag.states(3) == ["success", "failed", "success"]
    assert list(dag.runs().values())[-1]["data_interval_start"][:10] == "2026-01-02"


@story(monthly, "reshaped", "2026-03-01/a man", "2026-03-29/a dog", "2026-04-01/a ape")
def test_an_interval_that_overlaps_one_of_an_older_schedule_is_refused(dates, dag):
    """The days between two schedules are read by naming their interval."""
    assert dag.states() == ["success"]
    reshape(dates, "reshaped", "@weekly", "(4, 5)")
    assert dag.states(3) == ["success", "failed", "success"]
    month, overlapping, _ = dag.runs()
    log = dag.log(overlapping)
    assert "INTERVAL_OVERLAP" in log
    assert "2026-03-29/2026-04-05 overlaps" in log
    assert f"2026-03 of run {month}" in log
    recorded = f"SELECT cron, time_zone FROM reliability.schedule WHERE topology = '{dag.dag_id}'"
    assert rows(dates.ledger, recorded) == [("0 0 * * 0", "UTC")]
    (lacking,) = lag(dates, dag)
    assert (lacking["interval"], lacking["state"]) == ("2026-03-29/2026-04-05", "failed")
    assert lacking["run_id"] == overlapping

    between = {
        "data_interval_start": "2026-04-01T00:00:00Z",
        "data_interval_end": "2026-04-05T00:00:00Z",
    }
    assert dag.state(dag.trigger("2026-04-01T00:00:00Z", **between)) == "success"
    assert dag.txids() == [(1, "2026-03-01"), (2, "2026-04-01")]
    assert dag.counted() == {"ape": 1, "man": 1}
    assert lag(dates, dag) == [], "others cover it"

    with pytest.raises(AirflowApiError, match="409"):  # a logical date has one run
        dag.trigger("2026-04-01T00:00:00Z")
    for outside in ("2025-12-24T06:00:00Z", "2026-05-04T06:00:00Z"):
        run_id = dag.trigger(outside)
        assert dag.state(run_id) == "success"
        assert dag.tasks(run_id) == {}


def lag(dates: Dates, dag: Dag) -> list[dict[str, Any]]:
    """Return the intervals that a topology lacks."""
    (told,) = json.loads(dates.reliability("lag", dag.dag_id, "--json"))
    return list(told["intervals"])


# --- slow: `make test-all` -----------------------------------------------------------------------


@pytest.mark.slow
@story(scheduled, "cleared", "2026-01-01/a man", "2026-01-01/b dog")
def test_a_run_or_one_of_its_transactions_that_is_cleared_is_replayed(dates, dag):
    assert dag.states() == ["success"]
    (run_id,) = dag.runs()
    dag.clear_tasks(run_id, ("transaction.process", 1), ("transaction.commit", 1))
    assert dag.states() == ["success"]
    assert dag.commits() == ["1:0", "2:0", "2:1"]
    dag.clear(run_id)
    assert dag.states() == ["success"]
    assert sorted(dag.commits()[3:]) == ["1:1", "2:2"]
    assert dag.counted() == {"dog": 1, "man": 1}


@pytest.mark.slow
@story(truncated)
def test_backfills_one_after_the_other(dates, dag):
    first, second = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    assert dag.states(2) == ["success", "failed"]
    dag.deliver("2026-01-02", "dog")

    dag.backfill("2025-12-31T00:00:00Z", second, "failed")  # the red one, and what is missing
    assert dag.states(3) == ["success"] * 3
    assert dag.commits() == ["1:0", "2:0"]
    with pytest.raises(AirflowApiError, match="409"):  # one at a time
        dag.backfill(first, second)
    dag.wait_for_backfills()

    for reprocess in ("failed", "none"):  # there is nothing red, and nothing missing
        dag.backfill(first, second, reprocess)
        dag.wait_for_backfills()
    assert dag.commits() == ["1:0", "2:0"]

    dag.backfill("2025-12-30T00:00:00Z", second, "completed")
    assert dag.states(4) == ["success"] * 4
    assert dag.commits()[:2] == ["1:0", "2:0"]
    assert sorted(dag.commits()[2:]) == ["1:1", "2:1"]
    assert [kind for _, _, kind, _ in dag.requests()] == ["COMMIT"] * 2 + ["REPLAY"] * 2
    assert dag.counted() == {"dog": 1, "man": 1}


@pytest.mark.slow
@story(scheduled, "told", "2026-01-01/a man")
def test_the_conf_of_a_dry_run_stays_with_its_run_until_another_one_is_given(dates, dag):
    day = "2026-01-01T00:00:00Z"
    assert dag.states(2) == ["success"] * 2
    scheduled, _ = dag.runs()
    dag.read_as(man="ape")
    # a run of its own, by hand, leaves the scheduled one as it is
    dag.trigger("2026-01-02T06:00:00Z", conf={"dry_run": True})
    assert dag.states(3) == ["success"] * 3
    assert dag.attempts() == {"1:0": "COMMITTED", "1:1": "DRY_RUN"}
    assert dag.runs()[scheduled]["conf"] == {}

    dag.backfill(day, day, "completed", dag_run_conf={"dry_run": True})
    assert dag.states() == ["success"] * 3
    dag.wait_for_backfills()
    dag.clear(scheduled)
    assert dag.states() == ["success"] * 3
    dag.backfill(day, day, "completed")
    assert dag.states() == ["success"] * 3
    dry_runs = {f"1:{attempt}": "DRY_RUN" for attempt in (1, 2, 3, 4)}
    assert dag.attempts() == {"1:0": "COMMITTED", **dry_runs}
    assert dag.counted() == {"man": 1}

    dag.wait_for_backfills()
    dag.backfill(day, day, "completed", dag_run_conf={"dry_run": False})
    assert dag.states() == ["success"] * 3
    assert dag.attempts() == {"1:0": "REPLACED", **dry_runs, "1:5": "COMMITTED"}
    assert dag.counted() == {"ape": 1}

    dag.wait_for_backfills()  # with such a conf, a scheduled run would no longer emit
    dag.backfill(day, day, "completed", dag_run_conf={"replay": "1", "reason": "it was an ape"})
    assert dag.state(scheduled) == "failed"
    assert "LOGICAL_DATE_TAKEN" in dag.log(scheduled, number=6)


@pytest.mark.slow
@story(monthly, "joined", "2026-03-01/a man", "2026-03-15/a dog", "2026-04-01/a ape")
def test_a_schedule_that_shares_a_tick_with_the_one_before_goes_on_there(dates, dag):
    assert dag.states() == ["success"]
    reshape(dates, "joined", "@daily", "(4, 1)")
    assert dag.states(2) == ["success"] * 2
    assert dag.txids() == [(1, "2026-03-01"), (2, "2026-04-01")]


@pytest.mark.slow
@story(scheduled, "cleared", "2026-01-01/a man", "2026-01-01/b dog")
def test_a_run_by_hand_of_the_future_holds_a_place_without_a_task_until_then(dates, dag):
    dag.states()  # two runs at a time
    future = [dag.trigger(f"2126-01-0{day}T06:00:00Z") for day in (1, 2, 3)]

    def running():
        return [run_id for run_id in future if dag.runs()[run_id]["state"] == "running"]

    wait_for(lambda: len(running()) == 2, "two of them to start")
    (waiting,) = set(future) - set(running())
    first, second = running()
    assert dag.tasks(first) == dag.tasks(second) == {}
    with pytest.raises(AirflowApiError, match="409"):
        dag.delete(first)
    dag.mark(first, "failed")
    wait_for(lambda: waiting in running(), "the third to start")
    for run_id in (second, waiting):
        dag.mark(run_id, "failed")
    for run_id in future:
        dag.delete(run_id)
