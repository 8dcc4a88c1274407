"""Refreeze: a txid gets a new BatchMeta, because its source was exchanged on purpose.

A frozen batch is what makes a retry harmless, so nothing refreezes by itself: a person says so,
the old batch is kept, and the next replay reads the new one. New items of the interval are none of
its business: they get txids of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reliability.core.definitions import Topology
from reliability.core.errors import NothingToReplay, RefreezeNotPossible
from reliability.core.fold import Fold
from reliability.core.spout import WHOLE, BatchMeta, SourceItem
from reliability.core.state import replay_refusal
from reliability.core.texts import as_json
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.locks import lock_topology
from reliability.ledger.records import batch_of
from reliability.states.headers import compacted_through


def refreeze(
    connection: LedgerConnection, topology: Topology, txid: int, reason: str
) -> BatchMeta | None:
    """Freeze what the source has now of a txid's items; None if it still is what was frozen.

    A file that was gone when the txid was frozen anew before, and is back, is read again. A key of
    a table that is gone belongs to nobody any more once the txid has committed again.

    :raises RefreezeNotPossible: the txid is being processed, or pieces of a file are read by
        several txids
    :raises NothingToReplay: it was never emitted, or its batch is not frozen yet
    :raises SourceUnreadable: an item is there, and not whole
    """
    place = {"topology": topology.name, "txid": txid}
    with connection.transaction() as tx:
        row = tx.first("frozen_batch", **place)
        if row is None:
            raise NothingToReplay(f"txid {txid} of {topology.name} has no frozen batch")
        old = batch_of(row)
        earlier = [found["batch_meta"] for found in tx.all("batches_before", **place)]
    ever = BatchMeta(items=(*old.items, *_gone(old, earlier)), emitted=old.emitted)
    items = tuple(topology.spout.refresh(ever))
    new = BatchMeta(items=items, emitted=topology.spout.count(items))
    if new == old:
        return None
    with connection.transaction() as tx:
        _check_replayable(tx, topology, txid, lock_topology(tx, topology.name)["curr_txid"])
        changed = tx.first(
            "refreeze_batch",
            reason=reason,
            # as it is stored: an earlier release may have written less of an item
            old_batch=as_json(row["batch_meta"]),
            batch_meta=as_json(new.to_json()),
            emitted_xor=new.emitted.xor,
            emitted_count=new.emitted.count,
            verdict=new.verdict.value,
            **place,
        )
        if changed is None:
            raise RefreezeNotPossible(f"txid {txid} of {topology.name} is being processed")
        parts = {"items": [i.source for i in new.items], "parts": [i.part for i in new.items]}
        tx.run("refreeze_parts", **parts, **place)
    return new


def _check_replayable(
    tx: DatabaseTransaction, topology: Topology, txid: int, curr_txid: int
) -> None:
    # Else the ledger would say of a contribution for ever that it came from another batch.
    through = compacted_through(tx, topology.name)
    refusal = replay_refusal(topology.states, txid, curr_txid, through)
    if refusal is not None:
        raise RefreezeNotPossible(f"txid {txid} of {topology.name} cannot be replayed: {refusal}")


def _gone(batch: BatchMeta, earlier: Sequence[Any]) -> list[SourceItem]:
    """Return the whole items that the txid had, and that it has no more."""
    known = {item.source for item in batch.items}
    before = [item for items in earlier for item in BatchMeta.from_json(items, Fold()).items]
    return [item for item in before if item.part == WHOLE and item.source not in known]
