"""Many rows are staged in a table of the attempt's own (H10)."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import replace

import pytest
from psycopg2.sql import SQL

from reliability import Count, History
from reliability.core.attempt import Grant, TransactionAttempt
from reliability.core.errors import AttemptFenced, LedgerBusy, LedgerCorruption
from reliability.core.leases import Leases
from reliability.ledger import locks
from reliability.ledger.connection import LedgerConnection
from reliability.states import attempt_table
from reliability.states.kinds import stored_state
from reliability.states.tables import attempt_table_of
from reliability.transaction.correct import erase as erasing
from reliability.transaction.correct.drop import drop_topology
from reliability.transaction.inspect.verify import verify, verify_state
from reliability.transaction.maintain import compaction
from reliability.transaction.maintain.compaction import compact
from reliability.transaction.maintain.sweep import sweep
from reliability.transaction.topology.alter import Alteration, alter
from reliability.transaction.topology.declare import declared_tables
from tests.replay.shop import Shop, made, opaque_states, states
from tests.support.fix_postgres import database_of, execute, own_session, rows, run_as_admin

TABLES = (  # of the state `log`; the others inherit, for views: test_views_of_appended_rows.py
    "SELECT count(*) FROM pg_class WHERE relnamespace = 'reliability_contribution'::regnamespace"
    " AND relname LIKE 'attempt%%' AND relkind = 'r'"
    " AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = pg_class.oid)"
)
STAGED = "SELECT count(*) FROM reliability_contribution.shop__log"
KNOWN = "SELECT count(*) FROM reliability.attempt_table WHERE state = 'log'"
LOG = "SELECT count(*) FROM log"
MANY = "generate_series(1, 1000)"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    for patience in ("OPEN_PATIENCE_SECONDS", "MERGE_PATIENCE_SECONDS"):
        monkeypatch.setattr(attempt_table, patience, 0.1)


@pytest.fixture
def shop(connection, monkeypatch):
    """One txid, emitted; with two rows a batch has a table of its own."""
    monkeypatch.setattr(attempt_table, "MIN_ROWS", 2)
    shop = Shop(connection, tasks=2)
    assert shop.deliver(made(1)) == [1]
    return shop


@pytest.fixture
def another(connection):
    with closing(LedgerConnection(connection.dsn, "another")) as other:
        yield other


def count(connection, statement):
    [(number,)] = rows(connection, statement)
    return number


INDEXED = (
    "SELECT count(*) FROM pg_index i JOIN pg_inherits h ON h.inhrelid = i.indrelid"
    " WHERE h.inhparent = 'reliability_contribution.shop__exact'::regclass"
)


def test_rows_go_from_the_attempts_table_to_the_target_and_it_is_dropped(shop, connection):
    """Of a state with a key they stay there, indexed by it; few rows have no table of their own."""
    shop.process(1)
    assert [count(connection, each) for each in (TABLES, STAGED, LOG, INDEXED)] == [1, 0, 0, 1]
    shop.transact(1)
    assert [count(connection, each) for each in (TABLES, STAGED, LOG, KNOWN)] == [0, 0, 6, 0]
    assert count(connection, "SELECT count(*) FROM ONLY reliability_contribution.shop__exact") == 0
    assert (len(rows(connection, KEYED)), count(connection, EXACT)) == (1, 6)
    assert all(is_exact(connection).values())
    shop.deliver(made(2, rows=1))
    shop.process(2)
    assert (count(connection, TABLES), count(connection, STAGED)) == (0, 1)


def test_a_table_that_is_not_what_was_sealed_is_not_committed(shop, connection):
    """H10, H2: missing rows are no empty contribution."""
    shop.process(1)
    own = own_table(connection)
    execute(connection, f"TRUNCATE reliability_contribution.{own}")
    with pytest.raises(LedgerCorruption, match="0 exist"):
        shop.transact(1)
    assert count(connection, LOG) == 0


def test_an_attempt_whose_table_somebody_has_shrunk_commits(connection, shop, database):
    """H10: VACUUM took pages that a failed task had left, and the commit missed rows."""
    write = shop.write

    def write_and_fail_once(grant):
        write(grant)
        own = f"reliability_contribution.{own_table(connection)}"
        with closing(own_session(connection.dsn)) as failed:
            failed.cursor().execute(f"INSERT INTO {own} SELECT log.* FROM {own} log, {MANY}")
            failed.rollback()

    shop.write = write_and_fail_once
    shop.process(1)
    database.execute("VACUUM FULL")
    shop.transact(1)
    assert count(connection, LOG) == 6


def own_table(connection):
    """Return the name of the attempt's table for the state `log`."""
    [own] = connection.all("tables_of_attempts", topology="shop", state="log")
    return attempt_table_of(own["table_id"]).strings[-1]


