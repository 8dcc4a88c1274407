"""What a task tells the ledger of itself: who it is, which try, and what its run wants."""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from reliability import Count, MemorySpout, State, Step, Topology
from reliability.core.errors import InvalidDefinition
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


@pytest.mark.parametrize(
    ("conf", "params", "expected"),
    [
        (None, {}, False),
        ({}, {"dry_run": False}, False),
        ({"dry_run": True}, {"dry_run": True}, True),
        ({"dry_run": False}, {"dry_run": False}, False),
        (None, {"dry_run": True}, True),  # the DAG's own default
        ({"dry_run": False}, {"dry_run": True}, False),
    ],
)
def test_a_run_says_whether_it_is_a_dry_run(contexts, conf, params, expected):
    from reliability_airflow.context import contact_of

    assert contact_of(contexts("emit", conf=conf, params=params)).is_dry_run is expected


def test_a_dry_run_is_one_where_airflow_keeps_the_conf_out_of_the_params(contexts):
    """With core.dag_run_conf_overrides_params off it was a replay, and changed the tables."""
    from reliability_airflow.context import contact_of

    context = contexts("emit", conf={"dry_run": True}, params={"dry_run": False})
    assert contact_of(context).is_dry_run


@pytest.mark.parametrize("said", ["false", "maybe", 1, None])
def test_a_conf_that_says_neither_yes_nor_no_is_refused(contexts, said):
    from reliability_airflow.context import contact_of

    with pytest.raises(InvalidDefinition, match=r"conf of run run: dry_run is"):
        contact_of(contexts("emit", conf={"dry_run": said}))
