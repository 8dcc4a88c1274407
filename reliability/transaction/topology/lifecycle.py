"""A topology as a whole: declare it before its first emission, pause it, resume it."""

from __future__ import annotations

from reliability.core.checkpoint import COORDINATOR
from reliability.core.definitions import Topology
from reliability.core.errors import TopologyUnknown
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import PATIENCE_SECONDS, lock_mirror, lock_topology
from reliability.transaction.topology.databases import TopologyDatabases, naming_database
from reliability.transaction.topology.declare import declare_states
from reliability.transaction.topology.participants import declare_participants
from reliability.transaction.topology.redeclare import forget_changed_states, has_changed_freely


def declare(connection: LedgerConnection, topology: Topology) -> None:
    """Record the topology and create its states in every database; safe to repeat.

    :raises StateDefinitionChanged, TargetTableTaken: see declare_states, forget_changed_states
    :raises ParticipantTaken, CheckpointMismatch: see declare_participants
    """
    _record(connection, topology)
    with TopologyDatabases(connection, topology.name, topology.databases) as participants:
        declare_participants(participants)
        forget_changed_states(connection, topology)
        with connection.transaction() as tx:
            has_committed = lock_topology(tx, topology.name)["commit_number"] > 0
            declare_states(tx, topology, COORDINATOR, has_committed=has_committed)
        for participant in participants:
            with naming_database(participant.name), participant.connection.transaction() as tx:
                lock_mirror(tx, topology.name)
                declare_states(tx, topology, participant.name, has_committed=has_committed)


def adopt_definitions(connection: LedgerConnection, topology: Topology) -> None:
    """Take the code's definitions of the states if nothing has committed; if not, do nothing (C10).

    :raises StateDefinitionChanged, TargetTableTaken: see declare
    """
    if has_changed_freely(connection, topology):
        declare(connection, topology)


def _record(connection: LedgerConnection, topology: Topology) -> None:
    with connection.transaction() as tx:
        # the lock may wait for a commit of millions of rows (A3)
        tx.queue("set_lock_timeout", seconds=PATIENCE_SECONDS)
        tx.run(
            "declare_topology",
            topology=topology.name,
            max_spout_pending=topology.max_spout_pending,
            max_replay_pending=topology.replay_window,
            module=topology.module,
            spout_kind=topology.spout.kind.value,
            emit_interval=topology.emit_interval_seconds,
            checkpoint_interval=topology.checkpoint_interval_seconds,
            groups_commits=topology.groups_commits,
            blocked_timeout=topology.blocked_timeout_seconds,
        )
        lock_topology(tx, topology.name)  # raises if another database has its ledger


def pause(connection: LedgerConnection, topology: str, reason: str) -> None:
    """Begin no more attempts; txids in flight are processed and committed.

    Storm's deactivate does the same: the coordinator emits no more batches, but still syncs.
    """
    _change(connection, "pause_topology", topology, reason=reason)


def resume(connection: LedgerConnection, topology: str) -> None:
    """Let attempts begin again; does nothing if the topology is not paused."""
    _change(connection, "resume_topology", topology)


def _change(
    connection: LedgerConnection, statement: str, topology: str, **parameters: object
) -> None:
    with connection.transaction() as tx:
        tx.queue("set_lock_timeout", seconds=PATIENCE_SECONDS)
        if tx.first(statement, topology=topology, **parameters) is None:
            raise TopologyUnknown(f"the ledger has no topology called {topology}")