def test_what_a_zombie_copies_after_the_seal_does_not_keep_an_attempt_from_its_commit(
    shop, connection
):
    """H10, A8: its rows roll back, but the table stays larger."""
    shop.process(1)
    own = own_table(connection)
    with closing(own_session(connection.dsn)) as zombie:
        zombie.cursor().execute(
            f"INSERT INTO reliability_contribution.{own} (_txid, _attempt_id, _x, _n)"
            " SELECT 1, 0, n, 1 FROM generate_series(1, 1000) AS n"
        )
        zombie.rollback()
    shop.transact(1)
    assert count(connection, LOG) == 6


def test_the_table_of_an_attempt_that_cannot_count_is_dropped_by_a_sweep(shop, connection):
    """H10: nothing else would ever drop it."""
    shop.process(1)
    shop.clear(1)
    shop.transact(1)
    shop.dry_run(1)
    sweep(connection, "shop", Leases(), clean=True)
    assert (count(connection, TABLES), count(connection, LOG)) == (0, 6)


def test_a_replay_compares_rows_unless_it_stages_the_same(shop):
    """H10: equal digests spare the comparison, and no others."""
    shop.transact(1)
    [same] = [one for one in shop.replay(1) if one.state == "log"]
    assert same.is_nothing
    before = sorted(shop.tables()["log"], key=repr)
    [changed] = [one for one in shop.correct(1, made(5)) if one.state == "log"]
    assert before != sorted(shop.tables()["log"], key=repr)
    assert changed.rows_added == changed.rows_removed > 0


def test_an_ended_attempt_gets_no_table_and_a_dropped_topology_leaves_none(shop, connection):
    nonce = "00000000-0000-0000-0000-000000000000"
    ended = Grant(topology="shop", attempt=TransactionAttempt(1, 0), nonce=nonce)
    log = stored_state("shop", next(s for s in shop.topology.states if s.is_append))
    with pytest.raises(AttemptFenced):
        attempt_table.open_table(connection, log, ended, emitted=6)
    assert count(connection, TABLES) == 0
    shop.process(1)
    assert count(connection, TABLES) == 1
    execute(connection, "UPDATE reliability.attempt SET status = 'FAILED', reason_code = 'X'")
    drop_topology(connection, "shop")
    assert count(connection, TABLES) == 0


# --- of states with a key ------------------------------------------------------------------------

KEYED = (
    "SELECT inhparent::regclass::text FROM pg_inherits"
    " WHERE inhparent::regclass::text LIKE '%%shop\\_\\_exact'"
)
EXACT = "SELECT coalesce(sum(n), 0)::int FROM exact"


def committed(shop, *numbers):
    shop.commit(*(made(n) for n in numbers))


def is_exact(connection):
    """Return for each state whether it is what its contributions say."""
    return {report.state: report.is_exact for report in verify(connection, "shop")}


def test_what_no_two_tasks_have_staged_commits_as_it_is_and_the_rest_is_folded(shop, connection):
    """H10: Spark groups by key, but what differs there may be equal in Postgres."""
    shop.process(1)
    is_folded = "SELECT DISTINCT is_folded FROM reliability.attempt_table WHERE state <> 'log'"
    assert {*rows(connection, is_folded)} == {(False,), (True,)}
    shop.transact(1)
    committed(shop, 2)
    assert all(is_exact(connection).values())


def test_two_rows_of_the_key_null_are_folded(connection, monkeypatch):
    """H10"""
    monkeypatch.setattr(attempt_table, "MIN_ROWS", 2)
    Shop(connection, tasks=2).commit([row | {"k": None} for row in made(1)])
    assert all(is_exact(connection).values())


def test_few_keys_of_many_rows_are_moved_to_the_others(shop, connection, monkeypatch):
    """H10: most batches are reduced to far fewer keys."""
    monkeypatch.setattr(attempt_table, "MIN_ROWS", 6)  # as many as the batch has rows
    shop.transact(1)
    committed(shop, 2)
    few = "SELECT count(*) FROM ONLY reliability_contribution.shop__all_of_it"
    assert count(connection, few) == 4  # two partitions each
    assert count(connection, "SELECT n FROM all_of_it") == 12
    assert all(is_exact(connection).values())


