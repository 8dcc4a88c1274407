"""Park or skip a txid that cannot be processed, so that later txids can commit (C7).

The txid gets an empty attempt, PROCESSED at once, which commits in its turn like any other, with a
header `empty` in every state, and can be replayed like any other. With an opaque spout it takes the
last batch that was cut for the txid, or an empty one if there is none (E4).

- PARKED: the requests for the txid are closed unsatisfied; a replay processes the batch
- SKIPPED: the requests for the txid are satisfied: their runs succeed
"""

from __future__ import annotations

from enum import Enum

from reliability.core.attempt import Grant, TransactionAttempt
from reliability.core.checkpoint import COORDINATOR
from reliability.core.errors import LedgerBusy, ParkNotPossible
from reliability.core.statement_key import TxidKey
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
from reliability.ledger.locks import lock_topology
from reliability.transaction.commit.committer import committer, finish_unfinished_change
from reliability.transaction.commit.drain import drain
from reliability.transaction.commit.plan import Committed
from reliability.transaction.commit.saved_checkpoint import read_checkpoint
from reliability.transaction.process.attempt import raise_if_fenced
from reliability.transaction.process.mirror import mirror_grant
from reliability.transaction.topology.databases import TopologyDatabases

STEP = "none"  # no step feeds the sinks of an empty attempt


class EmptyVerdict(str, Enum):
    """Why a txid has committed as empty."""

    PARKED = "PARKED"
    SKIPPED = "SKIPPED"


def park(connection: LedgerConnection, topology: str, txid: int, reason: str) -> list[Committed]:
    """Commit a txid as empty when its turn comes, and close the requests for it as not done.

    :returns: what could be committed now, including later txids that were waiting
    :raises ParkNotPossible: the txid has committed or was never emitted; or the spout is opaque and
        the previous txid has not committed, so that it is not known where the batch starts
    """
    return _commit_empty(connection, topology, txid, EmptyVerdict.PARKED, reason)


def skip(connection: LedgerConnection, topology: str, txid: int, reason: str) -> list[Committed]:
    """Commit a txid as empty when its turn comes, and satisfy the requests for it.

    :returns, :raises: as park
    """
    return _commit_empty(connection, topology, txid, EmptyVerdict.SKIPPED, reason)


def _commit_empty(
    connection: LedgerConnection, topology: str, txid: int, verdict: EmptyVerdict, reason: str
) -> list[Committed]:
    with committer(connection, topology) as commit_change:
        finish_unfinished_change(commit_change)  # it may be a commit of this txid
    with TopologyDatabases.of(connection, topology) as participants:
        is_alone = not participants.others
        grant = _grant_empty(connection, topology, txid, verdict, reason, process=is_alone)
        # The coordinator comes last: PROCESSED there means PROCESSED in every database.
        mirror_grant(participants, grant, lambda tx, database: _open_empty_sinks(tx, grant))
        for database in () if is_alone else (*participants.others, COORDINATOR):
            with participants.connection_of(database).transaction() as tx:
                raise_if_fenced(tx.first("process_empty_attempt", **grant), grant)
    return drain(connection, topology)


def _grant_empty(
    connection: LedgerConnection,
    topology: str,
    txid: int,
    verdict: EmptyVerdict,
    reason: str,
    *,
    process: bool,
) -> Grant:
    key = TxidKey(topology, txid)
    with connection.transaction() as tx:
        locked = lock_topology(tx, topology)
        _check_possible(locked, txid)
        # An attempt that is fenced after the votes could never commit, nor could any later txid.
        if not read_checkpoint(tx, topology).state.is_at_rest:
            raise LedgerBusy(f"{topology}: a change of its states is in progress")
        why = {"reason": f"{verdict.value.lower()}: {reason}"}
        tx.run("release_txids", topology=topology, txids=[txid])
        if verdict is EmptyVerdict.PARKED:
            tx.run("park_requests", **key, **why)
        tx.run("fence_for_empty", **key, **why)
        row = tx.first("grant_empty_attempt", **key, verdict=verdict.value, verdict_reason=reason)
        if row is None:
            raise ParkNotPossible(
                f"txid {txid - 1} of {topology} has not committed, and an opaque spout's batch of "
                f"txid {txid} starts where that one ended",
                remedy=f"wait until it has committed, or park or skip txid {txid - 1} first.",
            )
        attempt = TransactionAttempt(txid, row["attempt_id"])
        grant = Grant(topology=topology, attempt=attempt, nonce=row["nonce"])
        _open_empty_sinks(tx, grant)
        if process:
            tx.one("process_empty_attempt", **grant)
        return grant


def _check_possible(locked: Row, txid: int) -> None:
    if txid < locked["curr_txid"]:
        raise ParkNotPossible(f"txid {txid} has already committed")
    if txid >= locked["next_txid"]:
        raise ParkNotPossible(f"txid {txid} was never emitted")


def _open_empty_sinks(tx: DatabaseTransaction, grant: Grant) -> None:
    tx.all("open_empty_sinks", step=STEP, **grant)
