"""Airflow ends no task that resumes after a wait, however slow its scheduler is.

A scheduler that processes the executor's event of a task's first stretch only when the task has
resumed takes it for the end of the task (apache/airflow#72716).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dev.services.processes import wait_until
from tests.end_to_end.dates import ENDS, PATIENCE, pause, wait_for

pytestmark = pytest.mark.timeout(1800)

STALL_SECONDS = 8


@contextmanager
def stopped(airflow) -> Iterator[None]:
    """The scheduler's loop stands still; its workers, the triggerer and the API go on."""
    scheduler = airflow.airflow.background("scheduler").find()
    scheduler.suspend()
    try:
        yield
    finally:
        scheduler.resume()


def deferring(dates, dag_id):
    """Run tasks that only defer and resume."""
    dag = dates.dag(dag_id)
    dag.unpause()
    return dag, dag.trigger(None)


def mismatches(dag):
    """Return the tasks that Airflow has ended because of an event it did not expect."""
    found = dag.api.get("/api/v2/eventLogs", dag_id=dag.dag_id, event="state mismatch")
    return found["event_logs"]


def test_no_task_resumes_while_the_scheduler_stands_still(dates, airflow):
    """Without a wait for the scheduler, each of these tasks is ended by its own first stretch."""
    dag, run_id = deferring(dates, "defer_3")
    wait_until(
        lambda: "deferred" in dag.tasks(run_id).values(), "a deferred task", PATIENCE, every=0.1
    )
    with stopped(airflow):
        pause(STALL_SECONDS)
    assert dag.state(run_id) == "success"
    assert set(dag.tries(run_id).values()) == {1}
    assert mismatches(dag) == []


@pytest.mark.slow
def test_three_hundred_tasks_defer_and_resume_beside_a_scheduler_that_stalls(dates, airflow):
    dag, run_id = deferring(dates, "defer_300")
    over, drawn = threading.Event(), random.Random(20261123)

    def stall() -> None:
        while not over.wait(drawn.uniform(2, 6)):
            with stopped(airflow):
                over.wait(drawn.uniform(3, STALL_SECONDS))

    stalling = threading.Thread(target=stall)
    stalling.start()
    try:
        wait_for(lambda: dag.runs()[run_id]["state"] in ENDS, run_id, 1500)
    finally:
        over.set()
        stalling.join()
    assert list(dag.tasks(run_id).values()) == ["success"] * 300
    assert list(dag.tries(run_id).values()) == [1] * 300
    assert mismatches(dag) == []