def test_a_sweep_leaves_only_the_newest_tables(shop, connection, monkeypatch):
    """H10: each makes the planning of a query longer, and the rows stay the same."""
    monkeypatch.setattr(compaction, "KEPT_TABLES", 1)
    shop.transact(1)
    committed(shop, 2, 3)
    before = shop.tables()
    assert len(rows(connection, KEYED)) == 3
    merged = [sweep(connection, "shop", Leases(), clean=True).merged for _ in range(2)]
    assert (merged, len(rows(connection, KEYED)), shop.tables()) == ([8, 0], 1, before)
    assert all(is_exact(connection).values())
    assert all(one.is_nothing for one in shop.replay(1))
    shop.correct(2, made(9))
    assert all(is_exact(connection).values())


def test_a_table_that_is_read_is_merged_later_and_one_of_another_owner_is_left_to_it(
    shop, connection, another, monkeypatch, caplog
):
    """H10: a sweep by a role that does not own all tables was red."""
    database = database_of(connection.dsn)
    monkeypatch.setattr(compaction, "KEPT_TABLES", 0)
    shop.transact(1)
    with another.transaction() as tx:
        tx.all(SQL("SELECT * FROM reliability_contribution.shop__exact"))
        assert compaction.merge_tables(connection, "shop") == 0
    [(own,)] = rows(
        connection, KEYED.replace("inhparent::regclass::text F", "inhrelid::regclass::text F")
    )
    run_as_admin(
        f"ALTER TABLE {own} OWNER TO postgres",
        f"GRANT ALL ON {own} TO reliability",
        "ALTER SCHEMA reliability_contribution OWNER TO postgres",  # who may drop what is in it
        "GRANT ALL ON SCHEMA reliability_contribution TO reliability",
        database=database,
    )
    assert compaction.merge_tables(connection, "shop") > 0
    assert len(rows(connection, KEYED)) == 1
    assert "must be owner" in caplog.text
    assert all(is_exact(connection).values())
    run_as_admin(f"ALTER TABLE {own} OWNER TO reliability", database=database)
    assert compaction.merge_tables(connection, "shop") > 0
    assert rows(connection, KEYED) == []
    assert all(is_exact(connection).values())


def test_an_attempt_is_sealed_beside_a_reader_of_the_contributions(
    connection, another, monkeypatch
):
    """H10: to merge few rows is not worth the attempt."""
    monkeypatch.setattr(attempt_table, "MIN_ROWS", 6)
    shop = Shop(connection, tasks=2)
    shop.deliver(made(1))
    write = shop.write
    with another.transaction() as tx:

        def write_and_read(grant):
            write(grant)
            tx.all(SQL("SELECT * FROM reliability_contribution.shop__exact"))

        monkeypatch.setattr(shop, "write", write_and_read)
        shop.process(1)
    assert len(rows(connection, KEYED)) == 1
    shop.transact(1)
    assert count(connection, EXACT) == 6
    assert all(is_exact(connection).values())


def test_the_replaced_contribution_is_dropped_whole_and_merged_rows_of_it_are_deleted(
    shop, connection, monkeypatch
):
    """H10: merged rows are looked for where they are after the drop."""
    monkeypatch.setattr("reliability.transaction.maintain.sweep.LONGEST_SNAPSHOT_SECONDS", 0.0)
    shop.transact(1)
    shop.correct(1, made(5))
    assert len(rows(connection, KEYED)) == 2
    sweep(connection, "shop", Leases(), clean=True)
    assert len(rows(connection, KEYED)) == 1
    assert all(is_exact(connection).values())
    monkeypatch.setattr(compaction, "KEPT_TABLES", 0)
    compaction.merge_tables(connection, "shop")
    shop.correct(1, made(6))
    sweep(connection, "shop", Leases(), clean=True)
    attempts = "SELECT DISTINCT _attempt_id FROM reliability_contribution.shop__exact"
    assert rows(connection, attempts) == [(2,)]


def test_a_state_that_keeps_no_contributions_drops_the_table_at_its_commit(connection, monkeypatch):
    monkeypatch.setattr(attempt_table, "MIN_ROWS", 2)
    shop = Shop(connection, kinds=opaque_states)
    [txid] = shop.deliver(made(1))
    shop.process(txid)
    known = "SELECT count(*) FROM reliability.attempt_table"
    assert count(connection, known) > 0
    shop.transact(txid)
    assert count(connection, known) == 0
    assert count(connection, "SELECT count(*) FROM pg_inherits") == 0


