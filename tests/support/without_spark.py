"""A spout whose rows the test stages itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reliability.core.fold import Fold
from reliability.core.spout import AllocatedItems, BatchMeta, SourceItem, Spout
from reliability.spouts.memory import MemorySlice
from reliability.spouts.tuple_ids import fold_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class WithoutSpark(Spout):
    """A base class of such spouts: a batch is a slice, and nothing changes behind its back."""

    def cut(self, items: Sequence[SourceItem]) -> list[tuple[SourceItem, ...]]:
        return [(item,) for item in items]

    def count(self, items: Sequence[SourceItem]) -> Fold:
        return Fold.of(fold_rows(ordinal, item.rows) for ordinal, item in enumerate(items))

    def verify(self, meta: BatchMeta) -> None:
        """It is as it was."""

    def frame(self, spark: SparkSession, meta: BatchMeta) -> DataFrame:
        raise AssertionError("the test stages the rows of this spout itself")

    def refresh(self, meta: BatchMeta) -> Sequence[SourceItem]:
        return meta.items


def never(*_: Any) -> dict[str, Any]:
    """The process function of topologies whose attempts are staged without Spark."""
    raise AssertionError("there is no Spark here")


def unknown_of(items: Sequence[MemorySlice], allocated: AllocatedItems) -> list[SourceItem]:
    """Return the slices that have no txid yet."""
    known = allocated.which([item.identity for item in items])
    return [item for item in items if item.identity not in known]
