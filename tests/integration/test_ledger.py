"""The ledger's schema, its connection, and what a person sees when something about it is wrong."""

from __future__ import annotations

import itertools
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg2
import pytest
from psycopg2.sql import SQL

from reliability.core.errors import (
    DsnUnreadable,
    LedgerCorruption,
    LedgerNotMigrated,
    LedgerRefusedLogin,
    LedgerUnavailable,
    PasswordInDsn,
    UnexpectedAnswer,
)
from reliability.core.graph import THE_STEP
from reliability.deployment.address import address_of
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.migrations import check_migrated, migrate, migrations
from reliability.ledger.queries import queries
from spark_apps import global_count
from tests.support.doomed import doomed
from tests.support.fix_postgres import new_session, own_session, rows, run_as_admin


@pytest.fixture
def empty(environment):
    """An empty database."""
    with new_session() as connection:
        yield connection


def test_migrate_from_nothing_by_two_at_once_and_again(empty):
    with pytest.raises(LedgerNotMigrated, match=r"no ledger yet.*reliability migrate"):
        check_migrated(empty)

    def work(_):
        with closing(LedgerConnection(empty.dsn)) as connection:
            return [m.number for m in migrate(connection)]

    with ThreadPoolExecutor(3) as threads:
        done = itertools.chain(*threads.map(work, range(3)))
    assert sorted(done) == [m.number for m in migrations()]
    assert migrate(empty) == []
    check_migrated(empty)


def test_a_postgres_that_is_not_there(environment):
    with pytest.raises(LedgerUnavailable, match="check that Postgres is running"):
        check_migrated(LedgerConnection("host=127.0.0.1 port=1 user=nobody"))


def test_a_refused_login(environment, monkeypatch):
    monkeypatch.setenv("PGPASSFILE", "/dev/null")
    with pytest.raises(LedgerRefusedLogin):
        check_migrated(LedgerConnection("service=reliability"))


def test_a_password_in_the_dsn_is_refused_and_no_piece_of_it_repeated(monkeypatch):
    for dsn, error in (
        ("host=db user=u password=hunter2", PasswordInDsn),
        ("host=h sslpassword=hunter2", PasswordInDsn),
        ("password=my hunter2", DsnUnreadable),
    ):
        monkeypatch.setenv("RELIABILITY_DSN", dsn)
        with pytest.raises(error) as raised:
            address_of()
        assert "hunter2" not in str(raised.value)
        assert raised.value.__cause__ is None


def test_a_missing_table_of_the_users_own_is_not_the_ledgers(shared_connection):
    with pytest.raises(UnexpectedAnswer, match="nosuch"), shared_connection.transaction() as tx:
        tx.run(SQL("SELECT * FROM nosuch.t"))


def test_no_transaction_runs_in_a_session_whose_settings_failed(shared_connection, monkeypatch):
    """S1: a role's short statement_timeout may end the statement that sets them."""
    shared_connection.close()
    with monkeypatch.context() as patch:
        patch.setitem(queries(), "open_session", "SELECT 1/0")
        with pytest.raises(Exception, match="division by zero"), shared_connection.transaction():
            pass
    assert rows(shared_connection, "SELECT current_setting('TimeZone')") == [("UTC",)]


def test_a_lost_session_is_opened_again(shared_connection):
    [(pid,)] = rows(shared_connection, "SELECT pg_backend_pid()")
    run_as_admin(f"SELECT pg_terminate_backend({pid})")
    with pytest.raises(LedgerUnavailable), shared_connection.transaction() as tx:
        tx.one(SQL("SELECT 1 AS one"))
    assert rows(shared_connection, "SELECT 1") == [(1,)]


def test_an_error_rolls_back_and_stays_the_first_error(shared_connection):
    def fail_inside():
        with shared_connection.transaction() as tx:
            tx.run(SQL("CREATE TABLE public.x ()"))
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fail_inside()
    assert rows(shared_connection, "SELECT to_regclass('public.x')") == [(None,)]


def test_a_transaction_in_one_round_trip_commits_all_of_it_or_nothing(connection):
    with connection.in_one_round_trip() as tx:
        tx.queue(SQL("CREATE TABLE public.x (n integer PRIMARY KEY)"))
        tx.queue(SQL("INSERT INTO public.x VALUES (1)"))
        assert tx.one(SQL("SELECT count(*) AS n FROM public.x"))["n"] == 1
    assert rows(connection, "SELECT n FROM public.x") == [(1,)]
    with pytest.raises(UnexpectedAnswer, match="duplicate key"):
        insert(connection.in_one_round_trip, 2, 1)
    assert rows(connection, "SELECT n FROM public.x") == [(1,)]
    with connection.in_one_round_trip() as tx:
        tx.run(SQL("INSERT INTO public.x VALUES (3)"))
        with pytest.raises(RuntimeError, match="has committed"):
            tx.run(SQL("INSERT INTO public.x VALUES (4)"))
    assert rows(connection, "SELECT n FROM public.x ORDER BY n") == [(1,), (3,)]


def insert(begin, *numbers):
    """Insert rows with one round trip."""
    with begin() as tx:
        for number in numbers:
            tx.queue(SQL(f"INSERT INTO public.x VALUES ({number})"))


