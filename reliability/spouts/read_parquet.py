"""Read row groups of Parquet files in Spark's tasks, through Arrow (V6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reliability.core.errors import SourceUnreadable
from reliability.deployment.lazy import np, pa, pq
from reliability.spouts.filesystem import open_filesystem
from reliability.spouts.footer import AT_ONCE

#: rows that are handed to Spark at once
ROWS_AT_ONCE = 10_000
# Spark before 3.0 and Hive counted days by another calendar until 1582. Only Spark's reader
# converts them.
_OTHER_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A row group.

    :param ordinal: of its file in the batch
    :param first_row: the index in the file of its first row
    """

    path: str
    ordinal: int
    group: int
    first_row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadParquet:
    """What a Spark task needs to read a row group, as plain values.

    :param names: of the columns
    :param schema: their types as Spark takes them
    :param own: how the names of two more columns begin, for ordinal and row
    """

    names: Sequence[str]
    schema: pa.Schema
    own: str

    def read(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a row group."""
        filesystem, inner = open_filesystem(piece.path)
        with (
            filesystem.open_input_file(inner) as stream,
            pq.ParquetFile(
                pa.BufferReader(stream.read()) if stream.size() <= AT_ONCE else stream,
                pre_buffer=True,
                coerce_int96_timestamp_unit="us",
            ) as file,
        ):
            if any(key in (file.metadata.metadata or {}) for key in _OTHER_CALENDAR):
                raise SourceUnreadable(
                    f"{piece.path} has dates of the calendar that Spark had before 3.0",
                    remedy="give Spark the jars of the store's file system, which convert them.",
                )
            row = piece.first_row
            for batch in file.iter_batches(
                ROWS_AT_ONCE, row_groups=[piece.group], columns=self._wanted(file)
            ):
                yield self._numbered(batch, piece.ordinal, row)
                row += batch.num_rows

    def _wanted(self, file: pq.ParquetFile) -> list[str] | None:
        """Return the names of its columns that are read; None is all of them."""
        names = file.schema_arrow.names
        if any("." in name for name in names):
            return None  # pyarrow would take a part of the name for a column
        lower = {name.lower() for name in self.names}
        return [name for name in names if name.lower() in lower]

    def _numbered(self, batch: pa.RecordBatch, ordinal: int, first: int) -> pa.RecordBatch:
        count = batch.num_rows
        place = {name.lower(): n for n, name in enumerate(batch.schema.names)}
        place |= {name: n for n, name in enumerate(batch.schema.names)}
        columns = []
        for name, type_ in zip(self.names, self.schema.types, strict=True):
            number = place.get(name, place.get(name.lower()))
            values = pa.nulls(count, type_) if number is None else _as(batch.column(number), type_)
            columns.append(values)
        rows = [np.full(count, ordinal, np.int64), np.arange(first, first + count)]
        return pa.RecordBatch.from_arrays(
            [*columns, *map(pa.array, rows)], names=[*self.names, f"{self.own}a", f"{self.own}b"]
        )


def _as(values: pa.Array, type_: pa.DataType) -> pa.Array:
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    return values if values.type == type_ else values.cast(type_)
