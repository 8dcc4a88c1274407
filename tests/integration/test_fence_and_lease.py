"""A1 to A8 on the real ledger, without Spark: what an attempt may do, and until when."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from functools import partial

import psycopg2
import pytest

from reliability.core.errors import AttemptFenced, AttemptIncomplete, LedgerBusy
from reliability.core.spout import SpoutKind
from reliability.ledger import locks
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.emit.requests import Run
from reliability.transaction.maintain import sweep
from reliability.transaction.process.attempt_messages import renew_lease
from tests.simulation.contents import BEST, TOTALS
from tests.simulation.world import Silent
from tests.support.fix_postgres import own_session

ANOTHER = "00000000-0000-0000-0000-000000000000"


def acks(world):
    return {(s["attempt_id"], s["sink"]): s["acked"] for s in world.look().sinks}


@pytest.fixture
def claimed(new_world):
    """A world in which a task has taken up the one step of attempt 1:0."""
    world = new_world()
    world.claim("A", 1, "process")
    return world


def test_the_same_attempt_id_with_another_nonce_is_somebody_else(claimed):
    """A1: after a restore from backup an attempt_id may be granted twice."""
    twin = replace(claimed.grant(1), nonce=ANOTHER)
    with pytest.raises(AttemptFenced):
        claimed.stage(twin, TOTALS, 0)
    with pytest.raises(AttemptFenced):
        claimed.declare(twin, TOTALS, 2)
    assert not claimed.runner.end_attempt(twin, AttemptIncomplete("late"))
    claimed.stage(claimed.grant(1), TOTALS, 0)
    assert acks(claimed) == {(0, TOTALS): [0], (0, BEST): []}


def test_a_restored_server_fences_every_live_attempt(claimed):
    """A1: its ledger may grant again what was granted before the restore."""
    claimed.sweep()
    nonce = claimed.grant(1).nonce
    claimed.execute("UPDATE reliability.server SET timeline = timeline - 1")
    claimed.sweep()
    assert claimed.statuses() == {"1:0": "FENCED"}
    claimed.claim("A", 1, "process")
    assert claimed.grant(1).nonce != nonce


def test_a_zombie_in_mid_copy_leaves_nothing(claimed):
    """A2: the fence comes last; a check at the start would let it commit what it copied since."""
    zombie = claimed.grant(1)
    with claimed.meanwhile(lambda: claimed.claim("A", 1, "process")), pytest.raises(AttemptFenced):
        claimed.stage(zombie, TOTALS, 0)
    with pytest.raises(AttemptFenced):
        claimed.runner.end_step(zombie, "process")
    assert acks(claimed) == {(n, sink): [] for n in (0, 1) for sink in (TOTALS, BEST)}
    assert claimed.look().staged == []


def test_a_stalled_copy_holds_up_nobody_who_fences_it(claimed):
    """A2: it holds no lock of the ledger; a lock at the start would hang the topology."""
    zombie = claimed.grant(1)
    fenced: list[dict[str, str]] = []

    def fence():
        claimed.claim("A", 1, "process")
        fenced.append(claimed.statuses())

    with claimed.meanwhile(fence), pytest.raises(AttemptFenced):
        claimed.stage(zombie, TOTALS, 0)
    assert fenced == [{"1:0": "FENCED", "1:1": "PROCESSING"}]


def test_a_task_that_runs_twice_counts_once_and_reports_success(claimed):
    """A2: Spark's retry of a task whose COMMIT went through finds its ack there."""
    claimed.stage(claimed.grant(1), BEST, 0)
    before = claimed.look().staged
    claimed.stage(claimed.grant(1), BEST, 0)
    assert claimed.look().staged == before
    assert acks(claimed)[0, BEST] == [0]


def test_who_holds_the_topology_lets_go_of_an_attempt_row_it_cannot_get(claimed, monkeypatch):
    """A3: and ends the session that holds it, if its attempt is to be fenced."""
    monkeypatch.setattr(locks, "HOLDERS_PATIENCE_SECONDS", 0.1)
    grant = claimed.grant(1)
    holder = own_session(claimed.connection.dsn, application_name=f"reliability {grant}")
    with holder.cursor() as cursor:
        cursor.execute("UPDATE reliability.attempt SET lease = lease")
        with pytest.raises(LedgerBusy):
            claimed.claim("A", 1, "process")
        claimed.claim("A", 1, "process")  # nobody holds the row any more
        with pytest.raises(psycopg2.Error):
            cursor.execute("SELECT 1")
    assert claimed.statuses() == {"1:0": "FENCED", "1:1": "PROCESSING"}


