"""Declare a topology in the databases that only take part in it."""

from __future__ import annotations

from reliability.core.errors import (
    CheckpointMismatch,
    ParticipantTaken,
    StateDefinitionChanged,
)
from reliability.ledger.connection import DatabaseTransaction, Row
from reliability.ledger.locks import lock_topology
from reliability.ledger.migrations import check_migrated
from reliability.transaction.topology.databases import (
    TargetDatabase,
    TopologyDatabases,
    naming_database,
)


def declare_participants(databases: TopologyDatabases) -> None:
    """Record the topology in every participant; safe to repeat.

    :raises StateDefinitionChanged: the topology has emitted, with states in other databases
    :raises LedgerNotMigrated: a database has no ledger schema, or an older one
    :raises ParticipantTaken: the database is the coordinator's own, is known by another name, or
        takes part in a topology with the same name of another ledger
    :raises CheckpointMismatch: the database has lost its record of the topology
    """
    with databases.coordinator.transaction() as tx:
        _record(tx, databases)
        row = tx.one("topology_to_mirror", topology=databases.topology)
    for database in databases:
        with naming_database(database.name):
            check_migrated(database.connection)
            _mirror(database, databases.topology, row)


def _record(tx: DatabaseTransaction, databases: TopologyDatabases) -> None:
    """Record the participants, for processes that commit without the pipeline's code."""
    topology, others = databases.topology, list(databases.others)
    known = [row["database"] for row in tx.all("participants", topology=topology)]
    if known == others:
        return
    if lock_topology(tx, topology)["next_txid"] > 1:
        raise StateDefinitionChanged(
            f"{topology} has emitted txids for states in the databases {known}, and now has them "
            f"in {others}",
            remedy="restore the old databases; or, if nothing that it has committed is needed, run "
            f"`reliability drop {topology}`.",
        )
    tx.run("drop_other_participants", topology=topology, databases=others)
    tx.run("add_participants", topology=topology, databases=others)


def _mirror(database: TargetDatabase, topology: str, row: Row) -> None:
    """Record the topology in a participant, unless the participant is not free for it."""
    with database.connection.transaction() as tx:
        known = tx.first("mirrored_topology", topology=topology)
        if known is None and row["commit_number"] > 0:
            raise CheckpointMismatch(
                f"it has no record of {topology}, but the coordinator is at "
                f"c={row['commit_number']}"
            )
        tx.run("mirror_topology", row=row["row"], database=database.name)
        known = tx.one("mirrored_topology", topology=topology)
    if known["topology_id"] != row["topology_id"]:
        raise ParticipantTaken(f"it already takes part in a topology {topology} of another ledger")
    if known["participant"] != database.name:
        called = f"is called {known['participant']}" if known["participant"] else "is its ledger"
        raise ParticipantTaken(f"this database of {topology} {called} already")
