"""Frames with their accounting: `_x` is the XOR of a row's tuple ids, `_n` their count.

The ack travels in the data: what a process function loses or doubles, it loses or doubles
together with its `_x` and `_n`, and the fold of what arrives in Postgres tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from reliability.core.aggregators.column import quoted
from reliability.core.errors import FrameWithoutAccounting, InvalidDefinition, SchemaMismatch
from reliability.core.fold import ACCOUNTING
from reliability.core.spout import BatchMeta, Spout, Verdict
from reliability.settings import database_dsn
from reliability.spark.read_postgres import read_postgres
from reliability.spark.values import as_text, as_typed, check_value
from reliability.spouts.file import FileSpout
from reliability.spouts.file_item import FileItem, ordinals
from reliability.spouts.memory import MemorySlice, MemorySpout
from reliability.spouts.names import GLOB_IN_SPARK, locate, name_in_spark
from reliability.spouts.parquet import check_one_schema
from reliability.spouts.table import TableSpout
from reliability.spouts.text import line_end

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession

# A row that an outer join made has no accounting; aggregates would pass over its NULLs, and its
# values would slip in beside accounted ones. So it counts as one row that was never emitted.
FOLD_X = "bit_xor(coalesce(_x, 0))"
FOLD_N = "sum(coalesce(_n, 1))"


def batch_frame(spark: SparkSession, spout: Spout, meta: BatchMeta) -> DataFrame:
    """Build the frame of a batch: the source's columns, `_x` and `_n` (bigint both).

    A batch without items, as an opaque spout may have, gives no rows and the same columns.
    """
    match spout:
        case MemorySpout():
            return _memory_frame(spark, spout, meta)
        case TableSpout():
            return _table_frame(spark, spout, meta)
        case FileSpout() if not meta.items:
            return _empty_frame(spark, spout)
        case FileSpout() if meta.verdict is Verdict.COUNTED:
            return _text_frame(spark, spout, meta)
        case FileSpout():
            return _parquet_frame(spark, spout, meta)
        case _:
            raise InvalidDefinition(f"{type(spout).__name__} is no spout that Spark can read")


# --- files ---------------------------------------------------------------------------------------


def _parquet_frame(spark: SparkSession, spout: FileSpout, meta: BatchMeta) -> DataFrame:

    check_one_schema(meta)
    frame = spark.read.parquet(*_paths(meta))
    if spout.schema:
        _check_schema(spark, spout.schema, frame)
    ordinal = _ordinal_of_file(frame, meta)
    row = _metadata(frame, "row_index")
    return _with_accounting(frame.where(_is_in_batch(meta, ordinal, row)), ordinal, row)


def _text_frame(spark: SparkSession, spout: FileSpout, meta: BatchMeta) -> DataFrame:
    """Read text that the batch counts only; a record that does not fit the schema is an error.

    Every column is part of the tuple id: what no state uses, Spark would not even convert, and a
    broken value would pass.
    """
    from pyspark.sql import functions as F

    schema = spark.createDataFrame([], spout.schema).schema
    reader = spark.read.schema(as_text(schema)).option("mode", "FAILFAST")
    reader = reader.option("columnNameOfCorruptRecord", _no_name_of(schema.names))
    is_csv = spout.format == "csv"
    read = _read_csv(reader, spout, meta) if is_csv else [reader.json(_paths(meta))]
    frames = [as_typed(frame, schema, is_base64=not is_csv) for frame in read]
    row = F.xxhash64(F.monotonically_increasing_id(), *[F.col(quoted(c)) for c in schema.names])
    accounted = [_with_accounting(frame, _ordinal_of_file(frame, meta), row) for frame in frames]
    return reduce(lambda one, other: one.union(other), accounted)


def _read_csv(reader: DataFrameReader, spout: FileSpout, meta: BatchMeta) -> Iterator[DataFrame]:
    """Read RFC 4180, as Python's csv module counts it, with a header that is held to the schema.

    Spark is told what ends a record: left to itself, it takes the first line end that it finds, be
    it inside quotes, and keeps half of the others in the values.
    """
    from pyspark.sql import functions as F

    ends: dict[str, list[str]] = {}
    for path in ordinals(meta.items):
        ends.setdefault(line_end(path), []).append(_literal_path(locate(path)))
    reader = reader.options(header=spout.header, enforceSchema=not spout.header)
    for end, paths in ends.items():
        frame = reader.options(multiLine=True, escape='"', lineSep=end).csv(paths)
        if end == "\r\n":  # inside quotes it is the text's own line end, which is \n
            plain = {c: F.replace(F.col(quoted(c)), F.lit(end), F.lit("\n")) for c in frame.columns}
            frame = frame.withColumns(plain)
        yield frame


def _no_name_of(columns: Sequence[str]) -> str:
    # Spark would fill the column of this name itself, and with NULL.
    return max(("_", *columns), key=len) + "_"


def _empty_frame(spark: SparkSession, spout: FileSpout) -> DataFrame:
    from pyspark.sql import functions as F

    return _with_accounting(spark.createDataFrame([], spout.schema), F.lit(0), F.lit(0))


def _paths(meta: BatchMeta) -> list[str]:
    return [_literal_path(locate(path)) for path in ordinals(meta.items)]


def _literal_path(path: str) -> str:
    # Spark takes a path for a glob.
    return "".join(f"\\{c}" if c in GLOB_IN_SPARK else c for c in path)


def _check_schema(spark: SparkSession, schema: str, frame: DataFrame) -> None:
    wanted = spark.createDataFrame([], schema)
    if wanted.dtypes != frame.dtypes:
        raise SchemaMismatch(f"the files have {frame.dtypes}, the spout's schema {wanted.dtypes}")


def _ordinal_of_file(frame: DataFrame, meta: BatchMeta) -> Column:
    """Map a row to its file's place in BatchMeta; the base name would not do, it may repeat.

    A file that is not in the map has a NULL ordinal, and its rows do not balance.
    """
    from pyspark.sql import functions as F

    place = {locate(path): ordinal for path, ordinal in ordinals(meta.items).items()}
    pairs: list[Column] = []
    for uri in frame.inputFiles():
        # _metadata.file_path writes file:/…, inputFiles() file:///… for the same file
        as_in_metadata = uri.replace("file:///", "file:/", 1)
        ordinal = place.get(name_in_spark(uri))
        pairs += [F.lit(as_in_metadata), F.lit(ordinal).cast("bigint")]
    return F.element_at(F.create_map(*pairs), _metadata(frame, "file_path"))


def _metadata(frame: DataFrame, field: str) -> Column:
    # By its name it would be a column of the file's own, if that has one called so.
    return frame.metadataColumn("_metadata").getField(field)


def _is_in_batch(meta: BatchMeta, ordinal: Column, row: Column) -> Column:
    """Say of a row whether it is in the row groups that the batch has of its file."""
    from pyspark.sql import functions as F

    place = ordinals(meta.items)
    pieces = [i for i in meta.items if isinstance(i, FileItem) and not i.is_whole]
    wanted = ~ordinal.isin([place[piece.path] for piece in pieces]) if pieces else F.lit(True)
    for piece in pieces:
        rows = row.between(piece.first_row, piece.first_row + piece.rows - 1)
        wanted = wanted | ((ordinal == place[piece.path]) & rows)
    return wanted


# --- tables and memory ---------------------------------------------------------------------------


def _table_frame(spark: SparkSession, spout: TableSpout, meta: BatchMeta) -> DataFrame:
    """Read the batch's keys; Postgres computes the tuple ids as it did when it counted (V6)."""
    columns, queries = spout.reading(meta)
    _check_names(list(columns))
    schema = ", ".join(f"{quoted(name)} {type_}" for name, type_ in columns.items())
    frame = read_postgres(spark, database_dsn(spout.database), queries, f"{schema}, _x bigint")
    return _with_count(frame)


