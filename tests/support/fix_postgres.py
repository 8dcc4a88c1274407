"""A Postgres server for the test run, a migrated template, and a database of its own per test."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extensions
import pytest
from psycopg2.sql import SQL, Composable, Identifier, Placeholder

from dev.demo.guard import end_with_parent
from dev.services.environment import Environment
from reliability.core.errors import ReliabilityError
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.migrations import migrate
from reliability.spark.stage import stage_task
from tests.support.pool import PooledConnection, close_idle_sessions

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = "ledger_template"
PLAIN = "RELIABILITY_TEST_PLAIN"
# What servers, roles and hosts may have instead of the defaults. The suite runs with all of it;
# with RELIABILITY_TEST_PLAIN=1 it runs with none. Not jit_above_cost = 0: no result depends on it,
# and the first statement of each of thousands of sessions would be compiled.
HOSTILE_SETTINGS = {
    "TimeZone": "America/New_York",
    "DateStyle": "German, DMY",
    "IntervalStyle": "iso_8601",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "array_nulls": "off",
    "quote_all_identifiers": "on",
    "transform_null_equals": "on",
    "standard_conforming_strings": "off",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "synchronous_commit": "off",
    "jit": "on",
    "statement_timeout": "4s",
    "lock_timeout": "1ms",
    "idle_session_timeout": "5s",
    "idle_in_transaction_session_timeout": "100ms",
    "search_path": "shadows, pg_catalog, public",
}
HOSTILE_ENVIRONMENT = {"PGCLIENTENCODING": "LATIN1", "PGTZ": "Asia/Kathmandu"}
# What another role may create in a schema of the path. Before pg_catalog it takes the place of
# Postgres's own, and behind it too where its types fit better: jsonb_agg(jsonb) is taken rather
# than jsonb_agg(anyelement). A cast is found by its types, so a type is shadowed.
SHADOW_FUNCTIONS = {
    "clock_timestamp": ("", "timestamptz"),
    "to_regclass": ("text", "regclass"),
    "hashtextextended": ("text, bigint", "bigint"),
    "set_config": ("text, text, boolean", "text"),
    "current_setting": ("text", "text"),
    "unnest": ("bigint[]", "SETOF bigint"),
    "cardinality": ("bigint[]", "integer"),
    "array_to_string": ("text[], text", "text"),
    "to_jsonb": ("bigint", "jsonb"),
    "to_json": ("text", "json"),
    "jsonb_build_object": ("text, text", "jsonb"),
    "format": ("text, text", "text"),
    "concat_ws": ("text, text, text", "text"),
    "num_nonnulls": ("bigint, text", "integer"),
    "lower": ("int8range", "bigint"),
    "upper": ("int8multirange", "bigint"),
    "left": ("varchar, integer", "text"),
    "abs": ("anyelement", "anyelement"),
}
SHADOW_AGGREGATES = {"jsonb_agg": "jsonb", "array_agg": "text", "count": "bigint", "sum": "bigint"}
SHADOW_OPERATORS = {
    "=": ("text", "text"),
    "<>": ("text", "varchar"),
    "||": ("text", "bigint"),
    "+": ("bigint", "integer"),
    "<": ("timestamptz", "timestamptz"),
    "->>": ("jsonb", "text"),
    "<@": ("int8multirange", "int8multirange"),
    "@>": ("text[]", "text[]"),
}
SHADOW_TYPES = ("text", "jsonb", "uuid", "date", "timestamptz", "regclass", "int8range")
SHADOWED = "a shadow has run"


def shadows() -> str:
    """Return the statements that create them; each function fails."""
    body = f"LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '{SHADOWED}'; END $$;"
    made = [
        "DROP SCHEMA IF EXISTS shadows CASCADE",
        "CREATE SCHEMA shadows",
        "GRANT USAGE ON SCHEMA shadows TO PUBLIC",
        "SET LOCAL search_path = pg_catalog",
    ]
    for name, (arguments, returns) in SHADOW_FUNCTIONS.items():
        made.append(f"CREATE FUNCTION shadows.{name}({arguments}) RETURNS {returns} {body}")
    for name, of in SHADOW_AGGREGATES.items():
        made.append(f"CREATE FUNCTION shadows.next_{name}({of}, {of}) RETURNS {of} {body}")
        step = f"SFUNC = shadows.next_{name}, STYPE = {of}"
        made.append(f"CREATE AGGREGATE shadows.{name}({of}) ({step})")
    for number, (sign, (left, right)) in enumerate(SHADOW_OPERATORS.items()):
        returns = "text" if sign in ("||", "->>") else "bigint" if sign == "+" else "boolean"
        made.append(
            f"CREATE FUNCTION shadows.operator_{number}({left}, {right}) RETURNS {returns} {body}"
        )
        made.append(
            f"CREATE OPERATOR shadows.{sign} (LEFTARG = {left}, RIGHTARG = {right},"
            f" FUNCTION = shadows.operator_{number})"
        )
    made += [
        f"CREATE DOMAIN shadows.{name} AS pg_catalog.{name} CHECK (false)" for name in SHADOW_TYPES
    ]
    return ";\n".join(["BEGIN", *(one.rstrip(";") for one in made), "COMMIT"])


_numbers = itertools.count(1)
#: Databases that nobody uses any more. A session ends some moments after it was closed, and at once
#: a DROP would wait for that.
_left: list[str] = []


@pytest.fixture(scope="session")
def environment(tmp_path_factory) -> Iterator[Environment]:
    """An isolated environment beside the user's own; Postgres is up in it, Airflow is not."""
    with running_environment(tmp_path_factory.mktemp("environment")) as environment:
        yield environment


