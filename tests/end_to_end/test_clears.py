"""A clear is told from a retry, through the real scheduler: whoever asked for a replay gets one.

Airflow sets a task's max_tries to its tries so far plus the retries that its DAG has at the clear,
so that it may be what it was; and a run that is deleted and made again counts from the start.
"""

from __future__ import annotations

import json

import pytest

from tests.end_to_end.dates import ENDS, Dag, Dates, story, wait_for
from tests.support.fix_postgres import execute

pytestmark = pytest.mark.timeout(900)

PROCESS, COMMIT = ("transaction.process", 0), ("transaction.commit", 0)
DAY = {
    "logical_date": "2026-01-01T06:00:00Z",
    "data_interval_start": "2026-01-01T00:00:00Z",
    "data_interval_end": "2026-01-02T00:00:00Z",
}


def a_run(dates: Dates, name: str) -> Dag:
    """Start a first run, with one file: one that fails, that works until it is let go, or ends."""
    if name in ("lowered", "raised"):
        deploy(dates, name, retries=2)
    dag = dates.dag(f"words_{name}")
    dag.deliver("2026-01-01", "man", "dog")
    if name == "red":
        dag.break_code()
    if name == "overridden":
        dag.hold()
    dag.unpause()
    trigger(dag)
    return dag


def deploy(dates, name, retries, **more):
    """Write a DAG's file, with so many retries."""
    dates.deploy(name, f"dag_by_hand({name!r}, {retries=}, **{more})")


def redeploy(dates, dag, retries, **more):
    """Change a DAG's retries, and wait until Airflow has read that."""
    deploy(dates, dag.dag_id.removeprefix("words_"), retries, **more)
    emit = f"/api/v2/dags/{dag.dag_id}/tasks/emit"
    wait_for(lambda: dag.api.get(emit)["retries"] == retries, f"{retries} retries")


#: As if the ledger were of before the clears.
OLDER = """
UPDATE reliability.request SET renewed_at = now() - interval '1 day', tasks_ended_at = NULL;
UPDATE reliability.emission SET began_at = now() - interval '1 day', ended_at = began_at
 WHERE status <> 'EMITTING'
"""


def disagreements(dag, dates):
    """Say what reconcile finds of the DAG's runs."""
    found = json.loads(dates.reliability("reconcile", "--json", code=None))["findings"]
    return [one["what"] for one in found if one["dag_id"] == dag.dag_id]


def trigger(dag):
    dag.trigger(**DAY, dag_run_id="first")


@pytest.fixture
def housekeeping(dates):
    """A run of the housekeeping DAG by hand: say how reconcile ended, and get its log."""
    dag = dates.dag("reliability_housekeeping")

    def run(expected: str) -> str:
        run_id = dag.trigger(None)
        wait_for(lambda: dag.tasks(run_id).get(("reconcile", -1)) in ENDS, run_id)
        assert dag.tasks(run_id)["reconcile", -1] == expected
        return str(dag.log(run_id, "reconcile"))

    dag.unpause()
    yield run
    dag.pause()


@pytest.mark.slow
@story(a_run, "lowered")
def test_a_clear_with_retries_lowered_by_just_the_tries_so_far_is_a_replay(dag, dates):
    """max_tries was 2, and is 1 + 1."""
    assert dag.state("first") == "success"
    redeploy(dates, dag, retries=1)
    dag.read_as(man="ape")
    dag.clear("first")
    assert dag.states() == ["success"]
    assert dag.attempts() == {"1:0": "REPLACED", "1:1": "COMMITTED"}
    assert dag.counted() == {"ape": 1, "dog": 1}
    assert dag.noted() == ["1", "1"]
    dag.clear_tasks("first", PROCESS, COMMIT)  # and of one mapped transaction alone
    assert dag.states() == ["success"]
    assert dag.commits() == ["1:0", "1:1", "1:2"]
    assert disagreements(dag, dates) == []
    execute(dag.ledger, OLDER)
    assert disagreements(dag, dates) == ["UNKNOWN"]


