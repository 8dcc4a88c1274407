"""A topology's tasks as a group of any DAG: what is before and behind it, and what is refused."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from reliability import Count, FileSpout, MemorySpout, State, Topology
from reliability.core.errors import InvalidDefinition, RunUnsatisfied
from tests.support.without_spark import never

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
TASKS = {"emit", "transaction.process", "transaction.commit", "transaction.close", "settle"}


def topology(name: str, *, timed: bool = False) -> Topology:
    """Return a topology of one state, of its own name."""
    spout: Any = MemorySpout(schema={"word": "string"}, partitions=[["a"]], take=1)
    if timed:
        spout = FileSpout("d/{data_interval_start:%Y-%m-%d}/*.parquet")
    states = [State(name, key={"word": "text"}, values={"n": Count()})]
    return Topology(name, spout=spout, process=never, states=states, module=__name__)


def a_dag(**arguments: Any) -> Any:
    from airflow.sdk import DAG

    return DAG("mart", **{"schedule": None, "start_date": START, **arguments})


@pytest.fixture
def mart(airflow_home):
    """A DAG `extract >> aa >> bb >> report`, the second group in another one."""
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.sdk import TaskGroup

    from reliability_airflow import topology_group

    spark = {"conn_id": "k8s", "conf": {"spark.x": "y"}}
    with a_dag(default_args={"owner": "ann", "retries": 7, **spark}) as dag:
        first = topology_group(topology("aa"), pool="spark", queue="big", outlets=[_asset()])
        with TaskGroup("outer"):
            second = topology_group(
                topology("bb"),
                default_args={"retries": 1, "conn_id": "yarn"},
                spark_args={"executor_memory": "2g"},
            )
        EmptyOperator(task_id="extract") >> first >> second >> EmptyOperator(task_id="report")
    return dag


def _asset() -> Any:
    from airflow.sdk import Asset

    return Asset("month_closed")


def test_a_group_lies_between_other_tasks_by_the_task_that_knows_what_committed(mart):
    from airflow.serialization.serialized_objects import DagSerialization

    again = DagSerialization.from_dict(DagSerialization.to_dict(mart))
    assert set(again.task_ids) == set(mart.task_ids)
    mart.check_cycle()
    upstream = {name: task.upstream_task_ids for name, task in mart.task_dict.items()}
    assert set(upstream) == {
        "extract",
        "report",
        *(f"{group}.{name}" for group in ("aa", "outer.bb") for name in TASKS | {"committed"}),
    }
    assert upstream["aa.emit"] == {"extract"}
    assert upstream["outer.bb.emit"] == {"aa.committed"}
    assert upstream["report"] == {"outer.bb.committed"}
    assert upstream["aa.committed"] == {"aa.emit", "aa.transaction.commit"}
    task = mart.task_dict
    assert task["aa.committed"].trigger_rule == "all_done"  # without txids they are skipped
    assert {n for n, t in task.items() if t.trigger_rule not in ("all_success", "all_done")} == {
        f"{group}.{name}"
        for group in ("aa", "outer.bb")
        for name in ("transaction.close", "settle")
    }
    for group in ("aa", "outer.bb"):
        assert task[f"{group}.settle"].on_failure_fail_dagrun
        assert not task[f"{group}.settle"].downstream_task_ids  # its failure is the run's
        assert task[f"{group}.transaction.close"].commit_task == f"{group}.transaction.commit"


def test_a_groups_tasks_have_the_arguments_of_the_dag_and_their_own(mart):
    task = mart.task_dict
    assert {t.retries for n, t in task.items() if n.startswith("aa.")} == {7}
    assert {t.retries for n, t in task.items() if n.startswith("outer.")} == {1}
    assert {t.retry_delay for n, t in task.items() if "." in n} == {timedelta(seconds=5)}
    assert {t.owner for t in task.values()} == {"ann"}
    assert {n for n, t in task.items() if t.pool == "spark"} == {"aa.transaction.process"}
    assert {n for n, t in task.items() if t.queue == "big"} == {
        "aa.transaction.process",
        "aa.transaction.commit",
    }
    first, second = (task[f"{group}.transaction.process"] for group in ("aa", "outer.bb"))
    assert (first.conn_id, first.conf) == ("spark_default", {})
    assert (second.conn_id, second.conf) == ("yarn", {"spark.executor.memory": "2g"})


def test_outlets_are_updated_through_an_alias(mart):
    """An outlet is updated whenever its task succeeds, also by a dry run."""
    aliases = {n: [o.name for o in t.outlets] for n, t in mart.task_dict.items() if t.outlets}
    assert aliases == {
        "aa.settle": ["reliability/aa"],
        "aa.transaction.commit": ["reliability/aa"],
        "outer.bb.transaction.commit": ["reliability/bb"],
    }


def test_a_states_asset_has_the_same_name_wherever_it_is_made(airflow_home):
    from reliability_airflow import state_asset

    asset = state_asset(topology("aa"), "aa")
    assert (asset.name, asset.uri) == ("aa/aa", "reliability://aa/aa")
    assert state_asset("aa", "aa") == asset
    assert state_asset("Größe", "a b").name == "Gr%C3%B6%C3%9Fe/a%20b"
    with pytest.raises(ValueError, match=r"aa has no state ab; it has \['aa'\]"):
        state_asset(topology("aa"), "ab")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"max_active_runs": 1}, "max_active_runs must be at least 2"),
        ({"schedule": "cron"}, "the runs of a CronTriggerTimetable have none"),
        ({"schedule": "@continuous", "max_active_runs": 1}, "ContinuousTimetable have none"),
    ],
)
def test_a_dag_that_cannot_run_the_topology_is_refused(airflow_home, arguments, match):
    from airflow.sdk import CronDataIntervalTimetable, CronTriggerTimetable

    from reliability_airflow import topology_group

    daily = CronDataIntervalTimetable("0 0 * * *", timezone="UTC")
    if arguments.get("schedule") == "cron":  # a preset is one or the other, by configuration
        arguments = {"schedule": CronTriggerTimetable("0 0 * * *", timezone="UTC")}
    try:
        dag = a_dag(**{"schedule": daily, **arguments})
    except ValueError:  # @continuous wants one active run: Airflow has refused it itself
        assert arguments["schedule"] == "@continuous"
        return
    with dag, pytest.raises(InvalidDefinition, match=match):
        topology_group(topology("aa", timed=True))


def test_a_topology_has_one_group_in_a_dag_and_none_in_a_mapped_group(airflow_home):
    from airflow.sdk import task_group

    from reliability_airflow import topology_group

    with a_dag():
        topology_group(topology("aa"))
        with pytest.raises(InvalidDefinition, match="two groups of topology aa"):
            topology_group(topology("aa"), group_id="again")
        with pytest.raises(InvalidDefinition, match="'aa' has already been added"):
            topology_group(topology("aa"))

        @task_group
        def mapped(n: int) -> None:
            topology_group(topology("bb"))

        with pytest.raises(InvalidDefinition, match="inside a mapped task group"):
            mapped.expand(n=[1, 2])


def test_with_fail_fast_what_is_behind_the_group_waits_for_the_ledger_too(airflow_home):
    """G6: a commit that Airflow had stopped was skipped, and so was the report, in a green run."""
    from reliability_airflow import topology_dag, topology_group

    with a_dag(fail_fast=True) as dag:
        topology_group(topology("aa"))
    assert dag.task_dict["aa.committed"].trigger_rule == "all_done_setup_success"
    topology_dag(topology("bb"), schedule=None, start_date=START, fail_fast=True)


def test_arguments_of_topology_dag_reach_its_dag_and_tasks(airflow_home):
    from reliability_airflow import topology_dag

    def called(_: object) -> None:
        """Airflow calls it."""

    dag = topology_dag(
        topology("aa"),
        dag_id="other",
        schedule=None,
        start_date=START,
        pool="spark",
        queue="big",
        executor_config={"pod_override": 1},
        outlets=[_asset()],
        spark_args={"executor_memory": "2g"},
        conf={"spark.x": "1e3"},
        default_args={
            "on_failure_callback": called, "executor_memory": "1g", "env_vars": {"N": "4"},
            "do_xcom_push": False, "multiple_outputs": True,
        },
        on_success_callback=called,
        render_template_as_native_obj=True,
        dagrun_timeout=timedelta(hours=5),
    )  # fmt: skip
    assert (dag.dag_id, set(dag.task_ids)) == ("other", TASKS)
    tasks: dict[str, Any] = dag.task_dict
    process, commit = (tasks[f"transaction.{name}"] for name in ("process", "commit"))
    assert (process.pool, commit.pool) == ("spark", "default_pool")
    assert process.queue == commit.queue == "big"
    assert process.executor_config == commit.executor_config == {"pod_override": 1}
    assert process.conn_id == "spark_default"
    process.txid = 3
    process.render_template_fields({})
    assert process.conf == {"spark.executor.memory": "2g", "spark.x": "1e3"}
    assert (process.env_vars, process.txid) == ({"N": "4"}, 3)
    for name in ("emit", "settle"):  # Airflow maps tasks over what they return
        assert (tasks[name].do_xcom_push, tasks[name].multiple_outputs) == (True, False)
    assert dag.on_success_callback == called
    assert dag.dagrun_timeout == timedelta(hours=5)
    assert all(task.on_failure_callback for task in dag.tasks)
    with pytest.raises(InvalidDefinition, match="executor_mem would have no effect"):
        topology_dag(
            topology("aa"), schedule=None, start_date=START, spark_args={"executor_mem": "2g"}
        )


# --- what a run's conf says ----------------------------------------------------------------------


@pytest.fixture
def context(mart):
    """Make the context of a task of the DAG; conf is the run's."""

    def make(task_id: str, conf: object) -> dict[str, Any]:
        task = mart.get_task(task_id)
        ti = SimpleNamespace(id="try", task_id=task_id, task=task, max_tries=3, try_number=1)
        run = SimpleNamespace(
            dag_id="mart", run_id="run", start_date=None, clear_number=0, conf=conf,
            logical_date=None,
        )  # fmt: skip
        return {"ti": ti, "dag_run": run, "params": {"dry_run": True, "reason": 5}}

    return make


