"""Schedules through the real scheduler: days of another zone, asset events, triggered runs.

A stand-in for spark-submit counts the words (`stand_in.py`); all else is the product.
"""

from __future__ import annotations

import pytest

from tests.end_to_end.dates import Dag, Dates, story, wait_for
from tests.end_to_end.words import ARRIVED, BROKEN

pytestmark = pytest.mark.timeout(900)

DAYS = ("2026-03-29", "2026-03-30")
#: day in Berlin, hours: that of the clock change has 23
WITH_HOURS = [(DAYS[0], 23), (DAYS[1], 24)]
INTERVALS = (
    "(interval_start AT TIME ZONE interval_zone)::date::text,"
    " extract(epoch FROM interval_end - interval_start)::int / 3600"
)


def local(dates: Dates) -> Dag:
    """A backfill of the day on which the clocks change, before the start date."""
    dag = dates.dag("words_local")
    for day in DAYS:
        dag.deliver(day, f"of {day}")
    dag.backfill("2026-03-28T23:00:00Z", "2026-03-28T23:00:00Z")
    dag.unpause()
    return dag


def by_asset(dates: Dates) -> Dag:
    dag = dates.dag("words_by_asset")
    dag.unpause()
    dag.deliver("one", "man", "dog")
    arrive(dag)
    return dag


def arrive(dag: Dag) -> None:
    """Tell Airflow that files have arrived."""
    [asset] = dag.api.get("/api/v2/assets", name_pattern=ARRIVED)["assets"]
    dag.api.post("/api/v2/assets/events", {"asset_id": asset["id"], "extra": {}})


def continuous(dates: Dates) -> Dag:
    """A batch that fails; each run after it would wait for it."""
    dag = dates.dag("words_continuous")
    dag.deliver("one", BROKEN)
    dag.unpause()
    return dag


def triggered(dates: Dates) -> Dag:
    """A DAG that triggers another one for a day, and a run by hand that names none."""
    dag, triggers = dates.dag("words_triggered"), dates.dag("triggers_words")
    dag.deliver("2026-03-29", "man", "dog")
    dag.unpause()
    triggers.unpause()
    triggers.trigger(None)
    dag.trigger("2026-03-30T12:00:00Z", dag_run_id="names_none")
    return dag


@story(local)
def test_a_backfill_over_a_change_of_the_clocks_reads_the_local_days(dates, dag):
    assert dag.states(2) == ["success"] * 2
    assert [r["run_type"] for r in dag.runs().values()] == ["backfill", "scheduled"]
    assert dag.commits() == ["1:0", "2:0"]
    assert dag.counted() == {f"of {day}": 1 for day in DAYS}
    assert sorted(dag.ledger_rows(INTERVALS, "transaction", "interval_start")) == WITH_HOURS
    said = dates.reliability("txids", dag.dag_id, "--interval", "2026-03-29")
    assert "2026-03-29 Europe/Berlin" in said
    assert "2026-03-30" not in said
    said = dates.reliability("completeness", dag.dag_id)
    assert "2 of 2 intervals are complete" in said


@story(by_asset)
def test_an_asset_event_runs_a_topology_that_emits_what_is_new(dag):
    assert dag.states(1) == ["success"]
    dag.deliver("two", "man")
    arrive(dag)
    assert dag.states(2) == ["success", "success"]
    assert {run["run_type"] for run in dag.runs().values()} == {"asset_triggered"}
    assert dag.counted() == {"dog": 1, "man": 2}


@pytest.mark.slow
@story(continuous)
def test_a_continuous_run_takes_over_what_a_failed_one_has_left(dag):
    """E2: Airflow makes one run at a time, so a cleared one would wait behind the next."""
    wait_for(lambda: dag.states_now().count("failed") >= 2, "two runs that fail")
    assert len(dag.txids()) == 1
    assert len(dag.attempts()) >= 2  # of the later run, too
    dag.read_as(broken="man")
    dag.deliver("two", "dog")
    wait_for(lambda: dag.counted() == {"dog": 1, "man": 1}, "a run that does both")
    wait_for(lambda: dag.states_now().count("success") >= 2, "a run with nothing to do")
    dag.pause()
    done = [txid for txid, _, _, status in dag.requests() if status == "SATISFIED"]
    assert done == [1, 2]
    assert dag.commits()[-1] == "2:0"


@story(triggered)
def test_a_triggered_run_reads_the_interval_that_its_conf_names(dates, dag):
    assert sorted(dag.states(2)) == ["failed", "success"]
    log = dag.log("names_none")
    assert "DATA_INTERVAL_MISSING" in log
    assert f"airflow backfill create --dag-id {dag.dag_id}" in log
    assert dag.ledger_rows(INTERVALS, "transaction", "txid") == [WITH_HOURS[0]]
    assert dag.counted() == {"dog": 1, "man": 1}
    assert "has no ticks: runs name their intervals" in dates.reliability("lag", dag.dag_id)
