"""The simulated source: two months of items, of which a run reads one; it grows as it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from reliability.core.spout import AllocatedItems, BatchMeta, Interval, SourceItem
from reliability.spouts.memory import MemorySlice
from tests.support.fix_pipeline import month
from tests.support.without_spark import WithoutSpark, unknown_of

MONTHS = (month(1997, 1), month(1997, 2))


@dataclass
class Source(WithoutSpark):
    """A spout of any kind, timed; each batch is one item.

    :param items: for each month the number of rows of each of its items
    :param meanwhile: called once when the source is read outside of any transaction, that is
        where another process can come in between
    :param is_disturbed: that may be while a sealed attempt is compared with the source
    """

    items: list[list[int]]
    opaque: bool = False
    ready: bool = True
    timed: bool = True
    meanwhile: Callable[[], None] = field(default=lambda: None)
    is_disturbed: bool = True

    def is_ready(self, txid: int, interval: Interval | None) -> bool:
        return self.ready

    def plan(self, interval: Interval | None, allocated: AllocatedItems) -> list[SourceItem]:
        assert interval is not None
        number = MONTHS.index(interval)
        items = [
            MemorySlice(partition=number, offset=offset, rows=rows)
            for offset, rows in enumerate(self.items[number])
        ]
        new = unknown_of(items, allocated)
        self.meanwhile()
        return new

    def verify(self, meta: BatchMeta) -> None:
        if self.is_disturbed:
            self.meanwhile()
