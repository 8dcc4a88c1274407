"""A Postgres server for the test run, a migrated template, and a database of its own per test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extensions
import pytest

from dev.environment import Environment
from dev.postgres import NO_FSYNC
from reliability.ledger.door import Door
from reliability.ledger.migrations import migrate

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = "ledger_template"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def environment(tmp_path_factory) -> Iterator[Environment]:
    """An isolated environment beside the user's own; Postgres is up in it, Airflow is not."""
    environment = Environment(
        ROOT,
        tmp_path_factory.mktemp("environment"),
        postgres_settings=NO_FSYNC,
        profile="demo",
    )
    environment.up_postgres()
    before = dict(os.environ)
    os.environ.update(environment.own_env())
    try:
        yield environment
    finally:
        os.environ.clear()
        os.environ.update(before)
        environment.destroy()


def run_as_admin(*statements: str) -> None:
    """Run statements that a superuser has to run, outside a transaction."""
    connection = psycopg2.connect("service=admin")
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
    finally:
        connection.close()


@contextmanager
def new_database(template: str | None = None) -> Iterator[str]:
    """Give the DSN of a database for the block: empty, or with all that the template has."""
    name = f"test_{next(_numbers)}"
    copied = f" TEMPLATE {template}" if template else ""
    run_as_admin(f"CREATE DATABASE {name} OWNER reliability{copied}")
    try:
        yield f"service=reliability dbname={name}"
    finally:
        run_as_admin(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def new_session(template: str | None = None) -> Iterator[Door]:
    """Give a session with such a database."""
    with new_database(template) as dsn:
        door = Door(dsn, application_name="test")
        yield door
        door.close()


def database_of(dsn: str) -> str:
    """Return the name of the database that a test's DSN leads to."""
    return dsn.split("dbname=")[1]


@pytest.fixture(scope="session")
def template(environment) -> str:
    """A database with an empty, migrated ledger."""
    run_as_admin(f"CREATE DATABASE {TEMPLATE} OWNER reliability")
    door = Door(f"service=reliability dbname={TEMPLATE}")
    migrate(door)
    door.close()
    return TEMPLATE


@pytest.fixture
def dsn(template, monkeypatch) -> Iterator[str]:
    """The DSN of a migrated database that this test has for itself."""
    with new_database(template) as dsn:
        monkeypatch.setenv("RELIABILITY_DSN", dsn)
        yield dsn


@pytest.fixture
def add_database(template, monkeypatch) -> Iterator[Callable[[str], Door]]:
    """Make migrated databases for a topology to name: `add_database("east")` gives a session."""
    with ExitStack() as stack:

        def add(name: str) -> Door:
            door = stack.enter_context(new_session(template))
            monkeypatch.setenv(f"RELIABILITY_DSN_{name.upper()}", door.dsn)
            return door

        yield add


@pytest.fixture
def door(dsn) -> Iterator[Door]:
    """A session with the test's database."""
    door = Door(dsn, application_name="test")
    yield door
    door.close()


def rows(door: Door, statement: str, **parameters: object) -> list[tuple[Any, ...]]:
    """Run a query that a user would run and return plain tuples."""
    with door.transaction() as tx:
        # plain tuples from the start: a row as a dict would lose one of two columns of a name
        cursor = tx.cursor.connection.cursor(cursor_factory=psycopg2.extensions.cursor)
        cursor.execute(statement, parameters or None)
        return cursor.fetchall()
