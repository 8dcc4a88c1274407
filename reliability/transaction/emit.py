"""Emit: give a run's source items their txids, once and for ever, and open its requests.

1. plan outside the lock: list, read footers, cut what no txid has yet, count
2. lock the topology
3. check before allocating: overlap, what older txid is blocked, what Airflow can map
4. allocate txids from the topology's row and freeze each one's BatchMeta
5. open the run's requests, for old and new txids alike: known ones make the run a replay
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from reliability.core.definitions import Topology
from reliability.core.errors import DataIntervalMissing, LedgerBusy, TooManyBatches
from reliability.core.spout import BatchMeta, Interval, SourceItem, check_overlap
from reliability.ledger.door import Door, Transaction
from reliability.ledger.locks import lock_topology
from reliability.ledger.records import blocked_of, interval_of
from reliability.transaction.declare import declare
from reliability.transaction.request import Run, TaskContact, contact_in, renew_in

MOST_PLANS = 5


def emit(
    door: Door,
    topology: Topology,
    interval: Interval | None,
    who: TaskContact,
    *,
    most_batches: int,
) -> list[int]:
    """Return the txids of the run, ascending; repeated, it returns the same ones.

    :param interval: the run's data interval; ignored by an untimed spout
    :param most_batches: how many txids Airflow can map for one run
    :raises NothingToEmit, SourceUnreadable: the source has nothing, or a broken file
    :raises IntervalOverlap, TxidBlocked, TooManyBatches: nothing was allocated
    """
    if topology.spout.timed and interval is None:
        raise DataIntervalMissing(f"run {who.run.run_id} of {who.run.dag_id} has no data interval")
    interval = interval if topology.spout.timed else None
    declare(door, topology)
    items = topology.spout.plan(interval)
    for _ in range(MOST_PLANS):
        known = _known(door, topology.name, items)
        new = [item for item in items if item.identity not in known]
        batches = _cut(topology, new)
        with door.transaction() as tx:
            next_txid = lock_topology(tx, topology.name)["next_txid"]
            # Another run may have taken some of these items since the plan was made.
            if not _known_in(tx, topology.name, new):
                return _allocate(tx, topology, interval, batches, who, next_txid, most_batches)
    raise LedgerBusy(f"other runs of {topology.name} keep emitting the same items")


def _cut(topology: Topology, new: Sequence[SourceItem]) -> list[BatchMeta]:
    spout = topology.spout
    return [BatchMeta(items=batch, emitted=spout.count(batch)) for batch in spout.cut(new)]


def _known(door: Door, topology: str, items: Sequence[SourceItem]) -> set[str]:
    with door.transaction() as tx:
        return _known_in(tx, topology, items)


def _known_in(tx: Transaction, topology: str, items: Sequence[SourceItem]) -> set[str]:
    identities = [item.identity for item in items]
    return {row["item"] for row in tx.all("known_items", topology=topology, items=identities)}


def _allocate(
    tx: Transaction,
    topology: Topology,
    interval: Interval | None,
    batches: list[BatchMeta],
    who: TaskContact,
    next_txid: int,
    most_batches: int,
) -> list[int]:
    own = _own_txids(tx, topology.name, interval, who.run)
    if interval is None and own:
        batches = []  # a run of an untimed spout that comes again asks for what it had (E5)
    _check_overlap(tx, topology.name, interval)
    _check_room(topology.name, len(own) + len(batches), most_batches)
    new = range(next_txid, next_txid + len(batches))
    _check_blocked(tx, topology.name, [*own, *new])
    if new:
        tx.one("allocate_txids", topology=topology.name, count=len(new), first=next_txid)
    for txid, meta in zip(new, batches, strict=True):
        _freeze(tx, topology.name, txid, meta, interval, who.run)
    txids = sorted({*own, *new})
    requests = [contact_in(tx, topology.name, t, who, may_open_first=True) for t in txids]
    if requests:
        renew_in(tx, requests[0].request_id)
    return txids


def _own_txids(tx: Transaction, topology: str, interval: Interval | None, run: Run) -> list[int]:
    rows = list(tx.all("txids_of_run", topology=topology, dag_id=run.dag_id, run_id=run.run_id))
    if interval is not None:
        rows += tx.all("txids_of_interval", topology=topology, **_ends(interval))
    return sorted({row["txid"] for row in rows})


def _check_overlap(tx: Transaction, topology: str, interval: Interval | None) -> None:
    if interval is None:
        return
    rows = tx.all("emitted_intervals", topology=topology, **_ends(interval))
    emitted = [(interval_of(row), row["run_id"]) for row in rows]
    check_overlap(interval, [(found, run_id) for found, run_id in emitted if found])


def _check_room(topology: str, wanted: int, most_batches: int) -> None:
    if wanted > most_batches:
        raise TooManyBatches(f"{topology}: {wanted} batches, and Airflow maps {most_batches}")


def _check_blocked(tx: Transaction, topology: str, txids: list[int]) -> None:
    # A txid behind one that nobody works on could be computed and never committed.
    if not txids:
        return
    parameters = {"topology": topology, "below": max(txids), "except": txids}
    blocked = blocked_of(tx.first("blocked_txid", **parameters))
    if blocked is not None:
        raise blocked.error()


def _freeze(
    tx: Transaction,
    topology: str,
    txid: int,
    meta: BatchMeta,
    interval: Interval | None,
    run: Run,
) -> None:
    ends = _ends(interval) if interval else {"interval_start": None, "interval_end": None}
    tx.one(
        "insert_transaction",
        topology=topology,
        txid=txid,
        batch_meta=json.dumps(meta.to_json()),
        emitted_xor=meta.emitted.xor,
        emitted_count=meta.emitted.count,
        dag_id=run.dag_id,
        run_id=run.run_id,
        **ends,
    )
    identities = [item.identity for item in meta.items]
    tx.all("insert_source_items", topology=topology, txid=txid, items=identities)


def _ends(interval: Interval) -> dict[str, object]:
    return {"interval_start": interval.start, "interval_end": interval.end}