def test_a_row_that_falls_with_the_fenced_one_is_got_in_the_same_way(new_world, monkeypatch):
    """A3: with an opaque spout the fence reaches the later txids' attempts, and who holds them."""
    monkeypatch.setattr(locks, "HOLDERS_PATIENCE_SECONDS", 0.1)
    world = new_world(spout=SpoutKind.OPAQUE, items=(2, 2, 2), pending=3)
    for txid in (1, 2, 3):
        world.claim("A", txid, "process")
    holder = own_session(world.connection.dsn, application_name=f"reliability {world.grant(3)}")
    with holder.cursor() as cursor:
        cursor.execute("UPDATE reliability.attempt SET lease = lease WHERE txid = 3")
        with pytest.raises(LedgerBusy):
            world.claim("A", 1, "process")
        world.claim("A", 1, "process")
    assert world.statuses()["3:0"] == "FAILED"


def test_one_row_that_is_held_does_not_keep_a_sweep_from_the_others(new_world, monkeypatch):
    """A3, A4: and whoever holds it for an attempt past its lease loses its session."""
    monkeypatch.setattr(sweep, "PASSING_PATIENCE_SECONDS", 0.1)
    world = new_world(items=(2, 2), pending=2)
    for txid in (1, 2):
        world.claim("A", txid, "process")
    world.execute("UPDATE reliability.attempt SET lease_until = now() - interval '1 s'")
    holder = own_session(world.connection.dsn, application_name=f"reliability {world.grant(1)}")
    with holder.cursor() as cursor:
        cursor.execute("UPDATE reliability.attempt SET lease = lease WHERE txid = 1")
        assert [str(attempt) for attempt in world.runner.sweep().expired] == ["2:0"]
    assert [str(attempt) for attempt in world.runner.sweep().expired] == ["1:0"]


def test_what_refers_to_the_topology_does_not_wait_for_who_holds_it(claimed):
    """A3: a foreign key takes KEY SHARE on its row; FOR UPDATE would make both wait."""
    grant = claimed.grant(1)
    with LedgerConnection(claimed.connection.dsn).transaction() as tx:
        locks.lock_topology(tx, claimed.name)
        claimed.execute(
            "SET LOCAL lock_timeout = '1s';"
            "SELECT FROM reliability.topology FOR KEY SHARE"  # as a foreign key does
        )
        claimed.stage(grant, TOTALS, 0)


def test_the_session_of_an_ended_attempt_is_ended_when_its_rows_are_cleaned(claimed):
    """A4: a stalled COPY listens to no timeout and no cancel."""
    zombie = claimed.grant(1)
    stalled, done = threading.Event(), threading.Event()
    ends: list[Exception] = []

    class Stalls:
        def read(self, size=-1):
            stalled.set()
            done.wait(timeout=30)
            return b""

    def copy():
        connection = LedgerConnection(
            claimed.connection.dsn, application_name=f"reliability {zombie}"
        )
        try:
            with connection.transaction() as tx:
                tx.copy(claimed.copies[TOTALS][0], Stalls())
        except Exception as error:
            ends.append(error)

    thread = threading.Thread(target=copy)
    thread.start()
    assert stalled.wait(timeout=30)
    claimed.runner.end_attempt(zombie, AttemptIncomplete("its JVM died"))
    claimed.sweep(clean=True)
    deadline = time.monotonic() + 30
    while claimed.execute(
        "SELECT FROM pg_stat_activity WHERE application_name = %(name)s",
        name=f"reliability {zombie}",
    ):
        assert time.monotonic() < deadline, "the session is still there"
    done.set()
    thread.join(timeout=30)
    assert len(ends) == 1


def test_the_acks_must_be_exactly_the_declared_partitions(claimed):
    """A5: not fewer, not more, and no others."""
    for partitions, declared in (([0], 2), ([0, 2], 2), ([0, 1], 1)):
        grant = claimed.grant(1)
        claimed.write(grant, sinks=[BEST])
        for partition in partitions:
            claimed.stage(grant, TOTALS, partition)
        claimed.declare(grant, TOTALS, declared)
        with pytest.raises(AttemptIncomplete, match="partitions acked"):
            claimed.runner.end_step(grant, "process")
        claimed.claim("A", 1, "process")
    assert list(claimed.statuses().values()) == ["FAILED"] * 3 + ["PROCESSING"]


def test_an_empty_batch_is_not_done_before_its_driver_says_so(new_world):
    """A5: ack_val is 0 from the start, and proves nothing; n = 0 is legal."""
    world = new_world(items=(0,))
    world.claim("A", 1, "process")
    with pytest.raises(AttemptIncomplete, match="its write did not finish"):
        world.runner.end_step(world.grant(1), "process")
    world.claim("A", 1, "process")
    for sink in (TOTALS, BEST):
        world.declare(world.grant(1), sink, 0)
    world.runner.end_step(world.grant(1), "process")
    world.work("A", 1, "commit")
    assert world.statuses() == {"1:0": "FAILED", "1:1": "COMMITTED"}