@pytest.mark.slow
@story(a_run, "red")
def test_a_run_that_is_deleted_and_made_again_needs_no_further_clear(dag):
    """It does what a red one has left, and is a replay of a green one."""
    assert dag.state("first") == "failed"
    dag.delete("first")
    dag.read_as()
    trigger(dag)
    assert dag.state("first") == "success"
    assert dag.requests() == [(1, "first", "COMMIT", "CLOSED"), (1, "first", "COMMIT", "SATISFIED")]
    assert dag.counted() == {"dog": 1, "man": 1}
    dag.delete("first")
    dag.read_as(man="ape")
    trigger(dag)
    assert dag.state("first") == "success"
    assert list(dag.attempts().values())[-2:] == ["REPLACED", "COMMITTED"]
    assert dag.counted() == {"ape": 1, "dog": 1}


@pytest.mark.slow
@story(a_run, "red")
def test_a_late_file_whose_run_fails_in_every_step_leaves_the_run_red_not_running(dag):
    """R3: commit[0] never becomes ready, so that Airflow makes no commit[1], but a close[1]."""
    dag.state("first")
    dag.deliver("2026-01-01", "ape", file="late")
    dag.break_code()
    dag.clear("first")
    assert dag.state("first") == "failed"
    tasks = dag.tasks("first")
    assert tasks["transaction.close", 1] == "success"
    assert ("transaction.commit", 1) not in tasks
    dag.read_as()
    dag.clear("first")
    assert dag.state("first") == "success"
    assert dag.counted() == {"ape": 1, "dog": 1, "man": 1}


def mark_at_work(dag):
    """Mark the held run as success while it works, unless a test has done so."""
    wait_for(dag.attempts, "an attempt")
    if dag.attempts() == {"1:0": "PROCESSING"}:
        dag.mark("first", "success")


@story(a_run, "overridden")
def test_a_run_that_is_marked_success_while_it_works_is_red(dag):
    """G9: settle is a teardown, which no mark ends; it asks the ledger."""
    wait_for(lambda: dag.attempts() == {"1:0": "PROCESSING"}, "an attempt")
    dag.mark("first", "success")
    assert dag.state("first") == "failed"
    assert dag.counted() == {}
    assert dag.noted() == []


@pytest.mark.slow
@story(a_run, "overridden")
def test_a_red_run_that_is_marked_success_is_told_and_cleared(dag, dates, housekeeping):
    """G9: no task of it works any more, so that its colour does not come from the ledger."""
    mark_at_work(dag)
    assert dag.state("first") == "failed"
    dag.mark("first", "success")
    assert dag.state("first") == "success"
    told = json.loads(dates.reliability("reconcile", "--json", code=3))
    assert [one["what"] for one in told["findings"] if one["dag_id"] == dag.dag_id] == [
        "UNSATISFIED"
    ]
    assert "run first of words_overridden: txid 1" in housekeeping("failed")
    dag.let_go()
    dag.clear("first")
    assert dag.state("first") == "success"
    assert dag.counted() == {"dog": 1, "man": 1}
    assert dag.noted() == ["1"]
    housekeeping("success")


@pytest.mark.slow
@story(a_run, "raised")
def test_a_clear_with_more_retries_is_a_replay(dag, dates):
    assert dag.state("first") == "success"
    redeploy(dates, dag, retries=5)
    dag.clear("first")
    assert dag.states() == ["success"]
    assert dag.attempts() == {"1:0": "REPLACED", "1:1": "COMMITTED"}
    redeploy(dates, dag, retries=0, conf={"spark.a": "{{ 1 // 0 }}"})  # no task gets to the ledger
    dag.clear_tasks("first", PROCESS, COMMIT, ("transaction.close", 0), ("settle", -1))
    assert dag.states() == ["failed"]
    redeploy(dates, dag, retries=5)
    assert "the tasks of 1" in dates.reliability("resume-runs", dag.dag_id, "--yes", code=None)
    assert dag.states() == ["success"]
    assert dag.commits() == ["1:0", "1:1", "1:2"]


@pytest.mark.slow
@story(a_run, "raised")
def test_a_run_that_is_marked_failed_is_done_by_a_clear(dag):
    assert set(dag.states()) == {"success"}
    dag.hold()
    dag.clear("first")
    before = len(dag.attempts())
    wait_for(lambda: len(dag.attempts()) > before, "another attempt")
    dag.mark("first", "failed")
    assert dag.state("first") == "failed"  # settle says so
    dag.let_go()
    assert "COMMITTED" not in list(dag.attempts().values())[before:]
    dag.clear("first")
    assert dag.state("first") == "success"
    assert list(dag.attempts().values())[-1] == "COMMITTED"
