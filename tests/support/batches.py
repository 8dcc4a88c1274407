"""What a spout plans, without a ledger: batches, and what was read of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from reliability.core.fold import Fold
from reliability.core.spout import AllocatedItems, BatchMeta, Interval, NoItems, Spout
from reliability.deployment.lazy import pa, pq


def batches_of(spout: Spout, taken: AllocatedItems | None = None) -> list[BatchMeta]:
    """Return the batches that nobody has taken yet."""
    items = spout.plan(None, taken or NoItems())
    return [BatchMeta(items=batch, emitted=spout.count(batch)) for batch in spout.cut(items)]


def meta_of(spout: Spout, interval: Interval | None = None) -> BatchMeta:
    """Return all that there is as one batch."""
    items = tuple(spout.plan(interval, NoItems()))
    return BatchMeta(items=items, emitted=spout.count(items))


def fold_of_rows(rows: Iterable[Any]) -> Fold:
    """Fold rows that were read of a batch."""
    return Fold.of(Fold(row["_x"], row["_n"]) for row in rows)


def write_numbers(path: Path, numbers: Sequence[int], group: int = 4) -> None:
    """Write a Parquet file of one column `n`, in row groups of so many rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"n": pa.array(numbers, pa.int64())})
    pq.write_table(table, path, row_group_size=group)
