"""Opaque batches: cut when an attempt begins, frozen when its txid commits (E4).

As with Trident's opaque spouts, a new attempt may see another batch; the commit of a txid decides
which rows belong to it. The batch of txid t starts where the batch of the current attempt of t - 1
ended, and refers to that attempt: if that fails, this one fails too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reliability.core.definitions import Topology
from reliability.core.errors import LedgerCorruption, NothingToEmit, SourceChanged, SourceMoved
from reliability.core.plan import PlannedChange
from reliability.core.spout import BatchMeta, Interval, SourceItem
from reliability.core.statement_key import TxidKey
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.read_rows import batch_of, interval_of, parts_of_batch
from reliability.transaction.emit.source_items import (
    LedgerItems,
    excluded_among,
    freeze,
    with_batches,
)

_WAYS_OUT = (
    "deliver the files again; or continue without them: `reliability park` or `reliability skip` "
    "the txid; or set allow_empty=True in the spout if it is normal that there are none."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptBatch:
    """The batch of one attempt; `predecessor_attempt` is None for txid 1.

    :param left_out: the source items of a frozen batch that it does not have
    """

    meta: BatchMeta
    predecessor_attempt: int | None
    left_out: frozenset[str] = frozenset()

    def still_follows(self, tx: DatabaseTransaction, key: TxidKey) -> bool:
        """Say whether the attempt that it starts from is still current, and lock its row."""
        if self.predecessor_attempt is None:
            return key.txid == 1
        held = tx.first("hold_predecessor", predecessor_attempt=self.predecessor_attempt, **key)
        return held is not None


def cut_batch(connection: LedgerConnection, topology: Topology, txid: int) -> AttemptBatch | None:
    """Plan the source and cut the next batch; None if the txid's batch is already frozen.

    Items of committed txids, and of the current attempts of earlier uncommitted ones, are taken. A
    source with nothing more gives an empty batch, which commits as such.

    :raises NothingToEmit: the source is empty although the spout does not allow that
    :raises SourceChanged: the source differs from what a committed txid has read
    :raises SourceMoved: it differs from what an uncommitted txid has read; the next attempt of that
        txid cuts another batch
    """
    key = TxidKey(topology.name, txid)
    with connection.transaction() as tx:
        row = tx.first("predecessor", **key)
        if row is None:
            return None
        before = [batch_of(found) for found in tx.all("uncommitted_batches_before", **key)]
    spout = topology.spout
    try:
        batches = spout.cut(_plan(connection, topology, interval_of(row), before))
    except NothingToEmit as error:
        raise NothingToEmit(error.what, remedy=_WAYS_OUT, txid=txid) from error
    items = batches[0] if batches else ()
    meta = BatchMeta(items=tuple(items), emitted=spout.count(items))
    return AttemptBatch(meta=meta, predecessor_attempt=row["predecessor_attempt"])


def _plan(
    connection: LedgerConnection,
    topology: Topology,
    interval: Interval | None,
    before: Sequence[BatchMeta],
) -> Sequence[SourceItem]:
    frozen = LedgerItems(connection, topology.name)
    try:
        return topology.spout.plan(interval, with_batches(frozen, before))
    except SourceChanged as error:
        topology.spout.plan(interval, frozen)  # raises if the change concerns a committed txid
        raise SourceMoved(error.what) from error


def batch_without_excluded(
    tx: DatabaseTransaction,
    topology: Topology,
    txid: int,
    also: frozenset[str],
    exchanged: BatchMeta | None = None,
) -> AttemptBatch | None:
    """Return the frozen batch without its excluded items; None if none of them is excluded (C9).

    :param also: the sources of further items to leave out
    :param exchanged: what a dry run reads instead of the frozen batch
    """
    frozen = batch_of(tx.one("frozen_batches", topology=topology.name, txids=[txid]))
    read = exchanged or frozen
    left_out = excluded_among(tx, topology.name, read.items) | also
    items = tuple(item for item in read.items if item.source not in left_out)
    if items == frozen.items:
        return None
    meta = BatchMeta(items=items, emitted=topology.spout.count(items))
    return AttemptBatch(meta=meta, predecessor_attempt=None, left_out=left_out)


def freeze_batch(tx: DatabaseTransaction, key: PlannedChange) -> None:
    """Before a first commit, make the batch of the attempt the batch of the txid, for ever.

    :raises LedgerCorruption: the attempt's batch does not start where the previous txid's committed
        batch ended; rows would be counted twice, or never
    """
    if tx.one("is_frozen", **key)["is_frozen"]:
        return
    row = tx.first("freeze_batch", **key)
    if row is None:
        raise LedgerCorruption(
            f"the batch of {key.txid}:{key.attempt_id} does not start where the committed batch of "
            f"txid {key.txid - 1} ended"
        )
    freeze(tx, key.topology, key.txid, parts_of_batch(row))
