"""Attempts in the ledger: granted, started, acked, sealed, ended. Each act names its grant (A1)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from reliability.core.acker import check_accounting, check_acked
from reliability.core.attempt import Grant, TransactionAttempt
from reliability.core.coordinator import (
    SEALED,
    AttemptStatus,
    Begin,
    Goal,
    Snapshot,
    next_action,
)
from reliability.core.definitions import Topology
from reliability.core.errors import (
    AttemptFenced,
    LedgerCorruption,
    ReliabilityError,
    error_from_ledger,
)
from reliability.core.fold import Fold
from reliability.core.request import Request
from reliability.core.spout import BatchMeta
from reliability.ledger.door import Door, Row, Transaction
from reliability.ledger.locks import lock_topology
from reliability.ledger.records import request_of, sink_of, snapshot_of
from reliability.settings import Leases
from reliability.states.tables import StateTables
from reliability.transaction.declare import check_states


def read_snapshot(
    door: Door, topology: str, txid: int, request_id: int
) -> tuple[Snapshot, Request]:
    """Read what the coordinator decides from, without a lock: an answer, not a promise."""
    with door.transaction() as tx:
        return _snapshot_in(tx, topology, txid), _request_in(tx, request_id)


def _snapshot_in(tx: Transaction, topology: str, txid: int) -> Snapshot:
    row = tx.one("snapshot", topology=topology, txid=txid)
    older = {"topology": topology, "below": txid, "except": []}
    return snapshot_of(row, tx.first("blocked_txid", **older))


def _request_in(tx: Transaction, request_id: int) -> Request:
    return request_of(tx.one("request", request_id=request_id))


# --- begin ---------------------------------------------------------------------------------------


def begin_attempt(
    door: Door, topology: Topology, txid: int, request_id: int, leases: Leases
) -> Grant | None:
    """Grant the next attempt if that is what is to be done now, else None; ask again then (R2).

    Under the topology's lock: the decision is made anew, what is still live is fenced, the next
    attempt_id with its nonce is durable, and each sink's ack_val starts as the emitted XOR.
    """
    with door.transaction() as tx:
        lock_topology(tx, topology.name)
        snapshot, request = _snapshot_in(tx, topology.name, txid), _request_in(tx, request_id)
        action = next_action(snapshot, request, Goal.COMMITTED)
        # A sweep that gives the request up at this moment waits for this row, or we find it gone.
        if not isinstance(action, Begin) or not tx.run("hold_request", request_id=request_id):
            return None
        check_states(tx, topology)
        return _grant(tx, topology, txid, request, leases)


def _grant(
    tx: Transaction, topology: Topology, txid: int, request: Request, leases: Leases
) -> Grant:
    place = {"topology": topology.name, "txid": txid}
    reason = f"a newer attempt was granted to request {request.number}"
    tx.run("fence_live_attempt", reason=reason, **place)
    granted = tx.one(
        "grant_attempt",
        request_id=request.request_id,
        lease=topology.lease_seconds,
        submit_lease=leases.submit,
        **place,
    )
    sinks = [state.name for state in topology.states]
    tx.all("open_sinks", attempt_id=granted["attempt_id"], sinks=sinks, **place)
    return Grant(
        topology=topology.name,
        attempt=TransactionAttempt(txid, granted["attempt_id"]),
        nonce=granted["nonce"],
    )


# --- the driver's and the tasks' messages --------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """Where the attempt runs; the JVM and its Python can die one without the other."""

    host: str
    jvm_pid: int
    python_pid: int
    application_id: str


def start_attempt(door: Door, grant: Grant, driver: Driver) -> None:
    """Record the driver's first message; raise AttemptFenced if the attempt is not its own."""
    with door.transaction() as tx:
        row = tx.first(
            "start_attempt",
            driver_host=driver.host,
            driver_pid=driver.jvm_pid,
            python_pid=driver.python_pid,
            application_id=driver.application_id,
            **_place(grant),
        )
    _unless_fenced(row, grant)


def renew_lease(door: Door, grant: Grant) -> None:
    """Show progress; raise AttemptFenced if it is nobody's any more."""
    with door.transaction() as tx:
        row = tx.first("renew_lease", **_place(grant))
    _unless_fenced(row, grant)


def declare_partitions(door: Door, grant: Grant, sink: str, partitions: int) -> None:
    """Record that a sink's one write action ended with so many partitions (A5)."""
    with door.transaction() as tx:
        row = tx.first("declare_partitions", sink=sink, partitions=partitions, **_place(grant))
    _unless_fenced(row, grant)


