"""What a spout plans: source items, cut into batches; a batch is frozen as its txid's BatchMeta."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from reliability.core.errors import IntervalOverlap, InvalidDefinition, LedgerCorruption
from reliability.core.fold import Fold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WHOLE = "{(,)}"  # all of an item, as an int8multirange


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


class SourceItem(Protocol):
    """One item of a source: a frozen dataclass whose fields JSON can hold, marked `source_item`.

    Batches in the ledger consist of such items. So the names and the meaning of the fields must not
    change once a batch is emitted; a new field needs a default.

    :cvar kind: names the class in the ledger
    """

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def rows(self) -> int:
        """Return the number of rows, counted without Spark (G5)."""

    @property
    def is_counted(self) -> bool:
        """Say whether its rows have no tuple ids, so that only their count is verified (V6)."""

    @property
    def identity(self) -> str:
        """Return the name of the item; one topology never emits two items of one name."""

    @property
    def source(self) -> str:
        """Return the name of what the item is a part of; its own, if it is always whole."""

    @property
    def part(self) -> str:
        """Return which part of `source` the item is, an int8multirange; WHOLE for all of it."""


_Item = TypeVar("_Item", bound=SourceItem)
# kind -> class; importing any part of the library registers its own.
_ITEM_TYPES: dict[str, type[SourceItem]] = {}


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
        raise LedgerCorruption(
            f"unreadable BatchMeta: no source item is of kind {kind!r}",
            remedy="import the module that defines the spout, in the release that emitted the "
            "batch or a later one.",
        )
    fields = {name: value for name, value in values.items() if name != "kind"}
    return _ITEM_TYPES[kind](**fields)


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
            read = tuple(_read_item(item) for item in items)
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
    """The source of a topology.

    The driver, the emission and the commit call these methods and know nothing else of a source.
    A spout is made when its module is imported, also by the scheduler: making it reads nothing and
    imports nothing heavy. `frame` alone runs in the Spark driver; every other method also runs
    where there is no pyspark. A class that a spout names its items by is a `source_item`.
    """

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

    def frame(self, spark: SparkSession, meta: BatchMeta) -> DataFrame:
        """Return the rows of a batch: the source's columns, and `_x` and `_n` (bigint both).

        `_x` is the row's tuple id, of which `count` has the XOR, and `_n` is 1. Reading the batch
        again, on any host, gives the same rows with the same ids. A batch without items, as an
        opaque spout may have, gives no rows and the same columns. `reliability.spark.frames` adds
        the accounting.

        :raises SchemaMismatch: the rows do not have the columns or types that they should have
        """

    def refresh(self, meta: BatchMeta) -> Sequence[SourceItem]:
        """Return what the source has now of a batch's items; nothing that belongs to no batch.

        For a person who exchanged the source on purpose, and has the txid frozen anew.

        :raises RefreezeNotPossible: an item cannot be told from what other txids read
        :raises SourceUnreadable: an item is there, and not whole
        """
