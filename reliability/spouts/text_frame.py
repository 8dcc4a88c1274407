"""The frame of a batch of text: Python reads numbered records, Spark those that are only counted.

In either case Spark converts the texts to values. A record that cannot be read, or has a value that
does not fit its column, is an error that names file and line. With `malformed="quarantine"` it
stays in the frame, with its reason in the column `_malformed`; `set_malformed_aside` takes it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from reliability.core.column import quoted
from reliability.core.errors import SchemaMismatch, SourceUnreadable
from reliability.core.set_aside import INVALID_VALUE, MALFORMED, MASKED, check_told
from reliability.core.spout import BatchMeta, Verdict, only
from reliability.deployment.lazy import F, T
from reliability.spark.frames.accounting_columns import (
    METADATA,
    check_source_columns,
    unused_name,
    with_tuple_ids,
)
from reliability.spark.frames.jvm import hide
from reliability.spark.frames.pieces import frame_of_pieces
from reliability.spark.frames.values import as_text, as_typed, misfit, typed
from reliability.spouts.file_item import FileItem, ordinals
from reliability.spouts.file_names import locate
from reliability.spouts.read_records import ReadRecords, names_of
from reliability.spouts.spark_files import (
    as_spark_reads,
    has_metadata,
    ordinal_in,
    place_in,
    reads_by_spark,
    united,
)
from reliability.spouts.text import Csv, JsonLines, TextFormat, line_end

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

#: characters of a record that the quarantine shows
MAX_RECORD = 4_000


def text_frame(
    spark: SparkSession, text: TextFormat, schema_ddl: str, meta: BatchMeta
) -> DataFrame:
    """Read a batch of text files.

    :raises SchemaMismatch: a column has a type that text has no values of
    """
    schema = spark.createDataFrame([], schema_ddl).schema
    check_source_columns(schema.names)
    if meta.verdict is Verdict.COUNTED:
        return _counted(spark, text, schema, meta)
    if text.lenient:
        check_told(schema.names)  # Spark reads more schemas than the spout can
    paths = [locate(path) for path in ordinals(meta.items)]
    read, is_base64 = _read(spark, text, schema, paths), isinstance(text, JsonLines)
    # each column's value as c0, c1, ...; NULL if its text does not fit its type
    values = {
        f"c{n}": typed(read[f"t{n}"], f.dataType, is_base64=is_base64) for n, f in enumerate(schema)
    }
    return _accounted(read.withColumns(values), schema, text, paths)


# --- records that Python numbers -----------------------------------------------------------------


def _read(
    spark: SparkSession, text: TextFormat, schema: StructType, paths: Sequence[str]
) -> DataFrame:
    """Return the columns that `names_of` names: each column's text as t0, t1, ..."""
    texts = as_text(schema)
    types = spark.createDataFrame([], texts).toArrow().schema.types
    task = ReadRecords(text=text, names=schema.names, types=types)
    known = [T.IntegerType(), T.LongType(), T.LongType(), *[T.StringType()] * 3]
    found = [*known, *(field.dataType for field in texts)]
    columns = zip(names_of(len(texts)), found, strict=True)
    read = T.StructType([T.StructField(name, type_) for name, type_ in columns])
    files = [*enumerate(paths)]
    return frame_of_pieces(spark, files, task.read, read, shares_tasks=True)


def _accounted(
    converted: DataFrame, schema: StructType, text: TextFormat, paths: Sequence[str]
) -> DataFrame:
    fields, shown = [*enumerate(schema)], not text.lenient
    misfits = [
        misfit(converted[f"t{n}"], converted[f"c{n}"], f.dataType, f.name, shown=shown)
        for n, f in fields
    ]
    why = F.coalesce("_why", *misfits)
    path = F.element_at(F.array(*map(F.lit, paths)), F.col("_ordinal") + 1)
    columns = [F.col(f"c{n}").alias(f.name) for n, f in fields]
    row: Column = F.col("_row")
    if text.lenient:
        if text.mask_malformed:
            columns = [F.when(why.isNull(), F.col(f"c{n}")).alias(f.name) for n, f in fields]
        columns.append(F.when(why.isNotNull(), _told(why, text.mask_malformed)).alias(MALFORMED))
    else:
        # the id of a row needs all its values: one that no state uses must be valid too
        row = F.when(why.isNull(), row).otherwise(_refusal(path, why))
    if not has_metadata(schema.names):
        columns.append(place_in(path, F.col("_row")).alias(METADATA))
    ordinal, number = (unused_name(schema.names) + end for end in "ab")
    frame = converted.select(*columns, F.col("_ordinal").alias(ordinal), row.alias(number))
    frame = with_tuple_ids(frame, F.col(ordinal), F.col(number)).drop(ordinal, number)
    return frame if has_metadata(schema.names) else hide(frame, [METADATA])


