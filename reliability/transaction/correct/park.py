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

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from reliability.core.attempt import Grant
from reliability.core.errors import LedgerBusy, ParkNotPossible, TxidNotSkipped, UnskipNotPossible
from reliability.core.leases import DEFAULT_LEASES
from reliability.core.remedy import Remedy
from reliability.core.skip import Skipped
from reliability.core.spout import SpoutKind
from reliability.core.statement_key import TxidKey
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
from reliability.ledger.locks import check_at_rest, holding, holding_at_rest, lock_topology
from reliability.ledger.read_rows import skipped_of
from reliability.transaction.commit.apply import Committed, plan_nothing
from reliability.transaction.commit.committer import committer, drain
from reliability.transaction.correct.replayable import Replayable
from reliability.transaction.correct.rollback import RunToClear, runs_to_clear
from reliability.transaction.process.attempt_messages import raise_if_fenced
from reliability.transaction.process.begin import grant_attempt, new_grant, open_sinks
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.participants import mirror_grant

STEP = "none"  # no step feeds the sinks of an empty attempt
NOT_RECORDED = "not recorded"


class EmptyVerdict(str, Enum):
    """Why a txid has committed as empty."""

    PARKED = "PARKED"
    SKIPPED = "SKIPPED"


def park(connection: LedgerConnection, topology: str, txid: int, reason: str) -> list[Committed]:
    """Commit a txid as empty when its turn comes, and close the requests for it as not done.

    A txid that has committed as empty stays as it is, and is no longer skipped.

    :returns: what could be committed now, including later txids that were waiting
    :raises ParkNotPossible: the txid has committed or was never emitted; a state could not replay
        it later; or the spout is opaque and the previous txid has not committed, so that it is not
        known where the batch starts
    :raises ReliabilityError: its commit as empty was refused
    """
    key, replayable = TxidKey(topology, txid), Replayable.of(connection, topology)
    with holding(connection, topology) as (tx, locked):
        if _check(tx, locked, key, replayable):
            check_at_rest(locked, topology)
            why = f"parked: {reason}"
            tx.run("park_requests", reason=why, **key)  # before attempts, as a run that ends
            tx.run("fence_live_attempts", attempt_id=None, reason=why, **key)
            tx.first("end_skip", reason=why, ended_by=NOT_RECORDED, **key)
            return []
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
    key = TxidKey(topology, txid)
    with holding(connection, topology) as (tx, locked):
        if _check(tx, locked, key):
            check_at_rest(locked, topology)
            tx.run("begin_skip", reason=reason, skipped_by=by, **key)
            tx.run("satisfy_requests_of_skipped", **key)
            tx.run("fence_live_attempts", attempt_id=None, reason=f"skipped: {reason}", **key)
            return []
    return _commit_empty(connection, topology, txid, EmptyVerdict.SKIPPED, reason, by)


def check_all(
    connection: LedgerConnection, topology: str, txids: Iterable[int], verdict: EmptyVerdict
) -> None:
    """Check that all of several txids can be parked, or skipped, before the first one is.

    :raises ParkNotPossible: one of them cannot
    """
    parks = verdict is EmptyVerdict.PARKED
    replayable = Replayable.of(connection, topology) if parks else None
    with holding(connection, topology) as (tx, locked):
        for txid in txids:
            _check(tx, locked, TxidKey(topology, txid), replayable)


def skip_again(connection: LedgerConnection, topology: str, txid: int) -> list[Committed]:
    """Commit a skipped txid as empty once more: a rollback has taken its empty commit out.

    Nothing is done if another task was faster.
    """
    skipped = read_skip(connection, topology, txid)
    if skipped is None:
        return []
    try:
        return _commit_empty(connection, topology, txid, EmptyVerdict.SKIPPED, skipped.reason, None)
    except ParkNotPossible:
        with holding(connection, topology) as (_, locked):
            if txid < locked["curr_txid"]:
                return []
        raise


def read_skip(connection: LedgerConnection, topology: str, txid: int) -> Skipped | None:
    """Return who skipped a txid and why; None if it is not skipped."""
    row = connection.first("skips_of_txids", topology=topology, txids=[txid])
    return None if row is None else skipped_of(row)


