"""Whoever waits or watches: the trigger, the watch over spark-submit, the driver's progress."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest
from psycopg2.sql import SQL

from reliability.core.errors import AttemptIncomplete
from reliability.ledger.door import Door
from reliability.spark import progress
from reliability.spark.progress import Progress
from spark_apps import global_count
from tests.fix_postgres import rows

SECONDS = 20


@pytest.fixture
def emitted(pipeline):
    """The global count with three emitted txids."""
    count = pipeline(global_count.topology)
    assert count.emit(None) == [1, 2, 3]
    return count


@pytest.fixture
def trigger(airflow_home, emitted, monkeypatch):
    """Make the trigger of a waiting commit task, on a session with this test's ledger."""
    from reliability_airflow import triggers

    monkeypatch.setattr(triggers, "looking", triggers.SharedSession())
    monkeypatch.setattr(triggers, "sweeping", triggers.SharedSession())
    monkeypatch.setattr(triggers, "LOOK_EVERY_SECONDS", 0.02)
    monkeypatch.setattr(triggers, "RENEW_EVERY_LOOKS", 2)

    def make(txid):
        return triggers.TurnTrigger(
            topology="global_count",
            txid=txid,
            request_id=emitted.request(txid, "committed"),
            work=emitted.runner.topology.work("committed").to_json(),
        )

    return make


async def first_event(trigger):
    return await asyncio.wait_for(trigger.run().__anext__(), SECONDS)


def fires(trigger, meanwhile):
    """Run the trigger beside something that happens meanwhile, and return its event."""

    async def both():
        waiting = asyncio.create_task(first_event(trigger))
        await asyncio.to_thread(meanwhile)
        return await waiting

    return asyncio.run(both())


def test_a_trigger_fires_when_the_txids_turn_comes(emitted, trigger):
    emitted.process(2)
    assert not trigger(2)._look(sweeps=False)
    event = fires(trigger(2), lambda: emitted.transact(1))
    assert event.payload == {"txid": 2}


def test_a_trigger_fires_when_what_it_waits_for_will_never_come(emitted, trigger):
    emitted.process(2)
    waiting = trigger(2)
    emitted.request(1)
    event = fires(waiting, lambda: emitted.runner.close(1, emitted.run, "torn down"))
    assert event.payload == {"txid": 2}


def test_a_waiting_trigger_commits_what_is_overdue(emitted, trigger, door):
    """K1: the run of txid 1 died after processing it; txid 2's trigger gets it done."""
    emitted.process(2)
    emitted.process(1)

    def let_time_pass():
        with door.transaction() as tx:
            tx.run(SQL("UPDATE reliability.attempt SET processed_at = now() - interval '1 h'"))

    waiting = trigger(3)
    fires(waiting, let_time_pass)
    assert rows(door, "SELECT curr_txid FROM reliability.topology") == [(3,)]


def test_a_waiting_trigger_shows_that_its_run_is_alive(emitted, trigger, door):
    waiting = trigger(2)
    with door.transaction() as tx:
        tx.run(SQL("UPDATE reliability.request SET renewed_at = now() - interval '5 min'"))
    waiting._look(sweeps=True)
    assert rows(
        door,
        "SELECT renewed_at > now() - interval '1 min' FROM reliability.request WHERE txid = 2",
    ) == [(True,)]


def test_a_trigger_outlives_a_ledger_that_is_away(trigger, monkeypatch):
    waiting = trigger(2)
    monkeypatch.setenv("RELIABILITY_DSN", "host=127.0.0.1 port=1")
    assert not waiting._look(sweeps=True)


def test_spark_submit_is_ended_when_its_attempt_was(airflow_home, emitted, monkeypatch):
    """A7: the attempt was fenced; whatever its spark-submit still does can only cost."""
    from reliability_airflow import watch

    monkeypatch.setattr(watch, "LOOK_EVERY_SECONDS", 0.02)
    grant = emitted.begin(1)
    killed = threading.Event()
    with watch.Watch(grant, emitted.request(1), killed.set):
        assert not killed.wait(0.2)
        emitted.runner.end_attempt(grant, AttemptIncomplete("by somebody else"), fence=True)
        assert killed.wait(SECONDS)


def test_jobs_are_cancelled_when_their_attempt_was_ended(emitted, door, monkeypatch):
    monkeypatch.setattr(progress, "LOOK_EVERY_SECONDS", 0.02)
    cancelled = threading.Event()

    class Context:
        """Stands for a SparkContext whose stage finishes one task after the other."""

        finished = 0

        def statusTracker(self):
            return self

        def getActiveStageIds(self):
            return [1]

        def getStageInfo(self, stage):
            self.finished += 1
            self.stageId, self.numCompletedTasks = stage, self.finished
            return self

        def cancelAllJobs(self):
            cancelled.set()

    class Session:
        sparkContext = Context()

    grant = emitted.begin(1)
    with Progress(cast(Any, Session()), Door(door.dsn), grant):
        assert not cancelled.wait(0.2)
        emitted.runner.end_attempt(grant, AttemptIncomplete("by somebody else"), fence=True)
        assert cancelled.wait(SECONDS)


def test_progress_renews_the_lease(emitted, door, spark, monkeypatch):
    """A7: a long shuffle acks nothing, but its tasks do finish."""
    monkeypatch.setattr(progress, "LOOK_EVERY_SECONDS", 0.05)
    grant = emitted.begin(1)
    with door.transaction() as tx:
        tx.run(SQL("UPDATE reliability.attempt SET lease_until = now() + interval '1 s'"))
    with Progress(spark, Door(door.dsn), grant):
        spark.range(0, 40_000_000, 1, 60).selectExpr("sum(hash(id))").collect()
    assert rows(door, "SELECT lease_until > now() + interval '1 min' FROM reliability.attempt") == [
        (True,)
    ]