def _memory_frame(spark: SparkSession, spout: MemorySpout, meta: BatchMeta) -> DataFrame:
    from pyspark.sql import functions as F

    _check_names(list(spout.schema))
    rows = [
        (*row, ordinal, index)
        for ordinal, item in enumerate(meta.items)
        if isinstance(item, MemorySlice)
        for index, row in enumerate(spout.rows_of(item))
    ]
    columns = ", ".join(f"{quoted(name)} {type_}" for name, type_ in spout.schema.items())
    schema = spark.createDataFrame([], f"{columns}, _x bigint, _n bigint").schema
    for row in rows:
        for field, value in zip(schema, row, strict=False):  # another length is Spark's to refuse
            check_value(field.name, value, field.dataType)
    frame = spark.createDataFrame(rows, schema)
    # until here they hold the ordinal and the row
    return frame.withColumns({"_x": F.xxhash64("_x", "_n"), "_n": F.lit(1).cast("bigint")})


# --- accounting ----------------------------------------------------------------------------------


def _with_accounting(frame: DataFrame, ordinal: Column, row: Column) -> DataFrame:
    from pyspark.sql import functions as F

    _check_names(frame.columns)
    tuple_id = F.xxhash64(ordinal.cast("bigint"), row.cast("bigint"))
    return _with_count(frame.select("*", tuple_id.alias("_x")))


def _with_count(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.select("*", F.lit(1).cast("bigint").alias("_n"))


def _check_names(columns: Sequence[str]) -> None:
    # Spark takes _X for _x
    if taken := [name for name in columns if name.lower() in ACCOUNTING]:
        raise SchemaMismatch(f"the source has columns of its own called {taken}")


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
