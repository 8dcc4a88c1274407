"""Headers record how many rows each txid has in a state; check them before a change (H2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg2.sql import SQL

from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import LedgerCorruption
from reliability.states.tables import StateTables

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction, Ledger, Row

RESTORE_ROWS = "restore the missing rows from a backup, or delete the surplus ones"
MIN_TXID, MAX_TXID = -(2**63), 2**63 - 1


def wrong_headers(
    tx: DatabaseTransaction, tables: StateTables, *, after: int = MIN_TXID, through: int = MAX_TXID
) -> list[Row]:
    """Return the headers of these txids that do not match the rows that exist.

    Every appended row belongs to a header. A contributions' table also has staged rows without one.
    """
    appends = tables.state.is_append
    statement = tables.sql(
        "SELECT coalesce(header.txid, found._txid) AS txid,"
        " coalesce(header.attempt_id, found._attempt_id) AS attempt_id,"
        " coalesce(header.rows, 0) AS rows, coalesce(found.rows, 0) AS found"
        " FROM (SELECT * FROM reliability.contribution AS header WHERE {header}"
        " AND txid > %(after)s AND txid <= %(through)s) AS header"
        " {kind} JOIN (SELECT _txid, _attempt_id, count(*) AS rows FROM {table}"
        " WHERE _txid > %(after)s AND _txid <= %(through)s GROUP BY 1, 2) AS found"
        " ON found._txid = header.txid AND found._attempt_id = header.attempt_id"
        " WHERE header.rows IS DISTINCT FROM coalesce(found.rows, 0) ORDER BY 1, 2",
        kind=SQL("FULL" if appends else "LEFT"),
        table=tables.target if appends else tables.contribution,
    )
    return tx.all(statement, after=after, through=through)


def check_headers(
    tx: DatabaseTransaction, tables: StateTables, *, after: int, through: int = MAX_TXID
) -> None:
    for wrong in wrong_headers(tx, tables, after=after, through=through):
        raise LedgerCorruption(f"{tables.contribution_table}: {format_header(wrong)}")


def format_header(row: Row) -> str:
    what = "what was adopted"
    if row["txid"] > 0:
        what = f"attempt {TransactionAttempt(row['txid'], row['attempt_id'])}"
    return f"{what} is recorded with {row['rows']} rows, but {row['found']} exist"


def compacted_through(ledger: Ledger, topology: str) -> dict[str, int]:
    """Return the last txid of each state of this database that can no longer be taken out.

    The key "" has the txid through which the topology compacts in all databases.
    """
    rows = ledger.all("history_of_states", topology=topology)
    return {row["state"]: row["compacted_through"] for row in rows}
