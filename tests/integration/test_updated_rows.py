"""UpdatedRowsSpout: rows again after each change, by the time of it, and what commits late."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from itertools import count

import psycopg2
import pytest

from reliability import State, Topology, UpdatedRowsSpout, Upsert
from reliability.core.errors import InvalidDefinition, SourceChanged, SourceMoved
from reliability.core.spout import BatchMeta, NoItems, only
from reliability.ledger.queries import queries
from reliability.spouts.updated_rows import TableWindow
from reliability.testing import Source, check_spout
from reliability.testing.allocated import Txids
from reliability.transaction.correct.rollback import release, roll_back
from tests.support.batches import batches_of
from tests.support.fix_pipeline import pipeline_of
from tests.support.fix_postgres import admin_session, database_of, rows, run_as_admin
from tests.support.lake import lose_driver

SPOUT = UpdatedRowsSpout("accounts", key="id", updated_at="updated_at", lag_seconds=1)
AGO = "now() - interval '1 h'"


@pytest.fixture
def accounts(database):
    """A table whose rows say when they were changed, as an application does it."""
    database.execute("SET search_path = public")
    database.execute(
        "CREATE TABLE accounts (id text PRIMARY KEY, balance int,"
        " updated_at timestamptz NOT NULL DEFAULT now())"
    )
    return database


def put(database, at, *balances):
    """Insert or change accounts at a time, which is an expression of SQL."""
    for id_, balance in balances:
        database.execute(
            f"INSERT INTO accounts VALUES (%s, %s, {at}) ON CONFLICT (id) DO UPDATE"
            " SET balance = excluded.balance, updated_at = excluded.updated_at",
            [id_, balance],
        )


@pytest.fixture
def story(accounts, connection):
    """It needs no Spark until a test gives it one."""
    balances = State(
        "balances",
        key={"id": "text"},
        values={"balance": Upsert("balance", by={"updated_at": "timestamptz"}, type="integer")},
        table="public.balances",
    )
    topology = Topology(
        "accounts", SPOUT, [balances], lambda b: {"balances": b}, max_spout_pending=3
    )
    return pipeline_of(topology, connection)


def balances(connection):
    return rows(connection, "SELECT id, balance FROM public.balances ORDER BY id")


def source(connection):
    return rows(connection, "SELECT id, balance FROM public.accounts ORDER BY id")


def emit(spout, txids):
    """Emit; return how many rows each new batch has."""
    batches = spout.cut(spout.plan(None, txids))
    metas = [BatchMeta(items=batch, emitted=spout.count(batch)) for batch in batches]
    return [txids.record(meta).emitted.count for meta in metas]


# --- the contract --------------------------------------------------------------------------------


class Accounts(Source):
    """Accounts that were changed an hour ago, one second after the other."""

    def __init__(self, database):
        self.database, self.numbers = database, count()

    def add(self):
        number = next(self.numbers)
        at = f"{AGO} + interval '{number} s'"
        put(self.database, at, (f"a{number}", number), (f"b{number}", number))

    def lose(self):
        self.database.execute("DELETE FROM accounts WHERE id = 'b1'")

    def rows(self):
        self.database.execute("SELECT id, balance FROM accounts")
        return [{"id": id_, "balance": balance} for id_, balance in self.database.fetchall()]


@pytest.mark.slow  # the eight batches below run each time
def test_it_keeps_the_contract(accounts, spark):
    spout = replace(SPOUT, columns=["id", "balance"])
    pairs = replace(spout, max_rows_per_batch=2)
    tried = check_spout(pairs, Accounts(accounts), spark=spark, others=[spout])
    assert "a loss and a refreeze" in tried


@pytest.mark.slow
def test_eight_batches_through_all_that_happens(story, accounts, connection, spark):
    story.spark = spark
    run, numbers, runs = story, count(1), {}

    def commit(run, *balances):
        put(accounts, f"{AGO} + interval '{next(numbers)} s'", *balances)
        [txid] = run.emit(None)
        run.transact(txid)
        runs[txid] = run

    for number in range(4):
        run = run.again(f"run {number}")
        commit(run, ("a", number), (f"k{number}", 0))
    run = run.again("killed")
    put(accounts, f"{AGO} + interval '{next(numbers)} s'", ("a", 5), ("killed", 1))
    assert run.emit(None) == [5]
    run.run_step(run.begin(5))
    lose_driver(connection)
    run.transact(5)
    for number in range(5, 8):
        run = run.again(f"run {number}")
        commit(run, ("a", number), (f"k{number}", 1))
    assert balances(connection) == source(connection)
    assert [*runs] == [1, 2, 3, 4, 6, 7, 8]
    runs[3].max_tries += 1
    with pytest.raises(SourceChanged, match="2 rows were emitted, and 1 have"):
        runs[3].transact(3)
    roll_back(connection, "accounts", 7, "too early")
    release(connection, "accounts")
    run.runner.refreeze(7, "account a has changed since")
    for txid in (7, 8):
        runs[txid].replay(txid)
    assert balances(connection) == source(connection)


# --- windows -------------------------------------------------------------------------------------


def test_windows_leave_no_moment_out_and_no_moment_apart(accounts):
    for second in range(5):
        at = f"timestamptz '2026-01-01Z' + interval '{second} s'"
        put(accounts, at, (f"a{second}", 1), (f"b{second}", 1))
    put(accounts, "timestamptz '0001-01-01 00:00:00.000001Z'", ("old", 1))
    txids = Txids()
    assert emit(replace(SPOUT, max_rows_per_batch=3), txids) == [3, 4, 2, 2]
    items = [item for meta in txids.batches.values() for item in only(TableWindow, meta.items)]
    assert [one.last + 1 for one in items[:-1]] == [other.first for other in items[1:]]
    assert items[0].identity.endswith("#..2026-01-01T00:00:00Z")
    assert replace(items[1], last=2**60).identity.endswith(f"T00:00:00.000001Z..{2**60}")
    assert emit(SPOUT, txids) == []
    put(accounts, "timestamptz '2026-01-02Z'", ("a0", 2))
    assert emit(SPOUT, txids) == [1]


def test_what_changes_while_it_is_read_is_the_next_attempts_and_what_commits_late_is_said(
    story, accounts, connection, spark
):
    """The writer has a clock of its own, so its time does not tell when it commits."""
    put(accounts, AGO, ("a", 1), ("b", 1))
    assert story.emit(None) == [1]
    grant = story.begin(1)
    put(accounts, f"{AGO} + interval '1 s'", ("a", 2))
    with pytest.raises(SourceMoved):
        story.run_step(grant)
    story.transact(1)
    assert balances(connection) == [("a", 2), ("b", 1)]
    put(accounts, f"{AGO} - interval '30 min'", ("late", 1))
    run = story.again("second")
    with pytest.raises(SourceChanged, match=r"txid 1 has read 2 rows, and now 3 .*refreeze"):
        run.emit(None)
    story.runner.refreeze(1, "a late row")
    story.replay(1)
    assert balances(connection) == source(connection)
    put(accounts, "now() - interval '1 min'", ("a", 3))
    assert run.emit(None) == [2]
    run.spark = spark
    run.transact(2)
    assert balances(connection) == source(connection)


# --- what commits late ---------------------------------------------------------------------------


def session(connection):
    patient = "-c idle_in_transaction_session_timeout=0 -c search_path=public"
    opened = psycopg2.connect(connection.dsn, options=patient)
    opened.set_session(readonly=False, isolation_level="READ COMMITTED")
    return closing(opened)


def test_rows_wait_for_each_transaction_that_began_before_them(accounts, connection, caplog):
    caplog.set_level("INFO")
    put(accounts, AGO, ("a", 1), ("b", 1))
    txids = Txids()
    with session(connection) as slow:
        slow.cursor().execute("SELECT now()")  # it has not written yet
        time.sleep(0.01)
        put(accounts, "now()", ("b", 2))
        time.sleep(1.2)
        assert emit(SPOUT, txids) == [1]
        assert "left for later: a transaction is open since" in caplog.text
        slow.cursor().execute("UPDATE accounts SET balance = 2, updated_at = now() WHERE id = 'a'")
        slow.commit()
    assert emit(SPOUT, txids) == [2]


@pytest.mark.parametrize("backend", ["autovacuum worker", "walsender", "client backend", None])
def test_an_autovacuum_of_hours_holds_no_rows_up(connection, backend):
    query = f"""WITH pg_stat_activity AS (
        SELECT current_database() AS datname, 0 AS pid, now() - interval '1 h' AS xact_start,
               '' AS query, 'active' AS state, %(backend)s::text AS backend_type)
        {queries()["settled_until"]}"""
    [(*_, oldest)] = rows(connection, query, lag_seconds=1, backend=backend)
    assert (oldest is None) == (backend in ("autovacuum worker", "walsender"))


def test_a_clock_that_was_set_back_is_found_while_it_is_behind(accounts):
    """E5: what changes until it is past the last window would never be read."""
    put(accounts, AGO, ("a", 1))
    txids = Txids()
    [item] = only(TableWindow, SPOUT.plan(None, txids))
    moment = item.last + 2 * 3_600_000_000  # microseconds
    ahead = replace(item, first=moment, last=moment, rows=0, xor=0)
    txids.record(BatchMeta(items=(ahead,), emitted=SPOUT.count([ahead])))
    put(accounts, "now()", ("b", 1))
    with pytest.raises(SourceChanged, match=r"was set back.*a later updated_at"):
        SPOUT.plan(None, txids)


def test_who_may_not_see_since_when_others_are_open_is_told(accounts, connection, caplog):
    put(accounts, AGO, ("a", 1))
    run_as_admin("CREATE ROLE stranger", "GRANT stranger TO reliability")
    accounts.execute("GRANT SELECT ON accounts TO stranger")
    with session(connection) as other, pytest.MonkeyPatch.context() as patch:
        other.cursor().execute("SELECT 1")
        patch.setenv("RELIABILITY_DSN_LIMITED", f"{connection.dsn} options='-c role=stranger'")
        assert len(batches_of(replace(SPOUT, database="limited"))) == 1
        assert "needs pg_read_all_stats" in caplog.text
    caplog.clear()
    with admin_session(database_of(connection.dsn)) as admin:
        admin.execute("SET track_activities = off")
        assert len(batches_of(SPOUT)) == 1
    accounts.execute("DROP OWNED BY stranger")
    run_as_admin("DROP ROLE stranger")
    assert "needs pg_read_all_stats" in caplog.text


# --- definitions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"lag_seconds": 0}, "lag_seconds must be at least 1"),
        ({"opaque": False}, "change until they commit"),
        ({"max_rows_per_batch": 0}, "max_rows_per_batch must be at least 1"),
    ],
)
def test_a_wrong_definition_is_refused(options, what):
    with pytest.raises(InvalidDefinition, match=what):
        replace(SPOUT, **options)


def test_a_table_without_times_or_keys_is_refused(accounts):
    accounts.execute("ALTER TABLE accounts ALTER updated_at DROP NOT NULL")
    with pytest.raises(InvalidDefinition, match="updated_at must be a timestamptz, NOT NULL"):
        SPOUT.plan(None, NoItems())
    accounts.execute("CREATE VIEW shown AS SELECT * FROM accounts")
    view = replace(SPOUT, table="shown")
    put(accounts, AGO, ("a", 1))
    assert len(batches_of(view)) == 1
    put(accounts, "NULL", ("b", 1))
    with pytest.raises(InvalidDefinition, match="1 rows have a key id that is NULL or another"):
        view.plan(None, NoItems())
    for endless in ("'-infinity'", "'infinity'"):  # the latter was never read
        put(accounts, endless, ("b", 1))
        with pytest.raises(InvalidDefinition, match="is infinity or -infinity"):
            view.plan(None, NoItems())
    accounts.execute("ALTER TABLE accounts ALTER updated_at SET NOT NULL")
    with pytest.raises(InvalidDefinition, match="key balance must be NOT NULL"):
        replace(SPOUT, key="balance").plan(None, NoItems())
