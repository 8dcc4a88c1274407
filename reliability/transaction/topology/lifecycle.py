"""A topology as a whole: declare it before its first emission, pause it, resume it."""

from __future__ import annotations

from reliability.core.definitions import Topology
from reliability.core.errors import TopologyUnknown
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import PATIENCE_SECONDS, holding, lock_topology
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.declare import declare_states
from reliability.transaction.topology.participants import declare_participants
from reliability.transaction.topology.redeclare import forget_changed_states, has_changed_freely


def declare(connection: LedgerConnection, topology: Topology) -> None:
    """Record the topology and create its states in every database; safe to repeat.

    :raises StateDefinitionChanged, TargetTableTaken: see declare_states, forget_changed_states
    :raises ParticipantTaken, CheckpointMismatch: see declare_participants
    """
    _record(connection, topology)
    with TopologyDatabases(connection, topology.name, topology.databases) as databases:
        declare_participants(databases)
        forget_changed_states(connection, topology)
        for database in databases.all:
            with holding(database, topology.name) as (tx, row):
                has_committed = row["commit_number"] > 0
                declare_states(tx, topology, database.database, has_committed=has_committed)


def adopt_definitions(connection: LedgerConnection, topology: Topology) -> None:
    """Take the code's definitions of the states if nothing has committed; if not, do nothing (C10).

    :raises StateDefinitionChanged, TargetTableTaken: see declare
    """
    if has_changed_freely(connection, topology):
        declare(connection, topology)


def _record(connection: LedgerConnection, topology: Topology) -> None:
    # its lock may wait for a commit of millions of rows (A3)
    with connection.transaction(patience=PATIENCE_SECONDS) as tx:
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
    with connection.transaction(patience=PATIENCE_SECONDS) as tx:
        if tx.first(statement, topology=topology, **parameters) is None:
            raise TopologyUnknown(f"the ledger has no topology called {topology}")
