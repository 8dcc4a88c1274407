"""Begin: read the position of a txid, grant its next attempt, claim one of its steps."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from reliability.core.attempt import Grant, TransactionAttempt
from reliability.core.checkpoint import COORDINATOR
from reliability.core.coordinator import Begin, Snapshot, Work, next_action
from reliability.core.definitions import Topology
from reliability.core.errors import AttemptFenced, LedgerBusy, LedgerCorruption, ReliabilityError
from reliability.core.leases import Leases
from reliability.core.request import Request
from reliability.core.spout import BatchMeta, Interval
from reliability.core.state import State, replay_refusal
from reliability.core.texts import as_json
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
from reliability.ledger.locks import hold_topology
from reliability.ledger.read_rows import interval_of, request_of, snapshot_of
from reliability.states.headers import compacted_through
from reliability.states.tables import StateTables, check_rights
from reliability.transaction.emit.refreeze import batch_if_refrozen
from reliability.transaction.emit.source_items import excluded_among
from reliability.transaction.process.attempt_messages import fail_and_raise
from reliability.transaction.process.mirror import mirror_grant
from reliability.transaction.process.opaque_batch import (
    AttemptBatch,
    batch_without_excluded,
    cut_batch,
)
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.declare import check_states
from reliability.transaction.topology.lifecycle import adopt_definitions
from reliability.transaction.topology.server import end_holders_of


def read_snapshot(
    connection: LedgerConnection, topology: str, txid: int, request_id: int, states: Sequence[State]
) -> tuple[Snapshot, Request]:
    """Read what the coordinator decides from, without a lock, so it may be outdated at once.

    :param states: the topology's states, which may refuse a replay (H5)
    """
    with connection.in_one_round_trip() as tx:
        row = tx.one("snapshot", topology=topology, txid=txid, request_id=request_id)
    return _snapshot(connection, row, states), _request(row, request_id)


def _request(row: Row, request_id: int) -> Request:
    if row["request"] is None:
        raise LedgerCorruption(f"the ledger has no request {request_id}")
    return request_of(row["request"])


def read_snapshot_in(
    tx: DatabaseTransaction, topology: str, txid: int, states: Sequence[State]
) -> Snapshot:
    """Do the same as `read_snapshot` inside a transaction, without the request."""
    return _snapshot(tx, tx.one("snapshot", topology=topology, txid=txid, request_id=None), states)


def _snapshot(
    ledger: LedgerConnection | DatabaseTransaction, row: Row, states: Sequence[State]
) -> Snapshot:
    topology, txid = row["topology"], row["txid"]
    blocked = None
    if txid > row["curr_txid"]:  # otherwise no older txid is uncommitted
        with _asking(ledger) as tx:
            blocked = tx.first("blocked_txid", topology=topology, below=txid)
    refusal = None
    if txid < row["curr_txid"]:
        with _asking(ledger) as tx:
            through = compacted_through(tx, topology)
        refusal = replay_refusal(states, txid, row["curr_txid"], through)
    return snapshot_of(row, blocked, refusal)


@contextmanager
def _asking(ledger: LedgerConnection | DatabaseTransaction) -> Iterator[DatabaseTransaction]:
    if isinstance(ledger, DatabaseTransaction):
        yield ledger
    else:
        with ledger.in_one_round_trip() as tx:
            yield tx


def begin_attempt(
    connection: LedgerConnection,
    topology: Topology,
    seen: Snapshot,
    request_id: int,
    work: Work,
    leases: Leases,
    without: frozenset[str] = frozenset(),
    *,
    as_refrozen: bool = False,
) -> Grant | None:
    """Grant the next attempt if that is the next action now; otherwise None: decide again (R2).

    Under the topology's lock: the decision is repeated, a live attempt is fenced, the next
    attempt_id with its nonce becomes durable, and each sink's ack_val starts as the emitted XOR. An
    opaque spout's batch is cut before that, without the lock, and belongs to the attempt (E4). So
    does a frozen batch without its excluded items (C9).

    :param seen: what the caller has decided from
    :param without: source items that are left out, beside those that are excluded
    :param as_refrozen: a dry run reads what a refreeze would freeze, and freezes nothing
    """
    txid = seen.txid
    if seen.curr_txid == 1:  # otherwise something has committed
        adopt_definitions(connection, topology)
    batch = None if seen.is_frozen else cut_batch(connection, topology, txid)
    exchanged = batch_if_refrozen(connection, topology, txid) if as_refrozen else None
    try:
        grant = _grant_here(
            connection, topology, txid, request_id, work, batch, leases, without, exchanged
        )
    except LedgerBusy:
        _end_holders(connection, topology, txid, request_id, work)
        raise
    if grant is not None and topology.databases:
        _grant_elsewhere(connection, topology, grant)
    return grant


def _grant_here(
    connection: LedgerConnection,
    topology: Topology,
    txid: int,
    request_id: int,
    work: Work,
    batch: AttemptBatch | None,
    leases: Leases,
    without: frozenset[str],
    exchanged: BatchMeta | None,
) -> Grant | None:
    with connection.transaction() as tx:
        hold_topology(tx, topology.name)
        # A concurrent sweep that gives the request up waits for this row; if it has done so
        # already, the snapshot below says so.
        tx.queue("hold_request", request_id=request_id)
        row = tx.one("snapshot", topology=topology.name, txid=txid, request_id=request_id)
        snapshot, request = _snapshot(tx, row, topology.states), _request(row, request_id)
        if not isinstance(next_action(snapshot, request, work), Begin):
            return None
        if exchanged is not None and not request.is_dry_run:
            raise LedgerCorruption(f"request {request_id} is no dry run: it reads what is frozen")
        if not (batch.still_follows(tx) if batch else snapshot.is_frozen):
            return None
        if row["definition_digests"] != _digests(topology):
            check_states(tx, topology)
        # under the lock, so that nothing is excluded meanwhile
        if batch is None:
            if row["has_exclusions"] or without or exchanged is not None:
                batch = batch_without_excluded(tx, topology, txid, without, exchanged)
        elif row["has_exclusions"] and excluded_among(tx, topology.name, batch.meta.items):
            return None  # excluded since it was cut: cut it again
        newest = row["newest_attempt"]
        attempt = TransactionAttempt(txid, 0 if newest is None else newest + 1)
        grant = Grant(topology=topology.name, attempt=attempt, nonce=str(uuid.uuid4()))
        as_refrozen = exchanged is not None
        _queue_grant(tx, topology, grant, request, batch, leases, as_refrozen=as_refrozen)
    return grant


def _digests(topology: Topology) -> dict[str, str]:
    return {s.name: s.digest() for s in topology.states if s.database == COORDINATOR}


def _end_holders(
    connection: LedgerConnection, topology: Topology, txid: int, request_id: int, work: Work
) -> None:
    """End the sessions that still hold the attempt row that must be fenced (A3)."""
    snapshot, request = read_snapshot(connection, topology.name, txid, request_id, topology.states)
    live = snapshot.live
    if live is not None and isinstance(next_action(snapshot, request, work), Begin):
        end_holders_of(connection, topology.name, TransactionAttempt(txid, live.attempt_id))


def _grant_elsewhere(connection: LedgerConnection, topology: Topology, grant: Grant) -> None:
    """Fence in every participant before anything runs: zombies write there too (C6)."""
    try:
        with TopologyDatabases(connection, topology.name, topology.databases) as participants:
            mirror_grant(
                participants, grant, lambda tx, database: _open_sinks(tx, topology, grant, database)
            )
    except ReliabilityError as error:
        fail_and_raise(connection, grant, error)


def _queue_grant(
    tx: DatabaseTransaction,
    topology: Topology,
    grant: Grant,
    request: Request,
    batch: AttemptBatch | None,
    leases: Leases,
    *,
    as_refrozen: bool,
) -> None:
    reason = f"a newer attempt was granted to request {request.number}"
    tx.queue("fence_live_attempt", reason=reason, **grant)
    tx.queue(
        "grant_attempt",
        request_id=request.request_id,
        lease=topology.lease_seconds,
        submit_lease=leases.submit,
        as_refrozen=as_refrozen,
        **_batch_parameters(batch),
        **grant,
    )
    tx.queue("record_grant", topology=topology.name)
    tx.queue("open_steps", steps=[step.name for step in topology.steps], **grant)
    _open_sinks(tx, topology, grant, COORDINATOR)


def _open_sinks(tx: DatabaseTransaction, topology: Topology, grant: Grant, database: str) -> None:
    states = [state for state in topology.states if state.database == database]
    sinks = [state.name for state in states]
    steps = [topology.step_of(sink) for sink in sinks]
    tx.queue("open_sinks", steps=steps, sinks=sinks, **grant)
    check_rights(tx, [StateTables(topology.name, state) for state in states])


def _batch_parameters(batch: AttemptBatch | None) -> dict[str, Any]:
    if batch is None:
        return {
            "batch_meta": None,
            "emitted_xor": None,
            "emitted_count": None,
            "predecessor_attempt": None,
        }
    return {
        "batch_meta": as_json(batch.meta.to_json()),
        "emitted_xor": batch.meta.emitted.xor,
        "emitted_count": batch.meta.emitted.count,
        "predecessor_attempt": batch.predecessor_attempt,
    }


def claim_step(
    connection: LedgerConnection,
    topology: Topology,
    seen: Snapshot,
    request_id: int,
    step: str,
    task: str,
    leases: Leases,
) -> Grant | None:
    """Claim a step of the request's live attempt; None if it cannot be claimed any more.

    A step is claimed once per attempt: a second write action of the same sinks would make its acks
    ambiguous. A task that finds a step claimed by an earlier try of itself begins a new attempt.

    :param seen: what the caller has decided from; no other attempt's step is claimed
    """
    grant = grant_of(topology.name, seen)
    try:
        with connection.in_one_round_trip() as tx:
            row = tx.first(
                "claim_step",
                request_id=request_id,
                step=step,
                task=task,
                submit_lease=leases.submit,
                **grant,
            )
    except AttemptFenced:  # ended since: the claim is rolled back
        return None
    if row is None:
        return None
    if topology.databases:  # the process that began the attempt may have died before all had it
        _grant_elsewhere(connection, topology, grant)
    return grant


def grant_of(topology: str, seen: Snapshot) -> Grant:
    """Return the grant of the live attempt that a decision was made for."""
    assert seen.live is not None
    attempt = TransactionAttempt(seen.txid, seen.live.attempt_id)
    return Grant(topology=topology, attempt=attempt, nonce=seen.live.nonce)


def interval(connection: LedgerConnection, topology: str, txid: int) -> Interval | None:
    """Return the data interval of a txid, None for an untimed one."""
    with connection.in_one_round_trip() as tx:
        return interval_of(tx.one("run_of_txid", topology=topology, txid=txid))
