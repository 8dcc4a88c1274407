"""A spout that the library does not know: the lists of a JSON document, as partitions of rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from reliability.spouts import (
    AllocatedItems,
    BatchMeta,
    Fold,
    Interval,
    SourceChanged,
    SourceItem,
    Spout,
    fold_rows,
    source_item,
    with_tuple_ids,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@source_item
@dataclass(frozen=True, slots=True, kw_only=True)
class ListOfNumbers(SourceItem):
    """One list of the document."""

    kind: ClassVar[str] = "json_document"
    name: str
    rows: int

    @property
    def identity(self) -> str:
        return f"json_document:{self.name}"


@dataclass(frozen=True)
class JsonDocument(Spout):
    """The numbers of a document such as {"a": [1, 2], "b": [3]}; a batch is two lists."""

    path: Path
    opaque: bool = False

    def is_ready(self, txid: int, interval: Interval | None) -> bool:
        return self.path.exists()

    def plan(self, interval: Interval | None, allocated: AllocatedItems) -> list[SourceItem]:
        items = [ListOfNumbers(name=name, rows=len(n)) for name, n in self._lists().items()]
        known = allocated.which([item.identity for item in items])
        return [item for item in items if item.identity not in known]

    def cut(self, items: Sequence[SourceItem]) -> list[tuple[SourceItem, ...]]:
        return [tuple(items[n : n + 2]) for n in range(0, len(items), 2)]

    def count(self, items: Sequence[SourceItem]) -> Fold:
        return Fold.of(fold_rows(ordinal, item.rows) for ordinal, item in enumerate(items))

    def verify(self, meta: BatchMeta) -> None:
        if list(meta.items) != self.refresh(meta):
            raise SourceChanged(f"{self.path.name} has other lists now")

    def frame(self, spark: SparkSession, meta: BatchMeta) -> DataFrame:
        lists = self._lists()
        rows = [
            (ordinal, index, number)
            for ordinal, item in enumerate(_lists(meta.items))
            for index, number in enumerate(lists[item.name])
        ]
        frame = spark.createDataFrame(rows, "ordinal bigint, row bigint, n bigint")
        return with_tuple_ids(frame, frame.ordinal, frame.row).drop("ordinal", "row")

    def rows_of(self, item: ListOfNumbers) -> list[dict[str, Any]]:
        """Return what a test without Spark reads."""
        return [{"n": number} for number in self._lists()[item.name]]

    def refresh(self, meta: BatchMeta) -> list[SourceItem]:
        found = self._lists()
        items = [item for item in _lists(meta.items) if item.name in found]
        return [replace(item, rows=len(found[item.name])) for item in items]

    def _lists(self) -> dict[str, Any]:
        lists: dict[str, Any] = json.loads(self.path.read_text())
        return lists


def _lists(items: Sequence[SourceItem]) -> list[ListOfNumbers]:
    return [item for item in items if isinstance(item, ListOfNumbers)]
