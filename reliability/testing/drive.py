"""The steps of a transaction, done with a spout without Airflow and Postgres.

What a step finds wrong becomes a sentence. A method that fails where it may not ends the drive:
nothing after it could be trusted.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from reliability.core.errors import NothingToEmit, ReliabilityError, SourceChanged
from reliability.core.fold import ACCOUNTING, Fold
from reliability.core.spout import AllocatedItems, BatchMeta, SourceItem, Spout, Verdict, verdict_of
from reliability.testing.allocated import Txids, as_recorded, parts_of
from reliability.testing.source import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows: TypeAlias = "Counter[tuple[Any, ...]]"


class Stopped(Exception):
    """A method failed, so that nothing further can be tried."""


@dataclass
class Drive:
    """One spout, while it is driven.

    :ivar txids: what was emitted so far
    :ivar broken: what was found, a sentence each
    :ivar columns: name -> type, as the first batch had them
    """

    spout: Spout
    source: Source
    spark: SparkSession
    txids: Txids = field(default_factory=Txids)
    broken: list[str] = field(default_factory=list)
    columns: dict[str, str] | None = None

    def says(self, sentence: str) -> None:
        if sentence not in self.broken:
            self.broken.append(sentence)

    def plan(
        self,
        *,
        again: bool = False,
        spout: Spout | None = None,
        allocated: AllocatedItems | None = None,
    ) -> list[SourceItem]:
        """Return the plan.

        :param again: of another process, which has a copy of the spout
        """
        spout = spout or (copy.deepcopy(self.spout) if again else self.spout)
        with self.allowing("plan"):
            try:
                items = list(spout.plan(self.source.interval, allocated or self.txids))
            except NothingToEmit:
                return []
        with self.allowing("the fields of an item"):
            recorded = as_recorded(BatchMeta(items=tuple(items), emitted=Fold())).items
        if recorded != tuple(items):
            self.says("an item comes back from the ledger as another one: its fields are no JSON")
        names = Counter(item.identity for item in items)
        if twice := [name for name, times in names.items() if times > 1]:
            self.says(f"plan: several items have one identity: {twice}")
        return items

    def cut(
        self, items: Sequence[SourceItem], spout: Spout | None = None
    ) -> list[tuple[SourceItem, ...]]:
        with self.allowing("cut"):
            batches = [tuple(batch) for batch in (spout or self.spout).cut(items)]
        if not all(batches):
            self.says("cut: a batch has no items")
        self.compare("cut", [items], batches)
        return [batch for batch in batches if batch]

    def record(self, batches: Iterable[Sequence[SourceItem]]) -> None:
        for items in batches:
            with self.allowing("count"):
                emitted = self.spout.count(items)
            if emitted.count != sum(item.rows for item in items):
                self.says(
                    f"count: it counts {emitted.count} rows in {names_of(items)}, whose items say "
                    f"{sum(item.rows for item in items)}"
                )
            self.txids.record(BatchMeta(items=tuple(items), emitted=emitted))

    def compare(
        self,
        where: str,
        wanted: Iterable[Sequence[SourceItem]],
        found: Iterable[Sequence[SourceItem]],
    ) -> None:
        """Compare what two groups of batches have of the source."""
        try:
            want, have = (parts_of(i for b in group for i in b) for group in (wanted, found))
        except ValueError as error:
            self.says(f"{where}: {error}")
            raise Stopped from error
        if lost := sorted(want.keys() - have.keys()):
            self.says(f"{where}: {lost} get lost")
        if more := sorted(have.keys() - want.keys()):
            self.says(f"{where}: {more} are there again")
        for source in sorted(want.keys() & have.keys()):
            if want[source] != have[source]:
                self.says(f"{where}: {source} has {have[source]} instead of {want[source]}")

    def verify(self, txid: int, meta: BatchMeta) -> bool:
        """Return whether the source still has the batch; it must, unless something was damaged."""
        try:
            with self.allowing("verify", SourceChanged):
                self.spout.verify(meta)
        except SourceChanged as error:
            self.says(f"verify: txid {txid} was not changed, and it says: {error.what}")
            return False
        return True

    def is_damaged(self, meta: BatchMeta) -> bool:
        try:
            with self.allowing("verify", SourceChanged):
                self.spout.verify(meta)
        except SourceChanged:
            return True
        return False

    def read(self, txid: int, meta: BatchMeta, which: str = "") -> Rows:
        """Return the rows of a batch; each ends with its tuple id."""
        what = f"frame {which}".strip() + f": txid {txid}"
        with self.allowing(what):
            frame = self.spout.frame(self.spark, meta)
            types = dict(frame.dtypes)
            if any(types.pop(name, "none") != "bigint" for name in ACCOUNTING):
                self.says(f"{what}: the columns _x and _n are not both there as bigint")
                raise Stopped
            self.columns = self.columns or types
            if types != self.columns:
                self.says(f"{what} has the columns {types}, and an earlier one {self.columns}")
            rows = frame.select(*sorted(types), *ACCOUNTING).collect()
        ids = Counter(row["_x"] for row in rows)
        fold = Fold.of(Fold(row["_x"], row["_n"]) for row in rows)
        if fold.count != meta.emitted.count:
            self.says(f"{what} has {fold.count} rows, and count says {meta.emitted.count}")
        elif verdict_of(meta.items) is Verdict.EXACT and fold != meta.emitted:
            self.says(f"{what} has other tuple ids than count: ordinal and index must be the same")
        if verdict_of(meta.items) is Verdict.EXACT and len(ids) < len(rows):
            self.says(f"{what} has rows with the same tuple id")
        return Counter(tuple(map(comparable, (*row[:-2], row["_x"]))) for row in rows)

    def frozen(self, items: Sequence[SourceItem]) -> BatchMeta:
        with self.allowing("count"):
            return BatchMeta(items=tuple(items), emitted=self.spout.count(items))

    @contextmanager
    def allowing(self, where: str, *expected: type[ReliabilityError]) -> Iterator[None]:
        """Let a part of the spout raise what it may, and nothing else."""
        try:
            yield
        except Exception as error:
            if isinstance(error, (*expected, Stopped)):
                raise
            said = f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(": ")
            self.says(f"{where}: it raises {said}")
            raise Stopped from error


def names_of(items: Iterable[SourceItem]) -> str:
    return ", ".join(item.identity for item in items) or "nothing"


def comparable(value: Any) -> Any:
    """Return a value that can be counted; one with a list or a map in it cannot be, nor can NaN."""
    if isinstance(value, tuple):  # a struct
        return tuple(map(comparable, value))
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value if value == value else "NaN"
