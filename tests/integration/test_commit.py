"""Commit: serialised, in order, all or nothing, and a replay that replaces (rules C, H, R1, R3)."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from reliability import OpaqueState
from reliability.core.errors import (
    LedgerCorruption,
    TxidBlocked,
    UnexpectedAnswer,
)
from reliability.core.leases import Leases
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.commit.committer import drain
from reliability.transaction.correct.drop import drop_topology
from reliability.transaction.maintain import sweep as sweep_module
from reliability.transaction.maintain.sweep import sweep
from reliability.transaction.topology.read_standing import read_standing
from tests.support.doomed import doomed
from tests.support.fix_pipeline import month, shop, write_parquet
from tests.support.fix_postgres import execute, rows
from tests.support.staged import Staged

COLUMNS = "orders, revenue, first_day, last_day"
CUSTOMERS = f"SELECT customer, {COLUMNS}, _txid, _rows FROM per_customer ORDER BY customer"
DAYS = "SELECT day, orders, revenue, _txid, _rows FROM per_day ORDER BY day"
DAYS_OF_ATTEMPTS = "reliability_contribution.shop__per_day"
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


def tables(connection):
    return rows(connection, CUSTOMERS), rows(connection, DAYS)


@pytest.fixture
def emitted(tmp_path, python_pipeline):
    """A pipeline with three emitted txids, one for each file."""
    for name, content in FILES.items():
        write_parquet(tmp_path / "1997-01" / f"{name}.parquet", content)
    shop_pipeline = python_pipeline(shop(tmp_path))
    assert shop_pipeline.emit(month(1997, 1)) == [1, 2, 3]
    return shop_pipeline


# --- C5: many small txids in one physical commit -------------------------------------------------


@pytest.fixture
def staged(connection):
    """A topology whose attempts are staged by INSERT, with one state in one database."""
    return Staged(connection, "small")


def test_a_group_is_one_transaction_and_keeps_every_txids_own(staged, connection):
    """C5: each txid takes its own c and keeps its own contribution; PREPARING is never durable."""
    for txid in (3, 1, 2):
        staged.process(txid, {"": [1, txid]})
    with doomed() as fate:
        done = drain(LedgerConnection(connection.dsn), "small")
    assert [(str(c.attempt), c.commit_number) for c in done] == [("1:0", 1), ("2:0", 2), ("3:0", 3)]
    physical = "SELECT count(DISTINCT xmin::text) FROM reliability.commit_log"
    assert rows(connection, physical) == [(1,)]
    assert not [s for s in fate.statements if "reliability.checkpoint SET" in s]
    advanced = [s for s in fate.statements if "reliability.advance_checkpoint" in s]
    assert [s.partition(", ")[2] for s in advanced] == ["1::bigint, 3::integer)"]
    assert staged.seen() == {1: 4, 2: 1, 3: 1}
    assert staged.commit_numbers() == {"": (3, 3, 3, 3)}
    contributions = "SELECT txid, rows FROM reliability.contribution ORDER BY txid"
    assert rows(connection, contributions) == [(1, 2), (2, 2), (3, 2)]
    staged.process(2, {"": [5]}, attempt_id=1)
    drain(connection, "small")
    assert staged.seen() == {1: 3, 3: 1, 5: 1}


def test_an_opaque_state_can_give_back_the_last_txid_of_a_group_and_no_other(connection):
    """C5: the last txid is applied on its own, or there would be no value from before it.

    H5: the replay of another is refused at its commit, and is not what every later drain fails at.
    """
    opaque = Staged(connection, "small", kind=OpaqueState)
    for txid in (1, 2, 3):
        opaque.process(txid, {"": [1, txid]})
    drain(connection, "small")
    opaque.process(3, {"": [9]}, attempt_id=1)
    drain(connection, "small")
    assert opaque.seen() == {1: 3, 2: 1, 9: 1}
    opaque.process(1, {"": [9]}, attempt_id=1)
    opaque.process(4, {"": [4]})
    drain(connection, "small")
    assert opaque.statuses()["1:1"] == "FAILED"
    assert opaque.seen() == {1: 3, 2: 1, 4: 1, 9: 1}


def test_a_sweep_of_a_topology_that_is_dropped_meanwhile_finds_nothing(connection, monkeypatch):
    """K1: a person dropped it, and every sweep said that the ledger is corrupt."""
    for after in ("check_coordinator", "_expire", "_give_up_silent", "drain"):
        Staged(connection, "small").process(1, {"": [1]})
        drain(connection, "small")
        done = getattr(sweep_module, after)

        def drop_then(*args, done=done, **kwargs):
            found = done(*args, **kwargs)
            drop_topology(LedgerConnection(connection.dsn), "small")
            return found

        with monkeypatch.context() as patch:
            patch.setattr(sweep_module, after, drop_then)
            assert not sweep(connection, "small", clean=True)
        assert not sweep_module.topologies(connection)


def set_interval(connection, interval):
    change = "UPDATE reliability.topology SET checkpoint_interval = %(interval)s::interval"
    execute(connection, change, interval=interval)


def age_commits(connection, interval):
    change = "UPDATE reliability.commit_log SET committed_at = committed_at - %(ago)s::interval"
    execute(connection, change, ago=interval)


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
    with pytest.raises(UnexpectedAnswer, match="checkpoint_interval_has_a_floor"):  # Storm's
        set_interval(connection, "99 milliseconds")
    set_interval(connection, "100 milliseconds")


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


def test_a_clock_that_was_set_back_delays_nothing(staged, connection):
    """K1: the last commit and grant were hours ahead, and all waited for them, interval or not."""
    staged.process(1, {"": [1]})
    drain(connection, "small")
    execute(connection, "UPDATE reliability.topology SET last_granted_at = now() + '3 hours'")
    age_commits(connection, "-3 hours")
    standing = connection.one("standing", topology="small", txid=None, request_id=None)
    assert not standing["is_throttled"]
    staged.process(2, {"": [2]})
    assert len(drain(connection, "small")) == 1


# --- C3: the deciding checks ---------------------------------------------------------------------


def test_contribution_rows_that_are_gone_are_never_taken_for_zero(emitted, connection):
    """H2: an emptied contribution under a sealed attempt is corruption."""
    emitted.process(1)
    execute(connection, "TRUNCATE reliability_contribution.shop__per_day")
    with pytest.raises(LedgerCorruption, match="shop__per_day"):
        emitted.runner.commit(1)


def test_a_commit_that_is_refused_behind_ones_own_does_not_take_it_along(emitted, connection):
    for txid in (3, 1, 2):
        emitted.process(txid)
    execute(connection, "ALTER TABLE public.per_day ADD CONSTRAINT poor CHECK (revenue < 20)")
    assert [str(c.attempt) for c in emitted.runner.commit(1)] == ["1:0", "2:0"]
    assert rows(connection, CURR) == [(3, 2)]


def test_a_refused_commit_fails_its_attempt_and_succeeds_once_the_cause_is_gone(
    emitted, connection
):
    """Left PROCESSED, every later request would adopt the attempt and be refused again."""
    emitted.process(1)
    emitted.process(2)
    execute(connection, "ALTER TABLE public.per_day ADD CONSTRAINT poor CHECK (revenue < 1)")
    before = tables(connection)
    with pytest.raises(UnexpectedAnswer, match="poor"):
        emitted.runner.commit(1)
    assert tables(connection) == before
    failed = "SELECT status, reason_code FROM reliability.attempt WHERE txid = 1"
    assert rows(connection, failed) == [("FAILED", "UNEXPECTED_ANSWER")]
    emitted.runner.close(1, emitted.run, "its tasks ended without it")
    with pytest.raises(TxidBlocked, match="poor"):
        emitted.transact(2)
    execute(connection, "ALTER TABLE public.per_day DROP CONSTRAINT poor")
    emitted.again().transact(1)
    assert rows(connection, CURR) == [(3, 2)]


def committed_and_cleared(emitted):
    """Commit all three txids, and clear their run."""
    for txid in (1, 2, 3):
        emitted.transact(txid)
    again = emitted.again()
    again.emit(month(1997, 1))
    return again


# --- H1 to H3, R1: replay ------------------------------------------------------------------------


def test_a_replay_that_fails_leaves_the_old_contribution_and_holds_up_nobody(emitted, connection):
    again = committed_and_cleared(emitted)
    before = tables(connection)
    grant = again.begin(1)
    again.run_step(grant)
    execute(connection, f"DELETE FROM {DAYS_OF_ATTEMPTS} WHERE _attempt_id = 1")
    with pytest.raises(Exception, match="per_day"):
        again.seal(grant)
    assert tables(connection) == before
    assert rows(connection, "SELECT committed_attempt FROM reliability.transaction") == [(0,)] * 3
    again.process(1)
    again.process(2)
    # what it replaces is gone: the commit is refused
    execute(connection, f"DELETE FROM {DAYS_OF_ATTEMPTS} WHERE _txid = 1 AND _attempt_id = 0")
    assert [str(c.attempt) for c in again.runner.commit(2)] == ["2:1"]
    statuses = "SELECT status FROM reliability.attempt WHERE txid = 1 ORDER BY attempt_id"
    assert rows(connection, statuses) == [("COMMITTED",), ("FAILED",), ("FAILED",)]


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
    log = "SELECT txid, attempt_id FROM reliability.commit_log"
    assert rows(connection, log) == [(1, 0), (1, 1), (1, 2)]
