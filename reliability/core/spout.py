"""What a spout plans: source items, cut into batches; a batch is frozen as its txid's BatchMeta."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import Any, ClassVar, Protocol

from reliability.core.errors import IntervalOverlap, LedgerCorruption
from reliability.core.fold import Fold
from reliability.core.keys import read_ranges

WHOLE = "{(,)}"  # all of an item, as an int8multirange
NEWEST_ID = 2  # what a table's rows are told apart by: the statements tuple_id_<version>
S3_SCHEMES = ("s3", "s3a", "s3n")
# Each is one store: which of its schemes a URI has depends on who reads it, and how.
STORES = (S3_SCHEMES, ("abfs", "abfss"), ("wasb", "wasbs"))


def same_store(scheme: str) -> tuple[str, ...]:
    """Return the schemes of the store that this one belongs to; the first is that of its names."""
    return next((schemes for schemes in STORES if scheme in schemes), (scheme,))


@dataclass(frozen=True, slots=True)
class Interval:
    """A run's data interval, [start, end), in UTC; both ends come aware of their time zone."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            end: datetime = getattr(self, name)
            if end.tzinfo is None:
                raise ValueError(f"a data interval needs a time zone: {end}")
            object.__setattr__(self, name, end.astimezone(timezone.utc))

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


class SpoutKind(str, Enum):
    """What a new attempt of a txid may read, after Trident's two kinds of spout."""

    TRANSACTIONAL = "TRANSACTIONAL"  # always the same batch, frozen at emission
    OPAQUE = "OPAQUE"  # maybe another batch, until the txid commits


def kind_of(opaque: bool) -> SpoutKind:
    """Return the kind that a spout's `opaque` flag asks for."""
    return SpoutKind.OPAQUE if opaque else SpoutKind.TRANSACTIONAL


class Verdict(str, Enum):
    """How the emitted side of a batch is verified."""

    EXACT = "EXACT"  # by the XOR of its tuple ids and by their count
    COUNTED = "COUNTED"  # by their count alone: the source has no row index (V6)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileItem:
    """A file as it was when it was planned, or some of its Parquet row groups.

    :param path: relative to RELIABILITY_HOME, or absolute, or a URI with the pattern's scheme
    :param rows: of this item, from the file's own footer or counted in its text, not by Spark
    :param footer_digest: of a Parquet footer; empty for text
    :param etag: the object store's own digest, where it tells one
    :param first_group: an item that is not the whole file is [first_group, last_group)
    :param first_row: the index in the file of the item's first row
    :param group_bytes: the stored size of these row groups
    """

    kind: ClassVar[str] = "file"
    path: str
    size: int
    mtime_ns: int
    rows: int
    footer_digest: str = ""
    etag: str = ""
    is_text: bool = False
    first_group: int = 0
    last_group: int | None = None
    first_row: int = 0
    group_bytes: int = 0

    @property
    def is_whole(self) -> bool:
        return self.last_group is None

    @property
    def is_counted(self) -> bool:
        return self.is_text

    @property
    def bytes(self) -> int:
        return self.size if self.is_whole else self.group_bytes

    @property
    def identity(self) -> str:
        rows = f"#{self.first_row}-{self.first_row + self.rows}"
        return self.source if self.is_whole else self.source + rows

    @property
    def source(self) -> str:
        scheme, mark, rest = self.path.partition("://")
        return same_store(scheme)[0] + mark + rest if mark else self.path

    @property
    def part(self) -> str:
        if self.is_whole:
            return WHOLE
        return f"{{[{self.first_row},{self.first_row + self.rows})}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableKeys:
    """The rows of a table that have these keys, with their fold as Postgres counted it.

    :param table: which table of which database, as `TableSpout.source` writes it
    :param keys: exactly the keys that were there, an int8multirange
    :param id_version: which hash of the key is a row's tuple id; a batch is counted, read and
        compared by the one that it was frozen with, and 1 is that of batches which name none
    """

    kind: ClassVar[str] = "table"
    is_counted: ClassVar[bool] = False
    table: str
    keys: str
    rows: int
    xor: int
    id_version: int = 1

    def __post_init__(self) -> None:
        if self.id_version not in range(1, NEWEST_ID + 1):
            raise LedgerCorruption(
                f"a batch of table {self.table} has tuple ids of version {self.id_version}, this "
                f"release knows them up to {NEWEST_ID}",
                remedy="install the release that emitted the batch, or a later one.",
            )

    @property
    def identity(self) -> str:
        ranges = read_ranges(self.keys)
        return f"{self.table}#{ranges[0][0]}-{ranges[-1][1]}"

    @property
    def source(self) -> str:
        return self.table

    @property
    def part(self) -> str:
        return self.keys


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySlice:
    """Rows [offset, offset + rows) of one partition of a memory spout."""

    kind: ClassVar[str] = "memory"
    is_counted: ClassVar[bool] = False
    part: ClassVar[str] = WHOLE
    partition: int
    offset: int
    rows: int

    @property
    def identity(self) -> str:
        return f"memory:{self.partition}:{self.offset}"

    @property
    def source(self) -> str:
        return self.identity


