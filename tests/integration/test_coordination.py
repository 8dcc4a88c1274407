"""The coordinator on the ledger: opaque cascades, throttle, readiness, pause (rules E4, A8, M)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from reliability import Count, MemorySpout, State, Topology
from reliability.core.coordinator import Begin, Wait
from reliability.core.errors import AttemptIncomplete, PredecessorFailed, SourceNotReady
from reliability.core.leases import Leases
from reliability.core.waits import WaitReason, WaitsFor
from reliability.transaction.maintain.sweep import sweep
from tests.support.fix_postgres import execute, rows
from tests.support.runner import TransactionRunner

ATTEMPTS = """SELECT txid || ':' || attempt_id, status, reason_code FROM reliability.attempt
               ORDER BY txid, attempt_id"""
DIED = AttemptIncomplete("its JVM died")


def words(*, opaque=True, pending=3, spout=None, **configuration: Any) -> Topology:
    """Five words, one per txid."""
    return Topology(
        "words",
        spout=spout
        or MemorySpout({"word": "string"}, [["a", "b", "c", "d", "e"]], take=1, opaque=opaque),
        states=[State("words", key={"word": "text"}, values={"times": Count()})],
        process=lambda batch: {"words": batch},
        max_spout_pending=pending,
        **configuration,
    )


@pytest.fixture
def opaque(python_pipeline):
    """A python_pipeline with an opaque spout; five txids are emitted, none has a batch yet."""
    emitted = python_pipeline(words())
    assert emitted.emit(None) == [1, 2, 3, 4, 5]
    return emitted


def statuses(connection):
    return {attempt: status for attempt, status, _ in rows(connection, ATTEMPTS)}


# --- E4: opaque batches -----------------------------------------------------------------------


def next_of(emitted, txid):
    return emitted.runner.next_action(txid, emitted.request(txid), emitted.work())


def why(emitted, txid):
    """Return why a txid waits, which has no attempt then."""
    action = next_of(emitted, txid)
    assert isinstance(action, Wait)
    assert emitted.runner.begin(txid, emitted.request(txid), emitted.work()) is None
    return str(action.reason)


FROZEN = "SELECT batch_meta->0->>'offset' FROM reliability.transaction ORDER BY txid"


def test_a_failure_takes_the_later_attempts_of_an_opaque_spout_with_it(opaque, connection):
    """A batch waits for its predecessor to begin, and is frozen when its txid commits."""
    assert why(opaque, 2) == "behind 1: its batch starts where that one ends"
    first = opaque.begin(1)
    assert isinstance(next_of(opaque, 2), Begin)
    second, third = opaque.begin(2), opaque.begin(3)
    opaque.run_step(third)
    opaque.seal(third)
    assert opaque.runner.end_attempt(second, DIED)
    assert rows(connection, ATTEMPTS) == [
        ("1:0", "PROCESSING", None),
        ("2:0", "FAILED", "ATTEMPT_INCOMPLETE"),
        ("3:0", "FAILED", "PREDECESSOR_FAILED"),  # although it was processed
    ]
    assert isinstance(opaque.runner.error_of(third), PredecessorFailed)
    opaque.run_step(first)
    opaque.seal(first)
    assert rows(connection, FROZEN) == [(None,)] * 5
    opaque.transact(1)
    assert rows(connection, FROZEN) == [("0",), *[(None,)] * 4]
    assert rows(connection, "SELECT item, txid FROM reliability.source_item") == [("memory:0:0", 1)]
    for txid in (2, 3, 4, 5):
        opaque.transact(txid)
    counted = [(word, 1, txid) for txid, word in enumerate("abcde", start=1)]
    assert rows(connection, "SELECT word, times, _txid FROM words ORDER BY 1") == counted
    again = opaque.again()
    again.emit(None)
    again.begin(1)  # a replay reads the frozen batch again
    own = "SELECT batch_meta FROM reliability.attempt WHERE txid = 1 AND attempt_id = 1"
    assert rows(connection, own) == [(None,)]


def test_no_way_of_ending_an_attempt_forgets_the_later_ones(opaque, connection):
    def swept(statement):
        execute(connection, statement)
        sweep(connection, "words", Leases())

    ends = {
        "lease": lambda: swept(
            "UPDATE reliability.attempt SET lease_until = now()"
            " WHERE txid = 1 AND status = 'PROCESSING'"
        ),
        "begin": lambda: opaque.begin(1),
        "request": lambda: swept(
            "UPDATE reliability.request SET renewed_at = 'epoch' WHERE txid = 1"
        ),
        "close": lambda: opaque.runner.close(1, opaque.run, "torn down"),
    }
    for name, end in ends.items():
        first, second = opaque.begin(1), opaque.begin(2)
        end()
        found = statuses(connection)
        ended = found[str(first.attempt)], found[str(second.attempt)]
        assert ended == ("FENCED", "FAILED"), name


def test_a_replay_of_the_txid_before_does_not_disturb_an_opaque_batch(opaque, connection):
    opaque.transact(1)
    second = opaque.begin(2)
    opaque.again().transact(1)  # its mapped transaction was cleared
    opaque.run_step(second)
    opaque.seal(second)
    opaque.runner.commit(2)
    assert statuses(connection) == {"1:0": "REPLACED", "1:1": "COMMITTED", "2:0": "COMMITTED"}
    # a spout that is opaque no more goes on with what is not frozen
    opaque.runner = TransactionRunner(words(opaque=False), connection)
    for txid in (3, 4, 5):
        opaque.transact(txid)
    assert rows(connection, "SELECT count(*), sum(times) FROM words") == [(5, 5)]


def test_a_seal_that_loses_its_predecessor_says_so(opaque, connection, monkeypatch):
    """Else Airflow's retries are spent on what is not this task's fault."""
    first, second = opaque.begin(1), opaque.begin(2)
    opaque.run_step(second)
    opaque.runner.end_step(second, "process")
    spout = opaque.runner.topology.spout

    def lose_the_predecessor(self, meta):
        opaque.runner.end_attempt(first, DIED)

    monkeypatch.setattr(type(spout), "verify", lose_the_predecessor)
    with pytest.raises(PredecessorFailed):
        opaque.runner.seal(second, "process")


# --- the throttle -----------------------------------------------------------------------------


def test_attempts_begin_no_faster_than_the_emit_interval(python_pipeline, connection):
    emitted = python_pipeline(words(opaque=False, emit_interval_seconds=60))
    emitted.emit(None)
    emitted.begin(1)
    assert "emit interval" in why(emitted, 2)
    passed = "UPDATE reliability.topology SET last_granted_at = now() - interval '1 min'"
    execute(connection, passed)
    assert emitted.begin(2).attempt.attempt_id == 0


# --- is_ready ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gated(MemorySpout):
    """A memory spout that is ready for the txids up to `ready[0]`."""

    ready: list[int] = field(default_factory=lambda: [0])

    def is_ready(self, txid, interval):
        return txid <= self.ready[0]


def test_a_source_that_is_not_ready_holds_back_emission_and_every_attempt(
    python_pipeline, connection
):
    spout = Gated({"word": "string"}, [["a", "b"]], take=1)
    emitted = python_pipeline(words(spout=spout))
    with pytest.raises(SourceNotReady):
        emitted.emit(None)
    assert rows(connection, "SELECT count(*) FROM reliability.transaction") == [(0,)]
    spout.ready[0] = 1
    assert emitted.emit(None) == [1, 2]
    emitted.begin(1)
    assert next_of(emitted, 2) == Wait(WaitReason(what=WaitsFor.SOURCE))
    spout.ready[0] = 0
    # a replay asks too, as in Trident: the dead try of txid 1 is not begun anew
    assert isinstance(next_of(emitted, 1), Wait)
    spout.ready[0] = 9
    assert emitted.begin(1).attempt.attempt_id == 1


# --- pause ------------------------------------------------------------------------------------


def test_a_paused_topology_drains_what_is_in_flight(python_pipeline, connection):
    """A failure of a transactional spout takes only itself."""
    emitted = python_pipeline(words(opaque=False))
    emitted.emit(None)
    first, second, third = (emitted.begin(txid) for txid in (1, 2, 3))
    emitted.runner.end_attempt(second, DIED)
    assert statuses(connection) == {"1:0": "PROCESSING", "2:0": "FAILED", "3:0": "PROCESSING"}
    emitted.runner.pause("the warehouse is being moved")
    for grant in (first, third):
        emitted.run_step(grant)
        emitted.seal(grant)
    assert [str(c.attempt) for c in emitted.runner.commit(1)] == ["1:0"]
    assert "the warehouse is being moved" in why(emitted, 2)
    emitted.runner.resume()
    emitted.transact(2)
    assert rows(connection, "SELECT curr_txid FROM reliability.topology") == [(4,)]
