"""DAG integrity: what the scheduler, the UI and a backfill need of every DAG in dags/."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import pytest

from reliability import Count, MemorySpout, State, Step, Topology
from reliability.core.errors import SourceNotReady
from spark_apps import cdnow_revenue, global_count

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "dags").glob("*.py"))
TOPOLOGIES = {"cdnow_revenue": cdnow_revenue.topology, "global_count": global_count.topology}


@pytest.fixture(scope="session")
def bag(airflow_home):
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(ROOT / "dags")


def test_every_file_imports_without_errors_or_warnings(bag):
    assert bag.import_errors == {}
    assert bag.captured_warnings == {}
    assert {Path(dag.fileloc) for dag in bag.dags.values()} == set(FILES)


def test_every_dag_has_tags_owner_retries_and_docs(bag):
    for dag in bag.dags.values():
        assert "reliability" in dag.tags, dag.dag_id
        assert dag.doc_md, dag.dag_id
        for task in dag.tasks:
            assert task.owner == "reliability", task.task_id
            assert task.retries >= 1, task.task_id
            assert task.retry_delay.total_seconds() > 0, task.task_id


@pytest.mark.filterwarnings("ignore:ProvidersManager.hooks is deprecated")
def test_airflow_lists_the_installed_distribution_as_a_provider(airflow_home):
    """What `airflow providers get` shows; Airflow checks its keys on the way."""
    from airflow.configuration import conf
    from airflow.providers_manager import ProvidersManager

    from reliability_airflow.links import LINKS

    manager = ProvidersManager()
    provider = manager.providers["airflow-provider-reliability"]
    assert provider.data["name"] == "Reliability"
    assert provider.version == version("airflow-provider-reliability")
    hook = manager.hooks["reliability"]
    assert hook is not None
    assert hook.connection_id_attribute_name == "ledger_conn_id"
    assert hook.hook_name == "Reliability"
    form = manager.connection_form_widgets
    fields = {name for name in form if name.startswith("extra__reliability__")}
    assert fields == {
        f"extra__reliability__{name}" for name in ("sslmode", "sslrootcert", "target_session_attrs")
    }
    assert manager.field_behaviours["reliability"]["relabeling"]["schema"] == "Database"
    links = {name for name in manager.extra_links_class_names if "reliability" in name}
    assert links == {f"reliability_airflow.links.{type(link).__name__}" for link in LINKS}
    config = dict(manager.provider_configs)["airflow-provider-reliability"]
    options = config["reliability"]["options"]
    assert {*options} == {"ledger_conn_id", "database_conn_ids", "correction_roles"}
    assert conf.get("reliability", "ledger_conn_id") == ""


def test_every_dag_has_no_cycle_and_survives_serialization_the_same_each_time(bag, airflow_home):
    """What changes from parse to parse would make a new version of the DAG each time."""
    from airflow.dag_processing.dagbag import DagBag
    from airflow.serialization.serialized_objects import DagSerialization

    def serialized(a_bag):
        return {name: DagSerialization.to_dict(dag) for name, dag in a_bag.dags.items()}

    assert serialized(bag) == serialized(DagBag(ROOT / "dags"))
    for dag in bag.dags.values():
        dag.check_cycle()


@pytest.mark.parametrize("dag_id", TOPOLOGIES)
def test_a_topologys_dag_is_emit_transaction_settle(bag, dag_id):
    """Its commits outweigh its processing, else they starve with few slots, and all waits."""
    dag = bag.dags[dag_id]
    assert set(dag.task_ids) == {
        "emit",
        "transaction.process",
        "transaction.commit",
        "transaction.close",
        "settle",
    }
    task = dag.task_dict.__getitem__
    assert task("transaction.process").downstream_task_ids == {"transaction.commit"}
    assert task("transaction.close").is_teardown
    assert task("settle").upstream_task_ids == {"emit", "transaction.commit"}
    assert task("settle").is_teardown  # a run that is marked by hand still gets its verdict
    assert task("settle").on_failure_fail_dagrun
    assert dag.max_active_runs >= max(2, TOPOLOGIES[dag_id].max_spout_pending)
    process, commit = task("transaction.process"), task("transaction.commit")
    assert commit.priority_weight > process.priority_weight
    assert process.weight_rule == commit.weight_rule
    assert "absolute" in str(process.weight_rule).lower()


@pytest.mark.parametrize("dag_id", TOPOLOGIES)
def test_a_run_may_name_what_it_replays_and_airflow_checks_the_kinds_of_its_parameters(bag, dag_id):
    from airflow.sdk.exceptions import ParamValidationError

    params = bag.dags[dag_id].params
    texts = [*(["interval"] if TOPOLOGIES[dag_id].spout.timed else []), "replay", "reason"]
    flags = ["dry_run", "refreeze"]
    assert params.dump() == dict.fromkeys(texts, "") | dict.fromkeys(flags, False)
    for name in (*texts, *flags):
        assert params.get_param(name).description, name
        with pytest.raises(ParamValidationError):
            params.get_param(name).resolve(5)
    for name in texts:
        # the dialog makes null of a field that a person has emptied
        assert params.get_param(name).resolve(None) is None
        assert params.get_param(name).resolve("5..6") == "5..6"


stepped = Topology(
    "stepped",
    spout=MemorySpout({"word": "string"}, [["a"]], take=1),
    states=[State(name, values={"n": Count()}) for name in ("clean", "side", "rollup")],
    steps=[
        Step("cleaning", cdnow_revenue.purchases, feeds=["clean"]),
        Step("beside", cdnow_revenue.purchases, feeds=["side"]),
        Step("rolling", cdnow_revenue.purchases, feeds=["rollup"], reads=["clean"]),
    ],
    module=__name__,
)


def notify(topology, txid):
    raise RuntimeError("the chat server is down")


def test_the_dag_shows_the_processing_graph_and_side_work_hangs_outside_of_it(airflow_home):
    from reliability_airflow import topology_dag

    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    dag = topology_dag(stepped, schedule=None, start_date=start, unanchored=[notify])
    downstream = {
        name.removeprefix("transaction."): {
            after.removeprefix("transaction.") for after in task.downstream_task_ids
        }
        for name, task in dag.task_dict.items()
    }
    assert downstream["cleaning"] == {"rolling", "commit"}
    assert downstream["beside"] == {"commit"}
    assert downstream["rolling"] == {"commit"}
    assert downstream["commit"] == {"close", "settle"}
    assert downstream["settle"] == {"notify"}
    assert downstream["notify"] == set()
    assert dag.task_dict["notify"].is_teardown
    assert not dag.task_dict["notify"].on_failure_fail_dagrun


def test_unanchored_side_work_that_fails_is_skipped_and_fails_nothing(airflow_home):
    from airflow.sdk.exceptions import AirflowSkipException

    from reliability_airflow.tasks import run_unanchored

    with pytest.raises(AirflowSkipException, match="the chat server is down"):
        run_unanchored(notify, "stepped", 7)


def test_every_timed_topology_can_be_backfilled(bag):
    from airflow.sdk import CronDataIntervalTimetable

    for dag_id, topology in TOPOLOGIES.items():
        dag = bag.dags[dag_id]
        if topology.spout.timed:
            assert isinstance(dag.timetable, CronDataIntervalTimetable), dag_id


def test_the_driver_gets_none_of_airflows_secrets_and_no_spark_connect(airflow_home):
    from reliability.spark.driver_environment import driver_environment

    environment = {
        "PATH": "/bin",
        "RELIABILITY_DSN": "service=reliability",
        "AIRFLOW_CONN_WAREHOUSE": "postgres://u:secret@h/db",
        "AIRFLOW__API_AUTH__JWT_SECRET": "secret",
        "_AIRFLOW_X": "secret",
        "__AIRFLOW_Y": "secret",
        "SPARK_REMOTE": "sc://connect/;token=secret",
    }
    found = driver_environment(environment)
    assert found.keys() >= {"PATH", "RELIABILITY_DSN"}
    assert "secret" not in str(found)


def test_the_driver_finds_the_code_where_the_dag_found_it(airflow_home, tmp_path, monkeypatch):
    """A DAG bundle is on the path of Airflow's tasks alone; what is installed is found anyway."""
    from reliability.deployment.topologies import folder_of
    from reliability.spark.driver_environment import driver_environment
    from reliability.spark.imports import find_code

    (tmp_path / "shops").mkdir()
    for name in ("__init__.py", "north.py"):
        (tmp_path / "shops" / name).touch()
    monkeypatch.syspath_prepend(tmp_path)
    import_module("shops.north")
    assert folder_of("shops.north") == folder_of("shops") == str(tmp_path)
    assert folder_of("pytest") is folder_of("sys") is folder_of("nosuch") is None
    found = driver_environment({"PYTHONPATH": "/a"}, code=[str(tmp_path)])
    assert found["PYTHONPATH"] == "/a"
    assert found["RELIABILITY_CODE"] == str(tmp_path)
    monkeypatch.setenv("RELIABILITY_CODE", str(tmp_path))
    path = ["/a"]
    find_code(path)
    find_code(path)
    assert path == ["/a", str(tmp_path)]  # last: a DAG file called calendar.py is not Python's
    assert "RELIABILITY_CODE" not in driver_environment({})


