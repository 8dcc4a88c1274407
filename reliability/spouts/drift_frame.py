"""Parquet files of different columns as one frame: Spark reads each by its own columns (E8).

If Spark read them by one schema, it would refuse some narrower types, and others only in some
files, depending on how they were written. So files with the same columns are read together, cast,
and united with the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from reliability.core.column import quoted
from reliability.core.errors import SchemaMismatch
from reliability.core.fold import ACCOUNTING
from reliability.spark.catalyst import hide
from reliability.spark.frames import METADATA
from reliability.spouts.drift import EMPTY
from reliability.spouts.parquet_columns import Columns
from reliability.spouts.wider_types import VOID

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_PLACE_FIELDS = ("file_path", "file_name", "row_index")


def converted(
    frame: DataFrame, own: Columns, wanted: Columns, in_spark: Mapping[str, DataType]
) -> DataFrame:
    """Return a frame with the columns of its batch, and where each row comes from.

    :param frame: files with the same columns, with `_x` and `_n`
    :param own: their columns, from the footers
    :param in_spark: the types of the spout's schema and of all files of the batch, by their texts:
        Spark cannot read a text that has a field such as `a b`
    :raises SchemaMismatch: Spark reads them with other columns
    """
    _check_read(frame, [column for column in own if column[0] in dict(wanted)])
    columns = [
        _column(name, dict(own).get(name), type_, in_spark.get(type_, type_)).alias(name)
        for name, type_ in wanted
    ]
    return frame.select(*columns, *ACCOUNTING, *_places(frame, wanted))


def _check_read(frame: DataFrame, own: Iterable[tuple[str, str]]) -> None:
    read = dict(frame.dtypes)
    for name, type_ in own:
        if read.get(name) != (EMPTY if type_ == VOID else type_):
            raise SchemaMismatch(
                f"column {name} is {read.get(name)} in Spark, and {type_} by the files' footers",
                remedy="write the files again with another type, or leave them out with "
                "`reliability exclude TOPOLOGY FILE --reason '…'`.",
            )


def _column(name: str, own: str | None, wanted: str, in_spark: DataType | str) -> Column:
    from pyspark.sql import functions as F

    if own in (None, VOID):
        return F.lit(None).cast(in_spark)
    return F.col(quoted(name)) if own == wanted else F.col(quoted(name)).cast(in_spark)


def _places(frame: DataFrame, wanted: Columns) -> list[Column]:
    """Return where each row comes from; nothing if the batch has a column of this name."""
    from pyspark.sql import functions as F

    if METADATA in {name.lower() for name, _ in wanted}:
        return []
    place = frame.metadataColumn(METADATA)
    return [F.struct(*[place.getField(name) for name in _PLACE_FIELDS]).alias(METADATA)]


def united(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all frames of `converted`; where they come from is hidden.

    Spark hides that of a file's rows itself, and loses it in a union.
    """
    frame = reduce(lambda one, other: one.union(other), frames)
    return hide(frame, [METADATA]) if frame.columns[-1] == METADATA else frame
