"""Txids in memory: what the ledger keeps of a topology's batches, for a spout that is checked."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from reliability.core.keys import read_ranges, touches, write_ranges
from reliability.core.spout import WHOLE, BatchMeta, SourceItem, item_of, last_of

_Item = TypeVar("_Item", bound=SourceItem)


class Txids:
    """The batches of txids from 1 on; what is recorded passes through JSON, as in the ledger."""

    def __init__(self) -> None:
        self.batches: dict[int, BatchMeta] = {}

    def record(self, meta: BatchMeta) -> BatchMeta:
        """Give a batch the next txid; return it as the ledger has it."""
        return self.refreeze(len(self.batches) + 1, meta)

    def refreeze(self, txid: int, meta: BatchMeta) -> BatchMeta:
        """Let a txid have another batch."""
        self.batches[txid] = as_recorded(meta)
        return self.batches[txid]

    def which(self, identities: Sequence[str]) -> set[str]:
        whole = {item.source for _, item in self._items() if item.part == WHOLE}
        return whole & set(identities)

    def keys(self, source: str) -> Mapping[int, str]:
        parts = {txid: parts_of(meta.items).get(source) for txid, meta in self.batches.items()}
        return {txid: part for txid, part in parts.items() if part}

    def last(self, item_type: type[_Item]) -> _Item | None:
        return last_of(item_type, self.batches.values())

    def of_source(self, source: str) -> SourceItem | None:
        return item_of(source, self.batches.values())

    def _items(self) -> list[tuple[int, SourceItem]]:
        return [(txid, item) for txid, meta in self.batches.items() for item in meta.items]


def parts_of(items: Iterable[SourceItem]) -> dict[str, str]:
    """Return what items have of each source, as int8multiranges.

    :raises ValueError: two of them have the same part of a source
    """
    parts: dict[str, str] = {}
    ranges: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for item in items:
        if item.part == WHOLE or parts.get(item.source) == WHOLE:
            if item.source in parts:
                raise ValueError(f"{item.source} is there twice")
            parts[item.source] = WHOLE
            continue
        new = read_ranges(item.part)
        if any(touches(ranges[item.source], *each) for each in new):
            raise ValueError(f"{item.part} of {item.source} is there twice")
        ranges[item.source] = _joined([*ranges[item.source], *new])
        parts[item.source] = write_ranges(ranges[item.source])
    return parts


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return disjoint ranges in order, neighbours as one."""
    joined: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if joined and joined[-1][1] == first:
            first = joined.pop()[0]
        joined.append((first, end))
    return joined


def as_recorded(meta: BatchMeta) -> BatchMeta:
    """Return a batch as the ledger has it."""
    return BatchMeta.from_json(json.loads(json.dumps(meta.to_json())), meta.emitted)
