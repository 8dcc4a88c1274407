"""sql/schema.sql is what all migrations make, to be read in one piece."""

from __future__ import annotations

from pathlib import Path

import pytest

from reliability.ledger.connection import LedgerConnection
from reliability.ledger.migrations import migrate, migrations
from reliability.ledger.queries import sql_folder
from tests.support.fix_postgres import new_session, rows
from tests.support.golden import check_golden

CATALOG = Path(__file__).parents[1] / "support" / "catalog.sql"
HEAD = "-- Generated: what all migrations make. Their comments say what it is for.\n\n"


@pytest.fixture
def empty(environment):
    """An empty database."""
    with new_session() as connection:
        yield connection


def test_the_schema_is_what_the_migrations_make(connection: LedgerConnection):
    statements = [text for (text,) in rows(connection, CATALOG.read_text())]
    check_golden(sql_folder() / "schema.sql", HEAD + "\n\n".join(statements) + "\n")


def test_one_migration_makes_what_ten_made(empty: LedgerConnection):
    """Up to the order of columns. The ten were never released."""
    migrate(empty, migrations()[:1])
    statements = "\n".join(text for (text,) in rows(empty, CATALOG.read_text()))
    made = sorted(line.rstrip(",") for line in statements.splitlines() if line)
    recorded = Path(__file__).with_name("schema_of_ten_migrations.txt")
    assert made == recorded.read_text().splitlines()
