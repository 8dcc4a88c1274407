"""What a spout plans: source items, cut into batches; a batch is frozen as its txid's BatchMeta."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, ClassVar, Protocol

from reliability.core.errors import IntervalOverlap, LedgerCorruption
from reliability.core.fold import Fold


@dataclass(frozen=True, slots=True)
class Interval:
    """A run's data interval, [start, end), both aware of their time zone."""

    start: datetime
    end: datetime

    def __str__(self) -> str:
        return f"[{self.start:%Y-%m-%dT%H:%M}, {self.end:%Y-%m-%dT%H:%M})"

    def overlaps(self, other: Interval) -> bool:
        """Say whether the two share a moment, or are the same (a zero-width one shares none)."""
        return self == other or (self.start < other.end and other.start < self.end)


def check_overlap(wanted: Interval, emitted: Iterable[tuple[Interval, str]]) -> None:
    """Raise IntervalOverlap if `wanted` partly overlaps an interval that a run has emitted (E1)."""
    for interval, run_id in emitted:
        if wanted != interval and wanted.overlaps(interval):
            raise IntervalOverlap(f"{wanted} overlaps {interval} of run {run_id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileItem:
    """A file as it was when it was planned; `rows` comes from its own footer, not from Spark."""

    kind: ClassVar[str] = "file"
    path: str
    size: int
    mtime_ns: int
    rows: int
    footer_digest: str

    @property
    def identity(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySlice:
    """Rows [offset, offset + rows) of one partition of a memory spout."""

    kind: ClassVar[str] = "memory"
    partition: int
    offset: int
    rows: int

    @property
    def identity(self) -> str:
        return f"memory:{self.partition}:{self.offset}"


SourceItem = FileItem | MemorySlice
_ITEM_TYPES: dict[str, type[FileItem] | type[MemorySlice]] = {
    FileItem.kind: FileItem,
    MemorySlice.kind: MemorySlice,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMeta:
    """What a txid reads, frozen before its first attempt; an item's ordinal is its place here."""

    items: tuple[SourceItem, ...]
    emitted: Fold

    def to_json(self) -> list[dict[str, Any]]:
        """Return the items as plain data for the ledger."""
        return [{"kind": item.kind, **asdict(item)} for item in self.items]

    @classmethod
    def from_json(cls, items: Sequence[Mapping[str, Any]], emitted: Fold) -> BatchMeta:
        """Read what `to_json` wrote; what cannot be read is corruption, never an empty batch."""
        try:
            read = tuple(
                _ITEM_TYPES[item["kind"]](**{k: v for k, v in item.items() if k != "kind"})
                for item in items
            )
        except (KeyError, TypeError) as error:
            raise LedgerCorruption(f"unreadable BatchMeta: {items!r}") from error
        return cls(items=read, emitted=emitted)


class Spout(Protocol):
    """The source of a topology. All spouts here are transactional: a txid's batch never changes."""

    @property
    def timed(self) -> bool:
        """Say whether the spout reads by data interval."""

    def plan(self, interval: Interval | None) -> Sequence[SourceItem]:
        """List what the interval holds now; an untimed spout lists all that it has."""

    def cut(self, items: Sequence[SourceItem]) -> list[tuple[SourceItem, ...]]:
        """Cut items that belong to no txid yet into batches, within the spout's limits."""

    def count(self, items: Sequence[SourceItem]) -> Fold:
        """Fold the tuple ids of one batch from the source alone, without Spark (G5)."""

    def verify(self, meta: BatchMeta) -> None:
        """Raise SourceChanged if the source no longer is what the batch was cut from (E6)."""
