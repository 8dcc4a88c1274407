"""What a task tells the ledger of itself: who it is, which try, and what its run wants."""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from reliability import Count, MemorySpout, State, Step, Topology
from reliability_airflow import topology_dag


@pytest.fixture
def contexts(airflow_home):
    """Make the context of a task; conf is the run's, params what Airflow made of it."""

    def make(task_id, *, conf=None, params=None):
        dag = topology_dag(
            Topology(
                "two_steps",
                spout=MemorySpout(schema={"word": "string"}, partitions=[["a"]], take=1),
                steps=[
                    Step("clean", _never, feeds=["cleaned"]),
                    Step("roll_up", _never, feeds=["days"], reads=["cleaned"]),
                ],
                states=[State(name, values={"n": Count()}) for name in ("cleaned", "days")],
                module=__name__,
            ),
            schedule=None,
            start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
        )
        task = dag.get_task(task_id)
        ti = SimpleNamespace(id="try", task_id=task_id, task=task, max_tries=3, try_number=1)
        run = SimpleNamespace(
            dag_id="two_steps", run_id="run", start_date=None, clear_number=0, conf=conf
        )
        return {"ti": ti, "dag_run": run, "params": params or {}}

    return make


def _never(*_):
    raise AssertionError("there is no Spark here")


@pytest.mark.parametrize(
    ("task", "later"),
    [
        ("emit", {"transaction.clean", "transaction.roll_up", "transaction.commit"}),
        ("transaction.clean", {"transaction.roll_up", "transaction.commit"}),
        ("transaction.roll_up", {"transaction.commit"}),
        ("transaction.commit", set()),
    ],
)
def test_a_task_says_which_start_after_it(contexts, task, later):
    """R1: if one of them has come before it, it was cleared without them."""
    from reliability_airflow.context import contact_of

    found = contact_of(contexts(task)).later_tasks
    assert found - {"transaction.close", "settle"} == later
