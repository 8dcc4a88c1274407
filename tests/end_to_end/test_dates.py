"""Dates through the real scheduler: which interval a run reads, and what that does to its txids.

A stand-in for spark-submit counts the words (`stand_in.py`); all else is the product.
"""

from __future__ import annotations

import json

import pytest

from dev.airflow_api import AirflowApiError
from dev.processes import wait_until
from tests.end_to_end.dates import PATIENCE

pytestmark = pytest.mark.timeout(180)

MONTHLY_THEN_WEEKLY = """
from datetime import datetime, timezone

from reliability_airflow import topology_dag
from tests.end_to_end import words

dag = topology_dag(
    words.reshaped,
    schedule="{schedule}",
    start_date=datetime(2026, 3, 1, tzinfo=timezone.utc),
    end_date=datetime(2026, {until}, tzinfo=timezone.utc),
    conn_id="stand_in",
)
"""


def test_two_runs_of_one_interval_at_once_do_its_work_once(dates):
    dag = dates.dag("words_by_hand")
    dag.deliver("2026-01-01", "man", "dog", "man")
    (dag.folder / "hold").touch()
    dag.unpause()
    wait_until(lambda: dag.attempts() == {"1:0": "PROCESSING"}, "an attempt", PATIENCE)
    # its logical date is no tick: the interval is the last one that was complete then
    by_hand = dag.trigger("2026-01-02T06:00:00Z")
    process = ("transaction.process", 0)
    wait_until(lambda: dag.tasks(by_hand).get(process) == "deferred", "it to wait", PATIENCE)
    # Airflow leaves a run alone that works
    dag.backfill("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "completed")
    (dag.folder / "hold").unlink()
    assert dag.states(2) == ["success", "success"]
    assert len(dag.runs()) == 2
    assert dag.txids() == [(1, "2026-01-01")]
    assert dag.requests() == [
        (1, "scheduled", "COMMIT", "SATISFIED"),
        (1, "manual", "COMMIT", "SATISFIED"),
    ]
    assert dag.attempts() == {"1:0": "COMMITTED"}
    assert dag.counted() == {"dog": 1, "man": 2}


def test_a_run_by_hand_of_an_interval_that_was_done_replays_it_and_adds_what_is_new(dates):
    dag = dates.dag("words_again")
    dag.deliver("2026-01-01", "man", "dog")
    dag.unpause()
    assert dag.states() == ["success"]
    dag.deliver("2026-01-01", "ape", file="late")
    dag.trigger("2026-01-02T06:00:00Z")
    assert dag.states(2) == ["success", "success"]
    assert dag.requests() == [
        (1, "scheduled", "COMMIT", "SATISFIED"),
        (1, "manual", "REPLAY", "SATISFIED"),
        (2, "manual", "COMMIT", "SATISFIED"),
    ]
    assert dag.attempts() == {"1:0": "REPLACED", "1:1": "COMMITTED", "2:0": "COMMITTED"}
    assert dag.counted() == {"ape": 1, "dog": 1, "man": 1}


def test_a_run_by_hand_in_the_place_of_a_scheduled_one_is_refused(dates):
    dag = dates.dag("words_placed")
    in_its_place = dag.trigger("2026-01-02T00:00:00Z")
    # the same interval, by name, but it is not over
    too_early = dag.trigger(
        "2026-01-01T12:00:00Z",
        data_interval_start="2026-01-01T12:00:00Z",
        data_interval_end="2126-01-01T00:00:00Z",
    )
    dag.unpause()
    assert dag.states(3) == ["success", "failed", "failed"]
    log = dag.log(in_its_place)
    assert "LOGICAL_DATE_TAKEN" in log
    assert "reads the interval before it, [2026-01-01T00:00, 2026-01-02T00:00)" in log
    assert "before it is over" in dag.log(too_early)
    assert dag.txids() == []
    # the schedule does not pass it by itself
    wait_until(lambda: is_stuck_at(dag, "2026-01-02"), "the scheduler to be stuck", PATIENCE)
    dag.delete(in_its_place)
    wait_until(lambda: len(dag.runs()) == 3, "the scheduled run of that day", PATIENCE)
    assert dag.states(3) == ["success", "failed", "success"]
    assert [run["data_interval_start"][:10] for run in dag.runs().values()][-1] == "2026-01-02"


def is_stuck_at(dag, day):
    logical_date = dag.api.get(f"/api/v2/dags/{dag.dag_id}")["next_dagrun_logical_date"]
    return (logical_date or "").startswith(day)


def test_a_logical_date_that_has_a_run_is_refused_by_airflow(dates):
    dag = dates.dag("words_twice")
    dag.unpause()
    assert dag.states() == ["success"]
    with pytest.raises(AirflowApiError, match="409"):
        dag.trigger("2026-01-01T00:00:00Z")


def test_beyond_the_dates_of_the_schedule_a_run_by_hand_is_green_without_a_task(dates):
    dag = dates.dag("words_twice")
    dag.unpause()
    for logical_date in ("2025-12-24T06:00:00Z", "2026-01-03T06:00:00Z"):
        run_id = dag.trigger(logical_date)
        dag.states()
        assert dag.runs()[run_id]["state"] == "success"
        assert dag.tasks(run_id) == {}


def test_an_interval_that_overlaps_one_of_an_older_schedule_is_refused(dates):
    file = dates.folder / "dags" / "reshaped.py"
    file.write_text(MONTHLY_THEN_WEEKLY.format(schedule="@monthly", until="3, 1"))
    dag = dates.dag("words_reshaped")
    dag.deliver("2026-03-01", "man")
    dag.deliver("2026-03-29", "dog")
    dag.deliver("2026-04-05", "ape")
    dag.unpause()
    assert dag.states() == ["success"]
    file.write_text(MONTHLY_THEN_WEEKLY.format(schedule="@weekly", until="4, 5"))
    assert dag.states(3) == ["success", "failed", "success"]
    month, overlapping, _ = dag.runs()
    log = dag.log(overlapping)
    assert "INTERVAL_OVERLAP" in log
    assert "[2026-03-29T00:00, 2026-04-05T00:00) overlaps" in log
    assert f"[2026-03-01T00:00, 2026-04-01T00:00) of run {month}" in log
    assert dag.txids() == [(1, "2026-03-01"), (2, "2026-04-05")]
    assert dag.counted() == {"ape": 1, "man": 1}


def test_a_backfill_before_the_start_date_while_the_schedule_runs(dates):
    dag = dates.dag("words_early")
    dag.deliver("2026-01-05", "man")
    dag.deliver("2026-01-10", "dog")
    dag.deliver("2026-01-11", "man")
    dag.backfill("2026-01-05T00:00:00Z", "2026-01-06T00:00:00Z")
    dag.unpause()
    assert dag.states(4) == ["success"] * 4
    kinds = [run["run_type"] for run in dag.runs().values()]
    assert kinds == ["backfill", "backfill", "scheduled", "scheduled"]
    # in the order of emission, whichever that was; the empty day has no txid
    assert sorted(day for _, day in dag.txids()) == ["2026-01-05", "2026-01-10", "2026-01-11"]
    assert dag.commits() == ["1:0", "2:0", "3:0"]
    assert dag.counted() == {"dog": 1, "man": 2}


def test_a_run_or_one_of_its_transactions_that_is_cleared_is_replayed(dates):
    dag = dates.dag("words_cleared")
    dag.deliver("2026-01-01", "man", file="a")
    dag.deliver("2026-01-01", "dog", file="b")
    dag.unpause()
    assert dag.states() == ["success"]
    (run_id,) = dag.runs()
    dag.clear_tasks(run_id, ("transaction.process", 1), ("transaction.commit", 1))
    assert dag.states() == ["success"]
    assert dag.commits() == ["1:0", "2:0", "2:1"]
    dag.clear(run_id)
    assert dag.states() == ["success"]
    assert sorted(dag.commits()[3:]) == ["1:1", "2:2"]
    assert dag.counted() == {"dog": 1, "man": 1}


def test_a_dry_run_is_green_tells_the_difference_and_changes_nothing(dates):
    dag = dates.dag("words_rehearsed")
    dag.deliver("2026-01-01", "man", "dog")
    dag.unpause()
    assert dag.states() == ["success"]
    (dag.folder / "read_as.json").write_text(json.dumps({"man": "ape"}))
    day = "2026-01-01T00:00:00Z"
    dag.backfill(day, day, "completed", dag_run_conf={"dry_run": True})
    assert dag.states() == ["success"]
    assert dag.attempts() == {"1:0": "COMMITTED", "1:1": "REHEARSED"}
    assert dag.counted() == {"dog": 1, "man": 1}
