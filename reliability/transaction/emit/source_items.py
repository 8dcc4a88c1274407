"""The source items of each txid: an item, or a part of it, belongs to one txid for ever (E1).

A part is an int8multirange: all of an item, the rows of some row groups of a file, or keys of a
table. An EXCLUDE constraint keeps the parts of an item disjoint, whatever the code does.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TypeVar

from reliability.core.definitions import Topology
from reliability.core.spout import (
    WHOLE,
    AllocatedItems,
    BatchMeta,
    ItemPart,
    SourceItem,
    Spout,
    item_of,
    last_of,
    verdict_of,
)
from reliability.ledger.connection import DatabaseTransaction, Ledger, LedgerConnection
from reliability.ledger.read_rows import batch_of

logger = logging.getLogger(__name__)
_Item = TypeVar("_Item", bound=SourceItem)


class LedgerItems:
    """The allocated items in the ledger; given a connection, each call is its own transaction."""

    def __init__(self, ledger: Ledger, topology: str) -> None:
        self._ledger = ledger
        self._topology = topology

    def which(self, identities: Sequence[str]) -> set[str]:
        """Return those of these items that belong to a txid as a whole."""
        rows = self._ledger.all("whole_items", topology=self._topology, items=list(identities))
        return {row["item"] for row in rows}

    def keys(self, source: str) -> Mapping[int, str]:
        """Return the allocated parts of a source: txid -> int8multirange."""
        rows = self._ledger.all("parts_of_item", topology=self._topology, item=source)
        return {row["txid"]: row["part"] for row in rows}

    def last(self, item_type: type[_Item]) -> _Item | None:
        key = {"topology": self._topology, "kind": item_type.kind}
        rows = self._ledger.all("last_batch_of_kind", **key)
        return last_of(item_type, map(batch_of, rows))

    def of_source(self, source: str) -> SourceItem | None:
        txids = [*self.keys(source)][-1:]
        rows = self._ledger.all("frozen_batches", topology=self._topology, txids=txids)
        return item_of(source, map(batch_of, rows))


class _ItemsOfBatches:
    """The allocated items in the ledger, and those of batches that are not in it yet."""

    def __init__(self, base: AllocatedItems, metas: Sequence[BatchMeta]) -> None:
        self._base = base
        self._metas = metas
        self._items = [(-number, item) for number, meta in enumerate(metas) for item in meta.items]

    def which(self, identities: Sequence[str]) -> set[str]:
        own = {item.source for _, item in self._items if item.part == WHOLE}
        return self._base.which(identities) | (own & set(identities))

    def keys(self, source: str) -> Mapping[int, str]:
        parts = dict(self._base.keys(source))
        for number, item in self._items:
            if item.source == source:
                part = parts.get(number)
                # Postgres merges the ranges of a multirange itself, so they can be concatenated.
                parts[number] = item.part if part is None else f"{part[:-1]},{item.part[1:]}"
        return parts

    def last(self, item_type: type[_Item]) -> _Item | None:
        return last_of(item_type, self._metas) or self._base.last(item_type)

    def of_source(self, source: str) -> SourceItem | None:
        return item_of(source, self._metas) or self._base.of_source(source)


def with_batches(base: AllocatedItems, metas: Sequence[BatchMeta]) -> AllocatedItems:
    """Add the items of these batches, which uncommitted predecessors have (E4)."""
    return _ItemsOfBatches(base, metas)


def is_allocated(tx: DatabaseTransaction, topology: str, items: Sequence[SourceItem]) -> bool:
    """Say whether any of these items, or a part of one, belongs to a txid."""
    row = tx.one("any_part_is_allocated", topology=topology, **parts_of(items))
    return bool(row["is_allocated"])


def tell_source(connection: LedgerConnection, topology: Topology, txids: Sequence[int]) -> None:
    """Tell the source what has committed, if its spout wants to; an error is logged."""
    if type(topology.spout).committed is Spout.committed or not txids:
        return
    rows = connection.all("frozen_batches", topology=topology.name, txids=list(txids))
    try:
        topology.spout.committed([batch_of(row) for row in rows])
    except Exception:  # of anybody's spout
        logger.warning(
            "the source of %s was not told what has committed", topology.name, exc_info=True
        )


def excluded_among(
    tx: DatabaseTransaction, topology: str, items: Sequence[SourceItem]
) -> frozenset[str]:
    """Return the sources of those of these items that are excluded."""
    sources = [item.source for item in items]
    rows = tx.all("excluded_among", topology=topology, items=sources)
    return frozenset(row["item"] for row in rows)


def freeze(
    tx: DatabaseTransaction, topology: str, txid: int, items: Sequence[SourceItem | ItemPart]
) -> None:
    """Record the items of a txid for ever, and how its emitted side is verified.

    Called at emission, or, for an opaque spout, just before its commit. Postgres rejects a part
    that another txid has.
    """
    tx.all("insert_source_items", topology=topology, txid=txid, **parts_of(items))
    tx.one("record_verdict", topology=topology, txid=txid, verdict=verdict_of(items).value)


def parts_of(items: Sequence[SourceItem | ItemPart]) -> dict[str, list[str]]:
    """Return the parameters that name these items and their parts in a statement."""
    return {"items": [item.source for item in items], "parts": [item.part for item in items]}
