"""The accounting columns of a frame: `_x` is the XOR of a row's tuple ids, `_n` their count.

A process function that loses or doubles a row loses or doubles its `_x` and `_n` too. So the fold
of the rows that arrive in Postgres shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reliability.core.errors import FrameWithoutAccounting, SchemaMismatch
from reliability.core.fold import ACCOUNTING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# A row that an outer join made has NULL in both columns, which aggregates ignore: its values would
# count unnoticed. So it counts as one row that was never emitted.
FOLD_X = "bit_xor(coalesce(_x, 0))"
FOLD_N = "sum(coalesce(_n, 1))"


def with_tuple_ids(frame: DataFrame, ordinal: Column, row: Column) -> DataFrame:
    """Add `_x`, the hash of the item's ordinal in BatchMeta and of the row's index, and `_n`."""
    from pyspark.sql import functions as F

    check_source_columns(frame.columns)
    tuple_id = F.xxhash64(ordinal.cast("bigint"), row.cast("bigint"))
    return with_count(frame.select("*", tuple_id.alias("_x")))


def with_count(frame: DataFrame) -> DataFrame:
    """Add `_n`, 1 for each row."""
    from pyspark.sql import functions as F

    return frame.select("*", F.lit(1).cast("bigint").alias("_n"))


def check_source_columns(columns: Sequence[str]) -> None:
    """Raise SchemaMismatch if a source has a column that is called like one of the accounting."""
    # Spark takes _X for _x
    if reserved := [name for name in columns if name.lower() in ACCOUNTING]:
        raise SchemaMismatch(
            f"the source has columns of its own called {reserved}",
            remedy="rename them at the source; these names are reserved.",
        )


def check_accounting_columns(name: str, frame: DataFrame) -> None:
    """Raise FrameWithoutAccounting, with the frame's name, if `_x` or `_n` is missing (V3)."""
    missing = [column for column in ACCOUNTING if column not in frame.columns]
    if missing:
        raise FrameWithoutAccounting(f"the frame for {name} has no columns {missing}")


def aggregate(frame: DataFrame, by: list[str], **values: Column) -> DataFrame:
    """Group a frame within a process function, and fold its `_x` and `_n` (V3).

    ::

        per_order = aggregate(lines, ["order_id"], total=F.sum("price"))
    """
    from pyspark.sql import functions as F

    check_accounting_columns("aggregate()", frame)
    return frame.groupBy(*by).agg(
        *[value.alias(name) for name, value in values.items()],
        F.expr(FOLD_X).alias("_x"),
        F.expr(FOLD_N).alias("_n"),
    )