def _told(why: Column, is_masked: bool) -> Column:
    """Return the reason, which stands for many records, and what the quarantine shows of this."""
    record = F.substring("_record", 1, MAX_RECORD)
    reason = F.coalesce("_reason", F.concat(F.lit(f"{INVALID_VALUE}: "), why))
    return F.struct(
        reason.alias("reason"),
        F.col("_line"),
        (F.lit(MASKED) if is_masked else why).alias("_why"),
        (F.lit(MASKED) if is_masked else record).alias("_record"),
    )


def _refusal(path: Column, why: Column) -> Column:
    line = F.coalesce(
        F.concat(F.lit("line "), "_line"), F.concat(F.lit("record "), F.col("_row") + 1)
    )
    before = F.concat(F.lit(f"[{SchemaMismatch.code}] "), line, F.lit(" of "), path, F.lit(": "))
    return F.raise_error(F.concat(before, why)).cast("bigint")


# --- records that Spark's own readers count ------------------------------------------------------


def _counted(
    spark: SparkSession, text: TextFormat, schema: StructType, meta: BatchMeta
) -> DataFrame:
    """Read text by Spark's own readers; a record that does not fit the schema is an error.

    The hash covers every column. Otherwise Spark would not convert a column that no state uses,
    and an invalid value in it would pass.
    """
    for item in only(FileItem, meta.items):
        if not reads_by_spark(spark, item.path):
            raise SourceUnreadable(
                f"Spark cannot read {locate(item.path)}: it lacks the jars of the store's file "
                "system",
                remedy="leave out counted=True, which needs none, or give Spark the jars.",
            )
    reader = spark.read.schema(as_text(schema)).option("mode", "FAILFAST")
    # Spark would fill a column of this name itself, with NULL
    reader = reader.option("columnNameOfCorruptRecord", unused_name(schema.names))
    if isinstance(text, Csv):
        read = [*_read_csv(spark, reader, text, meta)]
    else:
        read = [reader.json(as_spark_reads(spark, ordinals(meta.items)))]
    row = F.xxhash64(F.monotonically_increasing_id(), *[F.col(quoted(c)) for c in schema.names])
    files, places = only(FileItem, meta.items), ordinals(meta.items)
    frames = []
    for frame in read:
        frame = as_typed(frame, schema, is_base64=isinstance(text, JsonLines))
        frame = with_tuple_ids(frame, ordinal_in(frame, files, places), row)
        if not has_metadata(schema.names):
            frame = frame.select("*", frame.metadataColumn(METADATA).alias(METADATA))
        frames.append(frame)
    return united(frames)


def _read_csv(
    spark: SparkSession, reader: DataFrameReader, text: Csv, meta: BatchMeta
) -> Iterator[DataFrame]:
    """Read RFC 4180 as Python's csv module counts it; a header must match the schema.

    Spark gets the line end of each file. Otherwise it would choose the first one that it finds,
    even inside quotes, and keep half of the others in the values.
    """
    paths_of: dict[str, list[str]] = {}
    for path in ordinals(meta.items):
        paths_of.setdefault(line_end(path), []).append(path)
    reader = reader.options(header=text.header, enforceSchema=not text.header)
    for end, paths in paths_of.items():
        options = reader.options(multiLine=True, escape='"', lineSep=end)
        frame = options.csv(as_spark_reads(spark, paths))
        if end == "\r\n":  # a line end inside quotes becomes \n, as in any other file
            values = {
                c: F.replace(F.col(quoted(c)), F.lit(end), F.lit("\n")) for c in frame.columns
            }
            frame = frame.withColumns(values)
        yield frame
