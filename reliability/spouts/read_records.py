"""Read numbered records in Spark's tasks, by the code that counts them at emission (V6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TextIO

from reliability.core.errors import SchemaMismatch
from reliability.spouts.csv_blocks import NotRegular, read_blocks
from reliability.spouts.json_rows import row_reader
from reliability.spouts.records import NOT_UTF_8, NotOneObject, TextFormat, open_text

if TYPE_CHECKING:
    import pyarrow as pa

#: rows that are handed to Spark at once
ROWS_AT_ONCE = 10_000
# reasons of the quarantine: one stands for many records
INVALID_ENCODING, NOT_CSV, NOT_JSON = "INVALID_ENCODING", "NOT_CSV", "NOT_JSON"
WRONG_FIELD_COUNT = "WRONG_FIELD_COUNT"


@dataclass(slots=True)
class Records:
    """Some consecutive records of a file.

    :param lines: the number of the line on which each begins, from 1
    :param fields: of each record; NULL if it cannot be read
    :param texts: each as it stands in the file; empty unless they are asked for
    :param wrong: place here -> reason and why, of a record that cannot be read
    """

    lines: list[int] = field(default_factory=list)
    fields: list[Sequence[Any]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    wrong: dict[int, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecords:
    """What a Spark task needs to read files, as plain values.

    :param paths: where each file of the batch is; a file's place is its ordinal
    :param names: of the columns
    :param types: of each column, with strings for all values
    """

    paths: Sequence[str]
    text: TextFormat
    names: Sequence[str]
    types: Sequence[pa.DataType]

    @property
    def width(self) -> int:
        return len(self.names)

    def __call__(self, ordinals: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the records of the files with these ordinals."""
        for batch in ordinals:
            for ordinal in batch.column(0).to_pylist():
                if self.text.header:
                    check_header(self.paths[ordinal], self.text, self.names)
                yield from self._read(ordinal)

    def _read(self, ordinal: int) -> Iterator[pa.RecordBatch]:
        if self.text.format == "csv" and not self.text.lenient:
            yield from self._read_checked_csv(ordinal)
        else:
            yield from self._read_by_python(ordinal)

    def _read_checked_csv(self, ordinal: int) -> Iterator[pa.RecordBatch]:
        """Read CSV that the emission has checked by Arrow, and by Python what is not regular."""
        path = self.paths[ordinal]
        first = 0
        try:
            for batch in read_blocks(path, self.text, self.width):
                yield self._with_numbers(ordinal, first, batch.columns)
                first += batch.num_rows
        except NotRegular:
            yield from self._read_by_python(ordinal, first)

    def _read_by_python(self, ordinal: int, first: int = 0) -> Iterator[pa.RecordBatch]:
        """Read the records of a file from the first that is wanted on."""
        path = self.paths[ordinal]
        with open_text(path, self.text.encoding, lenient=self.text.lenient) as stream:
            for some in self._some(stream, path, first):
                yield self._as_arrow(ordinal, first, some)
                first += len(some.lines)

    def _with_numbers(self, ordinal: int, first: int, values: Sequence[pa.Array]) -> pa.RecordBatch:
        import pyarrow as pa

        rows = len(values[0])
        none = pa.nulls(rows, pa.string())
        columns = [*_numbers(ordinal, first, rows), pa.nulls(rows, pa.int64()), none, none, none]
        return pa.RecordBatch.from_arrays([*columns, *values], names=names_of(self.width))

    def _some(self, stream: TextIO, path: str, first: int) -> Iterator[Records]:
        lenient, width = self.text.lenient, self.width
        is_json = self.text.format != "csv"
        not_read = NOT_JSON if is_json else NOT_CSV
        row_of = row_reader(self.names, self.types, lenient=lenient)
        found = Records()
        records = self.text.records(stream, checked=False)
        for line, parts, text, why in islice(records, first, None):
            fields: Sequence[Any] = parts
            reason = INVALID_ENCODING if why == NOT_UTF_8 else not_read
            if why is None and is_json:
                try:
                    fields = row_of(parts[0])
                except NotOneObject as error:
                    why = str(error)
            elif why is None and len(parts) != width:
                reason, why = WRONG_FIELD_COUNT, f"it has {len(parts)} fields instead of {width}"
            if why is not None:
                if not lenient:
                    raise SchemaMismatch(
                        f"line {line} of {path}: {why}",
                        remedy="correct the file at the source, or let the spout quarantine what "
                        "is malformed.",
                    )
                found.wrong[len(found.lines)] = reason, why
                fields = [None] * width
            found.lines.append(line)
            found.fields.append(fields)
            if lenient:
                found.texts.append(text)
            if len(found.lines) == ROWS_AT_ONCE:
                yield found
                found = Records()
        if found.lines:
            yield found

    def _as_arrow(self, ordinal: int, first: int, records: Records) -> pa.RecordBatch:
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = len(records.lines)
        rows_of_columns = zip(self.types, zip(*records.fields, strict=True), strict=True)
        values = [pa.array(column, type_) for type_, column in rows_of_columns]
        if self.text.format == "csv":
            empty = pa.scalar("", pa.string())
            values = [pc.if_else(pc.equal(value, empty), None, value) for value in values]
        none = pa.nulls(rows, pa.string())
        wrong = [none, none]
        if records.wrong:
            told = [records.wrong.get(place, (None, None)) for place in range(rows)]
            wrong = [pa.array(column, pa.string()) for column in zip(*told, strict=True)]
        columns = [
            *_numbers(ordinal, first, rows),
            pa.array(records.lines, pa.int64()),
            *wrong,
            pa.array(records.texts, pa.string()) if records.texts else none,
            *values,
        ]
        return pa.RecordBatch.from_arrays(columns, names=names_of(self.width))


def _numbers(ordinal: int, first: int, rows: int) -> tuple[pa.Array, pa.Array]:
    """Return the file's ordinal and the records' numbers."""
    import numpy as np
    import pyarrow as pa

    return pa.array(np.full(rows, ordinal, np.int32)), pa.array(np.arange(first, first + rows))


def check_header(path: str, text: TextFormat, names: Sequence[str]) -> None:
    """Raise SchemaMismatch unless the first record has the columns' names, in their order."""
    with open_text(path, text.encoding, lenient=text.lenient) as stream:
        found = next(replace(text, header=False).records(stream, checked=False), None)
    if found is None:
        return  # an empty file
    _, fields, _, why = found
    if why or [name.lower() for name in fields] != [name.lower() for name in names]:
        raise SchemaMismatch(
            f"the header of {path} is {why or list(fields)}, the schema has {list(names)}",
            remedy="correct the spout's schema, or the file at the source.",
        )


def names_of(width: int) -> list[str]:
    """Return the names of the columns that ReadRecords yields."""
    return [
        "_ordinal",
        "_row",
        "_line",
        "_reason",
        "_why",
        "_record",
        *(f"t{n}" for n in range(width)),
    ]
