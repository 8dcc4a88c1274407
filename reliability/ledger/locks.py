"""Lock a topology: whoever holds its row decides, everybody else queues (A3, C1)."""

from __future__ import annotations

from reliability.core.errors import (
    CheckpointMismatch,
    LedgerCorruption,
    NotTheCoordinator,
    TopologyUnknown,
)
from reliability.ledger.connection import DatabaseTransaction, Row

# A commit of millions of rows takes minutes; who waits for the topology holds nothing yet.
PATIENCE_SECONDS = 300
# Whoever holds the topology must not wait long for anything else.
HOLDERS_PATIENCE_SECONDS = 10


def lock_topology(tx: DatabaseTransaction, topology: str, patience: int = PATIENCE_SECONDS) -> Row:
    """Wait for the topology's row and return it; raise LedgerBusy after `patience` seconds.

    :raises NotTheCoordinator: this database has a mirror of the row only; what is decided here
        would be decided twice
    """
    row = _lock(tx, topology, patience)
    if row is None:
        raise LedgerCorruption(f"the ledger knows no topology {topology}")
    _unless_mirror(row, topology)
    return row


def lock_mirror(tx: DatabaseTransaction, topology: str, patience: int = PATIENCE_SECONDS) -> None:
    """Wait for the row in a database that only takes part in the topology.

    :raises CheckpointMismatch: it takes part no more: it was exchanged, or restored from a backup
    """
    if _lock(tx, topology, patience) is None:
        raise CheckpointMismatch(f"it knows nothing of {topology}")


def _lock(tx: DatabaseTransaction, topology: str, patience: int) -> Row | None:
    tx.one("set_lock_timeout", seconds=patience)
    row = tx.first("lock_topology", topology=topology)
    tx.one("set_lock_timeout", seconds=HOLDERS_PATIENCE_SECONDS)
    return row


def check_coordinator(tx: DatabaseTransaction, topology: str) -> None:
    """Raise NotTheCoordinator if this database has a mirror of the topology only."""
    row = tx.first("mirrored_topology", topology=topology)
    if row is not None:
        _unless_mirror(row, topology)


def check_known(tx: DatabaseTransaction, topology: str) -> None:
    """Raise for a name that a person mistyped.

    :raises TopologyUnknown: the ledger has no topology of that name
    :raises NotTheCoordinator: this database only takes part in it
    """
    row = tx.first("mirrored_topology", topology=topology)
    if row is None:
        raise TopologyUnknown(f"the ledger has no topology called {topology}")
    _unless_mirror(row, topology)


def _unless_mirror(row: Row, topology: str) -> None:
    if row["participant"] is not None:
        raise NotTheCoordinator(f"{topology} has its ledger in another database")
