"""Whoever waits or watches: the trigger, the watch over spark-submit, the driver's progress."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import nullcontext
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reliability.core.errors import PATIENCE_SECONDS, AttemptIncomplete, LedgerUnavailable
from reliability.core.request import TaskTry
from reliability.ledger.connection import LedgerConnection
from reliability.spark import launch, renew_lease
from reliability.spark.launch import Driver, DriverFailed, SparkSubmit
from reliability.spark.renew_lease import Progress
from reliability.spark.submission import Submission
from reliability.transaction.emit.emission import has_ended, recorded_emission
from reliability.transaction.emit.requests import Run, TaskContact
from reliability.transaction.process.attempt_messages import is_wanted
from spark_apps import global_count
from tests.support.fix_postgres import execute, rows
from tests.support.processor import processor_seconds, slowness

SECONDS = 20


@pytest.fixture
def emitted(python_pipeline):
    """The global count with three emitted txids."""
    count = python_pipeline(global_count.topology)
    assert count.emit(None) == [1, 2, 3]
    return count


@pytest.fixture
def own_poller(airflow_home, monkeypatch):
    """A poller of this test's own, quick, on a session with this test's ledger."""
    from reliability_airflow import poller

    own = poller.Poller()
    monkeypatch.setattr(poller, "poller_of", lambda *_: own)
    monkeypatch.setattr(poller, "POLL_INTERVAL_SECONDS", 0.02)
    monkeypatch.setattr(poller, "SWEEP_INTERVAL_SECONDS", 0.02)
    monkeypatch.setattr(poller, "RENEW_INTERVAL_SECONDS", 0.02)
    yield own
    deadline = time.monotonic() + SECONDS
    while own._threads and time.monotonic() < deadline:  # they end when nobody waits any more
        time.sleep(0.01)
    assert not own._threads


@pytest.fixture
def trigger(own_poller, emitted):
    """Make the trigger of a waiting commit task."""
    from reliability_airflow.triggers import TurnTrigger

    def make(txid):
        return TurnTrigger(
            topology="global_count",
            txid=txid,
            request_id=emitted.request(txid, "committed"),
            work=emitted.runner.topology.work("committed").to_json(),
        )

    return make


@pytest.fixture
def told():
    """The txids whose waiters were told, in this order."""
    return []


@pytest.fixture
def waiter(airflow_home, emitted, told):
    """Make a waiter for a look by hand."""
    from reliability_airflow.poller import Waiter

    def make(txid, step=None, topology="global_count", of=emitted):
        return Waiter(
            notify=partial(told.append, txid),
            topology=topology,
            txid=txid,
            request_id=of.request(txid, "committed"),
            work=of.runner.topology.work("committed", step),
        )

    return make


@pytest.fixture
def poll(own_poller, connection):
    """Look once for these waiters."""
    return lambda *waiters: own_poller.poll(lambda: connection, list(waiters))


async def first_event(trigger):
    return await asyncio.wait_for(trigger.run().__anext__(), SECONDS)


def fires(trigger, meanwhile):
    """Run the trigger beside something that happens meanwhile, until it fires."""

    async def both():
        waiting = asyncio.create_task(first_event(trigger))
        await asyncio.to_thread(meanwhile)
        return await waiting

    assert asyncio.run(both()).payload == {}


def test_whoever_comes_late_is_looked_at_though_nothing_changes(emitted, waiter, poll, told):
    """K1: a task that waits again may have missed what the poller saw before."""
    emitted.process(2)
    emitted.begin(1)
    emitted.begin(3)
    waiters = [waiter(2), waiter(3, "process")]
    for _ in range(3):
        poll(*waiters)
    assert told == []  # who has to wait
    poll(*waiters, waiter(2, "process"))  # what it waited for is done
    assert told == [2]


def test_a_trigger_fires_when_what_it_waits_for_will_never_come(emitted, trigger):
    emitted.process(2)
    waiting = trigger(2)
    emitted.request(1)
    fires(waiting, lambda: emitted.runner.close(1, emitted.run, "torn down"))


OVERDUE = "UPDATE reliability.attempt SET processed_at = now() - interval '1 h'"
SILENT = "UPDATE reliability.request SET renewed_at = now() - interval '5 min'"


def test_a_waiting_trigger_commits_what_is_overdue(emitted, trigger, connection):
    """K1: the run of txid 1 died after processing it; who waits for it gets it done."""
    emitted.process(2)
    emitted.process(1)
    fires(trigger(2), lambda: execute(connection, OVERDUE))
    assert rows(connection, "SELECT curr_txid FROM reliability.topology") == [(3,)]


RENEWED = "SELECT bool_and(renewed_at > now() - interval '1 min') FROM reliability.request"


def test_a_sweep_that_takes_long_lets_no_run_seem_silent(trigger, emitted, connection, monkeypatch):
    """R3: it commits what is overdue, for minutes maybe; then other runs were given up.

    Who waits shows that its run is alive.
    """
    is_swept, is_seen = threading.Event(), threading.Event()

    def long_sweep(*_):
        is_swept.set()
        is_seen.wait(SECONDS)

    monkeypatch.setattr("reliability_airflow.poller.sweep", long_sweep)
    emitted.process(2)
    emitted.begin(1)

    def look():
        assert is_swept.wait(SECONDS)
        execute(connection, SILENT)
        deadline = time.monotonic() + SECONDS
        while rows(connection, RENEWED) != [(True,)] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert rows(connection, RENEWED) == [(True,)]
        assert not is_seen.is_set()
        is_seen.set()
        emitted.runner.close(1, emitted.run, "torn down")

    fires(trigger(2), look)


AWAY = "host=127.0.0.1 port=1"


def test_whoever_waits_outlives_a_ledger_that_is_away_and_is_told_what_needs_a_task(
    waiter, own_poller, poll, told, caplog, monkeypatch
):
    from reliability_airflow.poller import Waiter, open_session

    second, third = waiter(2), waiter(3)
    for_the_ledger = Waiter(notify=partial(told.append, "it answers"))
    waiters = [second, third, for_the_ledger]
    away = LedgerConnection(AWAY)
    for _ in range(3):
        own_poller.poll(lambda: away, waiters)
        own_poller.renew(away, waiters)
        own_poller.sweep(away, waiters)
    assert told == []
    assert caplog.text.count("tasks keep waiting") == 1  # not once a waiter and look
    poll(for_the_ledger)
    assert told == ["it answers"]
    poll(waiter(2, topology="another"))  # which the ledger lost
    assert told == ["it answers", 2]
    # where the triggerer cannot even ask, nobody would be told, ever: the tasks say why
    monkeypatch.setenv("RELIABILITY_DSN", "host=db password=hunter2")
    own_poller.poll(lambda: open_session("poller"), [third])
    assert told == ["it answers", 2, 3]


def test_a_request_that_was_given_up_and_opened_again_is_read_again(
    emitted, waiter, poll, told, connection
):
    """K1: else its task is woken at each look, finds that it has to wait, and waits again."""
    emitted.process(2)
    emitted.begin(1)
    waiting = waiter(2)
    given_up = "UPDATE reliability.request SET status = 'GIVEN_UP', ended_at = now() WHERE txid = 2"
    execute(connection, given_up)
    poll(waiting)
    assert told == [2]
    assert waiter(2).request_id == waiting.request_id  # the task comes again: it is open again
    poll(waiter(2))
    assert told == [2]


def test_a_trigger_fires_when_the_txids_turn_comes_though_a_look_went_wrong(
    own_poller, trigger, emitted, monkeypatch
):
    looks = iter([RuntimeError("once")])
    look = own_poller.poll

    def sometimes(*arguments):
        for error in looks:
            raise error
        look(*arguments)

    monkeypatch.setattr(own_poller, "poll", sometimes)
    emitted.process(2)
    fires(trigger(2), lambda: emitted.transact(1))


def test_a_free_place_wakes_the_lowest_waiting_replay_alone(
    emitted, waiter, own_poller, poll, told, connection
):
    """K1: else all the others start a worker, find no room, and wait again."""
    for txid in (1, 2, 3):
        emitted.transact(txid)
    again = emitted.again()
    again.emit(None)
    execute(connection, "UPDATE reliability.topology SET max_replay_pending = 1")
    third, first, second = (waiter(txid, of=again) for txid in (3, 1, 2))
    poll(third, first, second)
    poll(third, first, second)
    assert told == [1]
    again.begin(1)  # it has come, and holds the place itself
    poll(third, first, second)
    assert told == [1]
    again.runner.close(1, again.run, "torn down")
    poll(third, second)
    assert told == [1, 2]
    own_poller._topologies["global_count"].called[2] = 0.0  # it was called long ago, and never came
    poll(third)
    assert told == [1, 2, 3]


def made_waiters(connection, notify, **many):
    """Return waiters for many topologies, or of many txids."""
    from reliability_airflow.poller import Waiter
    from tests.support.many import many_waiting

    return [
        Waiter(
            notify=partial(notify, (one.topology, one.txid)),
            topology=one.topology,
            txid=one.txid,
            request_id=one.request_id,
            work=one.work,
        )
        for one in many_waiting(connection, **many)
    ]


def test_a_triggerer_has_three_sessions_for_however_many_topologies(own_poller, connection):
    """docs/deployment/executors.md: three with each ledger for which a task waits."""
    waiters = made_waiters(connection, lambda _: None, topologies=64, txids=2)
    for waiter in waiters:
        own_poller.add(waiter)
    sessions = (
        "SELECT application_name FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name LIKE 'reliability%%'"
    )
    renewed = "SELECT count(*) FROM reliability.request WHERE renewed_at > %(since)s"
    [(since,)] = rows(connection, "SELECT clock_timestamp()")
    seen: set[str] = set()
    deadline = time.monotonic() + SECONDS
    names = ["poll", "renew", "sweep"]
    while len(seen) < len(names) or rows(connection, renewed, since=since) != [(128,)]:
        assert time.monotonic() < deadline, seen
        found = [name for (name,) in rows(connection, sessions)]
        assert len(found) == len(set(found)) <= len(names), found
        seen |= set(found)
    for waiter in waiters:
        own_poller.remove(waiter)
    assert seen == {f"reliability poller {name}" for name in names}


def test_two_thousand_waiters_are_noticed_within_two_seconds_at_a_twentieth_of_a_core(
    own_poller, connection, monkeypatch
):
    """A backfill of a year of hours; half of them one topology's, half of them another's."""
    from reliability_airflow import poller

    monkeypatch.setattr(poller, "POLL_INTERVAL_SECONDS", 0.5)
    monkeypatch.setattr(poller, "SWEEP_INTERVAL_SECONDS", 10.0)
    told: set[tuple[str, int]] = set()
    waiters = made_waiters(connection, told.add, topologies=2, txids=1000)

    def look():
        own_poller.poll(lambda: connection, waiters)

    look()
    spent = [processor_seconds(connection, look) for _ in range(30)]
    assert told == set()
    # the least: what is beside this takes the processor's caches, and so its time
    assert min(spent) < 0.05 * poller.POLL_INTERVAL_SECONDS * slowness(), spent
    # the window opens for all of them at once
    execute(connection, "UPDATE reliability.topology SET max_spout_pending = 5000")
    assert processor_seconds(connection, look) < 2 * slowness() - poller.POLL_INTERVAL_SECONDS
    assert len(told) == 2000 - 2  # but those who wait for what is being processed


@pytest.fixture
def emit(airflow_home, emitted, monkeypatch):
    """The first task of the global count; that of the run before waits for its source."""
    from reliability_airflow.tasks import EmitOperator

    before_is("deferred", monkeypatch)
    return EmitOperator(task_id="emit", topology=global_count.topology)


def before_is(state, monkeypatch):
    states = {("dag", "before", "emit", -1): {"emit": state}}
    monkeypatch.setattr("reliability_airflow.context.task_states", lambda *asked: states[asked])


def leaves(function, *arguments, **since):
    """Let a task find that it has to wait; return what it carries to its next resumption."""
    from airflow.sdk.exceptions import TaskDeferred

    with pytest.raises(TaskDeferred) as left:
        function(*arguments, **since)
    assert left.value.method_name == "resume"
    assert left.value.kwargs is not None
    return left.value


def test_a_task_leaves_its_slot_while_the_ledger_is_away(emit, monkeypatch):
    """S3: three retries, 5 s apart, outlast no restart of a server."""
    from reliability_airflow.triggers import LedgerTrigger

    monkeypatch.setenv("RELIABILITY_DSN", AWAY)
    context = {"dag_run": SimpleNamespace(run_id="scheduled")}
    left = leaves(emit.execute, context)
    assert isinstance(left.trigger, LedgerTrigger)
    again = leaves(emit.resume, context, {}, **left.kwargs)
    assert again.kwargs == left.kwargs  # since when, for the whole of the wait
    assert left.timeout == emit.wait_timeout  # the trigger does not fire while it is away
    with pytest.raises(LedgerUnavailable):
        emit.resume(context, {}, ledger="2026-01-01T00:00:00+00:00")


# --- emission ----------------------------------------------------------------------------------


def test_a_run_lets_the_run_of_the_interval_before_emit_first(emit, connection, monkeypatch):
    """E3: it emits as soon as that one has."""
    monkeypatch.setattr("reliability_airflow.tasks.EARLIER_POLL_SECONDS", 0)
    topology, before = "global_count", Run(dag_id="dag", run_id="before")
    looks: list[str] = []

    def previous():
        looks.append("running")
        if len(looks) == 3:
            who = TaskContact(run=before, task="emit", this_try=TaskTry(max_tries=0))
            with recorded_emission(connection, topology, who, None, None):
                connection.one("complete_emission", topology=topology, **before)
        return SimpleNamespace(run_id="before", state="running")

    emit._wait_for_earlier(connection, context_of(previous))
    assert len(looks) == 3
    assert has_ended(connection, topology, before)


def context_of(previous) -> Any:
    """The context of a run that can ask for the run of the interval before it."""
    return {
        "dag_run": SimpleNamespace(dag_id="dag", run_id="own"),
        "ti": SimpleNamespace(get_previous_dagrun=previous, task_id="emit"),
    }


def run_after(state):
    before = state and SimpleNamespace(run_id="before", state=state)
    return context_of(lambda: before)


def test_a_run_waits_for_an_earlier_interval_without_a_slot_and_not_for_ever(
    emit, connection, monkeypatch
):
    """E3: of 16 runs of a backfill the last waited for 15 slow emissions, and had one minute."""
    monkeypatch.setattr("reliability_airflow.tasks.EARLIER_SECONDS", 0)
    wait = partial(emit._wait_for_earlier, connection)
    left = leaves(wait, run_after("running"))
    emit._since = left.kwargs
    again = leaves(wait, run_after("running"))
    assert again.kwargs == left.kwargs  # since when, for the whole of the wait
    emit._since = {"earlier": "2026-01-01T00:00:00+00:00"}
    wait(run_after("running"))


def test_a_run_waits_for_none_that_allocates_no_txid_or_does_not_run(emit, connection, monkeypatch):
    """E3: such a run has no emission that ends: it replays, or its first task was skipped."""
    for state in (None, "queued", "failed", "success"):
        emit._wait_for_earlier(connection, run_after(state))
    for ended in ("success", "skipped", "upstream_failed"):
        before_is(ended, monkeypatch)
        emit._wait_for_earlier(connection, run_after("running"))


@pytest.fixture
def renew_password(tmp_path, monkeypatch):
    """Start with a pass file whose password has expired; return what renews it."""
    good = Path(os.environ["PGPASSFILE"]).read_text()
    renewed = tmp_path / "pgpass"
    renewed.write_text("*:*:*:*:expired\n")
    renewed.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(renewed))
    return lambda: renewed.write_text(good)


@pytest.fixture
def waiting_task(airflow_home):
    from reliability_airflow.waiting import WaitingOperator

    return WaitingOperator(task_id="any")


def ask_ledger(task):
    with task.ledger("any", "shop"):
        return "it answers"


def test_a_task_waits_for_credentials_that_are_renewed(dsn, renew_password, waiting_task):
    """S5: a rotated password was final at once, and an expired token waited for seven days."""
    from airflow.sdk.exceptions import AirflowFailException

    from reliability_airflow.triggers import LedgerTrigger

    waiting_task.execute = lambda _: ask_ledger(waiting_task)
    left = leaves(ask_ledger, waiting_task)
    assert isinstance(left.trigger, LedgerTrigger)
    assert leaves(waiting_task.resume, {}, {}, **left.kwargs).kwargs == left.kwargs
    since = datetime.now(timezone.utc) - timedelta(seconds=PATIENCE_SECONDS + 1)
    with pytest.raises(AirflowFailException, match=r"LEDGER_REFUSED_LOGIN.*what renews them"):
        waiting_task.resume({}, {}, refusal=since.isoformat())
    renew_password()
    assert waiting_task.resume({}, {}, **left.kwargs) == "it answers"


def test_a_task_waits_for_a_connection_that_airflow_does_not_tell(airflow_home, monkeypatch):
    """S5: a secrets backend that is away looks like a connection that is not there."""
    from airflow.sdk.exceptions import AirflowFailException

    from reliability_airflow.waiting import WaitingOperator

    monkeypatch.delenv("RELIABILITY_DSN", raising=False)
    named: dict[str, Any] = {"ledger_conn_id": "kept", "database_conn_ids": {"mart": "kept_mart"}}
    task: Any = WaitingOperator(task_id="any", **named)
    task.execute = lambda _: ask_ledger(task)
    left = leaves(ask_ledger, task)
    assert left.trigger.serialize()[1] == named
    assert set(left.kwargs) == {"refusal"}
    since = datetime.now(timezone.utc) - timedelta(seconds=PATIENCE_SECONDS + 1)
    with pytest.raises(AirflowFailException, match=r"DATABASE_CONNECTION_MISSING.*kept"):
        task.resume({}, {}, refusal=since.isoformat())


def test_a_login_that_is_refused_again_after_hours_of_work_is_waited_for_anew(
    dsn, renew_password, waiting_task
):
    """S5: a Spark task's session finds the next password expired."""
    waiting_task._since = {"refusal": "2026-01-01T00:00:00+00:00"}
    waiting_task._resumed_at -= timedelta(hours=1)
    assert leaves(ask_ledger, waiting_task).kwargs["refusal"] > "2026-01-02"