@contextmanager
def running_environment(folder: Path) -> Iterator[Environment]:
    """Run Postgres, with hostile settings, and let this process find it for the block.

    From here on a plain kill is like Ctrl-C: it leaves no server behind.
    """
    end_with_parent()
    environment = Environment(ROOT, folder, throwaway=True, profile="demo")
    environment.up_postgres()
    before = dict(os.environ)
    os.environ.update(environment.own_env())
    if not os.environ.get(PLAIN):
        make_hostile()
    try:
        yield environment
    finally:
        with suppress(psycopg2.Error), admin_session() as cursor:  # of mutants, the server goes on
            _drop_left(cursor)
        os.environ.clear()
        os.environ.update(before)
        environment.destroy()


def make_hostile() -> None:
    """Let the role that the product uses, and this process, have settings that it must not need."""
    os.environ.update(HOSTILE_ENVIRONMENT)
    with alone():
        for name, value in HOSTILE_SETTINGS.items():
            value = value if name == "search_path" else f"'{value}'"
            run_as_admin(f"ALTER ROLE reliability SET {name} = {value}")
        run_as_admin(shadows(), database="template1")


@contextmanager
def alone() -> Iterator[None]:
    """Keep others out: mutants that run side by side share a server and its roles."""
    with closing(psycopg2.connect("service=admin dbname=postgres")) as connection:
        connection.cursor().execute("SELECT pg_advisory_lock(0)")
        yield


def run_as_admin(*statements: str, database: str = "postgres") -> None:
    """Run statements that a superuser has to run, outside a transaction."""
    with admin_session(database) as cursor:
        for statement in statements:
            cursor.execute(statement)


@contextmanager
def admin_session(database: str = "postgres") -> Iterator[psycopg2.extensions.cursor]:
    """Open a superuser's session for the block; each statement is a transaction."""
    with closing(psycopg2.connect(f"service=admin dbname={database}")) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            yield cursor


@contextmanager
def new_database(template: str | None = None, encoding: str = "") -> Iterator[str]:
    """Give the DSN of a database for the block: empty, or with all that the template has."""
    name = f"test_{next(_numbers)}"
    dsn = f"service=reliability dbname={name}"
    # files that are copied take half the time of pages that are logged
    options = f" TEMPLATE {template} STRATEGY file_copy" if template else ""
    if template:
        close_idle_sessions(f"service=reliability dbname={template}")  # nobody may use it now
    if encoding:
        options = f" TEMPLATE template0 LOCALE 'C' ENCODING '{encoding}'"
    with admin_session() as cursor:
        _drop_left(cursor, but=2)
        cursor.execute(f"CREATE DATABASE {name} OWNER reliability{options}")
    try:
        yield dsn
    finally:
        close_idle_sessions(dsn)
        _left.append(name)


def _drop_left(cursor: psycopg2.extensions.cursor, but: int = 0) -> None:
    """Drop those that nobody uses any more, but for the last ones."""
    while len(_left) > but:
        cursor.execute(f"DROP DATABASE {_left.pop(0)} WITH (FORCE)")


@contextmanager
def new_session(template: str | None = None) -> Iterator[LedgerConnection]:
    """Give a session with such a database."""
    with new_database(template) as dsn:
        connection = LedgerConnection(dsn, application_name="test")
        yield connection
        connection.close()


def wait_until_it_waits(connection: LedgerConnection, name: str) -> None:
    """Wait until the session of this application waits for a lock."""
    waiting = (
        "SELECT FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = %(name)s AND wait_event_type = 'Lock'"
    )
    deadline = time.monotonic() + 20
    while not rows(connection, waiting, name=name):
        assert time.monotonic() < deadline, f"{name} does not wait for a lock"


def own_session(dsn: str, **parameters: Any) -> psycopg2.extensions.connection:
    """Open a session of a test's own, beside the product's; with plain settings."""
    plain = {
        "default_transaction_read_only": "off",
        "default_transaction_isolation": "read\\ committed",
        "search_path": "public",
        "statement_timeout": "0",
        "lock_timeout": "0",
        "idle_in_transaction_session_timeout": "0",
        "idle_session_timeout": "0",
    }
    options = " ".join(f"-c {name}={value}" for name, value in plain.items())
    connection: psycopg2.extensions.connection = psycopg2.connect(
        dsn, options=options, client_encoding="UTF8", **parameters
    )
    return connection


