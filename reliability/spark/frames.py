"""Frames with their accounting: `_x` is the XOR of a row's tuple ids, `_n` their count.

The ack travels in the data: what a process function loses or doubles, it loses or doubles
together with its `_x` and `_n`, and the fold of what arrives in Postgres tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reliability.core.errors import FrameWithoutAccounting, SchemaMismatch
from reliability.core.spout import BatchMeta, FileItem, Spout
from reliability.spouts.file import check_one_schema, locate
from reliability.spouts.memory import MemorySpout

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ACCOUNTING = ("_x", "_n")
# A row that an outer join made has no accounting; aggregates would pass over its NULLs, and its
# values would slip in beside accounted ones. So it counts as one row that was never emitted.
FOLD_X = "bit_xor(coalesce(_x, 0))"
FOLD_N = "sum(coalesce(_n, 1))"
_GLOB_CHARACTERS = frozenset("{}[]*?\\")


def batch_frame(spark: SparkSession, spout: Spout, meta: BatchMeta) -> DataFrame:
    """Build the frame of a batch: the source's columns, `_x` and `_n` (bigint both)."""
    if isinstance(spout, MemorySpout):
        return _memory_frame(spark, spout, meta)
    return _file_frame(spark, meta)


def _file_frame(spark: SparkSession, meta: BatchMeta) -> DataFrame:
    from pyspark.sql import functions as F

    check_one_schema(meta)
    paths = [str(locate(item.path)) for item in meta.items if isinstance(item, FileItem)]
    frame = spark.read.parquet(*[_literal_path(path) for path in paths])
    ordinal = _ordinal_of_file(frame, paths)
    return _with_accounting(frame, ordinal, F.col("_metadata.row_index"))


def _literal_path(path: str) -> str:
    # Spark takes a path for a glob.
    return "".join(f"\\{c}" if c in _GLOB_CHARACTERS else c for c in path)


def _ordinal_of_file(frame: DataFrame, paths: list[str]) -> Column:
    """Map a row to its file's place in BatchMeta; the base name would not do, it may repeat.

    A file that is not in the map has a NULL ordinal, and its rows do not balance.
    """
    from urllib.parse import unquote, urlparse

    from pyspark.sql import functions as F

    place = {path: ordinal for ordinal, path in enumerate(paths)}
    pairs: list[Column] = []
    for uri in frame.inputFiles():
        path = unquote(urlparse(uri).path)
        # _metadata.file_path writes file:/…, inputFiles() file:///… for the same file
        as_in_metadata = uri.replace("file:///", "file:/", 1)
        pairs += [F.lit(as_in_metadata), F.lit(place.get(path)).cast("bigint")]
    return F.element_at(F.create_map(*pairs), F.col("_metadata.file_path"))


def _memory_frame(spark: SparkSession, spout: MemorySpout, meta: BatchMeta) -> DataFrame:
    from pyspark.sql import functions as F

    rows = [
        (*row, ordinal, index)
        for ordinal, item in enumerate(meta.items)
        if not isinstance(item, FileItem)
        for index, row in enumerate(spout.rows_of(item))
    ]
    columns = ", ".join(f"`{name}` {type_}" for name, type_ in spout.schema.items())
    frame = spark.createDataFrame(rows, f"{columns}, _ordinal bigint, _row bigint")
    counted = _with_accounting(frame, F.col("_ordinal"), F.col("_row"))
    return counted.drop("_ordinal", "_row")


def _with_accounting(frame: DataFrame, ordinal: Column, row: Column) -> DataFrame:
    from pyspark.sql import functions as F

    if taken := set(ACCOUNTING) & set(frame.columns):
        raise SchemaMismatch(f"the source has columns of its own called {sorted(taken)}")
    tuple_id = F.xxhash64(ordinal.cast("bigint"), row.cast("bigint"))
    return frame.select("*", tuple_id.alias("_x"), F.lit(1).cast("bigint").alias("_n"))


def check_accounting_columns(name: str, frame: DataFrame) -> None:
    """Raise FrameWithoutAccounting, with the state's name, if `_x` or `_n` is missing (V3)."""
    missing = [column for column in ACCOUNTING if column not in frame.columns]
    if missing:
        raise FrameWithoutAccounting(f"the frame for state {name} has no column {missing}")


def aggregate(frame: DataFrame, by: list[str], **values: Column) -> DataFrame:
    """Group inside a process function and fold `_x` and `_n` on the way (V3).

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