def test_what_is_asked_with_a_commit_is_read_after_it(connection):
    """It is a transaction of its own: no other one is committed with it, or rolled back."""
    with connection.transaction() as tx:
        tx.queue(SQL("CREATE TABLE public.x AS SELECT pg_current_xact_id() AS made_by"))
        asked = "SELECT pg_current_xact_id() <> made_by AS is_another FROM public.x"
        assert tx.commit_and_ask(SQL(asked))["is_another"]
    with connection.transaction() as tx:
        tx.queue(SQL("CREATE TABLE public.y ()"))
        with pytest.raises(psycopg2.Error, match="nosuch"):
            tx.commit_and_ask(SQL("SELECT * FROM nosuch.t"))
    assert rows(connection, "SELECT to_regclass('public.y') IS NOT NULL") == [(True,)]


def test_a_transaction_that_does_nothing_sends_nothing(shared_connection):
    with doomed() as fate, LedgerConnection(shared_connection.dsn) as session:
        for begin in (session.transaction, session.in_one_round_trip):
            with begin():
                pass
    assert fate.round_trips == 1  # the session is opened


def test_a_row_that_has_to_be_there_and_is_not_is_corruption(shared_connection):
    none = SQL("SELECT 1 WHERE %(nobody)s")
    with (
        pytest.raises(LedgerCorruption, match="found no row for"),
        shared_connection.transaction() as tx,
    ):
        tx.one(none, nobody=False)


def test_every_query_is_used_and_prepares(shared_connection):
    """A statement that nobody calls, or that Postgres cannot parse, is found here."""
    from tests.support.fix_postgres import ROOT

    sources = [*ROOT.glob("reliability/**/*.py"), *ROOT.glob("plugins/**/*.py")]
    code = "".join(path.read_text() for path in sources if "core" not in path.parts)
    sql = code + "".join(path.read_text() for path in ROOT.glob("sql/**/*.sql"))
    called = set(re.findall(r"(?<!FUNCTION )reliability\.(\w+)\(", sql))
    unused = [name for name in queries() if f'"{name}"' not in code and name not in called]
    assert unused == []
    with closing(own_session(shared_connection.dsn)) as session, session.cursor() as cursor:
        for name, text in queries().items():
            if name == "create_migration_table" or not text.lstrip("-").strip():
                continue
            is_statement = re.search(r"^(SELECT|INSERT|UPDATE)", text, re.MULTILINE)
            if name == "open_session" or not is_statement:
                continue  # the session's own
            if re.search(r"\{[a-z]+\}", text):
                continue  # the names of a user's table are put in: test_spouts runs them
            if "pg_temp.persons" in text:
                cursor.execute(queries()["create_persons"])
            cursor.execute("EXPLAIN " + re.sub(r"%\(\w+\)s", "NULL", text))
            session.rollback()


CONSTRAINTS = {
    "curr_txid_within_allocated": "UPDATE reliability.topology SET curr_txid = 9",
    "one_live_attempt_per_txid": (
        "INSERT INTO reliability.attempt (topology, txid, attempt_id, request_id, lease,"
        " lease_until) SELECT 'global_count', 1, 7, min(request_id), '1s', now()"
        " FROM reliability.request"
    ),
    "lease_while_unsealed": "UPDATE reliability.attempt SET lease_until = NULL",
    "ended_says_why": ("UPDATE reliability.attempt SET status = 'FAILED', lease_until = NULL"),
    "committed_is_whole": "UPDATE reliability.transaction SET committed_attempt = 0",
    "one_state_per_target_table": (
        "INSERT INTO reliability.state (topology, state, target_table, definition,"
        " definition_digest, contribution_table)"
        " VALUES ('global_count', 'x', 'public.global_count', '{}', '', 'global_count__x')"
    ),
    "source_item_belongs_to_one_txid": (
        "INSERT INTO reliability.source_item VALUES ('global_count', 'memory:0:0', 2, '{(,)}')"
    ),
    "one_open_request_per_run_and_txid": (
        "INSERT INTO reliability.request (topology, txid, dag_id, run_id, number, kind,"
        " granted_after) SELECT topology, txid, dag_id, run_id, 2, kind, -1"
        " FROM reliability.request WHERE txid = 1"
    ),
}


def test_invariants_are_constraints_first(connection, python_pipeline):
    count = python_pipeline(global_count.topology)
    count.emit(None)
    count.begin(1)
    for constraint, breach in CONSTRAINTS.items():
        with pytest.raises(Exception, match=constraint), connection.transaction() as tx:
            tx.run(SQL(breach))


def test_the_story_of_an_attempt_is_written_by_trigger(connection, python_pipeline):
    count = python_pipeline(global_count.topology)
    count.emit(None)
    count.begin(1)
    count.transact(1, task=THE_STEP)
    story = "SELECT attempt_id, status FROM reliability.attempt_event ORDER BY event_id"
    first = [(0, "PROCESSING"), (0, "FENCED"), (1, "PROCESSING")]
    assert rows(connection, story) == [*first, (1, "SEALING"), (1, "PROCESSED"), (1, "COMMITTED")]
