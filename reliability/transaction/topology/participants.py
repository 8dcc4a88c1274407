"""Copy to the databases that only take part in a topology what they need of it (C6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reliability.core.attempt import Grant
from reliability.core.coordinator import AttemptStatus
from reliability.core.errors import (
    AttemptFenced,
    CheckpointMismatch,
    ParticipantTaken,
    StateDefinitionChanged,
)
from reliability.core.spout import verdict_of
from reliability.core.statement_key import AttemptKey
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
from reliability.ledger.locks import holding, lock_mirror, lock_topology
from reliability.ledger.migrations import check_migrated
from reliability.ledger.read_rows import parts_of_batch
from reliability.transaction.topology.databases import TopologyDatabases


def declare_participants(
    databases: TopologyDatabases, leave: Callable[[DatabaseTransaction, str], None]
) -> None:
    """Record the topology in every participant; safe to repeat.

    A mirror is made while the topology is held in the coordinator's ledger: whoever drops it knows
    of each. Nothing is recorded of a database that is not free for it, where every verb would find
    another ledger's topology.

    :param leave: takes the topology out of a database, by its name, that no state is in any more
    :raises StateDefinitionChanged: the topology has emitted, with states in other databases
    :raises LedgerNotMigrated: a database has no ledger schema, or an older one
    :raises ParticipantTaken: the database is the coordinator's own, is known by another name, or
        takes part in a topology with the same name of another ledger
    :raises CheckpointMismatch: the database has lost its record of the topology
    """
    coordinator, topology = databases.coordinator, databases.topology
    lacking = _lacking(databases) if databases.others else []
    with coordinator.transaction() as tx:
        _record(tx, databases, leave)
    for connection in lacking:
        with holding(coordinator, topology) as (tx, _):
            row = tx.one("topology_to_mirror", topology=topology)
            connection.run("mirror_topology", row=row["row"], database=connection.database)
        _is_mirrored(connection, topology, row)


def _lacking(databases: TopologyDatabases) -> list[LedgerConnection]:
    """Return the sessions with databases that do not have the topology yet, and are free for it."""
    row = databases.coordinator.one("topology_to_mirror", topology=databases.topology)
    found = []
    for connection in databases:
        check_migrated(connection)
        if not _is_mirrored(connection, databases.topology, row):
            found.append(connection)
    return found


def _record(
    tx: DatabaseTransaction,
    databases: TopologyDatabases,
    leave: Callable[[DatabaseTransaction, str], None],
) -> None:
    """Record the participants, for processes that commit without the pipeline's code."""
    topology, others = databases.topology, list(databases.others)
    known = [row["database"] for row in tx.all("participants", topology=topology)]
    if {*known} == {*others}:  # Postgres may sort them otherwise than Python
        return
    locked = lock_topology(tx, topology)
    if locked["next_txid"] > 1:
        raise changed_databases(topology, known, others)
    with TopologyDatabases(databases.coordinator, topology, {*known} - {*others}) as gone:
        for connection in gone.taking_part(locked["topology_id"]):
            with connection.transaction() as there:
                leave(there, connection.database)
    tx.run("drop_other_participants", topology=topology, databases=others)
    tx.run("add_participants", topology=topology, databases=others)


def changed_databases(
    topology: str, known: Sequence[str], others: Sequence[str]
) -> StateDefinitionChanged:
    """Return the error for code whose states lie in other databases than those in the ledger."""
    return StateDefinitionChanged(
        f"{topology} has emitted txids for states in the databases {[*known]}, and now has them in "
        f"{[*others]}",
        remedy="restore the old databases; or, if nothing that it has committed is needed, run "
        f"`reliability drop {topology}`.",
    )


