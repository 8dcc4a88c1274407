"""A TransactionalState stores only values: no committed txid can be replaced or taken out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reliability.core.errors import LedgerCorruption
from reliability.states.kinds.keyed import KeyedState
from reliability.states.kinds.stored import Change, Effect, Sealed

if TYPE_CHECKING:
    from reliability.ledger.connection import Row


class StoredTransactional(KeyedState):
    """Adds to the rows and does not keep the contribution."""

    presence = "compacted"  # as the ledger calls rows that are not kept one by one

    def add(self, change: Change) -> None:
        """Add the contribution and delete the staged rows; the header counts keys."""
        super().add(change)
        change.queue(self.clean())
        change.queue("drop_table_of_attempt")

    def replace(self, change: Change, header: Row, sealed: Sealed) -> Effect:
        """Raise: a replay should have been refused before (H5)."""
        raise LedgerCorruption(f"{self.target_name} keeps nothing that could be replaced")

    def take_out_later(self, change: Change) -> Effect:
        """Raise: a rollback should have been refused before (H5)."""
        raise LedgerCorruption(f"{self.target_name} keeps nothing that could be taken out")
