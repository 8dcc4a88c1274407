"""The rows of Parquet files, read by Spark or by Arrow, and the place that each comes from.

Spark reads what its JVM has a file system for. Of an object store whose jars are missing, Spark's
tasks read the files through pyarrow, with the credentials that it finds on their machines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reliability.core.errors import SchemaMismatch
from reliability.deployment.lazy import F, T, spark_errors
from reliability.spark.frames.accounting_columns import METADATA, unused_name, with_tuple_ids
from reliability.spark.frames.pieces import frame_of_pieces
from reliability.spouts.ddl import ddl_of
from reliability.spouts.file_item import FileItem, one_per_file
from reliability.spouts.file_names import locate
from reliability.spouts.filesystem import of_each
from reliability.spouts.footer import read_with_groups
from reliability.spouts.parquet_columns import in_spark
from reliability.spouts.read_parquet import Piece, ReadParquet
from reliability.spouts.spark_files import (
    as_spark_reads,
    has_metadata,
    metadata,
    ordinal_in,
    place_in,
    reads_by_spark,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetRows:
    """Rows of Parquet files.

    :param frame: their columns, and what the others are made of
    :param names: of their columns
    :param ordinal: of the row's file in the batch; NULL for a file that is not among these
    :param row: the row's index in its file
    :param place: what Spark tells of a row's file, or as much of it as Arrow knows
    """

    frame: DataFrame
    names: Sequence[str]
    ordinal: Column
    row: Column
    place: Column

    @property
    def dtypes(self) -> list[tuple[str, str]]:
        names = {*self.names}
        return [(name, type_) for name, type_ in self.frame.dtypes if name in names]

    def where(self, condition: Column) -> ParquetRows:
        return replace(self, frame=self.frame.where(condition))

    def select(self, columns: Mapping[str, Column]) -> DataFrame:
        """Return these columns with `_x` and `_n` and, for `united`, the place."""
        rows = with_tuple_ids(self.frame, self.ordinal, self.row)
        named = [column.alias(name) for name, column in columns.items()]
        place = [] if has_metadata(columns) else [self.place.alias(METADATA)]
        return rows.select(*named, "_x", "_n", *place)


def read_rows(
    spark: SparkSession,
    items: Iterable[FileItem],
    places: Mapping[str, int],
    columns: StructType | None = None,
) -> ParquetRows:
    """Return the rows of files; of one of which some row groups are asked for, others may be there.

    :param items: at least one; of each its path, its size, and which row groups it is count
    :param places: path -> ordinal in the batch
    :param columns: what is read of each file, NULL where it has no such column; by default the
        columns of one of the files, and all others have the same
    :raises SourceUnreadable: a file cannot be read
    """
    items = [*items]
    files = one_per_file(items)
    if not reads_by_spark(spark, files[0].path):
        return _by_arrow(spark, items, places, columns)
    reader = spark.read if columns is None else spark.read.schema(columns)
    frame = reader.parquet(*as_spark_reads(spark, (file.path for file in files)))
    return ParquetRows(
        frame=frame,
        names=frame.columns,
        ordinal=ordinal_in(frame, files, places),
        row=metadata(frame, "row_index"),
        place=frame.metadataColumn(METADATA),
    )


def _by_arrow(
    spark: SparkSession,
    items: Sequence[FileItem],
    places: Mapping[str, int],
    columns: StructType | None,
) -> ParquetRows:
    """Read each row group in one of Spark's tasks."""
    files = one_per_file(items)
    footers = of_each([file.path for file in files], read_with_groups)
    schema = ddl_of(in_spark(footers[0][0].columns)) if columns is None else columns
    try:
        empty = spark.createDataFrame([], schema)
    except spark_errors.ParseException as error:  # a field inside a column is called like `a b`
        raise SchemaMismatch(
            f"{locate(files[0].path)} cannot be read without the jars of its store: {error}",
            remedy="give Spark the jars of its file system, or rename the field at the source.",
        ) from error
    names = empty.columns
    wanted = defaultdict(list)
    for item in items:
        wanted[item.path].append(item)
    pieces = [
        Piece(
            path=locate(group.path),
            ordinal=places[group.path],
            group=group.first_group,
            first_row=group.first_row,
        )
        for _, groups in footers
        for group in groups
        if any(_has(item, group) for item in wanted[group.path])
    ]
    own = unused_name(names)
    task = ReadParquet(names=names, schema=empty.toArrow().schema, own=own)
    schema = T.StructType(
        [*empty.schema, *(T.StructField(f"{own}{n}", T.LongType()) for n in "ab")]
    )
    ordinal, row = F.col(f"{own}a"), F.col(f"{own}b")
    known = [F.lit(value) for f in files for value in (places[f.path], locate(f.path))]
    return ParquetRows(
        frame=frame_of_pieces(spark, pieces, task.read, schema, shares_tasks=True),
        names=names,
        ordinal=ordinal,
        row=row,
        place=place_in(F.element_at(F.create_map(*known), ordinal.cast("int")), row),
    )


def _has(item: FileItem, group: FileItem) -> bool:
    end = item.last_group
    return end is None or item.first_group <= group.first_group < end
