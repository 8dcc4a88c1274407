"""Emit: allocate a run's source items to txids, once and for all, and open its requests.

1. ask whether the source is ready for the next txid
2. plan without a lock: list the items that no txid has, read footers, cut, count
3. lock the topology
4. check before allocating: overlap, how many tasks Airflow can map
5. allocate txids from the topology's row and freeze each one's BatchMeta; an opaque spout's txids
   get theirs when they begin (E4)
6. open the run's requests for old and new txids alike; those for committed txids are replays

A run that names the txids to replay does the last of these alone (E9).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from reliability.core.definitions import Topology
from reliability.core.errors import (
    DataIntervalMissing,
    LedgerBusy,
    NothingToEmit,
    NothingToReplay,
    SourceNotReady,
    TooManyBatches,
)
from reliability.core.schedule import Schedule
from reliability.core.spout import (
    BatchMeta,
    ComparesColumns,
    Interval,
    NotesDrift,
    SpoutKind,
    check_overlap,
)
from reliability.core.texts import as_json
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.locks import check_coordinator, lock_topology
from reliability.ledger.read_rows import batch_of, interval_of
from reliability.transaction.emit.recording import EmissionKey, recorded_emission
from reliability.transaction.emit.refreeze import refreeze
from reliability.transaction.emit.requests import (
    Run,
    TaskContact,
    check_committed,
    contact_in,
    renew_in,
)
from reliability.transaction.emit.source_items import LedgerItems, freeze, is_allocated
from reliability.transaction.topology.lifecycle import declare

MAX_PLANS = 5
logger = logging.getLogger(__name__)


def emit(
    connection: LedgerConnection,
    topology: Topology,
    interval: Interval | None,
    contact: TaskContact,
    *,
    max_batches: int,
    refreeze: bool = False,
    replay: Sequence[int] | None = None,
    schedule: Schedule | None = None,
) -> list[int]:
    """Return the txids of the run, ascending; a repeated call returns the same ones.

    :param interval: the run's data interval; ignored by an untimed spout
    :param max_batches: how many txids Airflow can map for one run
    :param refreeze: first refreeze the run's txids whose source was replaced
    :param replay: emit nothing, and look at no source: request exactly these txids, ascending
    :param schedule: of the run's DAG; recorded, so that missing intervals are noticed
    :raises SourceNotReady, NothingToEmit, SourceUnreadable, FileRefused, SourceChanged: by the
        source
    :raises IntervalOverlap, TooManyBatches: nothing was allocated
    :raises NothingToReplay: a dry run has no txid, or not all of `replay` have committed
    """
    if replay is not None:
        return _ask_for_replay(
            connection, topology, replay, contact, max_batches, refreeze=refreeze
        )
    if topology.spout.timed and interval is None:
        raise DataIntervalMissing(
            f"run {contact.run.run_id} of {contact.run.dag_id} has no data interval"
        ).fill_in(dag=contact.run.dag_id)
    interval = interval if topology.spout.timed else None
    if contact.is_dry_run:
        return _ask_for_dry_run(connection, topology, interval, contact, max_batches)
    key = _emission_key(topology, contact.run)
    with recorded_emission(connection, key, interval, schedule):
        return _emit(connection, topology, interval, contact, max_batches, refreeze=refreeze)


def _emission_key(topology: Topology, run: Run) -> EmissionKey:
    return EmissionKey(topology.name, run.dag_id, run.run_id)


def _emit(
    connection: LedgerConnection,
    topology: Topology,
    interval: Interval | None,
    contact: TaskContact,
    max_batches: int,
    *,
    refreeze: bool,
) -> list[int]:
    declare(connection, topology)
    _check_ready(connection, topology, interval)
    if refreeze:  # before requests are opened: a refusal must leave none open
        with connection.transaction() as tx:
            own = _earlier_txids(tx, topology.name, interval, contact.run)
        _refreeze(connection, topology, own, contact.run)
    for _ in range(MAX_PLANS):
        batches = _plan(connection, topology, interval, contact.run)
        _log_drift(connection, topology, batches)
        with connection.transaction() as tx:
            next_txid = lock_topology(tx, topology.name)["next_txid"]
            # Another run may have allocated some of these items since the plan was made.
            if not _any_is_allocated(tx, topology, batches):
                return _allocate(tx, topology, interval, batches, contact, next_txid, max_batches)
    raise LedgerBusy(f"other runs of {topology.name} are emitting the same items")


def _ask_for_dry_run(
    connection: LedgerConnection,
    topology: Topology,
    interval: Interval | None,
    contact: TaskContact,
    max_batches: int,
) -> list[int]:
    """Open requests for the interval's txids; a dry run allocates none."""
    with connection.transaction() as tx:
        lock_topology(tx, topology.name)
        txids = _earlier_txids(tx, topology.name, interval, contact.run)
        if not txids:
            raise NothingToReplay(f"{topology.name} has emitted nothing for {interval}")
        _check_room(topology.name, len(txids), max_batches)
        return _request(tx, topology.name, txids, contact)