def test_a_trigger_travels_as_ids_only(airflow_home):
    from reliability_airflow.triggers import TurnTrigger

    work = {"goal": "committed", "task": "t.commit", "steps": [["process", []]], "other_steps": []}
    connections = {"ledger_conn_id": "kept_ledger", "database_conn_ids": {"mart": "kept_mart"}}
    ids = {"topology": "t", "txid": 7, "request_id": 9}
    given: dict[str, Any] = {**ids, "work": work, "ask_source": False, **connections}
    path, arguments = TurnTrigger(**given).serialize()
    assert path == "reliability_airflow.triggers.TurnTrigger"
    assert arguments == given


def test_each_ledger_has_a_poller_in_a_triggerer(airflow_home):
    from reliability_airflow.poller import poller_of

    own = poller_of("kept_ledger", {"mart": "kept_mart"})
    assert poller_of("kept_ledger", {"mart": "kept_mart"}) is own
    others = [poller_of(None, None), poller_of("kept_ledger", None), poller_of("another", None)]
    assert len({id(poller) for poller in (own, *others)}) == 4
    assert poller_of(None, {}) is others[0]


def test_every_task_of_a_dag_knows_its_connections(airflow_home):
    """Triggers and drivers have them from their tasks."""
    from airflow.sdk import DAG

    from reliability_airflow import housekeeping_dag, topology_dag, topology_group, verification_dag

    named: dict[str, Any] = {"ledger_conn_id": "kept", "database_conn_ids": {"mart": "kept_mart"}}
    start = datetime(2026, 1, 1)
    dag = topology_dag(global_count.topology, schedule=None, start_date=start, **named)
    for one in (dag, housekeeping_dag(alerts=[print], **named), verification_dag(**named)):
        for task in one.tasks:
            conn_ids = cast(Any, task).conn_ids
            assert conn_ids.for_database("") == "kept", task.task_id
            assert conn_ids.for_database("mart") == "kept_mart", task.task_id
    with DAG("own", schedule=None) as own:
        topology_group(global_count.topology, **named)
    assert {cast(Any, task).conn_ids.ledger for task in own.tasks} == {"kept"}


def test_each_ledger_of_an_airflow_has_a_housekeeping_of_its_own(airflow_home):
    """Both had the same id, and Airflow keeps one DAG of an id."""
    from reliability_airflow import housekeeping_dag, verification_dag

    made = [
        make(dag_id=f"{ledger}_{make.__name__}", ledger_conn_id=ledger)
        for make in (housekeeping_dag, verification_dag)
        for ledger in ("north", "south")
    ]
    assert len({dag.dag_id for dag in made}) == 4


def test_a_wait_is_timed_as_a_whole(airflow_home):
    """E2: each look ends a deferral of Airflow's, and its timeout with it."""
    from reliability_airflow.waiting import WaitingOperator

    error = SourceNotReady("emit: not ready")
    task = WaitingOperator(task_id="emit", wait_timeout=timedelta(seconds=60))
    carried = task.carried("source", error)
    task._since = carried
    assert task.carried("source", error) == carried
    long_ago = (datetime.now(timezone.utc) - timedelta(seconds=61)).isoformat()
    task._since = {"source": long_ago}
    with pytest.raises(SourceNotReady):
        task.carried("source", error)
