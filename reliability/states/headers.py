"""Headers record how many rows each txid has in a state; check them before a change (H2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import LedgerCorruption
from reliability.states.fold_history import wrong_rows
from reliability.states.tables import StateTables

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction, Row

MIN_TXID, MAX_TXID = -(2**63), 2**63 - 1


def wrong_headers(
    tx: DatabaseTransaction, tables: StateTables, *, after: int = MIN_TXID, through: int = MAX_TXID
) -> list[Row]:
    """Return the headers of these txids that do not match the rows that exist."""
    return tx.all(wrong_rows(tables), after=after, through=through)


def check_headers(
    tx: DatabaseTransaction, tables: StateTables, *, after: int, through: int = MAX_TXID
) -> None:
    """Raise LedgerCorruption if the rows that exist do not match their headers."""
    for wrong in wrong_headers(tx, tables, after=after, through=through):
        raise LedgerCorruption(f"{tables.contribution_table}: {format_header(wrong)}")


def format_header(row: Row) -> str:
    """Describe how a header differs from its rows."""
    attempt = TransactionAttempt(row["txid"], row["attempt_id"])
    return f"attempt {attempt} is recorded with {row['rows']} rows, but {row['found']} exist"


def compacted_through(tx: DatabaseTransaction, topology: str) -> dict[str, int]:
    """Return the last txid of each state of this database that can no longer be taken out.

    The key "" has the txid through which the topology compacts in all databases.
    """
    rows = tx.all("history_of_states", topology=topology)
    return {row["state"]: row["compacted_through"] for row in rows}