def test_a_group_takes_what_stands_under_its_topologys_name(context):
    """Other tasks of the DAG may have parameters of these names."""
    from reliability_airflow.context import contact_of, dry_run_notice, txids_to_replay

    conf = {"aa": {"replay": "2..3", "dry_run": True, "reason": "it was net"}, "mine": 1}
    first, second = context("aa.emit", conf), context("outer.bb.emit", conf)
    assert (txids_to_replay(first), txids_to_replay(second)) == ([2, 3], None)
    assert (contact_of(first).is_dry_run, contact_of(second).is_dry_run) == (True, False)
    assert contact_of(first).reason == "it was net"
    assert '--conf \'{"aa":' in dry_run_notice(first)


def test_a_conf_that_does_not_say_whom_it_means_is_refused(context):
    """G6: it was meant as a replay, and would emit."""
    from reliability_airflow.context import txids_to_replay

    with pytest.raises(InvalidDefinition) as refused:
        txids_to_replay(context("aa.emit", {"replay": "2"}))
    assert '{"aa": {"replay": "2"}}' in refused.value.what_to_do
    with pytest.raises(InvalidDefinition, match="aa is '2'"):
        txids_to_replay(context("aa.emit", {"aa": "2"}))


def test_a_run_that_replays_another_topology_leaves_a_group_out(context):
    """G6: were it skipped, a group behind it would be too, and the run green without its replay."""
    from reliability_airflow.context import is_left_out

    conf = {"aa": {"replay": "2"}}
    assert not is_left_out(context("aa.emit", conf))
    assert is_left_out(context("outer.bb.emit", conf))
    assert not is_left_out(context("outer.bb.emit", {"aa": {"reason": "x"}}))
    assert not is_left_out(context("outer.bb.emit", {**conf, "bb": {}}))
    left_out = context("outer.bb.emit", conf)
    assert left_out["ti"].task.execute(left_out) == []


