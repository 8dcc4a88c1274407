"""A topology as a task group between other tasks, and a DAG that is scheduled on its state."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.end_to_end.dates import Dag, Dates, story, wait_for

pytestmark = pytest.mark.timeout(900)

GROUP = "words_grouped"


def of_topology(dag: Dag) -> Dag:
    """Return what does to the topology's files, and sees in the ledger, what others do by DAG."""
    return replace(dag, dag_id=GROUP, folder=dag.folder.parent / GROUP)


def a_mart(dates: Dates) -> Dag:
    """Run three days: two batches, a broken one, and none."""
    dag, follower = dates.dag("mart"), dates.dag("follower")
    words = of_topology(dag)
    words.deliver("2026-01-01", "man", "dog", file="a")
    words.deliver("2026-01-01", "man", file="b")
    words.deliver("2026-01-02", "broken")
    follower.unpause()
    dag.unpause()
    return dag


def noted(dag: Dag, file: str) -> list[Any]:
    """Return what a task of `grouped_dags.py` has left."""
    path = dag.folder / file
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@story(a_mart)
def test_a_topology_is_a_group_of_a_dag_and_its_commits_start_another_one(dates, dag):
    words = of_topology(dag)
    states = dag.states(3)
    assert states == ["success", "failed", "success"], [dag.tasks(run) for run in dag.runs()]
    first, second, third = dag.runs()
    # what is behind the group starts when it has committed, and fails with it
    assert sorted(noted(dag, "extracted")) == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert sorted(noted(dag, "reported")) == [[], [1, 2]]
    tasks = {run: dag.tasks(run) for run in (first, second, third)}
    assert tasks[first]["report", -1] == "success"
    assert tasks[second][f"{GROUP}.transaction.process", 0] == "failed"
    assert tasks[second][f"{GROUP}.committed", -1] == "failed"
    assert tasks[second]["report", -1] == "upstream_failed"
    assert tasks[second][f"{GROUP}.settle", -1] == "failed"
    assert tasks[third][f"{GROUP}.committed", -1] == "success"  # nothing came: report runs
    assert words.counted() == {"dog": 1, "man": 2}

    # one verb clears what is undone of the group, and what is behind it
    words.read_as(broken="cat")
    left = json.loads(dates.reliability("resume-runs", GROUP, "--json", code=3))["runs"]
    assert [(one["run_id"], one["txids"]) for one in left] == [(second, [3])]
    dates.reliability("resume-runs", GROUP, "--yes")
    assert dag.states(3) == ["success"] * 3
    assert noted(dag, "reported")[-1] == [3]
    assert len(noted(dag, "extracted")) == 3
    assert words.counted() == {"cat": 1, "dog": 1, "man": 2}

    # a replay of this topology says so under its name; whoever follows hears what it changed
    words.read_as(broken="ape")
    run = dag.trigger(None, conf={GROUP: {"replay": "3", "reason": "an ape"}})
    assert dag.state(run) == "success"
    assert words.counted() == {"ape": 1, "dog": 1, "man": 2}
    wait_for(lambda: len(noted(dag, "followed")) >= 4, "the follower to hear of each commit")
    told = sorted(noted(dag, "followed"), key=lambda one: one["commit_number"])
    assert [(one["txid"], one["rows"]) for one in told] == [(1, 2), (2, 1), (3, 1), (3, 1)]
    assert [one["attempt"] for one in told] == words.commits()
    assert [one["difference"] for one in told[:3]] == [None] * 3
    assert [one["interval"] for one in told] == ["2026-01-01 UTC"] * 2 + ["2026-01-02 UTC"] * 2
    assert told[3]["difference"]["rows_added"] == told[3]["difference"]["rows_removed"] == 1


TWO_GROUPS = """# Airflow reads this
from datetime import datetime, timedelta, timezone

from airflow.sdk import DAG

from reliability_airflow import topology_group
from reliability_airflow.releases import CronDataIntervalTimetable
from tests.end_to_end.words import TOPOLOGIES

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
DAILY, END = CronDataIntervalTimetable("0 0 * * *", timezone="UTC"), START + timedelta(hours=12)
with DAG("two_groups", schedule=DAILY, start_date=START, end_date=END, catchup=True) as two:
    topology_group(TOPOLOGIES["joined"], conn_id="stand_in") >> topology_group(
        TOPOLOGIES["between"], conn_id="stand_in", group_id="second"
    )
"""


def two_groups(dates: Dates) -> Dag:
    """Run a day of two topologies; the first one has no file."""
    (dates.folder / "dags" / "two_groups.py").write_text(TWO_GROUPS)
    dag = dates.dag("two_groups")
    for_second = replace(dag, folder=dag.folder.parent / "words_between")
    for_second.deliver("2026-01-01", "man")
    dag.unpause()
    return dag


@pytest.mark.slow
@story(two_groups)
def test_of_two_topologies_in_a_dag_each_is_run_and_one_alone_is_replayed(dag):
    """G6: the group that was not named was skipped, and so was the one behind it."""
    first, second = (replace(dag, dag_id=f"words_{name}") for name in ("joined", "between"))
    assert dag.states() == ["success"]
    assert (first.txids(), second.counted()) == ([], {"man": 1})
    run_id = dag.trigger(None, conf={"words_between": {"replay": "1"}})
    assert dag.state(run_id) == "success"
    assert second.attempts() == {"1:0": "REPLACED", "1:1": "COMMITTED"}
    assert dag.tasks(run_id)["words_joined.committed", -1] == "success"
    assert first.txids() == []
