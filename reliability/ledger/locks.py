"""Lock a topology's row: its holder decides, all others queue (A3, C1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from reliability.core.errors import (
    CheckpointMismatch,
    LedgerBusy,
    LedgerUnavailable,
    NotTheCoordinator,
    ReliabilityError,
    TopologyUnknown,
)
from reliability.ledger.connection import DatabaseTransaction, Ledger, LedgerConnection, Row

# A commit of millions of rows takes minutes; while waiting, a process holds no other lock.
PATIENCE_SECONDS = 300
# The holder of the topology must not wait long for another lock.
HOLDERS_PATIENCE_SECONDS = 10


@contextmanager
def holding(
    connection: LedgerConnection, topology: str, patience: int = PATIENCE_SECONDS
) -> Iterator[tuple[DatabaseTransaction, Row]]:
    """Open a transaction that holds the topology in one of its databases.

    :returns: the transaction, and the topology's row with its checkpoint
    :raises LedgerBusy: another session has held it for `patience` seconds
    """
    lock = lock_mirror if connection.database else lock_topology
    with connection.transaction() as tx:
        yield tx, lock(tx, topology, patience)


@contextmanager
def holding_at_rest(
    connection: LedgerConnection, topology: str
) -> Iterator[tuple[DatabaseTransaction, Row]]:
    """Do the same; raise LedgerBusy also if a change of the topology's states is in progress."""
    with holding(connection, topology) as (tx, locked):
        check_at_rest(locked, topology)
        yield tx, locked


def lock_topology(tx: DatabaseTransaction, topology: str, patience: int = PATIENCE_SECONDS) -> Row:
    """Lock the topology's row and return it; raise LedgerBusy after `patience` seconds.

    :raises TopologyUnknown: there is no row: it was never declared, or was dropped meanwhile
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


def lock_mirror(tx: DatabaseTransaction, topology: str, patience: int = PATIENCE_SECONDS) -> Row:
    """Lock the mirrored row in a database that only takes part in the topology, and return it.

    :raises CheckpointMismatch: there is no row: the database was replaced or restored
    """
    _queue_lock(tx, topology, patience)
    row = tx.first("locked_topology", topology=topology)
    if row is None:
        raise CheckpointMismatch(f"it has no record of {topology}")
    return row


def _queue_lock(tx: DatabaseTransaction, topology: str, patience: int) -> None:
    tx.queue("set_lock_timeout", seconds=patience)
    tx.queue("lock_topology", topology=topology)
    tx.queue("set_lock_timeout", seconds=HOLDERS_PATIENCE_SECONDS)


def check_at_rest(locked: Row, topology: str) -> None:
    """Raise LedgerBusy if a change of the states is in progress; in a participant none ever is."""
    if locked["phase"] != "COMMITTED":
        raise LedgerBusy(
            f"{topology}: a change of its states is in progress",
            remedy="call it again; tasks retry by themselves. If the change stays in progress, "
            f"`reliability sweep {topology}` says why.",
        )


def check_coordinator(ledger: Ledger, topology: str) -> bool:
    """Return whether the database knows the topology.

    :raises NotTheCoordinator: it has only a mirror of it
    """
    row = ledger.first("mirrored_topology", topology=topology)
    if row is not None and row["participant"] is not None:
        raise NotTheCoordinator(f"the ledger of {topology} is in another database")
    return row is not None


def check_known(ledger: Ledger, topology: str) -> None:
    """Check a topology's name that a person typed.

    :raises TopologyUnknown: the ledger has no topology with this name
    :raises NotTheCoordinator: this database only takes part in it
    """
    if not check_coordinator(ledger, topology):
        raise TopologyUnknown(f"the ledger has no topology called {topology}")


@contextmanager
def unless_dropped(connection: LedgerConnection, topology: str) -> Iterator[None]:
    """Raise TopologyUnknown for any error about a topology that was dropped meanwhile."""
    try:
        yield
    except LedgerUnavailable:
        raise
    except ReliabilityError as error:
        if not check_coordinator(connection, topology):
            raise TopologyUnknown(f"{topology} was dropped") from error
        raise