@pytest.mark.parametrize("task_id", ["aa.settle", "aa.committed"])
def test_what_ends_a_group_follows_how_its_emission_ended(context, no_ledger, monkeypatch, task_id):
    from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

    states = ["skipped"]
    undone: list[Exception] = []

    def settle(*_: object) -> list[int]:
        for error in undone:
            raise error
        return [1, 2]  # 1 of a deleted run that had its id

    for name in ("settle", "settled"):
        monkeypatch.setattr(f"reliability.transaction.emit.requests.{name}", settle)
    monkeypatch.setattr("reliability_airflow.tasks.task_states", lambda *_: {"aa.emit": states[0]})
    given = context(task_id, {})
    task = given["ti"].task
    task.txids, task.assets = None, ()
    with pytest.raises(AirflowSkipException):
        task.execute(given)
    for state, said in (("upstream_failed", "`aa.emit` did not start"), ("failed", "not succeed")):
        states[:] = [state]
        with pytest.raises(AirflowFailException, match=said):
            task.execute(given)
    # G6: a task before it was skipped, and so would be the replay
    states[:], given["dag_run"].conf = ["skipped"], {"aa": {"replay": "2"}}
    with pytest.raises(AirflowFailException, match=r"`aa\.emit` did not start"):
        task.execute(given)
    given["dag_run"].conf = {"aa": {"dry_run": True}}
    with pytest.raises(AirflowFailException, match=r"`aa\.emit` did not start"):
        task.execute(given)
    given["dag_run"].conf = {}
    states[:], task.txids = ["success"], [2]
    assert task.execute(given) == [2]
    # what an earlier try has left undone is no skip
    states[:], task.txids = ["skipped"], None
    undone.append(RunUnsatisfied("txid 1 not done"))
    with pytest.raises(AirflowFailException, match="txid 1 not done"):
        task.execute(given)


def test_what_is_behind_a_group_is_skipped_by_a_dry_run(context, no_ledger, monkeypatch):
    from airflow.sdk.exceptions import AirflowSkipException

    monkeypatch.setattr("reliability.transaction.emit.requests.settled", lambda *_: [])
    monkeypatch.setattr("reliability_airflow.tasks.task_states", lambda *_: {"aa.emit": "success"})
    given = context("aa.committed", {"aa": {"dry_run": True}})
    given["ti"].task.txids = [1]
    with pytest.raises(AirflowSkipException, match="a dry run"):
        given["ti"].task.execute(given)