def test_another_write_action_of_a_sink_is_refused(claimed):
    """A5: one write action per attempt and sink; its copies are told by its id."""
    grant = claimed.grant(1)
    claimed.stage(grant, BEST, 0, write=0)
    with pytest.raises(AttemptFenced, match="another write"):
        claimed.stage(grant, BEST, 0, write=1)
    claimed.declare(grant, BEST, 2)
    with pytest.raises(AttemptFenced):
        claimed.declare(grant, BEST, 1)


def test_nothing_acks_while_the_attempt_is_sealed(claimed):
    """A6: from SEALING on an ack finds no PROCESSING row; sealed rows never change."""
    grant = claimed.grant(1)
    claimed.write(grant)
    claimed.runner.end_step(grant, "process")
    late: list[type[Exception]] = []

    def stage_late():
        try:
            claimed.stage(grant, BEST, 1)
        except AttemptFenced as error:
            late.append(type(error))

    with claimed.meanwhile(stage_late):
        claimed.runner.seal(grant, "process")
    assert late == [AttemptFenced]
    assert claimed.statuses() == {"1:0": "PROCESSED"}
    assert acks(claimed)[0, BEST] == [0]


def test_a_lease_counts_from_the_moment_of_the_progress(claimed):
    """A7: by clock_timestamp(); now() is the start of what may have been a long COPY."""
    # until its driver has started, the lease covers the submit, and no progress shortens it
    claimed.execute("UPDATE reliability.attempt_step SET started_at = clock_timestamp()")
    seen: list[str] = []

    def look_at_the_clock():
        [row] = claimed.execute("SELECT clock_timestamp() AS now")
        seen.append(row["now"])

    with claimed.meanwhile(look_at_the_clock):
        claimed.stage(claimed.grant(1), TOTALS, 0)
    [row] = claimed.execute("SELECT lease_until - lease AS renewed_at FROM reliability.attempt")
    assert row["renewed_at"] > seen[0]


def test_a_processed_attempt_waits_for_its_turn_as_long_as_it_takes(new_world):
    """A7: the lease applies to PROCESSING and SEALING only."""
    world = new_world(items=(2, 2), pending=2)
    world.work("A", 2, "process")
    world.claim("A", 1, "process")
    world.hours_pass(Silent.SPARK)
    world.sweep()
    assert world.statuses() == {"1:0": "FENCED", "2:0": "PROCESSED"}
    with pytest.raises(AttemptFenced):
        renew_lease(world.connection, world.grant(1))


def test_what_is_sealed_or_committed_is_out_of_reach(new_world):
    """A8: nobody's message fails, fences or cleans it."""
    world = new_world(items=(2,))
    world.work("A", 1, "process")
    grant = world.grant(1)
    assert not world.runner.end_attempt(grant, AttemptIncomplete("late"))
    world.runner.seal(grant, "process")  # repeated, it is harmless
    assert world.runner.close(1, Run(dag_id=world.name, run_id="A"), "torn down")
    assert world.statuses() == {"1:0": "PROCESSED"}
    world.work("A", 1, "commit")
    before = world.look().staged
    assert not world.runner.end_attempt(grant, AttemptIncomplete("later"), fence=True)
    world.sweep(clean=True)
    assert world.statuses() == {"1:0": "COMMITTED"}
    assert world.look().staged == before


def test_attempt_ids_rise_by_one_and_are_never_used_again(claimed):
    """A1: also after a restart, and whatever became of the attempts."""
    claimed.claim("A", 1, "process")
    claimed.runner.end_attempt(claimed.grant(1), AttemptIncomplete("its JVM died"))
    claimed.sweep(clean=True)
    claimed.restart()
    claimed.claim("A", 1, "process")
    assert claimed.statuses() == {"1:0": "FENCED", "1:1": "FAILED", "1:2": "PROCESSING"}


def test_what_is_ended_while_it_is_sealed_stays_ended(new_world):
    """A6: each step looks for SEALING, and PROCESSED is a compare and set from it."""
    for is_late in (False, True):
        claimed = new_world(sealed_late=is_late)
        claimed.claim("A", 1, "process")
        grant = claimed.grant(1)
        claimed.write(grant)
        claimed.runner.end_step(grant, "process")
        end = partial(
            claimed.runner.end_attempt, grant, AttemptIncomplete("its task was stopped"), fence=True
        )
        with (
            claimed.meanwhile(end),
            pytest.raises(AttemptIncomplete, match="its task was stopped") as raised,
        ):
            claimed.runner.seal(grant, "process")
        # found by the compare and set, not by a constraint that the row would have broken
        assert isinstance(raised.value.__cause__, AttemptFenced)
        assert claimed.statuses() == {"1:0": "FENCED"}
