"""The accounting columns of a frame: `_x` is the XOR of a row's tuple ids, `_n` their count.

A process function that loses or doubles a row loses or doubles its `_x` and `_n` too. So the fold
of the rows that arrive in Postgres shows it. `accounting` hides them from the process function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reliability.core.errors import SchemaMismatch
from reliability.core.fold import reserved
from reliability.deployment.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# A row that an outer join made has NULL in both columns, which aggregates ignore: its values would
# count unnoticed. So it counts as one row that was never emitted.
FOLD_X = "bit_xor(coalesce(_x, 0))"
FOLD_N = "sum(coalesce(_n, 1))"
# The same where every row has _n = 1: it is as cheap as the count that most states have anyway.
ROWS = "count(1)"
#: Spark's hidden column of a row's file and index there
METADATA = "_metadata"
# By default, Spark's JSON omits NULL fields and cuts times to milliseconds.
JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]XXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}


def with_tuple_ids(frame: DataFrame, ordinal: Column, row: Column) -> DataFrame:
    """Add `_x`, the hash of the item's ordinal in BatchMeta and of the row's index, and `_n`."""
    tuple_id = F.xxhash64(ordinal.cast("bigint"), row.cast("bigint"))
    return with_count(frame.select("*", tuple_id.alias("_x")))


def with_count(frame: DataFrame) -> DataFrame:
    return frame.select("*", F.lit(1).cast("bigint").alias("_n"))


def unused_name(columns: Sequence[str]) -> str:
    """Return a name that no column has: a source may call its columns like anything."""
    return "_" * (1 + max(map(len, columns), default=0))


def check_source_columns(columns: Sequence[str]) -> None:
    """Raise SchemaMismatch if a source has a column that is called like one of the library's."""
    if taken := reserved(columns):
        raise SchemaMismatch(
            f"the source has columns of its own called {taken}",
            remedy="rename them at the source; these names are reserved.",
        )
