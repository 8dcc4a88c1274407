"""A TransactionalState stores only values: no committed txid can be replaced or taken out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reliability.core.errors import LedgerCorruption
from reliability.core.plan import ChangeKey
from reliability.states.kinds.first_commit import add_to_rows
from reliability.states.kinds.stored import StoredState

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction, Row


class StoredTransactional(StoredState):
    """Adds to the rows and does not keep the contribution."""

    presence = "compacted"  # as the ledger calls rows that are not kept one by one

    def add(self, tx: DatabaseTransaction, key: ChangeKey) -> None:
        """Add the contribution and delete the staged rows; the header counts keys."""
        add_to_rows(tx, self.tables, key)
        tx.queue(self.tables.clean(), **key)
        tx.queue("drop_attempt_table", **key)

    def replace(self, tx: DatabaseTransaction, key: ChangeKey, header: Row, sealed: int) -> None:
        """Raise: a replay should have been refused before (H5)."""
        raise LedgerCorruption(f"{self.tables.target_name} keeps nothing that could be replaced")

    def take_out_later(self, tx: DatabaseTransaction, key: ChangeKey) -> None:
        """Raise: a rollback should have been refused before (H5)."""
        raise LedgerCorruption(f"{self.tables.target_name} keeps nothing that could be taken out")