def test_waiting_tasks_are_woken_when_the_pollers_login_is_refused_for_long(
    own_poller, waiter, renew_password, told, dsn, monkeypatch
):
    """S5: their own hosts may have other credentials; if not, they turn red and say what to do."""
    from reliability_airflow import poller

    waiting = waiter(2)
    monkeypatch.setattr(poller, "LOGIN_INTERVAL_SECONDS", 0)
    with LedgerConnection(f"{dsn} application_name=x") as refused:
        own_poller.poll(lambda: refused, [waiting])
        assert told == []
        monkeypatch.setattr(poller, "PATIENCE_SECONDS", 0)
        own_poller.poll(lambda: refused, [waiting])
        assert told == [2]
        renew_password()
        own_poller.poll(lambda: refused, [waiting])
        assert told == [2, 2]  # by its turn


# --- housekeeping --------------------------------------------------------------------------------


def test_housekeeping_waits_for_credentials_that_are_renewed(dsn, airflow_home, renew_password):
    """S5: it was red at once, and a daily verification lost a day."""
    from reliability_airflow import housekeeping_dag, verification_dag

    tasks: Any = housekeeping_dag(alerts=[print]).task_dict | verification_dag().task_dict
    for name in ("sweep", "reconcile", "alert", "verify"):
        left = leaves(tasks[name].execute, {})
        assert set(left.kwargs) == {"refusal"}


