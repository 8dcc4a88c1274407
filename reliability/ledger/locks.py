"""Lock a topology: whoever holds its row decides, everybody else queues (A3, C1)."""

from __future__ import annotations

from reliability.ledger.door import Row, Transaction

# A commit of millions of rows takes minutes; who waits for the topology holds nothing yet.
PATIENCE_SECONDS = 300
# Whoever holds the topology must not wait long for anything else.
HOLDERS_PATIENCE_SECONDS = 10


def lock_topology(tx: Transaction, topology: str, patience: int = PATIENCE_SECONDS) -> Row:
    """Wait for the topology's row and return it; raise LedgerBusy after `patience` seconds."""
    tx.one("set_lock_timeout", seconds=patience)
    row = tx.one("lock_topology", topology=topology)
    tx.one("set_lock_timeout", seconds=HOLDERS_PATIENCE_SECONDS)
    return row
