"""The frame of a batch of Parquet files, which may have other columns than the schema (E8).

If Spark read files of different columns by one schema, it would refuse some narrower types, and
others only in some files, depending on how they were written. So files with the same columns are
read together, cast, and united with the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from reliability.core.column import quoted
from reliability.core.errors import FileRefused, SchemaMismatch, SourceUnreadable
from reliability.core.remedy import Remedy
from reliability.core.spout import BatchMeta, only
from reliability.core.types import VOID
from reliability.deployment.lazy import F
from reliability.spouts.file_item import FileItem, ordinals
from reliability.spouts.filesystem import find_files, of_each
from reliability.spouts.footer import read_file
from reliability.spouts.parquet import REFUSE, Parquet, by_columns, check_one_schema
from reliability.spouts.parquet_columns import Columns, in_spark
from reliability.spouts.parquet_rows import ParquetRows, read_rows
from reliability.spouts.patterns import match_any_interval
from reliability.spouts.spark_files import united

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


def parquet_frame(spark: SparkSession, parquet: Parquet, schema: str, meta: BatchMeta) -> DataFrame:
    """Read a batch of Parquet files.

    :raises SchemaMismatch: Spark reads them with other columns
    """
    if parquet.drift != REFUSE:
        return _drifting_frame(spark, parquet, schema, meta)
    places = ordinals(meta.items)
    if len(places) > 1:
        check_one_schema(of_each(places, read_file))
    rows = read_rows(spark, only(FileItem, meta.items), places)
    wanted = spark.createDataFrame([], schema).dtypes if schema else rows.dtypes
    if wanted != rows.dtypes:
        raise SchemaMismatch(
            f"the files have the columns {rows.dtypes}, the spout's schema has {wanted}",
            remedy="correct the spout's schema, or the files at the source.",
        )
    columns = {name: F.col(quoted(name)) for name in rows.names}
    return united([rows.where(_is_in_batch(meta, rows)).select(columns)])


def schema_of_any_file(spark: SparkSession, pattern: str) -> StructType:
    """Return the columns of the last readable file of the pattern, whatever its interval.

    :raises SchemaMismatch: there is none
    """
    for path in sorted(find_files(match_any_interval(pattern)), reverse=True):
        with suppress(SourceUnreadable, FileRefused):
            rows = read_rows(spark, [read_file(path)], {path: 0})
            return rows.frame.select([quoted(name) for name in rows.names]).schema
    raise SchemaMismatch(
        f"the batch has no files, and no file matches {match_any_interval(pattern)}, so nothing "
        "tells its columns",
        remedy="set schema= in the FileSpout, restore a file, or run `reliability skip` for the "
        "txid.",
    )


def _is_in_batch(meta: BatchMeta, read: ParquetRows) -> Column:
    """Say whether a row is in one of the row groups that the batch has of its file."""
    by_path, ordinal = ordinals(meta.items), read.ordinal
    pieces = [item for item in only(FileItem, meta.items) if not item.is_whole]
    if not pieces:
        return F.lit(True)
    is_in_batch = ~ordinal.isin([by_path[piece.path] for piece in pieces])
    for piece in pieces:
        rows = read.row.between(piece.first_row, piece.first_row + piece.rows - 1)
        is_in_batch = is_in_batch | ((ordinal == by_path[piece.path]) & rows)
    return is_in_batch


# --- files of other columns than the declared ones -----------------------------------------------


def _drifting_frame(
    spark: SparkSession, parquet: Parquet, schema: str, meta: BatchMeta
) -> DataFrame:
    places = ordinals(meta.items)
    files = of_each(places, read_file)
    wanted = parquet.columns(files, schema)
    read = {own: read_rows(spark, alike, places) for own, alike in by_columns(files).items()}
    # Spark cannot read the text of a type that has a field such as `a b`
    schemas = [spark.createDataFrame([], schema).schema, *(r.frame.schema for r in read.values())]
    types = {f.dataType.simpleString(): f.dataType for each in schemas for f in each}
    return united(
        [
            _converted(rows.where(_is_in_batch(meta, rows)), own, wanted, types)
            for own, rows in read.items()
        ]
    )


def _converted(
    rows: ParquetRows, own: Columns, wanted: Columns, types: Mapping[str, DataType]
) -> DataFrame:
    """Return a frame with the columns of its batch, and where each row comes from.

    :param rows: of files with the same columns
    :param own: their columns, from the footers
    :param types: of the spout's schema and of all files of the batch, by their texts
    :raises SchemaMismatch: Spark reads them with other columns
    """
    names = dict(wanted)
    read = dict(rows.dtypes)
    for name, type_ in in_spark(column for column in own if column[0] in names):
        if read.get(name) != type_:
            raise SchemaMismatch(
                f"column {name} is {read.get(name)} in Spark, and {type_} by the files' footers",
                remedy=Remedy(
                    "write the files again with another type, or leave them out with {exclude}."
                ),
            )
    return rows.select(
        {
            name: _column(name, dict(own).get(name), type_, types.get(type_, type_))
            for name, type_ in wanted
        }
    )


def _column(name: str, own: str | None, wanted: str, type_: DataType | str) -> Column:
    if own in (None, VOID):
        return F.lit(None).cast(type_)
    return F.col(quoted(name)) if own == wanted else F.col(quoted(name)).cast(type_)
