"""Commit: serialised, in order, all or nothing, and a replay that replaces (rules C, H, R1, R3)."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from datetime import date
from decimal import Decimal

import pytest
from psycopg2.sql import SQL

from reliability import OpaqueState
from reliability.core.coordinator import Wait
from reliability.core.errors import (
    LedgerCorruption,
    LedgerUnavailable,
    RequestClosed,
    RunUnsatisfied,
    TxidBlocked,
    UnexpectedAnswer,
)
from reliability.core.leases import Leases
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import lock_topology
from reliability.transaction.commit.drain import drain
from reliability.transaction.correct.drop import drop_topology
from reliability.transaction.maintain import sweep as sweep_module
from reliability.transaction.maintain.sweep import sweep
from reliability.transaction.topology.read_standing import read_standing
from tests.support.doomed import doomed
from tests.support.fix_pipeline import in_both_engines, month, shop, write_parquet
from tests.support.fix_postgres import own_session, rows
from tests.support.runner import TransactionRunner
from tests.support.staged import Staged

COLUMNS = "orders, revenue, first_day, last_day"
CUSTOMERS = f"SELECT customer, {COLUMNS}, _txid, _rows FROM per_customer ORDER BY customer"
DAYS = "SELECT day, orders, revenue, _txid, _rows FROM per_day ORDER BY day"
CURR = "SELECT curr_txid, commit_number FROM reliability.topology"


def row(customer, day, price):
    return {
        "customer": customer,
        "day": date(1997, 1, day),
        "price": None if price is None else Decimal(price),
    }


FILES = {
    "a": [row(1, 1, "1.10"), row(2, 2, "2.20"), row(2, 9, "0.80")],
    "b": [row(2, 1, "4.00"), row(3, 3, None)],
    "c": [row(3, 4, "8.00"), row(None, 4, "16.00")],
}


@pytest.fixture
def emitted(tmp_path, pipeline):
    """A pipeline with three emitted txids, one for each file."""
    for name, content in FILES.items():
        write_parquet(tmp_path / "1997-01" / f"{name}.parquet", content)
    shop_pipeline = pipeline(shop(tmp_path))
    assert shop_pipeline.emit(month(1997, 1)) == [1, 2, 3]
    return shop_pipeline


def tables(connection):
    return rows(connection, CUSTOMERS), rows(connection, DAYS)


def processed_out_of_order(emitted):
    for txid in (3, 1, 2):
        emitted.process(txid)


def without(columns, found):
    return [row[:-columns] for row in found]


# --- G2, C1, C5: order ---------------------------------------------------------------------------


def test_the_window_lets_in_only_max_spout_pending(tmp_path, pipeline):
    for name, content in FILES.items():
        write_parquet(tmp_path / "1997-01" / f"{name}.parquet", content)
    narrow = pipeline(shop(tmp_path, pending=2))
    narrow.emit(month(1997, 1))
    narrow.begin(1)
    narrow.begin(2)
    assert narrow.try_begin(3) is None
    assert isinstance(narrow.runner.next_action(3, narrow.request(3), narrow.work()), Wait)


def test_nothing_commits_before_its_turn(emitted, connection):
    emitted.process(2)
    emitted.process(3)
    assert emitted.runner.commit(1) == []
    assert rows(connection, CURR) == [(1, 0)]


def test_who_holds_the_lock_commits_every_consecutive_processed_txid(emitted, connection):
    processed_out_of_order(emitted)
    assert [str(c.attempt) for c in emitted.runner.commit(1)] == ["1:0", "2:0", "3:0"]
    assert rows(connection, CURR) == [(4, 3)]
    assert rows(connection, "SELECT commit_number FROM reliability.state") == [(3,), (3,)]
    assert emitted.runner.commit(1) == []


def test_two_that_commit_at_once_commit_each_txid_once(emitted, connection):
    """C1: what the second reads under the lock, it reads after the first has committed."""
    processed_out_of_order(emitted)
    done: list[str] = []

    def commit():
        own = LedgerConnection(connection.dsn)
        done.extend(str(c.attempt) for c in drain(own, "shop"))
        own.close()

    threads = [threading.Thread(target=commit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(done) == ["1:0", "2:0", "3:0"]
    assert rows(connection, "SELECT sum(orders) FROM per_day") == [(7,)]


def test_every_snapshot_shows_both_states_at_the_same_txid(emitted, connection):
    """G3: a reader sees all states of a txid or none."""
    processed_out_of_order(emitted)
    seen: set[tuple[int, int]] = set()
    stop = threading.Event()
    # per_day counts each row of the batches, as per_customer does
    both = "SELECT (SELECT sum(orders) FROM per_customer), (SELECT sum(orders) FROM per_day)"

    def read():
        reader = own_session(connection.dsn)
        reader.autocommit = True
        cursor = reader.cursor()
        while not stop.is_set():
            cursor.execute(both)
            seen.update(cursor.fetchall())
        reader.close()

    thread = threading.Thread(target=read)
    thread.start()
    emitted.runner.commit(1)
    stop.set()
    thread.join(timeout=30)
    assert all(one == other for one, other in seen)


def test_what_is_read_under_the_lock_is_read_after_the_wait(connection):
    """C1: whoever was waited for has ended the attempt; its plan must not be from before that."""
    staged = Staged(connection, "small")
    staged.process(1, {"": [1]})
    done: list[object] = []
    with doomed() as fate:
        other = LedgerConnection(connection.dsn)
        thread = threading.Thread(target=lambda: done.append(drain(other, "small")))
        with connection.transaction() as tx:
            lock_topology(tx, "small")
            tx.run(
                SQL(
                    "UPDATE reliability.attempt SET status = 'FAILED', reason_code = 'X'"
                    " WHERE topology = 'small'"
                )
            )
            thread.start()
            wait_until_somebody_waits_for_a_lock(connection)
        thread.join(timeout=30)
        other.close()
    assert done == [[]]
    assert not [s for s in fate.statements if "reliability.advance_state" in s]


def wait_until_somebody_waits_for_a_lock(connection):
    waiting = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    watcher = LedgerConnection(connection.dsn)
    deadline = time.monotonic() + 30
    while rows(watcher, waiting) == [(0,)]:
        assert time.monotonic() < deadline
    watcher.close()


# --- C5: many small txids in one physical commit -------------------------------------------------


@pytest.fixture
def staged(connection):
    """A topology whose attempts are staged by INSERT, with one state in one database."""
    return Staged(connection, "small")


def test_a_group_is_one_transaction_and_keeps_every_txids_own(staged, connection):
    """Each txid takes its own c and keeps its own contribution; PREPARING is never durable."""
    for txid in (3, 1, 2):
        staged.process(txid, {"": [1, txid]})
    with doomed() as fate:
        done = drain(LedgerConnection(connection.dsn), "small")
    assert [(str(c.attempt), c.commit_number) for c in done] == [("1:0", 1), ("2:0", 2), ("3:0", 3)]
    assert not [s for s in fate.statements if "reliability.checkpoint SET" in s]
    advanced = [s for s in fate.statements if "reliability.advance_checkpoint" in s]
    assert [s.partition(", ")[2] for s in advanced] == ["1, 3)"]
    assert staged.seen() == {1: 4, 2: 1, 3: 1}
    assert staged.commit_numbers() == {"": (3, 3, 3, 3)}
    assert rows(connection, "SELECT txid, rows FROM reliability.contribution ORDER BY txid") == [
        (1, 2),
        (2, 2),
        (3, 2),
    ]
    staged.process(2, {"": [5]}, attempt_id=1)
    drain(connection, "small")
    assert staged.seen() == {1: 3, 3: 1, 5: 1}


def test_an_opaque_state_can_give_back_the_last_txid_of_a_group(connection):
    """C5: the last txid is applied on its own, or there would be no value from before it."""
    opaque = Staged(connection, "small", kind=OpaqueState)
    for txid in (1, 2, 3):
        opaque.process(txid, {"": [1, txid]})
    drain(connection, "small")
    opaque.process(3, {"": [9]}, attempt_id=1)
    drain(connection, "small")
    assert opaque.seen() == {1: 3, 2: 1, 9: 1}


def test_when_a_group_is_refused_only_the_guilty_txid_blocks(staged, connection):
    with connection.transaction() as tx:
        tx.run(SQL("ALTER TABLE public.small_here ADD CONSTRAINT poor CHECK (k <> 7)"))
    for txid, key in ((1, 1), (2, 2), (3, 7), (4, 4)):
        staged.process(txid, {"": [key]})
    with pytest.raises(UnexpectedAnswer, match="poor"):
        drain(connection, "small", own_txid=3)
    assert staged.statuses() == {
        "1:0": "COMMITTED",
        "2:0": "COMMITTED",
        "3:0": "FAILED",
        "4:0": "PROCESSED",
    }
    assert staged.seen() == {1: 1, 2: 1}
    staged.process(3, {"": [3]}, attempt_id=1)
    drain(connection, "small")
    assert staged.seen() == {1: 1, 2: 1, 3: 1, 4: 1}


def test_a_replay_that_the_state_cannot_do_holds_up_nobody(connection):
    """H5: refused at its commit, it must not be what every later drain fails at."""
    opaque = Staged(connection, "small", kind=OpaqueState)
    for txid in (1, 2):
        opaque.process(txid, {"": [txid]})
    drain(connection, "small")
    opaque.process(1, {"": [9]}, attempt_id=1)
    opaque.process(3, {"": [3]})
    drain(connection, "small")
    assert opaque.statuses()["1:1"] == "FAILED"
    assert opaque.seen() == {1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize(
    "after", ["check_coordinator", "_expire", "_give_up_silent", "_drain_overdue"]
)
def test_a_sweep_of_a_topology_that_is_dropped_meanwhile_finds_nothing(
    staged, connection, monkeypatch, after
):
    """K1: a person dropped it, and every sweep said that the ledger is corrupt."""
    staged.process(1, {"": [1]})
    drain(connection, "small")
    done = getattr(sweep_module, after)

    def drop_then(*args, **kwargs):
        found = done(*args, **kwargs)
        drop_topology(LedgerConnection(connection.dsn), "small")
        return found

    monkeypatch.setattr(sweep_module, after, drop_then)
    assert not sweep(connection, "small", clean=True)
    assert not sweep_module.topologies(connection)


def set_interval(connection, interval):
    with connection.transaction() as tx:
        tx.run(
            SQL("UPDATE reliability.topology SET checkpoint_interval = %(interval)s::interval"),
            interval=interval,
        )


def age_commits(connection, interval):
    with connection.transaction() as tx:
        tx.run(
            SQL("UPDATE reliability.commit_log SET committed_at = committed_at - %(i)s::interval"),
            i=interval,
        )


def test_first_commits_keep_the_checkpoint_interval_and_gather(staged, connection):
    set_interval(connection, "1 hour")
    staged.process(1, {"": [1]})
    assert len(drain(connection, "small")) == 1
    for txid in (2, 3):
        staged.process(txid, {"": [txid]})
    assert drain(connection, "small") == []
    age_commits(connection, "59 min")
    assert drain(connection, "small") == []
    age_commits(connection, "2 min")
    assert [c.attempt.txid for c in drain(connection, "small")] == [2, 3]


def test_who_never_groups_commits_keeps_the_checkpoint_interval_too(connection, add_database):
    """C5: the coordinator said Wait while every sweep committed."""
    add_database("east")
    opaque = Staged(connection, "small", ["east"], OpaqueState)
    set_interval(connection, "1 hour")
    for txid in (1, 2):
        opaque.process(txid, {"": [txid], "east": [txid]})
    at_once = Leases(overdue=0)
    assert [c.attempt.txid for c in drain(connection, "small")] == [1]
    assert not may_commit(connection, 2)
    assert sweep(connection, "small", at_once).committed == []
    age_commits(connection, "61 min")
    assert may_commit(connection, 2)
    assert [c.attempt.txid for c in sweep(connection, "small", at_once).committed] == [2]


def may_commit(connection, txid):
    with connection.transaction() as tx:
        return read_standing(tx, "small").snapshot(txid).may_commit


def test_a_replay_does_not_wait_for_the_checkpoint_interval(staged, connection):
    set_interval(connection, "1 hour")
    staged.process(1, {"": [1]})
    drain(connection, "small")
    staged.process(1, {"": [9]}, attempt_id=1)
    drain(connection, "small")
    assert staged.seen() == {9: 1}


def test_who_tries_one_by_one_does_not_wait_for_the_interval_in_between(staged, connection):
    set_interval(connection, "1 hour")
    with connection.transaction() as tx:
        tx.run(SQL("ALTER TABLE public.small_here ADD CONSTRAINT poor CHECK (k <> 7)"))
    for txid, key in ((1, 1), (2, 2), (3, 7)):
        staged.process(txid, {"": [key]})
    assert len(drain(connection, "small")) == 2
    assert staged.statuses()["3:0"] == "FAILED"


def test_the_checkpoint_interval_has_storms_floor(staged, connection):
    with pytest.raises(UnexpectedAnswer, match="checkpoint_interval_has_a_floor"):
        set_interval(connection, "99 milliseconds")
    set_interval(connection, "100 milliseconds")


# --- C3: the deciding checks ---------------------------------------------------------------------


def test_a_row_that_is_not_older_than_the_txid_stops_the_commit(emitted, connection):
    """C3: ON CONFLICT … WHERE would pass over it without a word."""
    emitted.transact(1)
    emitted.process(2)
    with connection.transaction() as tx:
        tx.run(SQL("UPDATE public.per_customer SET _txid = 9 WHERE customer = 2"))
    before = tables(connection)
    with pytest.raises(LedgerCorruption, match="per_customer"):
        emitted.runner.commit(2)
    assert tables(connection) == before
    assert rows(connection, CURR) == [(2, 1)]


def test_a_state_that_already_has_the_commit_number_is_not_changed_again(emitted, connection):
    emitted.process(1)
    with connection.transaction() as tx:
        tx.run(SQL("UPDATE reliability.state SET commit_number = 1 WHERE state = 'per_day'"))
    with pytest.raises(LedgerCorruption, match="advance_state"):
        emitted.runner.commit(1)
    assert tables(connection) == ([], [])


def test_contribution_rows_that_are_gone_are_never_taken_for_zero(emitted, connection):
    """H2: an emptied contribution under a sealed attempt is corruption."""
    emitted.process(1)
    with connection.transaction() as tx:
        tx.run(SQL("TRUNCATE reliability_contribution.shop__per_day"))
    with pytest.raises(LedgerCorruption, match="shop__per_day"):
        emitted.runner.commit(1)


def test_a_commit_that_is_refused_behind_ones_own_does_not_take_it_along(emitted, connection):
    processed_out_of_order(emitted)
    with connection.transaction() as tx:
        tx.run(SQL("ALTER TABLE public.per_day ADD CONSTRAINT poor CHECK (revenue < 20)"))
    assert [str(c.attempt) for c in emitted.runner.commit(1)] == ["1:0", "2:0"]
    assert rows(connection, CURR) == [(3, 2)]


def test_a_refused_commit_fails_its_attempt_and_succeeds_once_the_cause_is_gone(
    emitted, connection
):
    """Left PROCESSED, every later request would adopt the attempt and be refused again."""
    emitted.process(1)
    emitted.process(2)
    with connection.transaction() as tx:
        tx.run(SQL("ALTER TABLE public.per_day ADD CONSTRAINT poor CHECK (revenue < 1)"))
    before = tables(connection)
    with pytest.raises(UnexpectedAnswer, match="poor"):
        emitted.runner.commit(1)
    assert tables(connection) == before
    assert rows(
        connection, "SELECT status, reason_code FROM reliability.attempt WHERE txid = 1"
    ) == [("FAILED", "UNEXPECTED_ANSWER")]
    emitted.runner.close(1, emitted.run, "its tasks ended without it")
    with pytest.raises(TxidBlocked, match="poor"):
        emitted.transact(2)
    with connection.transaction() as tx:
        tx.run(SQL("ALTER TABLE public.per_day DROP CONSTRAINT poor"))
    emitted.again().transact(1)
    assert rows(connection, CURR) == [(3, 2)]


def test_a_replay_that_is_refused_holds_up_nobody(emitted, connection):
    committed(emitted)
    again = emitted.again()
    again.emit(month(1997, 1))
    again.process(1)
    again.process(2)
    with connection.transaction() as tx:
        tx.run(SQL("DELETE FROM reliability_contribution.shop__per_day"
                   " WHERE _txid = 1 AND _attempt_id = 0"))  # fmt: skip
    assert [str(c.attempt) for c in again.runner.commit(2)] == ["2:1"]
    assert rows(
        connection, "SELECT status FROM reliability.attempt WHERE txid = 1 ORDER BY attempt_id"
    ) == [
        ("COMMITTED",),
        ("FAILED",),
    ]


# --- G8: a lost answer ---------------------------------------------------------------------------


def test_a_lost_answer_is_harmless(emitted, connection, monkeypatch):
    """COMMIT is sent, the answer is lost: the ledger is read again, never guessed."""
    emitted.process(1)
    unlucky = TransactionRunner(emitted.runner.topology, LosesAnswers(connection.dsn))
    request_id = emitted.request(1, "commit")
    with pytest.raises(LedgerUnavailable):
        unlucky.commit(1)
    assert rows(connection, CURR) == [(2, 1)]
    emitted.transact(1)  # the retry: same max_tries, so it is no replay
    assert rows(connection, CURR) == [(2, 1)]
    assert emitted.request(1, "commit") == request_id


class LosesAnswers(LedgerConnection):
    """A connection whose session dies right after the COMMIT of a commit took effect."""

    @contextmanager
    def transaction(self, *, reads_only: bool = False):
        with super().transaction() as tx:
            yield tx
        with super().transaction() as tx:
            commits = tx.one(SQL("SELECT count(*) AS n FROM reliability.commit_log"))["n"]
        if commits:
            raise LedgerUnavailable("server closed the connection unexpectedly")


# --- H1 to H3, R1: replay ------------------------------------------------------------------------


def committed(emitted):
    for txid in (1, 2, 3):
        emitted.transact(txid)
    return emitted


def freeze_as_found(connection, folder, name):
    """Let the ledger take a changed file for the one it emitted, as a corrected delivery."""
    import json

    from reliability import FileSpout
    from reliability.core.spout import BatchMeta, NoItems

    spout = FileSpout(f"{folder}/1997-01/{name}.parquet")
    items = spout.plan(None, NoItems())
    fold = spout.count(items)
    meta = json.dumps(BatchMeta(items=(items[0],), emitted=fold).to_json())
    with connection.transaction() as tx:
        tx.run(
            SQL(
                "UPDATE reliability.transaction SET batch_meta = %(meta)s,"
                " emitted_xor = %(xor)s, emitted_count = %(count)s"
                " WHERE batch_meta->0->>'path' = %(path)s"
            ),
            meta=meta,
            xor=fold.xor,
            count=fold.count,
            path=items[0].identity,
        )


@pytest.mark.parametrize(
    "corrected",
    [
        pytest.param(  # nothing changed
            [row(1, 1, "1.10"), row(2, 2, "2.20"), row(2, 9, "0.80")], marks=pytest.mark.slow
        ),
        [row(1, 1, "1.10"), row(2, 2, "7.70")],  # another value, a row less
        [row(4, 8, "5.00")],  # a new key, keys that vanish
        [row(2, 30, None), row(None, 1, "3.00")],  # a sum of which only NULLs are left
        [],  # nothing is left
    ],
    ids=["same", "changed", "other keys", "nulls", "empty"],
)
def test_a_replay_replaces_exactly_its_own_contribution(
    emitted, connection, tmp_path, pipeline, corrected
):
    """G6: afterwards both tables are those of an undisturbed run over the corrected input."""
    committed(emitted)
    write_parquet(tmp_path / "1997-01" / "a.parquet", corrected)
    freeze_as_found(connection, tmp_path, "a")
    again = emitted.again()
    assert again.emit(month(1997, 1)) == [1, 2, 3]
    again.transact(1)
    assert without(2, tables(connection)[0]) == expected_customers(corrected)
    assert without(2, tables(connection)[1]) == expected_days(corrected)
    assert rows(connection, CURR) == [(4, 4)]


def test_the_rows_txid_sinks_when_the_greatest_leaves_the_key(emitted, connection, tmp_path):
    """C3: a row that says 3 and holds only 1 would refuse the first commit of a released 2."""
    committed(emitted)
    write_parquet(tmp_path / "1997-01" / "b.parquet", [row(3, 3, None)])
    freeze_as_found(connection, tmp_path, "b")
    again = emitted.again()
    again.emit(month(1997, 1))
    again.transact(2)
    assert rows(connection, "SELECT _txid FROM per_day WHERE day = '1997-01-01'") == [(1,)]
    assert rows(connection, "SELECT _txid FROM per_customer WHERE customer = 2") == [(1,)]


def test_the_rows_txid_is_the_greatest_that_it_holds(emitted, connection):
    committed(emitted)
    before = tables(connection)
    again = emitted.again()
    again.emit(month(1997, 1))
    again.transact(2)
    assert tables(connection) == before


def expected_customers(corrected):
    everything = [*corrected, *FILES["b"], *FILES["c"]]
    keys = sorted({r["customer"] for r in everything}, key=lambda k: (k is None, k))
    return [
        (
            key,
            len(own := [r for r in everything if r["customer"] == key]),
            total(own),
            min(r["day"] for r in own),
            max(r["day"] for r in own),
        )
        for key in keys
    ]


def expected_days(corrected):
    everything = [*corrected, *FILES["b"], *FILES["c"]]
    return [
        (day, len(own := [r for r in everything if r["day"] == day]), total(own))
        for day in sorted({r["day"] for r in everything})
    ]


def total(own):
    prices = [r["price"] for r in own if r["price"] is not None]
    return sum(prices) if prices else None


@in_both_engines
def test_a_replay_that_fails_leaves_the_old_contribution(emitted, connection):
    committed(emitted)
    before = tables(connection)
    again = emitted.again()
    again.emit(month(1997, 1))
    grant = again.begin(1)
    again.run_step(grant)
    with connection.transaction() as tx:
        tx.run(
            SQL("DELETE FROM reliability_contribution.shop__per_day WHERE _attempt_id = %(id)s"),
            id=grant.attempt.attempt_id,
        )
    with pytest.raises(Exception, match="per_day"):
        again.seal(grant)
    assert tables(connection) == before
    assert rows(connection, "SELECT committed_attempt FROM reliability.transaction") == [(0,)] * 3


def test_a_replay_takes_out_what_is_stored_or_stops(emitted, connection):
    """H2: if what went in is not there any more, taking it for zero would double the rest."""
    committed(emitted)
    with connection.transaction() as tx:
        tx.run(SQL("DELETE FROM reliability_contribution.shop__per_day WHERE _txid = 1"))
    again = emitted.again()
    again.emit(month(1997, 1))
    with pytest.raises(LedgerCorruption, match="shop__per_day"):
        again.transact(1)


def test_a_replay_does_not_take_an_attempt_from_before_its_request(emitted, connection):
    """R2: the clear came while an attempt was PROCESSED; Spark still runs again."""
    emitted.process(1)
    emitted.runner.commit(1)
    first = emitted.again()
    first.emit(month(1997, 1))
    first.process(1)  # 1:1 is PROCESSED
    second = first.again()
    second.emit(month(1997, 1))
    second.transact(1)
    assert rows(connection, "SELECT txid, attempt_id FROM reliability.commit_log") == [
        (1, 0),
        (1, 1),
        (1, 2),
    ]


def test_a_retry_after_success_is_no_replay_and_a_clear_is(emitted, connection):
    """R1: by ti.max_tries, which a clear raises and a retry does not."""
    emitted.transact(1)
    emitted.transact(1)
    assert rows(connection, "SELECT count(*) FROM reliability.attempt") == [(1,)]
    again = emitted.again()
    again.transact(1)  # a single task was cleared: emit has not run again
    assert rows(connection, "SELECT attempt_id, status FROM reliability.attempt ORDER BY 1") == [
        (0, "REPLACED"),
        (1, "COMMITTED"),
    ]
    assert rows(connection, "SELECT number, kind FROM reliability.request WHERE txid = 1") == [
        (1, "COMMIT"),
        (2, "REPLAY"),
    ]


# --- R3, E2: settle, and what nobody works on ----------------------------------------------------


def test_settle_is_green_only_when_all_is_done(emitted, connection):
    emitted.transact(1)
    with pytest.raises(RunUnsatisfied, match=r"txids 2\.\.3"):
        emitted.runner.settle(emitted.run, [1, 2, 3])
    assert rows(connection, "SELECT txid, status FROM reliability.request ORDER BY txid") == [
        (1, "SATISFIED"),
        (2, "CLOSED"),
        (3, "CLOSED"),
    ]
    again = emitted.again()
    for txid in (2, 3):
        again.transact(txid)
    again.runner.settle(again.run, [1, 2, 3])


def test_a_failed_replay_is_not_green_because_the_txid_is_committed(emitted):
    emitted.transact(1)
    again = emitted.again()
    again.emit(month(1997, 1))
    assert again.runner.close(1, again.run, "its tasks ended without it")
    with pytest.raises(RunUnsatisfied, match="1"):
        again.runner.settle(again.run, [1])


def test_what_waits_for_a_closed_txid_fails_at_once_and_names_it(emitted):
    """R3: else commit[1] waits for txid 0, whose request only settle would close."""
    emitted.process(2)
    emitted.request(1, "commit")
    emitted.runner.close(1, emitted.run, "its tasks ended without it")
    with pytest.raises(TxidBlocked, match=r"txid 1 \(run scheduled__1997-01"):
        emitted.transact(2)
    with pytest.raises(RequestClosed):
        emitted.transact(1)


def test_processed_txids_wait_for_the_blocked_one_and_then_commit_at_once(emitted, connection):
    emitted.process(2)
    emitted.process(3)
    emitted.runner.close(1, emitted.run, "its tasks ended without it")
    emitted.again().transact(1)
    assert rows(connection, CURR) == [(4, 3)]