def in_order(connection: LedgerConnection, topology: str, txids: Iterable[int]) -> list[int]:
    """Return several txids in the order in which to park or skip them.

    The later ones come first: once the first is empty, those behind it would commit their batches.
    An opaque spout's attempts behind it fail with it, and where its next batch starts is not known
    before it has committed.
    """
    kind = SpoutKind(connection.one("topology_position", topology=topology)["spout_kind"])
    return sorted(txids, reverse=kind is SpoutKind.TRANSACTIONAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unskipped:
    """A txid that is no longer skipped.

    :param has_committed: it has committed as empty, so that a replay has to process it
    :param is_held: it was rolled back, and has to be released before
    :param run: the run that requests it when it is cleared
    """

    txid: int
    has_committed: bool
    is_held: bool
    run: RunToClear


def unskip(
    connection: LedgerConnection, topology: str, txid: int, reason: str, by: str = NOT_RECORDED
) -> Unskipped:
    """Take a skip back. No table changes: a clear of the run, or a replay, processes the txid.

    :raises TxidNotSkipped: nobody has skipped it
    :raises UnskipNotPossible: it has committed as empty, and a state could not replay it
    :raises LedgerBusy: a change of the states is in progress
    """
    key, replayable = TxidKey(topology, txid), Replayable.of(connection, topology)
    with holding_at_rest(connection, topology) as (tx, locked):
        curr_txid = locked["curr_txid"]
        if tx.first("end_skip", reason=reason, ended_by=by, **key) is None:
            raise TxidNotSkipped("nobody has skipped it", topology=topology, txid=txid)
        if txid < curr_txid and (why := replayable.refusal(tx, txid)):
            raise UnskipNotPossible(f"it stays skipped: {why}", topology=topology, txid=txid)
        if txid >= curr_txid:  # its empty attempt must not commit
            tx.run("fence_live_attempts", attempt_id=None, reason=f"unskipped: {reason}", **key)
        row = tx.one("transaction_details", **key)
        [run] = runs_to_clear(tx, topology, [row])
    return Unskipped(
        txid=txid,
        has_committed=txid < curr_txid,
        is_held=row["held_reason"] is not None,
        run=run,
    )


def _check(
    tx: DatabaseTransaction, locked: Row, key: TxidKey, replayable: Replayable | None = None
) -> bool:
    """Return whether a txid has committed as empty; raise if it cannot become so.

    :param replayable: given if it is only parked: something has to be able to process it later
    """
    is_empty = tx.first("has_committed_empty", **key) is not None
    if not is_empty:
        _check_uncommitted(locked, key.txid)
    if replayable is not None and (why := replayable.refusal(tx, key.txid)):
        skips = "do nothing: it stays empty." if is_empty else "{skip} leaves it out for good."
        raise ParkNotPossible(
            f"nothing could process it later: {why}",
            topology=key.topology,
            txid=key.txid,
            remedy=Remedy(skips),
        )
    return is_empty


def _check_uncommitted(locked: Row, txid: int) -> None:
    if txid < locked["curr_txid"]:
        raise ParkNotPossible("it has already committed", txid=txid)
    if txid >= locked["next_txid"]:
        raise ParkNotPossible("it was never emitted", txid=txid)


def _commit_empty(
    connection: LedgerConnection,
    topology: str,
    txid: int,
    verdict: EmptyVerdict,
    reason: str,
    by: str | None = NOT_RECORDED,
) -> list[Committed]:
    with committer(connection, topology) as commit_change:
        commit_change(plan_nothing)  # a dead driver may have left a commit of this txid
    with TopologyDatabases.of(connection, topology) as participants:
        with connection.transaction() as tx:
            grant = _grant_empty(tx, topology, txid, verdict, reason, by)
            _open_sinks(tx, grant)
            if not participants.others:
                _seal(tx, grant)
        if participants.others:
            mirror_grant(participants, grant, lambda tx, database: _open_sinks(tx, grant))
            # PROCESSED in the ledger means PROCESSED in every database.
            for database in participants.ledger_last:
                with database.transaction() as tx:
                    _seal(tx, grant)
    return drain(connection, topology, own_txid=txid)


def _grant_empty(
    tx: DatabaseTransaction,
    topology: str,
    txid: int,
    verdict: EmptyVerdict,
    reason: str,
    by: str | None,
) -> Grant:
    key = TxidKey(topology, txid)
    locked = lock_topology(tx, topology)
    _check_uncommitted(locked, txid)
    # An attempt that is fenced after the votes could never commit, nor could any later txid.
    check_at_rest(locked, topology)
    why = {"reason": f"{verdict.value.lower()}: {reason}"}
    if by is not None:
        tx.run("release_txids", topology=topology, txids=[txid])
    elif tx.one("transaction_details", **key)["held_reason"] is not None:
        raise LedgerBusy(f"txid {txid} of {topology} was rolled back meanwhile")
    if verdict is EmptyVerdict.PARKED:
        tx.run("park_requests", **key, **why)
        tx.run("end_skip", ended_by=by or NOT_RECORDED, **key, **why)
    elif by is not None:
        tx.run("begin_skip", reason=reason, skipped_by=by, **key)
    elif tx.first("skips_of_txids", topology=topology, txids=[txid]) is None:
        raise LedgerBusy(f"txid {txid} of {topology} was unskipped meanwhile")
    found = tx.first("batch_of_empty_attempt", **key)
    if found is None:
        raise ParkNotPossible(
            f"txid {txid - 1} of {topology} has not committed, and an opaque spout's batch of "
            f"txid {txid} starts where that one ended",
            remedy=f"wait until it has committed, or park or skip txid {txid - 1} first.",
        )
    batch = dict(found)
    grant = new_grant(topology, txid, batch.pop("newest_attempt"))
    submit = DEFAULT_LEASES.submit
    row = {"verdict": verdict.value, "verdict_reason": reason, **batch}
    grant_attempt(tx, grant, lease=submit, submit_lease=submit, **why, **row)
    return grant


def _open_sinks(tx: DatabaseTransaction, grant: Grant) -> None:
    open_sinks(tx, grant, dict.fromkeys(_states(tx, grant), STEP))


def _seal(tx: DatabaseTransaction, grant: Grant) -> None:
    """Make an empty attempt PROCESSED in one database: nothing has to be checked."""
    raise_if_fenced(tx.first("begin_seal", task=STEP, **grant), grant)
    states = _states(tx, grant)
    tx.queue(
        "end_seal", sinks=states, rows=[0] * len(states), digests=[None] * len(states), **grant
    )


def _states(tx: DatabaseTransaction, grant: Grant) -> list[str]:
    return [row["state"] for row in tx.all("states", topology=grant.topology)]