def test_housekeeping_needs_no_path_to_sweep_and_is_red_if_it_failed(
    emitted, airflow_home, connection, monkeypatch
):
    """K1: the run of txid 1 died after processing it."""
    from reliability_airflow import housekeeping_dag

    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # of a worker started by its absolute path
    sweep_task: Any = housekeeping_dag().task_dict["sweep"]
    emitted.process(1)
    execute(connection, OVERDUE)
    sweep_task.execute({})
    assert rows(connection, "SELECT curr_txid FROM reliability.topology") == [(2,)]
    monkeypatch.setenv("RELIABILITY_DSN", AWAY)
    with pytest.raises(Exception, match="LEDGER_UNAVAILABLE"):
        sweep_task.execute({})
    ledger = SimpleNamespace(close=lambda: None, all=lambda _: [])
    monkeypatch.setattr(sweep_task, "ledger", lambda *_, **__: nullcontext(ledger))
    with pytest.raises(Exception, match="exit code 1"):
        sweep_task.execute({})


# --- an attempt that was ended -------------------------------------------------------------------


def test_spark_submit_is_ended_when_its_attempt_was(emitted, connection, tmp_path, monkeypatch):
    """A7: the attempt was fenced; whatever its spark-submit still does can only cost."""
    monkeypatch.setattr(launch, "POLL_INTERVAL_SECONDS", 0.02)
    program = tmp_path / "spark-submit"
    program.write_text("#!/bin/sh\necho up\nexec sleep 600\n")
    program.chmod(0o755)
    grant = emitted.begin(1)
    submission = Submission(module="m", grant=grant, step="process")
    driver = Driver(SparkSubmit(program=str(program)), submission)

    def fence(line):
        if line == "up":
            emitted.runner.end_attempt(grant, AttemptIncomplete("by somebody else"), fence=True)

    own = LedgerConnection(connection.dsn)
    with own, pytest.raises(DriverFailed, match="its attempt was ended"):
        driver.run(partial(is_wanted, own, grant), fence)
    assert is_wanted(LedgerConnection(AWAY), grant)  # nobody can say


def test_progress_renews_the_lease_and_jobs_are_cancelled_when_their_attempt_was_ended(
    emitted, connection, spark, monkeypatch
):
    """A7: a long shuffle acks nothing, but its tasks do finish."""
    monkeypatch.setattr(renew_lease, "POLL_INTERVAL_SECONDS", 0.05)
    grant = emitted.begin(1)
    execute(connection, "UPDATE reliability.attempt SET lease_until = now() + interval '30 s'")
    renewed = "SELECT lease_until > now() + interval '1 min' FROM reliability.attempt"
    deadline = time.monotonic() + SECONDS

    def work(tasks):
        spark.range(0, 200_000 * tasks, 1, tasks).selectExpr("sum(hash(id))").collect()

    with Progress(spark, LedgerConnection(connection.dsn), grant):
        # a job may be over before a busy host has looked at it twice
        while rows(connection, renewed) == [(False,)] and time.monotonic() < deadline:
            work(30)
    assert rows(connection, renewed) == [(True,)]
    with Progress(spark, LedgerConnection(connection.dsn), grant):
        emitted.runner.end_attempt(grant, AttemptIncomplete("by somebody else"), fence=True)
        with pytest.raises(Exception, match=r"(?i)cancel"):
            work(3000)
