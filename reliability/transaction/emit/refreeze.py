"""Refreeze: give a txid a new BatchMeta because its source was replaced on purpose.

A frozen batch is what makes a retry harmless, so only a person refreezes it. The old batch is kept,
and the next replay reads the new one. New items of the interval are not added: they get txids of
their own.
"""

from __future__ import annotations

from typing import Any

from reliability.core.definitions import Topology
from reliability.core.errors import NothingToReplay, RefreezeNotPossible, TxidSkipped
from reliability.core.fold import Fold
from reliability.core.spout import WHOLE, BatchMeta
from reliability.core.state import replay_refusal
from reliability.core.statement_key import TxidKey
from reliability.core.texts import as_json
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import holding
from reliability.ledger.read_rows import batch_of, skipped_of, stored_batch
from reliability.states.headers import compacted_through
from reliability.transaction.emit.source_items import excluded_among, parts_of


def refreeze(
    connection: LedgerConnection, topology: Topology, txid: int, reason: str
) -> BatchMeta | None:
    """Freeze the current source of a txid's items; None if it has not changed.

    A file that was missing at an earlier refreeze and is back is read again. Keys of a table that
    are gone belong to no txid once this one has committed again. Excluded items stay as they are:
    nothing reads them.

    :raises TxidSkipped: the txid is skipped, so nothing reads its batch
    :raises RefreezeNotPossible: the txid is being processed, or several txids read pieces of one
        file
    :raises NothingToReplay: the txid was never emitted, or its batch is not frozen yet
    :raises SourceUnreadable: an item exists, but is not complete
    :raises FileRefused: it can never be read as it is
    """
    key = TxidKey(topology.name, txid)
    stored, new = _exchange(connection, topology, txid)
    if new is None:
        return None
    with holding(connection, topology.name) as (tx, locked):
        # Otherwise the ledger would name a wrong batch for the contribution, for ever.
        through = compacted_through(tx, topology.name)
        refusal = replay_refusal(topology.states, txid, locked["curr_txid"], through)
        if refusal is not None:
            what = f"it cannot be replayed: {refusal}"
            raise RefreezeNotPossible(what, topology=topology.name, txid=txid)
        changed = tx.first(
            "refreeze_batch",
            reason=reason,
            old_batch=as_json(stored),
            verdict=new.verdict.value,
            **stored_batch(new),
            **key,
        )
        if changed is None:
            raise RefreezeNotPossible("it is being processed", topology=topology.name, txid=txid)
        tx.run("refreeze_parts", **parts_of(new.items), **key)
        # their rows are others now
        tx.all("end_corrections_of_txid", reason=f"refrozen: {reason}", **key)
    return new


def batch_if_refrozen(
    connection: LedgerConnection, topology: Topology, txid: int
) -> BatchMeta | None:
    """Return what `refreeze` would freeze, and freeze nothing; None if the source has not changed.

    :raises: as `refreeze`, as far as it looks at the source
    """
    return _exchange(connection, topology, txid)[1]


def _exchange(
    connection: LedgerConnection, topology: Topology, txid: int
) -> tuple[Any, BatchMeta | None]:
    """Return what a txid reads, as it is stored, and what a refreeze would freeze instead."""
    key = TxidKey(topology.name, txid)
    with connection.transaction() as tx:
        row = tx.first("frozen_batches", topology=topology.name, txids=[txid])
        if row is None:
            raise NothingToReplay("it has no frozen batch", topology=topology.name, txid=txid)
        old = batch_of(row)
        refreezes = tx.all("refreezes_of_txid", **key)
        earlier = [found["items_until_then"] for found in reversed(refreezes)]
        if (skip := tx.first("skips_of_txids", topology=topology.name, txids=[txid])) is not None:
            raise TxidSkipped(str(skipped_of(skip)))
        known = {item.source for item in old.items}
        before = [item for items in earlier for item in BatchMeta.from_json(items, Fold()).items]
        # whole items that the txid had before and no longer has, each as it was last
        gone = {
            item.source: item
            for item in reversed(before)
            if item.part == WHOLE and item.source not in known
        }
        ever = (*old.items, *gone.values())
        excluded = excluded_among(tx, topology.name, ever)
    included = tuple(item for item in ever if item.source not in excluded)
    read = BatchMeta(items=included, emitted=old.emitted)
    kept = tuple(item for item in old.items if item.source in excluded)
    places = {item.source: place for place, item in reversed([*enumerate(ever)])}
    items = (*topology.spout.refresh(read), *kept)
    items = tuple(sorted(items, key=lambda item: places.get(item.source, len(ever))))
    if items == old.items:
        return row["batch_meta"], None
    return row["batch_meta"], BatchMeta(items=items, emitted=topology.spout.count(items))
