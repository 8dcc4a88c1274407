"""A spout lists source items and cuts them into batches; a txid's batch is frozen as BatchMeta."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timezone
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from reliability.core.errors import (
    IntervalOverlap,
    InvalidDefinition,
    LedgerCorruption,
    SourceItemUnknown,
)
from reliability.core.fold import Fold
from reliability.core.periods import UTC, format_period, read_period, zone_called

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from reliability.core.lineage import Dataset

WHOLE = "{(,)}"  # all of an item, as an int8multirange
STORED = "stored"  # False in the metadata of an item's field that the ledger does not store
_PART = "_part"  # where the ledger has the ItemPart of an item


@dataclass(frozen=True, slots=True)
class Interval:
    """A run's data interval, [start, end), in UTC.

    :param zone: the time zone in which it is written; it does not change what it is
    :raises ValueError: an end has no time zone, or lies so far away that some zone has no date
        for it, or strftime fewer than four digits for its year
    """

    start: datetime
    end: datetime
    zone: str = field(default=UTC, compare=False)

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            end: datetime = getattr(self, name)
            if end.tzinfo is None:
                raise ValueError(f"a data interval needs a time zone: {end}")
            if not 1000 < end.year < 9999:
                raise ValueError(f"a data interval must lie in the years 1001 to 9998: {end}")
            object.__setattr__(self, name, end.astimezone(timezone.utc))

    def __str__(self) -> str:
        """Return 2013-03 for a month, and for other periods what `parse` reads as well."""
        return format_period(self.start, self.end, self.zone)

    @classmethod
    def parse(cls, text: str, zone: str = UTC) -> Interval:
        """Read an interval; see read_period.

        :param zone: the time zone of one that names none
        :raises ValueError: it is not written as an interval
        """
        return cls(*read_period(text, zone))

    @property
    def local_start(self) -> datetime:
        """Return when it starts, in the time zone in which it is written."""
        return self.start.astimezone(zone_called(self.zone))

    def contains(self, other: Interval) -> bool:
        return self.start <= other.start and other.end <= self.end

    def overlaps(self, other: Interval) -> bool:
        """Say whether the two share a moment or are equal; one of length 0 shares none."""
        return self == other or (self.start < other.end and other.start < self.end)


def check_overlap(wanted: Interval, emitted: Iterable[tuple[Interval, str]]) -> None:
    """Raise IntervalOverlap if `wanted` partly overlaps an interval that was emitted (E1)."""
    for interval, run_id in emitted:
        if wanted != interval and wanted.overlaps(interval):
            raise IntervalOverlap(f"{wanted} overlaps {interval} of run {run_id}")


class SpoutKind(str, Enum):
    """What a new attempt of a txid may read, after Trident's two kinds of spout."""

    TRANSACTIONAL = "TRANSACTIONAL"  # always the same batch, frozen at emission
    OPAQUE = "OPAQUE"  # possibly another batch, until the txid commits


class Verdict(str, Enum):
    """How the emitted side of a batch is verified."""

    EXACT = "EXACT"  # by the XOR and the count of its tuple ids
    COUNTED = "COUNTED"  # by the count alone: the source has no row index (V6)


class SourceItem(ABC):
    """One item of a source: a frozen dataclass with the decorator `source_item`.

    The ledger stores its fields as JSON. Their names and meanings must not change once a batch is
    emitted; a new field needs a default.

    :cvar kind: the name of the class in the ledger
    :ivar rows: the number of rows, counted without Spark (G5)
    """

    __slots__ = ()
    kind: ClassVar[str]
    rows: int
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    @abstractmethod
    def identity(self) -> str:
        """Return a name that no other item of the source has; a topology emits it once."""

    @property
    def is_counted(self) -> bool:
        """Say whether its rows have no tuple ids, so that only their count is verified (V6)."""
        return False

    @property
    def source(self) -> str:
        """Return the name of what the item is a part of."""
        return self.identity

    @property
    def part(self) -> str:
        """Return which part of `source` the item is, as an int8multirange; WHOLE is all of it."""
        return WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemPart:
    """What a commit needs of a source item, also where the item's class is not imported."""

    source: str
    part: str
    is_counted: bool

    @classmethod
    def of(cls, item: SourceItem) -> ItemPart:
        return cls(source=item.source, part=item.part, is_counted=item.is_counted)


_Item = TypeVar("_Item", bound=SourceItem)
# kind -> class; importing any part of the library registers its own.
_ITEM_TYPES: dict[str, type[SourceItem]] = {}


def only(item_type: type[_Item], items: Iterable[SourceItem]) -> list[_Item]:
    return [item for item in items if isinstance(item, item_type)]