def _ask_for_replay(
    connection: LedgerConnection,
    topology: Topology,
    txids: Sequence[int],
    contact: TaskContact,
    max_batches: int,
    *,
    refreeze: bool,
) -> list[int]:
    """Open requests for exactly these txids, or for none.

    It is no emission, and not recorded as one: no interval is emitted because of it.
    """
    _check_room(
        topology.name, len(txids), max_batches, remedy="replay them by several runs, some by each."
    )
    with connection.transaction() as tx:  # before anything is declared or refrozen
        check_coordinator(tx, topology.name)
        check_committed(tx, topology.name, txids)
    if not contact.is_dry_run:
        declare(connection, topology)
        if refreeze:
            _refreeze(connection, topology, txids, contact.run)
    with connection.transaction() as tx:
        lock_topology(tx, topology.name)
        check_committed(tx, topology.name, txids)  # a rollback may have come
        return _request(tx, topology.name, txids, contact)


def _request(
    tx: DatabaseTransaction, topology: str, txids: Sequence[int], contact: TaskContact
) -> list[int]:
    """Open the run's requests for the txids, and return these; harmless when repeated."""
    requests = [contact_in(tx, topology, txid, contact, may_open_first=True) for txid in txids]
    if requests:
        renew_in(tx, requests[0].request_id)
    return list(txids)


def _refreeze(
    connection: LedgerConnection, topology: Topology, txids: Sequence[int], run: Run
) -> None:
    """Refreeze at most once per run.

    A cleared run keeps its parameters, so they do not ask for another refreeze.
    """
    reason = f"run {run.run_id} of {run.dag_id} requested it"
    with connection.transaction() as tx:
        own = [
            txid
            for txid in txids
            if tx.one("may_refreeze", topology=topology.name, txid=txid, reason=reason)["may"]
        ]
    for txid in own:
        refreeze(connection, topology, txid, reason)


def _check_ready(
    connection: LedgerConnection, topology: Topology, interval: Interval | None
) -> None:
    with connection.transaction() as tx:
        txid = tx.one("topology_position", topology=topology.name)["next_txid"]
    if not topology.spout.is_ready(txid, interval):
        raise SourceNotReady(f"{topology.name}: the source is not ready for txid {txid}")


def _plan(
    connection: LedgerConnection, topology: Topology, interval: Interval | None, run: Run
) -> list[BatchMeta]:
    spout = topology.spout
    try:
        new = spout.plan(interval, LedgerItems(connection, topology.name))
    except NothingToEmit:
        if not _is_left_out(connection, topology.name, interval, run):
            raise
        return []
    return [BatchMeta(items=batch, emitted=spout.count(batch)) for batch in spout.cut(new)]


def _is_left_out(
    connection: LedgerConnection, topology: str, interval: Interval | None, run: Run
) -> bool:
    """Say whether the run's txids need no source: each is skipped, or all its items excluded."""
    with connection.transaction() as tx:
        txids = _earlier_txids(tx, topology, interval, run)
        return bool(tx.one("are_left_out", topology=topology, txids=txids)["are_left_out"])


def _log_drift(connection: LedgerConnection, topology: Topology, batches: list[BatchMeta]) -> None:
    """Log how the columns of new items differ from the declared ones, or else from earlier ones."""
    noted = None
    if isinstance(topology.spout, NotesDrift):
        noted = topology.spout.drifted_columns([i for batch in batches for i in batch.items])
    if noted is None:
        _warn_of_changed_columns(connection, topology, batches)
    for said in noted or ():
        logger.warning("%s", said)