SourceItem = FileItem | TableKeys | MemorySlice
_ITEM_TYPES: dict[str, type[FileItem] | type[TableKeys] | type[MemorySlice]] = {
    FileItem.kind: FileItem,
    TableKeys.kind: TableKeys,
    MemorySlice.kind: MemorySlice,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMeta:
    """What a txid reads, frozen before its first attempt; an item's ordinal is its place here.

    An opaque spout's belongs to an attempt, and freezes when its txid commits. `emitted.xor` is 0
    for a batch whose verdict is COUNTED.
    """

    items: tuple[SourceItem, ...]
    emitted: Fold

    @property
    def verdict(self) -> Verdict:
        """Say how the emitted side is verified; one item without a row index decides it."""
        counted = any(item.is_counted for item in self.items)
        return Verdict.COUNTED if counted else Verdict.EXACT

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


class AllocatedItems(Protocol):
    """What belongs to a txid already, as the ledger knows it."""

    def which(self, identities: Sequence[str]) -> set[str]:
        """Return those of these items that a txid has as a whole."""

    def keys(self, source: str) -> Mapping[int, str]:
        """Return which parts of a source txids have: txid -> int8multirange.

        Under numbers below 1 stands what nobody misses if it is gone: what uncommitted
        predecessors have, and what a batch gave up that was frozen anew and is not replayed yet.
        """


class NoItems:
    """A source of which no txid has anything yet."""

    def which(self, identities: Sequence[str]) -> set[str]:
        return set()

    def keys(self, source: str) -> Mapping[int, str]:
        return {}


class Spout(Protocol):
    """The source of a topology."""

    @property
    def kind(self) -> SpoutKind:
        """Say whether a txid's batch is frozen at emission or when it commits."""

    @property
    def timed(self) -> bool:
        """Say whether the spout reads by data interval."""

    def is_ready(self, txid: int, interval: Interval | None) -> bool:
        """Say whether the source may be read now.

        Asked at emission for the next txid, and before every attempt, replays too, as Trident
        asks its coordinators.
        """

    def plan(self, interval: Interval | None, taken: AllocatedItems) -> Sequence[SourceItem]:
        """List what the interval holds now and no txid has; an untimed spout lists all of it.

        :raises NothingToEmit: there is nothing at all, taken or not, where there has to be
        :raises SourceUnreadable: a part of the source cannot be read
        :raises SourceChanged: the source no longer is what a txid has of it
        """

    def cut(self, items: Sequence[SourceItem]) -> list[tuple[SourceItem, ...]]:
        """Cut what `plan` listed into batches, within the spout's limits."""

    def count(self, items: Sequence[SourceItem]) -> Fold:
        """Fold the tuple ids of one batch from the source alone, without Spark (G5)."""

    def verify(self, meta: BatchMeta) -> None:
        """Raise SourceChanged if the source no longer is what the batch was cut from (E6).

        Of a batch that is not frozen the caller makes SourceMoved of it.
        """

    def refresh(self, meta: BatchMeta) -> Sequence[SourceItem]:
        """Return what the source has now of a batch's items; nothing that belongs to no batch.

        For a person who exchanged the source on purpose, and has the txid frozen anew.

        :raises RefreezeNotPossible: an item cannot be told from what other txids read
        :raises SourceUnreadable: an item is there, and not whole
        """