def test_compaction_folds_the_rows_of_attempts_tables_and_waits_for_another_merge(
    connection, another, monkeypatch
):
    """H2: it would fold no row of a table that it skips, and never come back to it."""
    monkeypatch.setattr(attempt_table, "MIN_ROWS", 2)

    def with_horizon(elsewhere=""):
        return [replace(s, keep=History(txids=1)) for s in states() if not s.is_append]

    shop = Shop(connection, kinds=with_horizon)
    shop.commit_first(4)  # the first three are beyond the horizon
    before = shop.tables()
    with another.transaction() as tx:  # as the other merge does first
        tx.all(SQL("SELECT FROM reliability.attempt_table FOR UPDATE"))
        with pytest.raises(LedgerBusy):
            compact(connection, "shop")
    compacted = compact(connection, "shop")
    assert any(one.rows_before > one.rows_after for one in compacted)
    assert {one.state: one.txids for one in compacted}["exact"] > 1
    assert shop.tables() == before
    assert all(is_exact(connection).values())
    assert len(rows(connection, KEYED)) < 4


def test_verify_sees_what_is_merged_after_its_snapshot(connection, another, monkeypatch):
    """H10: a snapshot from before a merge finds the rows neither in the one table nor the other."""
    monkeypatch.setattr(attempt_table, "MIN_ROWS", 2)
    monkeypatch.setattr(compaction, "KEPT_TABLES", 0)
    shop = Shop(connection, tasks=2)
    committed(shop, 1, 2)
    exact = next(s for s in shop.topology.states if s.name == "exact")

    def merge_first(tx, tables, database):
        if tables.state.name == "all_of_it":
            with suppress(LedgerBusy):
                compaction.merge_tables_of(another, stored_state("shop", exact))
        return verify_state(tx, tables, database)

    monkeypatch.setattr("reliability.transaction.inspect.verify.verify_state", merge_first)
    assert all(is_exact(connection).values())


def test_an_erasure_waits_for_a_merge_that_has_copied_the_rows(
    shop, connection, another, monkeypatch
):
    """H12: it deleted them from the table that was merged, and the copies stayed."""
    monkeypatch.setattr(compaction, "KEPT_TABLES", 0)
    monkeypatch.setattr(erasing, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(locks, "HOLDERS_PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(attempt_table, "MERGE_PATIENCE_SECONDS", 5)
    shop.transact(1)
    drop, persons = attempt_table.drop, [("k", "1")]

    def drop_beside_an_erasure(tx, number):
        with pytest.raises(LedgerBusy):
            erasing.erase(another, "shop", persons, reason="asked for")
        drop(tx, number)

    with monkeypatch.context() as patch:
        patch.setattr(attempt_table, "drop", drop_beside_an_erasure)
        assert compaction.merge_tables(connection, "shop") > 0
    erasing.erase(connection, "shop", persons, reason="asked for")
    assert count(connection, "SELECT count(*) FROM reliability_contribution.shop__exact") > 0
    assert not rows(connection, "SELECT FROM reliability_contribution.shop__exact WHERE k = 1")
    assert all(is_exact(connection).values())


def test_a_merge_copies_what_an_alteration_has_added_meanwhile(connection, another, monkeypatch):
    """H10: it had read the columns before, and what they lacked became NULL."""
    monkeypatch.setattr(attempt_table, "MIN_ROWS", 2)
    monkeypatch.setattr(compaction, "KEPT_TABLES", 0)
    [exact, *_rest] = states()
    more = replace(exact, values={**exact.values, "more": Count()})
    old, new = Shop(connection, kinds=lambda _: [exact]), Shop(another, kinds=lambda _: [more])
    old.commit(made(1))
    new.source.sizes = old.source.sizes
    new.makes.update(old.makes)
    altered: list[Alteration] = []

    def declared_before_an_alteration(ledger, topology):
        found = declared_tables(ledger, topology)
        if not altered:
            altered.append(alter(another, new.topology, "more"))
            new.replay(1)
        return found

    monkeypatch.setattr(compaction, "declared_tables", declared_before_an_alteration)
    assert compaction.merge_tables(connection, "shop") > 0
    assert altered
    assert all(is_exact(connection).values())


def test_behind_a_vacuum_rows_are_staged_with_the_others(shop, connection, another):
    """A driver does not wait for minutes for the table of its own."""
    with another.transaction() as tx:  # VACUUM takes the same lock
        tx.run(
            SQL("LOCK TABLE reliability_contribution.shop__exact IN SHARE UPDATE EXCLUSIVE MODE")
        )
        shop.process(1)
    assert rows(connection, KEYED) == []
    shop.transact(1)
    assert count(connection, EXACT) == 6
