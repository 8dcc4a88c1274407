"""What a task tells the ledger of itself: who it is, which try, and what its run wants."""

from __future__ import annotations

import json
import shlex
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from reliability import Count, MemorySpout, State, Step, Topology
from reliability.core.errors import InvalidDefinition
from reliability_airflow import topology_dag
from tests.support.without_spark import never

two_steps = Topology(
    "two_steps",
    spout=MemorySpout(schema={"word": "string"}, partitions=[["a"]], take=1),
    steps=[
        Step("clean", never, feeds=["cleaned"]),
        Step("roll_up", never, feeds=["days"], reads=["cleaned"]),
    ],
    states=[State(name, values={"n": Count()}) for name in ("cleaned", "days")],
)


@pytest.fixture
def contexts(airflow_home):
    """Make the context of a task; conf is the run's, params what Airflow made of it."""

    def make(task_id, *, conf=None, params=None):
        start = datetime(2026, 1, 1, tzinfo=timezone.utc)
        dag = topology_dag(two_steps, schedule=None, start_date=start)
        task = dag.get_task(task_id)
        ti = SimpleNamespace(id="try", task_id=task_id, task=task, max_tries=3, try_number=1)
        run = SimpleNamespace(
            dag_id="two_steps", run_id="run", start_date=None, clear_number=0, conf=conf
        )
        return {"ti": ti, "dag_run": run, "params": params or {}}

    return make


@pytest.fixture
def contact(contexts):
    """Return what a task tells of itself."""
    from reliability_airflow.context import contact_of

    return lambda *task, **run: contact_of(contexts(*task, **run))


@pytest.mark.parametrize(
    ("task", "later"),
    [
        ("emit", {"transaction.clean", "transaction.roll_up", "transaction.commit"}),
        ("transaction.clean", {"transaction.roll_up", "transaction.commit"}),
        ("transaction.roll_up", {"transaction.commit"}),
        ("transaction.commit", set()),
    ],
)
def test_a_task_says_which_start_after_it(contact, task, later):
    """R1: if one of them has come before it, it was cleared without them."""
    assert contact(task).later_tasks - {"transaction.close", "settle"} == later


@pytest.mark.parametrize(
    ("conf", "params", "expected"),
    [
        (None, {}, False),
        ({}, {"dry_run": False}, False),
        ({"dry_run": True}, {"dry_run": True}, True),
        ({"dry_run": False}, {"dry_run": False}, False),
        (None, {"dry_run": True}, True),  # the DAG's own default
        ({"dry_run": False}, {"dry_run": True}, False),
        # with core.dag_run_conf_overrides_params off it was a replay, and changed the tables
        ({"dry_run": True}, {"dry_run": False}, True),
    ],
)
def test_a_run_says_whether_it_is_a_dry_run(contact, conf, params, expected):
    assert contact("emit", conf=conf, params=params).is_dry_run is expected


@pytest.mark.parametrize("said", ["false", "maybe", 1, None])
def test_a_conf_that_says_neither_yes_nor_no_is_refused(contact, said):
    with pytest.raises(InvalidDefinition, match=r"conf of run run: dry_run is"):
        contact("emit", conf={"dry_run": said})


def test_a_dry_run_says_so_and_how_to_make_a_real_one(contexts):
    """Airflow keeps the conf: the next clear is green and changes nothing."""
    from reliability_airflow.context import dry_run_notice

    context = contexts("settle", conf={"dry_run": True, "refreeze": True})
    context["dag_run"].logical_date = datetime(2026, 1, 2, tzinfo=timezone.utc)
    said = dry_run_notice(context)
    assert said.startswith("THIS IS A DRY RUN: run run changes no table")
    assert (
        "airflow backfill create --dag-id two_steps --from-date 2026-01-02T00:00+00:00 "
        "--to-date 2026-01-02T00:00+00:00 --reprocess-behavior completed "
        '--dag-run-conf \'{"dry_run": false, "refreeze": true}\''
    ) in said


def test_a_dry_run_of_named_txids_tells_how_to_replay_these(contexts):
    """A backfill would read an interval, which such a run may not even have."""
    from reliability_airflow.context import dry_run_notice

    conf = {"dry_run": True, "replay": "6,5", "reason": "it's net", "refreeze": True}
    context = contexts("emit", conf=conf)
    context["dag_run"].logical_date = None
    said = dry_run_notice(context)
    assert said.startswith("THIS IS A DRY RUN: run run changes no table, and a clear of it is ")
    command = said.partition("To replay txids 5..6: ")[2]
    assert command.startswith("airflow dags trigger two_steps --conf ")
    assert json.loads(shlex.split(command)[-1]) == {
        "replay": "5..6",
        "reason": "it's net",
        "refreeze": True,
    }


