"""Airflow ends no task that resumes after a wait, however slow its scheduler is.

A scheduler that processes the executor's event of a task's first stretch only when the task has
resumed takes it for the end of the task (apache/airflow#72716).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dev.services.processes import wait_until
from tests.end_to_end.dates import ENDS, PATIENCE, wait_for

pytestmark = pytest.mark.timeout(1800)

STALL_SECONDS = 8
PAGE = 100


@contextmanager
def stopped(airflow) -> Iterator[None]:
    """The scheduler's loop stands still; its workers, the triggerer and the API go on."""
    scheduler = airflow.airflow.background("scheduler").find()
    scheduler.suspend()
    try:
        yield
    finally:
        scheduler.resume()


def tasks_of(dag, run_id):
    """Return all task instances of a run."""
    path = f"/api/v2/dags/{dag.dag_id}/dagRuns/{run_id}/taskInstances"
    found: list[dict[str, Any]] = []
    while True:
        page = dag.api.get(path, limit=PAGE, offset=len(found), order_by="id")["task_instances"]
        found += page
        if len(page) < PAGE:
            return found


def states_of(dag, run_id):
    return {task["state"] for task in tasks_of(dag, run_id)}


def mismatches(dag):
    """Return the tasks that Airflow has ended because of an event it did not expect."""
    found = dag.api.get("/api/v2/eventLogs", dag_id=dag.dag_id, event="state mismatch")
    return found["event_logs"]


def pause(seconds: float) -> None:
    """Let a stall last."""
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > seconds, "a while", seconds + PATIENCE)


def test_no_task_resumes_while_the_scheduler_stands_still(dates, airflow):
    """Without a wait for the scheduler, each of these tasks is ended by its own first stretch."""
    dag = dates.dag("defer_8")
    dag.unpause()
    run_id = dag.trigger(None)
    wait_until(lambda: "deferred" in states_of(dag, run_id), "a deferred task", PATIENCE, every=0.1)
    with stopped(airflow):
        pause(STALL_SECONDS)
    assert dag.state(run_id) == "success"
    assert {task["try_number"] for task in tasks_of(dag, run_id)} == {1}
    assert mismatches(dag) == []


@pytest.mark.slow
def test_three_hundred_tasks_defer_and_resume_beside_a_scheduler_that_stalls(dates, airflow):
    dag = dates.dag("defer_300")
    dag.unpause()
    run_id = dag.trigger(None)
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
    tasks = tasks_of(dag, run_id)
    assert [(t["state"], t["try_number"]) for t in tasks] == [("success", 1)] * 300
    assert mismatches(dag) == []
