"""The frame of data files of a table whose log says what is in each: of Delta Lake or Iceberg.

Spark reads them as Parquet, by the columns that the log gives them. A column that a file was
written without is NULL. Values of partition columns come from the log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reliability.core.column import quoted
from reliability.core.errors import SchemaMismatch
from reliability.core.remedy import Remedy
from reliability.core.types import common_type
from reliability.deployment.lazy import F, T
from reliability.spouts.ddl import read_ddl
from reliability.spouts.file_item import FileItem
from reliability.spouts.parquet_columns import Columns
from reliability.spouts.parquet_rows import read_rows
from reliability.spouts.spark_files import united

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file of a batch.

    :param path: as a FileItem has it
    :param ordinal: of its item in the batch
    :param schema: its columns in the table, as Spark's DDL
    :param stored: the columns in the file, one for each of `schema` that is not in `partition`; if
        empty, they have the same names
    :param partition: the values of columns that are the same in all its rows, as text
    """

    path: str
    size: int
    ordinal: int
    schema: str
    stored: str = ""
    partition: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def columns(self) -> Columns:
        return columns_in(self.schema)


def columns_in(schema: str) -> Columns:
    """Return the columns of a schema that the library has written."""
    columns = read_ddl(schema)
    assert columns is not None
    return columns


def frame_of_files(spark: SparkSession, files: Sequence[DataFile], wanted: Columns) -> DataFrame:
    """Return the rows of data files with `_x` and `_n`; there is at least one file.

    :param wanted: the columns of the frame; each type holds all values of the files' own
    :raises SchemaMismatch: a column of a file does not fit
    """
    groups: dict[tuple[str, str, frozenset[str], int], list[DataFile]] = defaultdict(list)
    times: dict[str, int] = defaultdict(int)
    for each in files:
        # one file may be there twice, and rows are told apart by their files
        times[each.path] += 1
        key = (each.schema, each.stored, frozenset(each.partition), times[each.path])
        groups[key].append(each)
    # Spark cannot read the text of a type that has a field such as `a b`
    texts = {text for each in files for text in (each.schema, each.stored) if text}
    schemas = [spark.createDataFrame([], text).schema for text in sorted(texts)]
    types = {f.dataType.simpleString(): f.dataType for each in schemas for f in each}
    return united([_frame(spark, alike, wanted, types) for alike in groups.values()])


def _frame(
    spark: SparkSession, files: Sequence[DataFile], wanted: Columns, types: Mapping[str, DataType]
) -> DataFrame:
    """Return the rows of files that are alike.

    :param types: of all files' columns, by their texts
    """
    first = files[0]
    inside = [column for column in first.columns if column[0] not in first.partition]
    stored = columns_in(first.stored) if first.stored else tuple(inside)
    places = {each.path: each.ordinal for each in files}
    items = [FileItem(path=each.path, size=each.size, mtime_ns=0, rows=0) for each in files]
    stored_types = T.StructType([T.StructField(name, types[type_]) for name, type_ in stored])
    rows = read_rows(spark, items, places, stored_types)
    own = {
        name: F.col(quoted(theirs)).cast(types[type_])
        for (name, type_), (theirs, _) in zip(inside, stored, strict=True)
    }
    for name, type_ in first.columns:
        if name in first.partition:
            own[name] = _partition_value(files, name, rows.ordinal).cast(types[type_])
    texts = dict(first.columns)
    return rows.select(
        {
            name: F.lit(None).cast(types.get(type_, type_))
            if name not in own
            else _converted(own[name], name, texts[name], type_)
            for name, type_ in wanted
        }
    )


def _converted(column: Column, name: str, own: str, wanted: str) -> Column:
    if own == wanted:
        return column
    if not fits(own, wanted):
        raise SchemaMismatch(
            f"column {name} is {own} in a file of the batch, and {wanted} in another",
            remedy=Remedy("cast it in the job that writes the table; {skip} leaves the batch out."),
        )
    return column.cast(wanted)


def fits(own: str, wanted: str) -> bool:
    """Say whether a column of a file has a value of the wanted type for each of its own."""
    return own == wanted or common_type(own, wanted) == wanted


def _partition_value(files: Sequence[DataFile], name: str, ordinal: Column) -> Column:
    values = {each.partition[name] for each in files}
    if len(values) == 1:
        return F.lit(values.pop())
    pairs = [F.lit(v) for each in files for v in (each.ordinal, each.partition[name])]
    return F.element_at(F.create_map(*pairs), ordinal)
