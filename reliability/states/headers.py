"""Headers say how many rows each txid has in a state; what they say is compared first (H2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import LedgerCorruption
from reliability.states.history import wrong_rows
from reliability.states.tables import StateTables

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction, Row

MIN_TXID, MAX_TXID = -(2**63), 2**63 - 1


def wrong_headers(
    tx: DatabaseTransaction, tables: StateTables, *, after: int = MIN_TXID, through: int = MAX_TXID
) -> list[Row]:
    """Return the headers of these txids that do not speak of the rows that are there."""
    return tx.all(wrong_rows(tables), after=after, through=through)


def check_headers(
    tx: DatabaseTransaction, tables: StateTables, *, after: int, through: int = MAX_TXID
) -> None:
    """Raise LedgerCorruption if rows are gone, or came, that a header does not speak of."""
    for wrong in wrong_headers(tx, tables, after=after, through=through):
        raise LedgerCorruption(f"{tables.contribution_table}: {format_header(wrong)}")


def format_header(row: Row) -> str:
    """Say what is wrong with a header and its rows."""
    attempt = TransactionAttempt(row["txid"], row["attempt_id"])
    return f"attempt {attempt} is on record with {row['rows']} rows, and {row['found']} are there"


def compacted_through(tx: DatabaseTransaction, topology: str) -> dict[str, int]:
    """Return the last txid that each state of this database can take out no more.

    Under "" what the topology has decided to compact, in whatever database.
    """
    rows = tx.all("history_of_states", topology=topology)
    return {row["state"]: row["compacted_through"] for row in rows}
