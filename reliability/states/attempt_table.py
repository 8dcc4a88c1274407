"""A table of an attempt's own, in which it stages many rows (H10).

Its rows are read whole. If the attempt cannot count, a sweep drops the table. Functions of the
ledger's owner make, change and drop it: the role of a task needs no right to.

- For rows to append: the commit copies them into the target and drops the table, or leaves that to
  a sweep if somebody reads it.
- For any other state: the table inherits from that of the contributions, whose readers so read its
  rows too. When the attempt commits they are the contribution, and the table stays, unless the
  state keeps no contributions. Readers plan with each table, so a state has only so many. The seal
  moves what turns out to be few rows to the contributions' table.

Executors with a role of their own stage all rows so, because they have no right on the tables of
the contributions (S8). A table of few rows, or one too many, inherits nothing: the seal moves its
rows.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from reliability.core.attempt import Grant
from reliability.core.errors import AttemptFenced, LedgerBusy, LedgerCorruption, RightMissing
from reliability.core.statement_key import StatementKey
from reliability.states.tables import StateTables, Tables

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
    connection: LedgerConnection,
    tables: StateTables,
    grant: Grant,
    emitted: int,
    *,
    for_executors: bool = False,
) -> StateTables:
    """Create a table for an attempt that may stage many rows, and return it.

    :param emitted: the number of the batch's rows
    :param for_executors: executors have a role of their own, which needs a table for few rows too
    :returns: the same tables if no table of its own is needed, or if there can be none now
    :raises AttemptFenced: the attempt has ended
    """
    if emitted >= MIN_ROWS:
        try:
            with connection.transaction(patience=OPEN_PATIENCE_SECONDS) as tx:
                own = _open(tx, tables, grant, for_executors=for_executors)
            if own.attempt_table is not None:
                return own
        except (LedgerBusy, RightMissing) as error:  # it may be another role's to inherit from
            logger.info("%s stages %s with others: %s", grant, tables.name, error)
    if not for_executors:
        return tables
    with connection.transaction() as tx:
        return _open(tx, tables, grant, for_executors=True, is_merged=True)


def _open(
    tx: DatabaseTransaction,
    tables: StateTables,
    grant: Grant,
    *,
    for_executors: bool,
    is_merged: bool = False,
) -> StateTables:
    most = MAX_TABLES_OF_VIEW if tables.is_view else MAX_TABLES
    inherits = tables.attempt_tables_inherit and not is_merged
    row = tx.one(
        "open_attempt_table",
        state=tables.name,
        most=most if inherits else None,
        is_merged=is_merged,
        **grant,
    )
    if not row["is_live"]:
        raise AttemptFenced(f"{grant} has ended")
    if row["table_id"] is None:
        return tables
    own = tables.with_attempt_table(row["table_id"])
    _create(tx, own, grant, inherits=inherits, for_executors=for_executors)
    if tx.first("hold_attempt", **grant) is None:  # a sweep after its end has not seen the table
        raise AttemptFenced(f"{grant} has ended")
    return own


def _create(
    tx: DatabaseTransaction, own: StateTables, grant: Grant, *, inherits: bool, for_executors: bool
) -> None:
    tx.run(
        "create_attempt_table",
        table_id=own.attempt_table,
        contribution=own.contribution_table,
        inherits=inherits,
        is_measured=own.state.is_append,
        for_executors=for_executors,
        **grant,
    )


def find_table(tx: DatabaseTransaction, tables: Tables, key: StatementKey) -> Tables:
    """Return the tables with that of the attempt, if it has one of its own."""
    row = tx.first("attempt_table", **{**key, "state": tables.name})
    return tables if row is None else tables.with_attempt_table(row["table_id"])


def close(connection: LedgerConnection, number: int) -> bool:
    """Let executors write no more to a table; say if the seal has to move its rows in any case."""
    return bool(connection.one("close_attempt_table", table_id=number)["is_merged"])


def seal(
    connection: LedgerConnection, tables: Tables, rows: int, *, is_merged: bool = False
) -> Tables:
    """Seal the attempt's own table: merge few rows, or record its size and index it by the key.

    If somebody reads the contributions for long, few rows stay in the table too.

    :param rows: how many it has
    :param is_merged: it inherits nothing, so only a table of rows to append may stay
    :returns: the tables as they are then
    """
    if is_merged and (tables.attempt_tables_inherit or rows < MIN_ROWS):
        return _merged(connection, tables)
    if tables.attempt_tables_inherit and rows < MIN_ROWS:
        try:
            return _merged(connection, tables, MERGE_PATIENCE_SECONDS)
        except LedgerBusy as error:
            logger.info("table %s stays: %s", tables.attempt_table, error)
    with connection.transaction() as tx:
        if tables.attempt_tables_inherit and tables.key:
            tx.run("index_attempt_table", table_id=tables.attempt_table, key=list(tables.key))
        tx.one("seal_attempt_table", table_id=tables.attempt_table)
    return tables


def _merged(connection: LedgerConnection, tables: Tables, patience: float | None = None) -> Tables:
    with connection.transaction(patience=patience) as tx:
        claim(tx, tables)
        merge(tx, tables)
    return tables.with_attempt_table(None)


def claim(tx: DatabaseTransaction, tables: Tables) -> bool:
    """Lock the attempt's table for a merge; False if another process has merged it.

    An erasure waits, and is waited for: it would not find the rows that a merge has copied (H12).
    """
    return tx.first("claim_attempt_table", table_id=tables.attempt_table) is not None


def merge(tx: DatabaseTransaction, tables: StateTables) -> None:
    """Move the rows of the attempt's table to the contributions' table, and drop it.

    A reader who locks all tables before the snapshot sees them in one of both (H10).
    """
    assert tables.attempt_table is not None
    tx.run(tables.copy_attempt_table(tables.contribution))
    drop(tx, tables.attempt_table)


def find_sealed_table(
    tx: DatabaseTransaction, tables: StateTables, key: StatementKey
) -> tuple[StateTables, bool]:
    """Do as `find_table`, and say whether the table is smaller than when it was sealed (H2).

    To count its rows would hold the topology's lock for longer. It may be larger: what a zombie
    copies after the seal rolls back, but the pages stay.

    :raises LedgerCorruption: it is gone, or was never sealed
    """
    row = tx.first("attempt_table", **{**key, "state": tables.name})
    if row is None:
        return tables, False
    own = tables.with_attempt_table(row["table_id"])
    sealed, present = row["sealed_bytes"], row["bytes"]
    if sealed is None or present is None:
        raise LedgerCorruption(
            f"{'.'.join(own.staged.strings)}: {sealed} bytes were sealed, but {present} exist"
        )
    return own, present < sealed


def drop_all(tx: DatabaseTransaction, tables: StateTables) -> None:
    for row in tx.all("tables_of_attempts", topology=tables.topology, state=tables.name):
        drop(tx, row["table_id"])


def drop(tx: DatabaseTransaction, number: int) -> None:
    """Drop an attempt's table and forget it; safe to repeat."""
    tx.run("drop_attempt_table", table_id=number)
