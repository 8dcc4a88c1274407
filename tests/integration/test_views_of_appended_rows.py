"""A state with as_view: its target is a view of the staged rows, and no commit moves them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from unittest.mock import patch

import pytest
from psycopg2.sql import SQL

from reliability import Append, Count, State
from reliability.core.errors import (
    AttemptFenced,
    InvalidDefinition,
    LedgerCorruption,
    StateDefinitionChanged,
)
from reliability.core.leases import Leases
from reliability.ledger.connection import LedgerConnection
from reliability.states import attempt_table
from reliability.states.alteration import StateChange
from reliability.states.explain_row import contributions_to, parameter
from reliability.states.kinds import stored_state
from reliability.transaction.correct.drop import drop_topology
from reliability.transaction.correct.rollback import release, roll_back
from reliability.transaction.inspect.explain import explain
from reliability.transaction.inspect.verify import verify
from reliability.transaction.maintain import sweep as sweep_module
from reliability.transaction.maintain.sweep import sweep
from reliability.transaction.process.attempt_messages import end_attempt
from reliability.transaction.topology.alter import alter
from reliability.transaction.topology.lifecycle import declare
from tests.replay.shop import Shop, made
from tests.support.fix_postgres import (
    execute,
    own_session,
    rows,
    statements_of,
    wait_until_it_waits,
)

VALUES = {"word": Append("word", "text"), "price": Append("price", "numeric(14,2)")}
VIEWED = State("viewed", key={"k": "bigint"}, values=VALUES, as_view=True)
OWN = (
    "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
    " WHERE i.inhparent = 'reliability_contribution.shop__viewed'::regclass ORDER BY 1"
)
BY_ATTEMPT = "SELECT _txid, _attempt_id, count(*) FROM {} GROUP BY 1, 2 ORDER BY 1, 2"
STORED = BY_ATTEMPT.format("reliability_contribution.shop__viewed")
SEEN = BY_ATTEMPT.format("viewed")
PLACES = "SELECT tableoid, ctid, xmin FROM reliability_contribution.shop__viewed ORDER BY 1, 2"


def emitted(connection, monkeypatch, min_rows):
    """One txid of six rows, emitted; with fewer an attempt stages in a table of its own."""
    monkeypatch.setattr(attempt_table, "MIN_ROWS", min_rows)
    shop = Shop(connection, kinds=lambda _: [VIEWED])
    assert shop.deliver(made(1)) == [1]
    return shop


@pytest.fixture(params=[2, 100], ids=["own table", "shared table"])
def shop(connection, monkeypatch, request):
    return emitted(connection, monkeypatch, request.param)


@pytest.fixture
def large(connection, monkeypatch):
    return emitted(connection, monkeypatch, 2)


PEEK = """
    CREATE FUNCTION public.peek(word text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE COST 0.00001
        AS $$ BEGIN RAISE NOTICE 'peeked at %%', word; RETURN true; END $$
"""


def peeked(connection):
    """Return how many rows a reader's cheap function gets to see."""
    with closing(own_session(connection.dsn)) as session, session.cursor() as reader:
        reader.execute("SET client_min_messages = 'notice'")
        reader.execute("SELECT count(*) FROM public.viewed WHERE public.peek(word)")
        return sum("peeked at" in notice for notice in session.notices)


def test_a_view_and_a_reader_s_function_see_no_row_that_does_not_count(shop, connection):
    """H11: neither of a dry run, nor of a replaced attempt, nor what has not committed.

    The commit writes none: it shows the rows where they were staged.
    """
    execute(connection, PEEK)
    shop.process(1)
    before = rows(connection, PLACES)
    assert len(before) == 6
    assert rows(connection, SEEN) == []
    shop.transact(1)
    assert rows(connection, PLACES) == before
    assert rows(connection, SEEN) == [(1, 0, 6)]
    shop.dry_run(1)
    shop.correct(1, made(5))
    shop.deliver(made(2))
    shop.process(2)
    assert [attempt for _, attempt, _ in rows(connection, STORED)] == [0, 1, 2, 0]
    assert rows(connection, SEEN) == [(1, 2, 6)]
    assert peeked(connection) == 6


def test_a_row_is_explained_by_the_index_though_its_key_has_a_leaky_comparison(connection):
    """H11: the view itself would be read whole for a numeric key."""
    numeric = replace(VIEWED, key={"price": "numeric"}, values={"word": Append("word", "text")})
    shop = Shop(connection, kinds=lambda _: [numeric])
    shop.commit(made(1), made(2))
    shop.dry_run(1)
    tables = stored_state("shop", numeric)
    with connection.transaction() as tx:
        tx.run(SQL("SET LOCAL enable_seqscan = off"))
        statement = SQL("EXPLAIN ") + contributions_to(tables, [])
        plan = tx.all(statement, **{parameter(0): "9.25", "most": 9})
    assert any("shop__viewed_price_idx" in row["QUERY PLAN"] for row in plan)
    by_key: dict[str | None, list[int]] = {}
    for txid, price in rows(connection, "SELECT _txid, price::text FROM viewed"):
        by_key.setdefault(price, []).append(txid)
    for price, txids in by_key.items():
        found = explain(connection, "shop", "viewed", {"price": price}).contributions
        assert [one.attempt and one.attempt.txid for one in found] == sorted(txids)


def test_an_older_snapshot_keeps_what_it_has_seen(large, connection, monkeypatch):
    """H11: a replay and a sweep take nothing away from a reader who began before them.

    A table that nobody sees is not dropped before the longest snapshot has ended.
    """
    large.transact(1)
    with closing(own_session(connection.dsn)) as session, session.cursor() as reader:
        session.set_session(isolation_level="REPEATABLE READ", readonly=True)
        reader.execute("SELECT 1")  # its snapshot, and no lock on the view
        large.correct(1, made(5))
        sweep(connection, "shop", Leases(), clean=True)
        reader.execute(SEEN)
        assert reader.fetchall() == [(1, 0, 6)]
    assert rows(connection, SEEN) == [(1, 1, 6)]
    assert len(rows(connection, OWN)) == 2
    monkeypatch.setattr(sweep_module, "LONGEST_SNAPSHOT_SECONDS", 0.0)
    _sweep(connection.dsn)
    assert len(rows(connection, OWN)) == 1
    assert rows(connection, SEEN) == [(1, 1, 6)]


@pytest.fixture
def replaced(connection, monkeypatch):
    """One txid, replaced, with another state beside the view; only the view has own tables."""
    monkeypatch.setattr(attempt_table, "MIN_ROWS", 3)
    monkeypatch.setattr(sweep_module, "LONGEST_SNAPSHOT_SECONDS", 0.0)
    counts = State("counts", values={"n": Count()})
    shop = Shop(connection, kinds=lambda _: [VIEWED, counts], tasks=2)
    shop.commit(made(1))
    shop.correct(1, made(5))
    return shop


def test_readers_do_not_wait_while_a_sweep_deletes(replaced, connection):
    """The lock that DROP takes stops them: so nothing else is done while it is held."""
    with closing(own_session(connection.dsn)) as holder, ThreadPoolExecutor() as executor:
        holder.cursor().execute("SELECT FROM reliability_contribution.shop__counts FOR UPDATE")
        swept = executor.submit(_sweep, connection.dsn)
        wait_until_it_waits(connection, "sweeping")
        with connection.transaction() as tx:
            tx.one("set_lock_timeout", seconds=0.5)
            assert tx.one(SQL("SELECT count(*) AS rows FROM public.viewed"))["rows"] == 6
        holder.rollback()
        assert len(swept.result().cleaned) == 1
    assert len(rows(connection, OWN)) == 1


def test_what_a_sweep_has_deleted_is_gone_though_a_reader_keeps_it_from_the_drop(
    replaced, connection
):
    """Only the drop is left to the next sweep."""
    counts = "SELECT count(*) FROM reliability_contribution.shop__counts"
    with closing(own_session(connection.dsn)) as reader:
        reader.cursor().execute("SELECT FROM public.viewed")
        assert not _sweep(connection.dsn).cleaned
        assert rows(connection, counts) == [(2,)]  # of four: each attempt had two partitions
        assert len(rows(connection, OWN)) == 2
    assert _sweep(connection.dsn).cleaned
    assert len(rows(connection, OWN)) == 1


def _sweep(dsn):
    with LedgerConnection(dsn, "sweeping") as connection:
        return sweep(connection, "shop", Leases(), clean=True)


def test_an_attempt_that_ends_while_it_opens_a_table_leaves_none(large, connection):
    """A sweep that comes before the table is there never comes back for it."""
    create = attempt_table._create

    def create_late(tx, own, grant, **how):
        with closing(LedgerConnection(connection.dsn)) as sweeper:
            end_attempt(sweeper, grant, AttemptFenced("a test"), fence=True)
            assert sweep(sweeper, "shop", Leases(), clean=True).cleaned
        create(tx, own, grant, **how)

    with (
        patch.object(attempt_table, "_create", create_late),
        pytest.raises(AttemptFenced, match="a test"),
    ):
        large.transact(1)
    assert rows(connection, OWN) == []


def test_a_task_that_hangs_in_vain_does_not_stop_the_seal(large, connection):
    """Another try of its partition has acked; its COPY locks the table that is to be indexed."""
    write = large.write
    with ExitStack() as hanging:

        def write_twice(grant):
            write(grant)
            task = own_session(connection.dsn, application_name=f"reliability {grant}")
            hanging.enter_context(closing(task))
            [(own,)] = rows(connection, OWN)
            copied = "(_txid, _attempt_id, _x, _n) VALUES (1, 0, 1, 1)"
            task.cursor().execute(f"INSERT INTO reliability_contribution.{own} {copied}")

        large.write = write_twice
        large.transact(1)
    assert rows(connection, SEEN) == [(1, 0, 6)]


def test_a_rollback_takes_headers_out_and_a_release_brings_rows_back(shop, connection):
    shop.transact(1)
    shop.commit(made(2))
    [difference] = roll_back(connection, "shop", 1, "a test").differences
    assert (difference.rows_removed, difference.rows_added) == (6, 0)
    assert rows(connection, SEEN) == [(1, 0, 6)]
    release(connection, "shop")
    shop.replay(2)
    assert rows(connection, SEEN) == [(1, 0, 6), (2, 1, 6)]


def test_values_may_have_names_of_the_ledgers(connection):
    """A replay joins the rows with headers, which have columns of these names."""
    names = ("rows", "header", "staged", "txid", "attempt_id")
    named = replace(VIEWED, values={name: Append("word", "text") for name in names})
    shop = Shop(connection, kinds=lambda _: [named])
    shop.commit(made(1))
    [difference] = shop.correct(1, made(5))
    assert difference.rows_added == difference.rows_removed > 0


def test_rows_that_are_gone_are_found_by_verify_and_not_committed(shop, connection):
    """H2: missing rows are no empty contribution."""
    shop.transact(1)
    [before] = verify(connection, "shop")
    execute(connection, "DELETE FROM reliability_contribution.shop__viewed WHERE word = 'b'")
    [after] = verify(connection, "shop")
    assert (before.is_exact, after.is_exact) == (True, False)
    shop.deliver(made(2))
    shop.process(2)
    execute(connection, "TRUNCATE reliability_contribution.shop__viewed CASCADE")
    with pytest.raises(LedgerCorruption, match="0 exist"):
        shop.transact(2)
    assert rows(connection, SEEN) == []


def test_a_state_has_only_so_many_tables(large, connection, monkeypatch):
    """H11: each makes the planning of a query longer."""
    monkeypatch.setattr(attempt_table, "MAX_TABLES_OF_VIEW", 1)
    large.transact(1)
    large.commit(made(2))
    assert len(rows(connection, OWN)) == 1
    assert rows(connection, SEEN) == [(1, 0, 6), (2, 0, 6)]


def test_tables_of_attempts_are_indexed_passed_over_altered_and_dropped(large, connection):
    large.transact(1)
    [(own,)] = rows(connection, OWN)
    indexed = "SELECT tablename::text FROM pg_indexes WHERE indexdef LIKE '%(k)' ORDER BY 1"
    assert rows(connection, indexed) == [(own,), ("shop__viewed",)]
    large.commit(made(2))
    plan = rows(connection, "EXPLAIN SELECT * FROM viewed WHERE _txid = 2")
    own = [name for (name,) in rows(connection, OWN)]
    assert [any(name in line for (line,) in plan) for name in own] == [False, True]
    added = replace(VIEWED, values={**VALUES, "day": Append("day", "date")})
    large.topology = replace(large.topology, states=(added,))
    alter(connection, large.topology, "a test")
    assert rows(connection, "SELECT count(*), count(day) FROM viewed") == [(12, 0)]
    drop_topology(connection, "shop")
    left = "SELECT relname FROM pg_class WHERE relname ~ 'viewed|attempt_[0-9]'"
    assert rows(connection, left) == []


LAST = "a view, which takes new columns only after the others"


@pytest.mark.parametrize(
    ("old", "new", "obstacle"),
    [
        ({}, {"values": {"day": Append("day", "date"), **VALUES}}, LAST),
        ({}, {"values": {"word": VALUES["word"]}}, LAST),
        ({}, {"values": {**VALUES, "price": Append("price", "numeric")}}, LAST),
        ({"as_view": False}, {}, "a table does not become a view"),
    ],
    ids=["in front", "fewer", "another type", "a table before"],
)
def test_no_other_change_of_a_view(old, new, obstacle):
    before, after = (stored_state("shop", replace(VIEWED, **how)) for how in (old, new))
    change = StateChange(before, after)
    assert obstacle in (change.obstacle() or "")
    if old:
        assert change.differences() == ["readers' rows: a table becomes a view"]


def test_what_takes_the_views_place_is_refused(large, connection):
    """H11: it has the same columns, but no later commit would change its rows."""
    large.transact(1)
    for txid, kind in ((2, "UNLOGGED TABLE"), (3, "MATERIALIZED VIEW")):
        with connection.transaction() as tx:
            tx.run(SQL(f"ALTER VIEW public.viewed RENAME TO original_{txid}"))
            tx.run(SQL(f"CREATE {kind} public.viewed AS SELECT * FROM public.original_{txid}"))
        with pytest.raises(StateDefinitionChanged, match="is no view any more") as refused:
            declare(connection, large.topology)
        execute(connection, statements_of(refused.value))
        execute(connection, f"DROP {kind.removeprefix('UNLOGGED ')} public.viewed_replaced")
        large.commit(made(txid))
        assert rows(connection, SEEN) == [(each, 0, 6) for each in range(1, txid + 1)]
    shown = "_txid, _attempt_id, _x, _n, k, word, price FROM reliability_contribution.shop__viewed"
    execute(connection, f"CREATE OR REPLACE VIEW public.viewed AS SELECT {shown}")
    large.correct(3, made(9))
    assert (3, 0, 6) in rows(connection, SEEN)
    with pytest.raises(StateDefinitionChanged, match="not ask the ledger which rows") as refused:
        declare(connection, large.topology)
    mended = statements_of(refused.value)
    assert "DROP" not in mended  # which would take its grants
    execute(connection, mended)
    assert rows(connection, SEEN) == [(1, 0, 6), (2, 0, 6), (3, 1, 6)]
    declare(connection, large.topology)


def test_changed_states_are_made_anew_before_the_first_commit(large, connection):
    large.process(1)
    changed = replace(large.topology, states=(replace(VIEWED, as_view=False),))
    declare(connection, changed)
    kind = "SELECT relkind::text FROM pg_class WHERE oid = 'viewed'::regclass"
    assert rows(connection, kind) == [("r",)]
    declare(connection, large.topology)
    assert rows(connection, kind) == [("v",)]


def test_only_appended_rows_can_be_viewed():
    with pytest.raises(InvalidDefinition, match="only appended rows"):
        State("counts", values={"n": Count()}, as_view=True)