def last_of(item_type: type[_Item], metas: Iterable[BatchMeta]) -> _Item | None:
    """Return the last item of the last batch that ends with one of this class, if any does."""
    ends = [meta.items[-1] for meta in metas if meta.items]
    found = only(item_type, ends)
    return found[-1] if found else None


def item_of(source: str, batches: Iterable[BatchMeta]) -> SourceItem | None:
    """Return an item of a source in the last of these batches that has one, if any does."""
    items = chain.from_iterable(batch.items for batch in reversed([*batches]))
    return next((item for item in items if item.source == source), None)


def source_item(item_type: type[_Item]) -> type[_Item]:
    """Register a class of source items, so that batches of them can be read from the ledger.

    :raises InvalidDefinition: another class has its kind
    """
    known = _ITEM_TYPES.setdefault(item_type.kind, item_type)
    if known.__qualname__ != item_type.__qualname__:
        raise InvalidDefinition(
            f"source items {item_type.__qualname__} have the kind {item_type.kind!r} of "
            f"{known.__qualname__}"
        )
    _ITEM_TYPES[item_type.kind] = item_type  # a module may be imported again
    return item_type


def _read_item(values: Mapping[str, Any]) -> SourceItem:
    kind = values["kind"]
    if kind not in _ITEM_TYPES:
        raise SourceItemUnknown(f"this process knows no source items of kind {kind!r}")
    fields = {name: value for name, value in values.items() if name not in ("kind", _PART)}
    return _ITEM_TYPES[kind](**fields)


def _write_item(item: SourceItem) -> dict[str, Any]:
    stored = {field.name for field in fields(item) if field.metadata.get(STORED, True)}
    values = {name: value for name, value in asdict(item).items() if name in stored}
    written = {"kind": item.kind, **values}
    if type(item).__module__.startswith("reliability."):  # every process imports its class
        return written
    return {**written, _PART: asdict(ItemPart.of(item))}


def read_parts(items: Sequence[Mapping[str, Any]]) -> tuple[ItemPart, ...]:
    """Read the parts of the items that `BatchMeta.to_json` wrote.

    :raises SourceItemUnknown: an item says neither its part nor a class that is imported
    :raises LedgerCorruption: they cannot be read
    """
    try:
        return tuple(
            ItemPart(**item[_PART]) if _PART in item else ItemPart.of(_read_item(item))
            for item in items
        )
    except (KeyError, TypeError) as error:
        raise LedgerCorruption(f"unreadable BatchMeta: {items!r}") from error


def verdict_of(items: Iterable[SourceItem | ItemPart]) -> Verdict:
    return Verdict.COUNTED if any(item.is_counted for item in items) else Verdict.EXACT


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMeta:
    """What a txid reads, frozen before its first attempt.

    An opaque spout's batch belongs to an attempt, and is frozen when its txid commits.

    :param items: the index of an item in `items` is its ordinal
    :param emitted: its `xor` is 0 if the verdict is COUNTED
    """

    items: tuple[SourceItem, ...]
    emitted: Fold

    @property
    def verdict(self) -> Verdict:
        return verdict_of(self.items)

    def to_json(self) -> list[dict[str, Any]]:
        return [_write_item(item) for item in self.items]

    @classmethod
    def from_json(cls, items: Sequence[Mapping[str, Any]], emitted: Fold) -> BatchMeta:
        """Read what `to_json` wrote.

        :raises SourceItemUnknown: the class of an item is not imported
        :raises LedgerCorruption: it cannot be read; it never becomes an empty batch
        """
        try:
            read = tuple(_read_item(item) for item in items)
        except (KeyError, TypeError) as error:
            raise LedgerCorruption(f"unreadable BatchMeta: {items!r}") from error
        return cls(items=read, emitted=emitted)


class AllocatedItems(Protocol):
    """What txids already have, according to the ledger."""

    def which(self, identities: Sequence[str]) -> set[str]:
        """Return the identities of those items that a txid has as a whole."""

    def keys(self, source: str) -> Mapping[int, str]:
        """Return which parts of a source txids have: txid -> int8multirange.

        Numbers below 1 stand for parts that may disappear from the source: those of uncommitted
        predecessors, and those that a refrozen batch gave up and that its replay has yet to remove.
        """

    def last(self, item_type: type[_Item]) -> _Item | None:
        """Return the last item of the last txid that ends with one of this class, if any does."""

    def of_source(self, source: str) -> SourceItem | None:
        """Return an item of a source as the last txid with one has it, if any has."""


