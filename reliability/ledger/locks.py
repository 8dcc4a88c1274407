"""Lock a topology's row: its holder decides, all others queue (A3, C1)."""

from __future__ import annotations

from reliability.core.errors import (
    CheckpointMismatch,
    NotTheCoordinator,
    TopologyUnknown,
)
from reliability.ledger.connection import DatabaseTransaction, Row

# A commit of millions of rows takes minutes; while waiting, a process holds no other lock.
PATIENCE_SECONDS = 300
# The holder of the topology must not wait long for another lock.
HOLDERS_PATIENCE_SECONDS = 10


def lock_topology(tx: DatabaseTransaction, topology: str, patience: int = PATIENCE_SECONDS) -> Row:
    """Lock the topology's row and return it; raise LedgerBusy after `patience` seconds.

    :raises NotTheCoordinator: this database has only a mirror of the row; decisions are made in the
        coordinator's ledger
    """
    hold_topology(tx, topology, patience)
    return tx.one("locked_topology", topology=topology)


def hold_topology(tx: DatabaseTransaction, topology: str, patience: int = PATIENCE_SECONDS) -> None:
    """Lock the topology's row in one round trip with the next statement, which runs under the lock.

    What `lock_topology` raises, that statement raises.
    """
    _queue_lock(tx, topology, patience)
    tx.queue("check_coordinator", topology=topology)


def lock_mirror(tx: DatabaseTransaction, topology: str, patience: int = PATIENCE_SECONDS) -> None:
    """Lock the mirrored row in a database that only takes part in the topology.

    :raises CheckpointMismatch: there is no row: the database was replaced or restored
    """
    if _lock(tx, topology, patience) is None:
        raise CheckpointMismatch(f"it has no record of {topology}")


def _lock(tx: DatabaseTransaction, topology: str, patience: int) -> Row | None:
    _queue_lock(tx, topology, patience)
    return tx.first("locked_topology", topology=topology)


def _queue_lock(tx: DatabaseTransaction, topology: str, patience: int) -> None:
    tx.queue("set_lock_timeout", seconds=patience)
    tx.queue("lock_topology", topology=topology)
    tx.queue("set_lock_timeout", seconds=HOLDERS_PATIENCE_SECONDS)


def check_coordinator(tx: DatabaseTransaction, topology: str) -> None:
    """Raise NotTheCoordinator if this database has only a mirror of the topology."""
    row = tx.first("mirrored_topology", topology=topology)
    if row is not None:
        _unless_mirror(row, topology)


def check_known(tx: DatabaseTransaction, topology: str) -> None:
    """Check a topology's name that a person typed.

    :raises TopologyUnknown: the ledger has no topology with this name
    :raises NotTheCoordinator: this database only takes part in it
    """
    row = tx.first("mirrored_topology", topology=topology)
    if row is None:
        raise TopologyUnknown(f"the ledger has no topology called {topology}")
    _unless_mirror(row, topology)


def _unless_mirror(row: Row, topology: str) -> None:
    if row["participant"] is not None:
        raise NotTheCoordinator(f"the ledger of {topology} is in another database")
