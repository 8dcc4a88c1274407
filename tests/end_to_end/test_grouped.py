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
    """Run two days: a batch and a broken one, and none."""
    dag, follower = dates.dag("mart"), dates.dag("follower")
    words = of_topology(dag)
    words.deliver("2026-01-01", "man", "dog", file="a")
    words.deliver("2026-01-01", "broken", file="b")
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
    states = dag.states(2)
    assert states == ["failed", "success"], [dag.tasks(run) for run in dag.runs()]
    first, second = dag.runs()
    # what is behind the group starts when it has committed, and fails with it
    assert sorted(noted(dag, "extracted")) == ["2026-01-01", "2026-01-02"]
    assert noted(dag, "reported") == [[]]
    broken, empty = dag.tasks(first), dag.tasks(second)
    assert broken[f"{GROUP}.transaction.commit", 0] == "success"
    assert broken[f"{GROUP}.transaction.process", 1] == "failed"
    assert broken[f"{GROUP}.committed", -1] == "failed"
    assert broken["report", -1] == "upstream_failed"
    assert broken[f"{GROUP}.settle", -1] == "failed"
    assert empty[f"{GROUP}.committed", -1] == "success"  # nothing came: report runs
    assert empty["report", -1] == "success"
    assert words.counted() == {"dog": 1, "man": 1}

    # one verb clears what is undone of the group, and what is behind it
    words.read_as(broken="cat")
    left = json.loads(dates.reliability("resume-runs", GROUP, "--json", code=3))["runs"]
    assert [(one["run_id"], one["txids"]) for one in left] == [(first, [2])]
    dates.reliability("resume-runs", GROUP, "--yes")
    assert dag.states(2) == ["success"] * 2
    assert noted(dag, "reported")[-1] == [1, 2]
    assert len(noted(dag, "extracted")) == 2
    assert words.counted() == {"cat": 1, "dog": 1, "man": 1}

    # a replay of this topology says so under its name; whoever follows hears what it changed
    words.read_as(broken="ape")
    run = dag.trigger(None, conf={GROUP: {"replay": "2", "reason": "an ape"}})
    assert dag.state(run) == "success"
    assert words.counted() == {"ape": 1, "dog": 1, "man": 1}
    wait_for(lambda: len(noted(dag, "followed")) >= 3, "the follower to hear of each commit")
    told = sorted(noted(dag, "followed"), key=lambda one: one["commit_number"])
    assert [(one["txid"], one["rows"]) for one in told] == [(1, 2), (2, 1), (2, 1)]
    assert [one["attempt"] for one in told] == words.commits()
    assert [one["interval"] for one in told] == ["2026-01-01 UTC"] * 3
    *first_times, replay = [one["difference"] for one in told]
    assert first_times == [None] * 2
    assert replay["rows_added"] == replay["rows_removed"] == 1


TWO_GROUPS = """# Airflow reads this
from datetime import datetime, timedelta, timezone

from airflow.sdk import DAG

from reliability_airflow import topology_group
from reliability_airflow.releases import CronDataIntervalTimetable
from tests.end_to_end.words import TOPOLOGIES

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
DAILY, END = CronDataIntervalTimetable("0 0 * * *", timezone="UTC"), START + timedelta(hours=12)
with DAG("two_groups", schedule=DAILY, start_date=START, end_date=END, catchup=True) as two:
    topology_group(TOPOLOGIES["ahead"], conn_id="stand_in") >> topology_group(
        TOPOLOGIES["behind"], conn_id="stand_in", group_id="second"
    )
"""


def two_groups(dates: Dates) -> Dag:
    """Run a day of two topologies; the first one has no file."""
    (dates.folder / "dags" / "two_groups.py").write_text(TWO_GROUPS)
    dag = dates.dag("two_groups")
    for_second = replace(dag, folder=dag.folder.parent / "words_behind")
    for_second.deliver("2026-01-01", "man")
    dag.unpause()
    return dag


@pytest.mark.slow
@story(two_groups)
def test_of_two_topologies_in_a_dag_each_is_run_and_one_alone_is_replayed(dag):
    """G6: the group that was not named was skipped, and so was the one behind it."""
    first, second = (replace(dag, dag_id=f"words_{name}") for name in ("ahead", "behind"))
    assert dag.states() == ["success"]
    assert (first.txids(), second.counted()) == ([], {"man": 1})
    run_id = dag.trigger(None, conf={"words_behind": {"replay": "1"}})
    assert dag.state(run_id) == "success"
    assert second.attempts() == {"1:0": "REPLACED", "1:1": "COMMITTED"}
    assert dag.tasks(run_id)["words_ahead.committed", -1] == "success"
    assert first.txids() == []
