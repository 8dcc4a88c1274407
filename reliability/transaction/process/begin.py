"""Begin: grant the next attempt at a txid, claim one of its steps."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from reliability.core.attempt import Grant, TransactionAttempt
from reliability.core.coordinator import Begin, Snapshot, Work, next_action
from reliability.core.definitions import Topology
from reliability.core.errors import AttemptFenced, LedgerBusy, LedgerCorruption, ReliabilityError
from reliability.core.leases import DEFAULT_LEASES, Leases
from reliability.core.spout import BatchMeta, Interval
from reliability.core.statement_key import TxidKey
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.locks import hold_topology
from reliability.ledger.read_rows import interval_of, stored_batch
from reliability.states.kinds import stored_state
from reliability.states.tables import check_rights
from reliability.transaction.emit.refreeze import batch_if_refrozen
from reliability.transaction.emit.source_items import excluded_among
from reliability.transaction.process.attempt_messages import fail_and_raise
from reliability.transaction.process.opaque_batch import (
    AttemptBatch,
    batch_without_excluded,
    cut_batch,
)
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.declare import check_states
from reliability.transaction.topology.lifecycle import adopt_definitions
from reliability.transaction.topology.participants import changed_databases, mirror_grant
from reliability.transaction.topology.read_standing import read_txid
from reliability.transaction.topology.server import end_holders_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionTask:
    """The work of one Airflow task, or of one call of the command line, for a txid.

    :param work: process a step, or commit the txid
    :param without: source items that its attempts leave out, beside those that are excluded
    :param as_refrozen: a dry run reads what a refreeze would freeze, and freezes nothing
    """

    topology: Topology
    txid: int
    request_id: int
    work: Work
    leases: Leases = DEFAULT_LEASES
    without: frozenset[str] = frozenset()
    as_refrozen: bool = False


def begin_attempt(
    connection: LedgerConnection, task: TransactionTask, seen: Snapshot
) -> Grant | None:
    """Grant the next attempt if that is the next action now; otherwise None: decide again (R2).

    Under the topology's lock: the decision is repeated, a live attempt is fenced, the next
    attempt_id with its nonce becomes durable, and each sink's ack_val starts as the emitted XOR. An
    opaque spout's batch is cut before that, without the lock, and belongs to the attempt (E4). So
    does a frozen batch without its excluded items (C9).

    :param seen: what the caller has decided from
    """
    topology, txid = task.topology, task.txid
    if seen.curr_txid == 1:  # otherwise something has committed
        adopt_definitions(connection, topology)
    batch = None if seen.is_frozen else cut_batch(connection, topology, txid)
    exchanged = batch_if_refrozen(connection, topology, txid) if task.as_refrozen else None
    try:
        grant = _grant_here(connection, task, batch, exchanged)
    except LedgerBusy:
        _end_holders(connection, task)
        raise
    if grant is not None and topology.databases:
        _grant_elsewhere(connection, topology, grant)
    return grant


def _grant_here(
    connection: LedgerConnection,
    task: TransactionTask,
    batch: AttemptBatch | None,
    exchanged: BatchMeta | None,
) -> Grant | None:
    topology, txid, request_id = task.topology, task.txid, task.request_id
    with connection.transaction() as tx:
        hold_topology(tx, topology.name)
        # A concurrent sweep that gives the request up waits for this row; if it has done so
        # already, the snapshot below says so.
        tx.queue("hold_request", request_id=request_id)
        snapshot, request, row = read_txid(tx, topology, txid, request_id)
        if not isinstance(next_action(snapshot, request, task.work), Begin):
            return None
        if exchanged is not None and not request.is_dry_run:
            raise LedgerCorruption(f"request {request_id} is no dry run: it reads what is frozen")
        key = TxidKey(topology.name, txid)
        if not (batch.still_follows(tx, key) if batch else snapshot.is_frozen):
            return None
        digests = {s.name: s.digest() for s in topology.states if not s.database}
        if row["definition_digests"] != digests:
            check_states(tx, topology)
        if {*row["databases"]} != {*topology.databases}:
            raise changed_databases(topology.name, row["databases"], topology.databases)
        # under the lock, so that nothing is excluded meanwhile
        if batch is None:
            if row["has_exclusions"] or task.without or exchanged is not None:
                batch = batch_without_excluded(tx, topology, txid, task.without, exchanged)
        elif row["has_exclusions"] and excluded_among(tx, topology.name, batch.meta.items):
            return None  # excluded since it was cut: cut it again
        grant = new_grant(topology.name, txid, row["newest_attempt"])
        grant_attempt(
            tx,
            grant,
            reason=f"a newer attempt was granted to request {request.number}",
            request_id=request_id,
            lease=topology.lease_seconds,
            submit_lease=task.leases.submit,
            as_refrozen=exchanged is not None,
            predecessor_attempt=batch and batch.predecessor_attempt,
            left_out=sorted(batch.left_out) if batch else [],
            **stored_batch(batch.meta if batch else None),
        )
        tx.queue("record_grant", topology=topology.name)
        tx.queue("open_steps", steps=[step.name for step in topology.steps], **grant)
        _open_sinks(tx, topology, grant)
    return grant


def new_grant(topology: str, txid: int, newest_attempt: int | None) -> Grant:
    """Return a grant of the attempt after the newest one."""
    attempt = TransactionAttempt(txid, 0 if newest_attempt is None else newest_attempt + 1)
    return Grant(topology=topology, attempt=attempt, nonce=str(uuid.uuid4()))


def grant_attempt(tx: DatabaseTransaction, grant: Grant, *, reason: str, **values: Any) -> None:
    """Fence the live attempt of a txid, and make the grant of a newer one durable.

    :param reason: why the live attempt is fenced
    :param values: of the attempt's row; with a verdict the attempt is empty, and replaces even a
        PROCESSED one (C7)
    """
    row: dict[str, Any] = {"request_id": None, "verdict": None, "verdict_reason": None}
    row |= {"as_refrozen": False, "left_out": [], **values}
    tx.queue("fence_live_attempt", reason=reason, even_processed=bool(row["verdict"]), **grant)
    tx.queue("grant_attempt", **row, **grant)


def _end_holders(connection: LedgerConnection, task: TransactionTask) -> None:
    """End the sessions that still hold the attempt row that must be fenced (A3)."""
    topology, txid = task.topology, task.txid
    snapshot, request, _ = read_txid(connection, topology, txid, task.request_id)
    live = snapshot.live
    if live is not None and isinstance(next_action(snapshot, request, task.work), Begin):
        end_holders_of(connection, topology.name, TransactionAttempt(txid, live.attempt_id))


def _grant_elsewhere(connection: LedgerConnection, topology: Topology, grant: Grant) -> None:
    """Fence in every participant before anything runs: zombies write there too (C6)."""
    try:
        with TopologyDatabases.of_code(connection, topology) as participants:
            mirror_grant(participants, grant, partial(_open_there, topology, grant))
    except ReliabilityError as error:
        fail_and_raise(connection, grant, error)


def _open_there(topology: Topology, grant: Grant, tx: DatabaseTransaction, database: str) -> None:
    check_states(tx, topology, database)
    _open_sinks(tx, topology, grant, database)


def _open_sinks(
    tx: DatabaseTransaction, topology: Topology, grant: Grant, database: str = ""
) -> None:
    states = [state for state in topology.states if state.database == database]
    open_sinks(tx, grant, {state.name: topology.step_of(state.name) for state in states})
    check_rights(tx, [stored_state(topology.name, state) for state in states])


def open_sinks(tx: DatabaseTransaction, grant: Grant, step_of: Mapping[str, str]) -> None:
    """Open the sinks of an attempt in one database: state -> the step that feeds it."""
    tx.queue("open_sinks", sinks=list(step_of), steps=list(step_of.values()), **grant)


def claim_step(
    connection: LedgerConnection, task: TransactionTask, seen: Snapshot, step: str
) -> Grant | None:
    """Claim a step of the request's live attempt; None if it cannot be claimed any more.

    A step is claimed once per attempt: a second write action of the same sinks would make its acks
    ambiguous. A task that finds a step claimed by an earlier try of itself begins a new attempt.

    :param seen: what the caller has decided from; no other attempt's step is claimed
    """
    topology = task.topology
    grant = grant_of(topology.name, seen)
    try:
        row = connection.first(
            "claim_step",
            request_id=task.request_id,
            step=step,
            task=task.work.task,
            submit_lease=task.leases.submit,
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
    return interval_of(connection.one("transaction_details", topology=topology, txid=txid))
