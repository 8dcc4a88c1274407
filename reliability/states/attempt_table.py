"""A table of an attempt's own, in which it stages many rows to append.

Its rows are read whole, and it is dropped whole: by the commit that copies its rows into the
target, or by a sweep if the attempt cannot count.

If the target is a view, the table inherits from that of the contributions, so that the view shows
its rows as soon as a header names the attempt (H11). It stays, and readers plan with each of them:
so a state has only so many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg2.sql import SQL, Composable, Composed, Literal

from reliability.core.attempt import Grant
from reliability.core.errors import AttemptFenced, LedgerCorruption
from reliability.core.statement_key import StatementKey
from reliability.states.tables import StateTables, attempt_table_of, column_definitions

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction

# With fewer rows, the table costs more in the catalogs than it saves at the commit.
MIN_ROWS = 100_000
# Planning a query of a view takes longer with each table, and locks each.
MAX_TABLES_OF_VIEW = 200


def open_table(
    tx: DatabaseTransaction, tables: StateTables, grant: Grant, emitted: int
) -> StateTables:
    """Create a table for an attempt that may stage many rows to append, and return it.

    :param emitted: the number of the batch's rows
    :returns: the same tables if no table of its own is needed
    :raises AttemptFenced: the attempt has ended
    """
    if not tables.state.is_append or emitted < MIN_ROWS:
        return tables
    most = MAX_TABLES_OF_VIEW if tables.as_view else None
    row = tx.one("open_attempt_table", state=tables.state.name, most=most, **grant)
    if not row["is_live"]:
        raise AttemptFenced(f"{grant} has ended")
    if row["table_id"] is None:
        return tables
    own = tables.with_attempt_table(row["table_id"])
    tx.run(_create(own, grant))
    if tx.first("hold_attempt", **grant) is None:  # a sweep after its end has not seen the table
        raise AttemptFenced(f"{grant} has ended")
    return own


def _create(own: StateTables, grant: Grant) -> Composed:
    definition: Composable = SQL("({})").format(column_definitions(own.contribution_columns()))
    if own.as_view:
        # With the check, a query for a txid passes over the tables of others.
        definition = SQL("(CHECK (_txid = {} AND _attempt_id = {})) INHERITS ({})").format(
            Literal(grant.attempt.txid), Literal(grant.attempt.attempt_id), own.contribution
        )
    # VACUUM must not shorten it until it has committed, because its size tells what was sealed.
    return SQL("CREATE TABLE {} {} WITH (autovacuum_enabled = false)").format(
        own.staged, definition
    )


def find_table(tx: DatabaseTransaction, tables: StateTables, key: StatementKey) -> StateTables:
    """Return the tables with that of the attempt, if it has one of its own."""
    if not tables.state.is_append:
        return tables
    row = tx.first("attempt_table", **{**key, "state": tables.state.name})
    return tables if row is None else tables.with_attempt_table(row["table_id"])


def seal(tx: DatabaseTransaction, tables: StateTables) -> None:
    """Record the size of the attempt's table, if it has one; index what stays."""
    if tables.attempt_table is not None:
        if tables.as_view and tables.key:  # first: it waits until nobody writes
            tx.run(tables.index_attempt_table())
        tx.one("seal_attempt_table", table_id=tables.attempt_table)


def find_sealed_table(
    tx: DatabaseTransaction, tables: StateTables, key: StatementKey
) -> StateTables:
    """Do as `find_table`, and check that the table is as large as it was when it was sealed (H2).

    To count its rows would hold the topology's lock for longer.

    :raises LedgerCorruption: its rows are not those that were sealed
    """
    row = tx.first("attempt_table", **{**key, "state": tables.state.name})
    if row is None:
        return tables
    own = tables.with_attempt_table(row["table_id"])
    if row["sealed_bytes"] is None or row["sealed_bytes"] != row["bytes"]:
        raise LedgerCorruption(
            f"{'.'.join(own.staged.strings)}: {row['sealed_bytes']} bytes were sealed, but "
            f"{row['bytes']} exist"
        )
    return own


def keep(tx: DatabaseTransaction, number: int) -> None:
    """Let VACUUM work on a table that has become part of a view."""
    tx.run(SQL("ALTER TABLE {} RESET (autovacuum_enabled)").format(attempt_table_of(number)))


def drop_all(tx: DatabaseTransaction, tables: StateTables) -> None:
    """Drop the tables of all attempts of a state."""
    for row in tx.all("tables_of_state", topology=tables.topology, state=tables.state.name):
        drop(tx, row["table_id"])


def drop(tx: DatabaseTransaction, number: int) -> None:
    """Drop an attempt's table and forget it; safe to repeat."""
    tx.run(SQL("DROP TABLE IF EXISTS {}").format(attempt_table_of(number)))
    tx.run("forget_attempt_table", table_id=number)