@pytest.mark.parametrize(
    ("conf", "params", "expected"),
    [
        (None, {}, None),
        ({"replay": ""}, {"replay": ""}, None),
        ({"replay": None}, {"replay": None}, None),  # a field that was emptied in the dialog
        ({"replay": "5..6"}, {"replay": "5..6"}, [5, 6]),
        ({"replay": "7..9, 3"}, {"replay": ""}, [3, 7, 8, 9]),  # conf is kept out of the params
    ],
)
def test_a_run_names_the_txids_that_it_replays(contexts, conf, params, expected):
    from reliability_airflow.context import txids_to_replay

    assert txids_to_replay(contexts("emit", conf=conf, params=params)) == expected


@pytest.mark.parametrize(
    "said", ["a", " ", "5..", "6..5", "0", "1..9999999", "1..60000,70001..120000", 5, [5], True]
)
def test_what_names_no_txids_is_refused_before_anything_is_done(
    contexts, no_ledger, monkeypatch, said
):
    """A run that was meant to replay would emit its interval."""
    from airflow.sdk.exceptions import AirflowFailException

    monkeypatch.setattr("reliability.transaction.emit.emission.emit", never)
    context = contexts("emit", conf={"replay": said})
    context["dag_run"].data_interval_start = None
    with pytest.raises(AirflowFailException, match=r"INVALID_DEFINITION.* replay is .*replay must"):
        context["ti"].task.execute(context)


def test_a_run_that_replays_txids_reads_no_interval_besides(contexts):
    """It was ignored, and the run was green."""
    from reliability_airflow.context import txids_to_replay

    with pytest.raises(InvalidDefinition, match=r"interval is '2026-01'.* must be empty if replay"):
        txids_to_replay(contexts("emit", conf={"replay": "1", "interval": "2026-01"}))


def test_a_run_says_why_in_each_of_its_tasks(contact):
    """A cleared task opens a request, too."""
    for task in ("emit", "transaction.clean", "transaction.commit"):
        assert contact(task, conf={"reason": "it was net"}).reason == "it was net"
        assert contact(task, conf={"reason": None}).reason == ""
    with pytest.raises(InvalidDefinition, match="reason is 5"):
        contact("emit", conf={"reason": 5})


def test_emit_gets_the_txids_that_its_run_names(contexts, no_ledger, monkeypatch):
    emitted: dict[str, object] = {}
    monkeypatch.setattr(
        "reliability.transaction.emit.emission.emit", lambda *_, **given: emitted.update(given)
    )
    for conf, expected in (({"replay": "2,4"}, [2, 4]), ({}, None)):
        context = contexts("emit", conf=conf)
        context["dag_run"].data_interval_start = None
        context["ti"].task.execute(context)
        assert emitted["replay"] == expected


def test_settle_points_at_emit_if_that_failed(contexts, no_ledger, monkeypatch):
    """It said that its txids were not done, and sent people to a transaction that never was.

    G9: with ids that an earlier time had left in XCom, the run was green.
    """
    from airflow.sdk.exceptions import AirflowFailException

    from reliability.core.errors import RunUnsatisfied

    states = ["failed"]

    def settle(*given):
        if given[3] or states == ["success"]:
            raise RunUnsatisfied("run run of two_steps: txid 1 not done")
        return []

    monkeypatch.setattr("reliability.transaction.emit.requests.settle", settle)
    monkeypatch.setattr("reliability_airflow.tasks.task_states", lambda *_: {"emit": states[0]})
    context = contexts("settle")
    operator = context["ti"].task
    said = r"its task `emit` did not succeed\. What to do: read the log of the run's task `emit`"
    for of_an_earlier_time in (None, [1]):
        operator.txids = of_an_earlier_time
        with pytest.raises(AirflowFailException, match=said):
            operator.execute(context)
    states[:] = ["success"]
    with pytest.raises(AirflowFailException, match="txid 1 not done"):
        operator.execute(context)


def test_what_a_task_raises_names_its_topology_and_txid():
    from airflow.sdk.exceptions import AirflowFailException

    from reliability.core.errors import LedgerBusy, SourceChanged
    from reliability_airflow.context import mapped_errors

    with (
        pytest.raises(AirflowFailException, match="reliability replay shop 7 --refreeze"),
        mapped_errors(topology="shop", txid=7),
    ):
        raise SourceChanged("a file is gone")
    with pytest.raises(LedgerBusy), mapped_errors(topology="shop", txid=7):
        raise LedgerBusy
