"""Park or skip a txid that cannot be processed, so that later txids can commit (C7).

The txid gets an empty attempt, PROCESSED at once, which commits in its turn like any other, with a
header `empty` in every state, and can be replayed like any other. With an opaque spout it takes the
last batch that was cut for the txid, or an empty one if there is none (E4).

- PARKED: empty for now. The requests for the txid are closed unsatisfied; a later clear or replay
  processes the batch.
- SKIPPED: empty for good (C8). The requests for the txid are satisfied. A later clear is satisfied
  at once, and after a rollback the txid commits as empty again, until a person unskips it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from reliability.core.attempt import Grant, TransactionAttempt
from reliability.core.checkpoint import COORDINATOR
from reliability.core.errors import (
    LedgerBusy,
    ParkNotPossible,
    TxidNotSkipped,
    UnskipNotPossible,
)
from reliability.core.skip import Skipped
from reliability.core.state import replay_refusal
from reliability.core.statement_key import TxidKey
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
from reliability.ledger.locks import lock_topology
from reliability.ledger.read_rows import skipped_of
from reliability.states.headers import compacted_through
from reliability.transaction.commit.committer import committer, finish_unfinished_change
from reliability.transaction.commit.drain import drain
from reliability.transaction.commit.next_plan import Committed
from reliability.transaction.commit.saved_checkpoint import read_checkpoint
from reliability.transaction.correct.rollback import RunToClear, runs_to_clear
from reliability.transaction.process.attempt_messages import raise_if_fenced
from reliability.transaction.process.mirror import mirror_grant
from reliability.transaction.topology.databases import TopologyDatabases, naming_database
from reliability.transaction.topology.declare import declared_tables

STEP = "none"  # no step feeds the sinks of an empty attempt
NOT_RECORDED = "not recorded"


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


def skip(
    connection: LedgerConnection, topology: str, txid: int, reason: str, by: str = NOT_RECORDED
) -> list[Committed]:
    """Skip a txid for good: commit it as empty when its turn comes, and satisfy its requests (C8).

    A txid that was parked and has committed as empty stays as it is, and counts as skipped from now
    on.

    :param by: who skips it
    :returns, :raises: as park
    """
    if _skip_parked(connection, topology, txid, reason, by):
        return []
    return _commit_empty(connection, topology, txid, EmptyVerdict.SKIPPED, reason, by)


def skip_again(connection: LedgerConnection, topology: str, txid: int) -> list[Committed]:
    """Commit a skipped txid as empty once more: a rollback has taken its empty commit out.

    Nothing is done if another task was faster.
    """
    found = read_skip(connection, topology, txid)
    if found is None:
        return []
    try:
        return _commit_empty(connection, topology, txid, EmptyVerdict.SKIPPED, found.reason, None)
    except ParkNotPossible:
        with connection.transaction() as tx:
            if txid < lock_topology(tx, topology)["curr_txid"]:
                return []
        raise


def read_skip(connection: LedgerConnection, topology: str, txid: int) -> Skipped | None:
    """Return who skipped a txid and why; None if it is not skipped."""
    with connection.transaction() as tx:
        row = tx.first("skips_of_txids", topology=topology, txids=[txid])
    return None if row is None else skipped_of(row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unskipped:
    """A txid that is no longer skipped.

    :param has_committed: it has committed as empty, so that a replay has to process it
    :param run: the run that requests it when it is cleared
    """

    txid: int
    has_committed: bool
    run: RunToClear


def unskip(
    connection: LedgerConnection, topology: str, txid: int, reason: str, by: str = NOT_RECORDED
) -> Unskipped:
    """Take a skip back. No table changes: a clear of the run, or a replay, processes the txid.

    :raises TxidNotSkipped: nobody has skipped it
    :raises UnskipNotPossible: it has committed as empty, and a state could not replay it
    :raises LedgerBusy: a change of the states is in progress
    """
    key = TxidKey(topology, txid)
    refusal = refusal_of_replay(connection, topology, txid)
    with connection.transaction() as tx:
        curr_txid = lock_topology(tx, topology)["curr_txid"]
        _check_at_rest(tx, topology)
        if refusal is not None:
            raise UnskipNotPossible(f"txid {txid} of {topology} stays skipped: {refusal}")
        if tx.first("end_skip", reason=reason, ended_by=by, **key) is None:
            raise TxidNotSkipped(f"txid {txid} of {topology} is not skipped")
        if txid >= curr_txid:  # its empty attempt must not commit
            tx.run("fence_for_empty", reason=f"unskipped: {reason}", **key)
        [run] = runs_to_clear(tx, topology, tx.all("run_of_txid", **key))
    return Unskipped(txid=txid, has_committed=txid < curr_txid, run=run)


def refusal_of_replay(connection: LedgerConnection, topology: str, txid: int) -> str | None:
    """Return why a state cannot replay a committed txid; None if it can, or is uncommitted."""
    with TopologyDatabases.of(connection, topology) as participants:
        for database in participants.all:
            with (
                naming_database(database),
                participants.connection_of(database).transaction() as tx,
            ):
                states = [tables.state for tables in declared_tables(tx, topology)]
                curr_txid = tx.one("topology_position", topology=topology)["curr_txid"]
                through = compacted_through(tx, topology)
                if txid < curr_txid and (
                    refusal := replay_refusal(states, txid, curr_txid, through)
                ):
                    return refusal
    return None


def _skip_parked(
    connection: LedgerConnection, topology: str, txid: int, reason: str, by: str
) -> bool:
    """Record the skip of a txid that has committed as empty; return whether it has."""
    key = TxidKey(topology, txid)
    with connection.transaction() as tx:
        lock_topology(tx, topology)
        if tx.first("has_committed_empty", **key) is None:
            return False
        _check_at_rest(tx, topology)
        tx.run("fence_for_empty", reason=f"skipped: {reason}", **key)
        tx.run("begin_skip", reason=reason, skipped_by=by, **key)
        tx.run("satisfy_requests_of_skipped", **key)
        return True


def _commit_empty(
    connection: LedgerConnection,
    topology: str,
    txid: int,
    verdict: EmptyVerdict,
    reason: str,
    by: str | None = NOT_RECORDED,
) -> list[Committed]:
    with committer(connection, topology) as commit_change:
        finish_unfinished_change(commit_change)  # it may be a commit of this txid
    with TopologyDatabases.of(connection, topology) as participants:
        is_alone = not participants.others
        grant = _grant_empty(connection, topology, txid, verdict, reason, by, process=is_alone)
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
    by: str | None,
    *,
    process: bool,
) -> Grant:
    key = TxidKey(topology, txid)
    with connection.transaction() as tx:
        locked = lock_topology(tx, topology)
        _check_possible(locked, txid)
        _check_at_rest(tx, topology)
        why = {"reason": f"{verdict.value.lower()}: {reason}"}
        tx.run("release_txids", topology=topology, txids=[txid])
        if verdict is EmptyVerdict.PARKED:
            tx.run("park_requests", **key, **why)
            tx.run("end_skip", ended_by=by or NOT_RECORDED, **key, **why)
        elif by is not None:
            tx.run("begin_skip", reason=reason, skipped_by=by, **key)
        elif tx.first("skips_of_txids", topology=topology, txids=[txid]) is None:
            raise LedgerBusy(f"txid {txid} of {topology} was unskipped meanwhile")
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


def _check_at_rest(tx: DatabaseTransaction, topology: str) -> None:
    # An attempt that is fenced after the votes could never commit, nor could any later txid.
    if not read_checkpoint(tx, topology).state.is_at_rest:
        raise LedgerBusy(f"{topology}: a change of its states is in progress")


def _check_possible(locked: Row, txid: int) -> None:
    if txid < locked["curr_txid"]:
        raise ParkNotPossible(f"txid {txid} has already committed")
    if txid >= locked["next_txid"]:
        raise ParkNotPossible(f"txid {txid} was never emitted")


def _open_empty_sinks(tx: DatabaseTransaction, grant: Grant) -> None:
    tx.all("open_empty_sinks", step=STEP, **grant)