@pytest.fixture
def database(dsn) -> Iterator[psycopg2.extensions.cursor]:
    """A user's session with the test's database, of which each statement is a transaction."""
    with closing(own_session(dsn)) as session:
        session.autocommit = True
        yield session.cursor()


def database_of(dsn: str) -> str:
    """Return the name of the database that a test's DSN leads to."""
    return dsn.split("dbname=")[1]


@pytest.fixture(scope="session")
def template(environment) -> str:
    """A database with an empty, migrated ledger."""
    run_as_admin(f"CREATE DATABASE {TEMPLATE} OWNER reliability")
    connection = LedgerConnection(f"service=reliability dbname={TEMPLATE}")
    migrate(connection)
    connection.close()
    return TEMPLATE


@pytest.fixture
def origin(template: str) -> str:
    """The database that a test's own begins as; a module may name another one."""
    return template


@pytest.fixture
def dsn(origin, monkeypatch) -> Iterator[str]:
    """The DSN of a migrated database that this test has for itself.

    Spark tasks that run in this process share sessions; on a cluster, each has one of its own.
    """
    monkeypatch.setattr(stage_task, "LedgerConnection", PooledConnection)
    with new_database(origin) as dsn:
        monkeypatch.setenv("RELIABILITY_DSN", dsn)
        yield dsn


@pytest.fixture
def add_database(template, monkeypatch) -> Iterator[Callable[[str], LedgerConnection]]:
    """Make migrated databases for a topology to name: `add_database("east")` gives a session."""
    with ExitStack() as stack:

        def add(name: str) -> LedgerConnection:
            connection = stack.enter_context(new_session(template))
            monkeypatch.setenv(f"RELIABILITY_DSN_{name.upper()}", connection.dsn)
            return connection

        yield add


@pytest.fixture
def east(add_database: Callable[[str], LedgerConnection]) -> LedgerConnection:
    """A session with a second database, of this name."""
    return add_database("east")


@pytest.fixture
def warehouse(add_database: Callable[[str], LedgerConnection]) -> LedgerConnection:
    """The same, of this name."""
    return add_database("warehouse")


@pytest.fixture(scope="module")
def shared_connection(template) -> Iterator[LedgerConnection]:
    """A session with a database for the tests of a module, each of which rolls back."""
    with new_session(template) as connection:
        yield connection


@contextmanager
def rolled_back(connection: LedgerConnection) -> Iterator[DatabaseTransaction]:
    """Run a transaction and roll it back."""

    class RolledBack(Exception):
        pass

    with suppress(RolledBack), connection.transaction() as tx:
        yield tx
        raise RolledBack


@pytest.fixture
def tx(shared_connection) -> Iterator[DatabaseTransaction]:
    """A transaction of that session, which is rolled back."""
    with rolled_back(shared_connection) as tx:
        yield tx


@pytest.fixture
def connection(dsn) -> Iterator[LedgerConnection]:
    """A session with the test's database."""
    connection = LedgerConnection(dsn, application_name="test")
    yield connection
    connection.close()


def execute(connection: LedgerConnection, statement: str, **parameters: object) -> None:
    """Do to the database what no verb does."""
    connection.run(SQL(statement), **parameters)


def statements_of(error: ReliabilityError) -> str:
    """Return what a remedy says to run in a transaction."""
    return error.what_to_do.partition("BEGIN;")[2].partition("COMMIT;")[0]


def rows(
    connection: LedgerConnection, statement: str, **parameters: object
) -> list[tuple[Any, ...]]:
    """Run a query that a user would run and return plain tuples."""
    with connection.transaction() as tx:
        tx.queue(SQL("SET LOCAL search_path = public"))
        # plain tuples from the start: a row as a dict would lose one of two columns of a name
        cursor = tx.cursor.connection.cursor(cursor_factory=psycopg2.extensions.cursor)
        cursor.execute(statement, parameters or None)
        return cursor.fetchall()


def tables_of(connection: LedgerConnection) -> list[str]:
    """Return the tables of the ledger, and those of states, in a fixed order."""
    question = (
        "SELECT c.oid::regclass::text FROM pg_class c WHERE relkind = 'r' AND relnamespace IN"
        " ('reliability'::regnamespace, 'reliability_contribution'::regnamespace,"
        " 'public'::regnamespace) ORDER BY 1"
    )
    return [table for (table,) in rows(connection, question)]


def all_texts(connection: LedgerConnection) -> str:
    """Return all texts of these tables, in a fixed order."""
    each = (
        f"SELECT {number} AS place, t::text AS text FROM {table} t"
        for number, table in enumerate(tables_of(connection))
    )
    found = rows(connection, f"{' UNION ALL '.join(each)} ORDER BY place, text")
    return "\n".join(text for _, text in found)


def insert(tx: DatabaseTransaction, table: Composable, row: Mapping[str, Any]) -> None:
    """Insert a row, by its columns."""
    statement = SQL("INSERT INTO {} ({}) VALUES ({})").format(
        table, SQL(", ").join(map(Identifier, row)), SQL(", ").join(map(Placeholder, row))
    )
    tx.run(statement, **row)