class NoItems:
    """No txid has anything yet."""

    def which(self, identities: Sequence[str]) -> set[str]:
        return set()

    def keys(self, source: str) -> Mapping[int, str]:
        return {}

    def last(self, item_type: type[_Item]) -> _Item | None:
        return None

    def of_source(self, source: str) -> SourceItem | None:
        return None


class Spout(ABC):
    """The source of a topology: a class of it inherits from this one.

    The library knows a source by these methods alone. An implementation keeps to these rules:

    - The scheduler constructs spouts too: the constructor reads nothing, and neither it nor the
      module imports a heavy package.
    - Only `frame` may use pyspark; the other methods run where it is not installed.
    - Its items are of classes that `source_item` registers.
    - The same BatchMeta always means the same rows, until `verify` raises.

    :ivar opaque: a new attempt of a txid may read other rows, until the txid commits; otherwise a
        batch is frozen at emission
    :ivar database: the name of the database that it reads, as a State names one; empty if it reads
        the ledger's own or none
    :ivar time_zone: of a timed spout: in which it reads the dates of an interval, and in which
        intervals are written; empty for UTC, which a DAG with a schedule in another one refuses if
        the spout has a `pattern`
    """

    opaque: bool = False
    database: str = ""
    time_zone: str = ""

    @property
    def kind(self) -> SpoutKind:
        return SpoutKind.OPAQUE if self.opaque else SpoutKind.TRANSACTIONAL

    @property
    def timed(self) -> bool:
        """Say whether the spout reads by data interval."""
        return False

    def is_ready(self, txid: int, interval: Interval | None) -> bool:
        """Say whether the source may be read now.

        It is called at emission for the next txid, and before every attempt, including replays, as
        Trident asks its coordinators.
        """
        return True

    @abstractmethod
    def plan(self, interval: Interval | None, allocated: AllocatedItems) -> Sequence[SourceItem]:
        """List the items of the interval that no txid has; an untimed spout has no interval.

        The order is the same every time.

        :raises NothingToEmit: the source is empty, and must not be
        :raises SourceUnreadable: a part of the source cannot be read
        :raises FileRefused: a file can never be read as it is
        :raises SourceChanged: the source has lost or changed something that a txid has
        """

    @abstractmethod
    def cut(self, items: Sequence[SourceItem]) -> Sequence[tuple[SourceItem, ...]]:
        """Cut the items of `plan` into batches, within the spout's limits.

        :raises FileRefused: the files of a batch do not have the same columns
        """

    @abstractmethod
    def count(self, items: Sequence[SourceItem]) -> Fold:
        """Fold the tuple ids of one batch, from the source and without Spark (G5)."""

    @abstractmethod
    def verify(self, meta: BatchMeta) -> None:
        """Raise SourceChanged if the source differs from what the batch was cut from (E6).

        The caller turns it into SourceMoved if the batch is not frozen.
        """

    @abstractmethod
    def frame(self, spark: SparkSession, meta: BatchMeta) -> DataFrame:
        """Return the rows of a batch: the source's columns, `_x` and `_n`, both bigint.

        `_x` is the row's tuple id and `_n` is 1; their folds equal `count`, except for `_x` in a
        batch that is COUNTED. `reliability.spark.frames.accounting_columns` adds both columns.
        Spark may read the batch several times, and must get the same rows with the same tuple ids.
        A batch may have no items, because the spout is opaque, or they are excluded, or gone when
        it was refrozen: its frame has no rows and the same columns.

        :raises SchemaMismatch: the source does not have the columns or types that it should have
        """

    @abstractmethod
    def refresh(self, meta: BatchMeta) -> Sequence[SourceItem]:
        """Return the items of a batch as they are in the source now, without those that are gone.

        It is called when a person replaced the source on purpose and refreezes the txid.

        :raises RefreezeNotPossible: an item shares its source with other txids
        :raises SourceUnreadable: an item exists but cannot be read as a whole
        """

    def committed(self, metas: Sequence[BatchMeta]) -> None:  # noqa: B027
        """Tell the source which batches a run has committed, for tools that people have there.

        Nothing depends on it: it may happen late, twice or never, and what it raises is logged.
        """

    def identity_of(self, path: str) -> str:
        """Return the identity of the item that Spark reads at a path."""
        return path

    def changed_columns(self, items: Sequence[SourceItem], earlier: BatchMeta) -> list[str]:
        """Say how the columns of new items differ from those of a committed batch."""
        return []

    def drifted_columns(self, items: Sequence[SourceItem]) -> list[str] | None:
        """Say how the columns of items differ from the declared ones; None if they may not."""
        return None

    def datasets(self, items: Sequence[SourceItem]) -> Sequence[Dataset]:
        """Return where items come from, for lineage; it may ask the source where it is."""
        return []
