"""Many rows to append are staged in a table of the attempt's own."""

from __future__ import annotations

import pytest
from psycopg2.sql import SQL

from reliability.core.attempt import Grant, TransactionAttempt
from reliability.core.errors import AttemptFenced, LedgerCorruption
from reliability.settings import Leases
from reliability.states import attempt_table
from reliability.states.tables import StateTables
from reliability.transaction.correct.drop import drop_topology
from reliability.transaction.maintain.sweep import sweep
from tests.replay.shop import Shop, made
from tests.support.fix_postgres import rows

TABLES = (  # of the state `log`; those of a view inherit (test_views_of_appended_rows.py)
    "SELECT count(*) FROM pg_class WHERE relnamespace = 'reliability_contribution'::regnamespace"
    " AND relname LIKE 'attempt%%' AND relkind = 'r'"
    " AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = pg_class.oid)"
)
STAGED = "SELECT count(*) FROM reliability_contribution.shop__log"
KNOWN = "SELECT count(*) FROM reliability.attempt_table WHERE state = 'log'"
LOG = "SELECT count(*) FROM log"


@pytest.fixture
def shop(connection, monkeypatch):
    """One txid, emitted; with two rows a batch has a table of its own."""
    monkeypatch.setattr(attempt_table, "MIN_ROWS", 2)
    shop = Shop(connection)
    assert shop.deliver(made(1)) == [1]
    return shop


def count(connection, statement):
    [(number,)] = rows(connection, statement)
    return number


def test_rows_go_from_the_attempts_table_to_the_target_and_it_is_dropped(shop, connection):
    shop.process(1)
    assert [count(connection, each) for each in (TABLES, STAGED, LOG)] == [1, 0, 0]
    shop.transact(1)
    assert [count(connection, each) for each in (TABLES, STAGED, LOG)] == [0, 0, 6]
    assert count(connection, KNOWN) == 0


def test_few_rows_have_no_table_of_their_own(shop, connection):
    shop.transact(1)
    shop.deliver(made(2, rows=1))
    shop.process(2)
    assert (count(connection, TABLES), count(connection, STAGED)) == (0, 1)


def test_a_table_that_is_not_what_was_sealed_is_not_committed(shop, connection):
    """H10, H2: missing rows are no empty contribution."""
    shop.process(1)
    with connection.transaction() as tx:
        tx.run(SQL("TRUNCATE reliability_contribution.attempt_1"))
    with pytest.raises(LedgerCorruption, match="0 exist"):
        shop.transact(1)
    assert count(connection, LOG) == 0


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


def test_an_ended_attempt_gets_no_table(shop, connection):
    nonce = "00000000-0000-0000-0000-000000000000"
    ended = Grant(topology="shop", attempt=TransactionAttempt(1, 0), nonce=nonce)
    log = StateTables("shop", next(s for s in shop.topology.states if s.is_append))
    with pytest.raises(AttemptFenced), connection.transaction() as tx:
        attempt_table.open_table(tx, log, ended, emitted=6)
    assert count(connection, TABLES) == 0


def test_a_dropped_topology_leaves_no_table(shop, connection):
    shop.process(1)
    with connection.transaction() as tx:
        tx.run(SQL("UPDATE reliability.attempt SET status = 'FAILED', reason_code = 'X'"))
    drop_topology(connection, "shop")
    assert count(connection, TABLES) == 0
