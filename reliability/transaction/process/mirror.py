"""Copy to the participants what they need of an attempt (C6)."""

from __future__ import annotations

from collections.abc import Callable

from reliability.core.attempt import Grant
from reliability.core.coordinator import AttemptStatus
from reliability.core.errors import AttemptFenced
from reliability.core.spout import verdict_of
from reliability.ledger.connection import DatabaseTransaction, Row
from reliability.ledger.locks import lock_mirror
from reliability.ledger.read_rows import parts_of_batch
from reliability.transaction.topology.databases import TopologyDatabases, naming_database

_ENDED = frozenset({AttemptStatus.FAILED.value, AttemptStatus.FENCED.value})


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
    with databases.coordinator.transaction() as tx:
        row = tx.first("attempt_to_mirror", **grant)
    if row is None:
        raise AttemptFenced(f"attempt {grant} was ended")
    for database in databases:
        with naming_database(database.name), database.connection.transaction() as tx:
            if take_grant(tx, grant, row):
                open_sinks(tx, database.name)


def take_grant(tx: DatabaseTransaction, grant: Grant, row: Row) -> bool:
    """Mirror an attempt after fencing lower ones; return False if it is mirrored already (C6)."""
    lock_mirror(tx, grant.topology)
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
    tx.run("fence_lower_attempts", **grant)
    tx.one("mirror_attempt", attempt_row=row["attempt_row"])
    return True
