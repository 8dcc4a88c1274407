"""A table of an attempt's own, in which it stages many rows (H10).

Its rows are read whole. If the attempt cannot count, a sweep drops the table.

- For rows to append: the commit copies them into the target and drops the table.
- For any other state: the table inherits from that of the contributions, whose readers so read its
  rows too. When the attempt commits they are the contribution, and the table stays, unless the
  state keeps no contributions. Readers plan with each table, so a state has only so many. The seal
  moves what turns out to be few rows to the contributions' table.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from psycopg2.sql import SQL, Composed, Identifier, Literal

from reliability.core.attempt import Grant
from reliability.core.errors import AttemptFenced, LedgerBusy, LedgerCorruption, RightMissing
from reliability.core.statement_key import StatementKey
from reliability.states.tables import StateTables, Tables, attempt_table_of, column_definitions

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction, LedgerConnection

logger = logging.getLogger(__name__)

# With fewer rows, the table costs more in the catalogs than it saves at the commit.
MIN_ROWS = 100_000
# Planning a query takes longer with each table, and locks each. Those of a view stay; of others a
# sweep leaves only the newest.
MAX_TABLES_OF_VIEW = 200
MAX_TABLES = 32
# It waits for a VACUUM of the contributions' table, and others that read this wait behind it.
OPEN_PATIENCE_SECONDS = 1
# The DROP of a merged table waits for whoever reads the contributions, and new readers behind it.
MERGE_PATIENCE_SECONDS = 1


def open_table(
    connection: LedgerConnection, tables: StateTables, grant: Grant, emitted: int
) -> StateTables:
    """Create a table for an attempt that may stage many rows, and return it.

    :param emitted: the number of the batch's rows
    :returns: the same tables if no table of its own is needed, or if there can be none now
    :raises AttemptFenced: the attempt has ended
    """
    if emitted < MIN_ROWS:
        return tables
    try:
        with connection.transaction(patience=OPEN_PATIENCE_SECONDS) as tx:
            return _open(tx, tables, grant)
    except (LedgerBusy, RightMissing) as error:  # it may be another role's to inherit from
        logger.info("%s stages %s with others: %s", grant, tables.name, error)
        return tables


def _open(tx: DatabaseTransaction, tables: StateTables, grant: Grant) -> StateTables:
    most = MAX_TABLES_OF_VIEW if tables.is_view else MAX_TABLES
    row = tx.one(
        "open_attempt_table",
        state=tables.name,
        most=most if tables.attempt_tables_inherit else None,
        **grant,
    )
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
    definition = "({columns})"
    if own.attempt_tables_inherit:
        # With the check, a query for a txid passes over the tables of others.
        definition = (
            "(CHECK (_txid = {txid} AND _attempt_id = {attempt_id})) INHERITS ({contribution})"
        )
    # VACUUM must not shorten one whose size tells what was sealed, until it has committed.
    options = " WITH (autovacuum_enabled = false)" if own.state.is_append else ""
    return own.sql(
        f"CREATE TABLE {{staged}} {definition}{options};"
        "ALTER TABLE {staged} ALTER _txid SET DEFAULT {txid},"
        " ALTER _attempt_id SET DEFAULT {attempt_id}",
        columns=column_definitions(own.contribution_columns()),
        txid=Literal(grant.attempt.txid),
        attempt_id=Literal(grant.attempt.attempt_id),
    )


def find_table(tx: DatabaseTransaction, tables: Tables, key: StatementKey) -> Tables:
    """Return the tables with that of the attempt, if it has one of its own."""
    row = tx.first("attempt_table", **{**key, "state": tables.name})
    return tables if row is None else tables.with_attempt_table(row["table_id"])


def seal(connection: LedgerConnection, tables: StateTables, rows: int) -> None:
    """Seal the attempt's own table: merge few rows, or record its size and index it by the key.

    A table that the commit drops is not indexed. If somebody reads the contributions for long, few
    rows stay in the table too.

    :param rows: how many it has
    """
    if tables.attempt_tables_inherit and rows < MIN_ROWS:
        try:
            with connection.transaction(patience=MERGE_PATIENCE_SECONDS) as tx:
                merge(tx, tables)
            return
        except LedgerBusy as error:
            logger.info("table %s stays: %s", tables.attempt_table, error)
    with connection.transaction() as tx:
        if tables.attempt_tables_inherit and tables.key:
            if tables.is_view or tables.keeps_contributions:  # first: it waits until nobody writes
                index = Identifier(f"attempt_{tables.attempt_table}_key")
                tx.run(tables.sql("CREATE INDEX IF NOT EXISTS {i} ON {staged} ({key})", i=index))
            # tell the planner how many rows and keys it has
            tx.run(tables.sql("ANALYZE {staged} (_txid, _attempt_id, {key})"))
        tx.one("seal_attempt_table", table_id=tables.attempt_table)


def merge(tx: DatabaseTransaction, tables: StateTables) -> None:
    """Move the rows of the attempt's table to the contributions' table, and drop it.

    A reader who locks all tables before the snapshot sees them in one of both (H10).
    """
    assert tables.attempt_table is not None
    tx.run(tables.copy_attempt_table(tables.contribution))
    drop(tx, tables.attempt_table)


def find_sealed_table(
    tx: DatabaseTransaction, tables: StateTables, key: StatementKey
) -> StateTables:
    """Do as `find_table`, and check that the table is no smaller than when it was sealed (H2).

    To count its rows would hold the topology's lock for longer. It may be larger: what a zombie
    copies after the seal rolls back, but the pages stay.

    :raises LedgerCorruption: it lacks rows that were sealed
    """
    row = tx.first("attempt_table", **{**key, "state": tables.name})
    if row is None:
        return tables
    own = tables.with_attempt_table(row["table_id"])
    sealed, present = row["sealed_bytes"], row["bytes"]
    if sealed is None or present is None or present < sealed:
        raise LedgerCorruption(
            f"{'.'.join(own.staged.strings)}: {sealed} bytes were sealed, but {present} exist"
        )
    return own


def keep(tx: DatabaseTransaction, number: int) -> None:
    """Let VACUUM work on a table that has become part of a view."""
    tx.run(SQL("ALTER TABLE {} RESET (autovacuum_enabled)").format(attempt_table_of(number)))


def drop_all(tx: DatabaseTransaction, tables: StateTables) -> None:
    for row in tx.all("tables_of_attempts", topology=tables.topology, state=tables.name):
        drop(tx, row["table_id"])


def drop(tx: DatabaseTransaction, number: int) -> None:
    """Drop an attempt's table and forget it; safe to repeat."""
    tx.run(SQL("DROP TABLE IF EXISTS {}").format(attempt_table_of(number)))
    tx.run("forget_attempt_table", table_id=number)