def _warn_of_changed_columns(
    connection: LedgerConnection, topology: Topology, batches: list[BatchMeta]
) -> None:
    """Log how new items differ from the last committed batch; they may still be right."""
    if not batches or not isinstance(topology.spout, ComparesColumns):
        return
    with connection.transaction() as tx:
        row = tx.first("last_committed_batch", topology=topology.name)
    if row is not None:
        items = [item for batch in batches for item in batch.items]
        for said in topology.spout.changed_columns(items, batch_of(row)):
            logger.warning(
                "%s; txid %s was the last to commit. Spark reads each batch by its own columns: "
                "`reliability check %s FILE` says whether the process function takes them",
                said, row["txid"], topology.name,
            )  # fmt: skip


def _any_is_allocated(
    tx: DatabaseTransaction, topology: Topology, batches: list[BatchMeta]
) -> bool:
    return is_allocated(tx, topology.name, [item for batch in batches for item in batch.items])


def _allocate(
    tx: DatabaseTransaction,
    topology: Topology,
    interval: Interval | None,
    batches: list[BatchMeta],
    contact: TaskContact,
    next_txid: int,
    max_batches: int,
) -> list[int]:
    own = _earlier_txids(tx, topology.name, interval, contact.run)
    metas = _metas_to_allocate(tx, topology, interval, batches, has_own=bool(own))
    _check_overlap(tx, topology.name, interval)
    _check_room(topology.name, len(own) + len(metas), max_batches)
    new = range(next_txid, next_txid + len(metas))
    if new:
        tx.one("allocate_txids", topology=topology.name, count=len(new), first=next_txid)
    for txid, meta in zip(new, metas, strict=True):
        _insert(tx, topology.name, txid, meta, interval, contact.run)
    txids = sorted({*own, *new})
    _request(tx, topology.name, txids, contact)
    tx.one("complete_emission", **_emission_key(topology, contact.run))
    return txids


def _metas_to_allocate(
    tx: DatabaseTransaction,
    topology: Topology,
    interval: Interval | None,
    batches: list[BatchMeta],
    *,
    has_own: bool,
) -> list[BatchMeta | None]:
    """Return the batch of each new txid; None if it is cut when the txid begins."""
    if interval is None and has_own:
        return []  # a repeated run of an untimed spout requests the txids that it had (E5)
    if topology.spout.kind is SpoutKind.TRANSACTIONAL:
        return [*batches]
    # None of these batches is allocated yet: txids that still wait for a batch take the first.
    row = tx.one("unfrozen_txids", topology=topology.name, **_ends(interval))
    return [None] * max(len(batches) - row["unfrozen"], 0 if has_own else 1)


def _earlier_txids(
    tx: DatabaseTransaction, topology: str, interval: Interval | None, run: Run
) -> list[int]:
    rows = list(tx.all("txids_of_run", topology=topology, dag_id=run.dag_id, run_id=run.run_id))
    if interval is not None:
        rows += tx.all("txids_of_interval", topology=topology, **_ends(interval))
    return sorted({row["txid"] for row in rows})


def _check_overlap(tx: DatabaseTransaction, topology: str, interval: Interval | None) -> None:
    if interval is None:
        return
    rows = tx.all("emitted_intervals", topology=topology, **_ends(interval))
    emitted = [(interval_of(row), row["run_id"]) for row in rows]
    check_overlap(interval, [(found, run_id) for found, run_id in emitted if found])


def _check_room(topology: str, wanted: int, max_batches: int, remedy: str = "") -> None:
    if wanted > max_batches:
        raise TooManyBatches(
            f"{topology}: {wanted} batches; Airflow maps at most {max_batches}", remedy=remedy
        )


def _insert(
    tx: DatabaseTransaction,
    topology: str,
    txid: int,
    meta: BatchMeta | None,
    interval: Interval | None,
    run: Run,
) -> None:
    tx.one(
        "insert_transaction",
        topology=topology,
        txid=txid,
        batch_meta=as_json(meta.to_json()) if meta else None,
        emitted_xor=meta.emitted.xor if meta else None,
        emitted_count=meta.emitted.count if meta else None,
        dag_id=run.dag_id,
        run_id=run.run_id,
        **_ends(interval),
    )
    if meta:
        freeze(tx, topology, txid, meta.items)


def _ends(interval: Interval | None) -> dict[str, object]:
    if interval is None:
        return {"interval_start": None, "interval_end": None}
    return {"interval_start": interval.start, "interval_end": interval.end}