def _is_mirrored(connection: LedgerConnection, topology: str, row: Row) -> bool:
    """Say whether a database has the topology; raise unless it may have it."""
    with connection.transaction() as tx:  # which names the database in what is raised
        known = tx.first("mirrored_topology", topology=topology)
        if known is None and row["commit_number"] > 0:
            raise CheckpointMismatch(
                f"it has no record of {topology}, but the coordinator is at "
                f"c={row['commit_number']}"
            )
        if known is None:
            return False
        if known["topology_id"] != row["topology_id"]:
            raise ParticipantTaken(
                f"it already takes part in a topology {topology} of another ledger"
            )
        if known["participant"] != connection.database:
            name = known["participant"]
            called = f"is called {name}" if name else "is its ledger"
            raise ParticipantTaken(f"this database of {topology} {called} already")
    return True


# --- attempts ------------------------------------------------------------------------------------

_ENDED = frozenset({AttemptStatus.FAILED.value, AttemptStatus.FENCED.value})
#: Of an attempt that is live, or has committed.
_NOT_ENDED = frozenset(
    {
        AttemptStatus.PROCESSING.value,
        AttemptStatus.SEALING.value,
        AttemptStatus.PROCESSED.value,
        AttemptStatus.COMMITTED.value,
    }
)


def mirror_grant(
    databases: TopologyDatabases,
    grant: Grant,
    open_sinks: Callable[[DatabaseTransaction, str], object],
) -> None:
    """Mirror an attempt that the coordinator's ledger has just granted to every participant.

    Lower attempts of the txid are fenced there first; repeating it changes nothing. If it fails for
    any participant, an error is raised and the attempt is never submitted.

    :param open_sinks: opens the attempt's sinks in a participant, given by its name
    :raises AttemptFenced: a newer attempt of the txid was granted meanwhile
    """
    if not databases.others:
        return
    row = databases.coordinator.first("attempt_to_mirror", **grant)
    if row is None:
        raise AttemptFenced(f"attempt {grant} was ended")
    for connection in databases:
        with connection.transaction() as tx:
            if take_grant(tx, grant, row):
                open_sinks(tx, connection.database)


def fence_ended(
    tx: DatabaseTransaction, coordinator: LedgerConnection, topology: str, reason: str
) -> int:
    """Fence in a participant what is live there, and has ended in the coordinator's ledger.

    What that has granted since may be decided: it has to commit here, too (C6).
    """
    fenced = 0
    for row in tx.all("live_attempts", topology=topology):
        known = coordinator.first("attempt", topology=topology, **row)
        if known is None or known["status"] not in _NOT_ENDED:
            key = AttemptKey(topology, row["txid"], row["attempt_id"])
            fenced += tx.run("fence_live_attempts", reason=reason, **key)
    return fenced


def take_grant(tx: DatabaseTransaction, grant: Grant, row: Row) -> bool:
    """Mirror an attempt after fencing lower ones; return False if it is mirrored already (C6)."""
    if lock_mirror(tx, grant.topology)["topology_id"] != row["topology_id"]:
        raise AttemptFenced(f"{grant} is too late: its topology was dropped, and made again")
    known = tx.first("greatest_attempt", topology=grant.topology, txid=grant.attempt.txid)
    if known is not None and known["attempt_id"] >= grant.attempt.attempt_id:
        if known["nonce"] != grant.nonce or known["status"] in _ENDED:
            raise AttemptFenced(
                f"{grant} is too late: attempt {grant.attempt.txid}:{known['attempt_id']} is "
                f"already known here, {known['status']}"
            )
        return False
    # the verdict of a frozen batch is on record
    verdict = row["verdict"] or verdict_of(parts_of_batch(row)).value
    tx.run("mirror_transaction", transaction_row=row["transaction_row"], verdict=verdict)
    tx.one("reach_txid", **grant)
    newer = {**grant, "attempt_id": None}  # all that are known here are lower
    tx.run("fence_live_attempts", reason="a newer attempt was granted", **newer)
    tx.one("mirror_attempt", attempt_row=row["attempt_row"])
    return True