def read_batch_meta(door: Door, grant: Grant) -> BatchMeta:
    """Return what the attempt's txid reads."""
    with door.transaction() as tx:
        row = tx.one("batch_meta", topology=grant.topology, txid=grant.attempt.txid)
    emitted = Fold(row["emitted_xor"], row["emitted_count"])
    return BatchMeta.from_json(row["batch_meta"], emitted)


def new_write_id() -> str:
    """Return an id for one write action."""
    return str(uuid.uuid4())


def end_attempt(door: Door, grant: Grant, error: ReliabilityError, *, fence: bool = False) -> bool:
    """Fail or fence an unsealed attempt; say whether it was this call that did.

    Compared first, then changed: a late message about an old attempt changes nothing (A8).
    """
    status = AttemptStatus.FENCED if fence else AttemptStatus.FAILED
    with door.transaction() as tx:
        ended = tx.run(
            "end_attempt",
            status=status.value,
            reason_code=error.code,
            reason=error.what,
            **_place(grant),
        )
    return ended > 0


# --- seal ----------------------------------------------------------------------------------------


def seal(door: Door, topology: Topology, grant: Grant) -> None:
    """Seal an attempt whose spark-submit has ended: PROCESSED, or raise why not (A6).

    1. SEALING: from now on acks find no PROCESSING row
    2. with no lock held: are all declared acks there, does the fold of the staged rows equal the
       emitted side, is the source still what the batch was cut from
    3. PROCESSED: the staged rows never change again
    """
    with door.transaction() as tx:
        row = tx.first("begin_seal", **_place(grant))
    if row is None:
        return _already_sealed_or_raise(door, grant)
    try:
        staged = _audit(door, topology, grant)
        _end_seal(door, grant, staged)
    except ReliabilityError as error:
        end_attempt(door, grant, error)
        raise


def _audit(door: Door, topology: Topology, grant: Grant) -> dict[str, int]:
    meta = read_batch_meta(door, grant)
    with door.transaction() as tx:
        sinks = [sink_of(row) for row in tx.all("sinks", **_place(grant))]
    check_acked(sinks)
    folds: dict[str, Fold] = {}
    rows: dict[str, int] = {}
    for state in topology.states:
        folds[state.name], rows[state.name] = _fold(door, StateTables(topology.name, state), grant)
        renew_lease(door, grant)
    check_accounting(meta.emitted, sinks, folds)
    topology.spout.verify(meta)
    return rows


def _fold(door: Door, tables: StateTables, grant: Grant) -> tuple[Fold, int]:
    with door.transaction() as tx:
        row = tx.one(tables.fold(), **_place(grant))
    return Fold(row["xor"], row["count"]), row["rows"]


def _end_seal(door: Door, grant: Grant, staged: dict[str, int]) -> None:
    with door.transaction() as tx:
        for sink, rows in staged.items():
            tx.one("record_staged_rows", sink=sink, staged_rows=rows, **_place(grant))
        row = tx.first("end_seal", **_place(grant))
    _unless_fenced(row, grant)


def _already_sealed_or_raise(door: Door, grant: Grant) -> None:
    if AttemptStatus(_read(door, grant)["status"]) not in SEALED:
        raise error_of(door, grant)


def error_of(door: Door, grant: Grant) -> ReliabilityError:
    """Return why an attempt ended, as the error that a task raises."""
    row = _read(door, grant)
    return error_from_ledger(row["reason_code"], f"attempt {grant.attempt}: {row['reason']}")


def is_processing(door: Door, grant: Grant) -> bool:
    """Say whether what the attempt does can still count."""
    return AttemptStatus(_read(door, grant)["status"]) is AttemptStatus.PROCESSING


def _read(door: Door, grant: Grant) -> Row:
    with door.transaction() as tx:
        row = tx.first("attempt", **_place(grant))
    if row is None:
        raise LedgerCorruption(f"attempt {grant} is not in the ledger")
    return row


def _place(grant: Grant) -> dict[str, Any]:
    return {
        "topology": grant.topology,
        "txid": grant.attempt.txid,
        "attempt_id": grant.attempt.attempt_id,
        "nonce": grant.nonce,
    }


def _unless_fenced(row: Row | None, grant: Grant) -> None:
    if row is None:
        raise AttemptFenced(f"attempt {grant} was ended by somebody else")
