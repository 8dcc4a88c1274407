"""Read numbered records in Spark's tasks, by the code that counts them at emission (V6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from reliability.core.errors import SchemaMismatch
from reliability.deployment.lazy import np, pa, pc
from reliability.spouts.csv_blocks import NotRegular, read_blocks
from reliability.spouts.json_rows import row_reader
from reliability.spouts.records import NOT_UTF_8, NotOneObject, open_text
from reliability.spouts.text import Csv, JsonLines, TextFormat

#: rows that are handed to Spark at once
ROWS_AT_ONCE = 10_000
# reasons of the quarantine: one stands for many records
INVALID_ENCODING, NOT_CSV, NOT_JSON = "INVALID_ENCODING", "NOT_CSV", "NOT_JSON"
WRONG_FIELD_COUNT = "WRONG_FIELD_COUNT"


@dataclass(slots=True)
class Records:
    """Some consecutive records of a file.

    :param lines: the number of the line on which each begins, from 1
    :param rows: the texts of each record for the columns; NULL if it cannot be read
    :param texts: each as it stands in the file; empty unless they are asked for
    :param wrong: place here -> reason and why, of a record that cannot be read
    """

    lines: list[int] = field(default_factory=list)
    rows: list[Sequence[Any]] = field(default_factory=list)
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

    def __call__(self, ordinals: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the records of the files with these ordinals."""
        for batch in ordinals:
            for ordinal in batch.column(0).to_pylist():
                if isinstance(self.text, Csv) and self.text.header:
                    check_header(self.paths[ordinal], self.text, self.names)
                yield from self._read(ordinal)

    def _read(self, ordinal: int) -> Iterator[pa.RecordBatch]:
        """Read CSV that the emission has checked by Arrow, and by Python what is not regular."""
        first = 0
        if isinstance(self.text, Csv) and not self.text.lenient:
            try:
                for values in read_blocks(self.paths[ordinal], self.text, len(self.names)):
                    yield self._as_arrow(ordinal, first, values, Records())
                    first += len(values[0])
                return
            except NotRegular:
                pass
        for some in self._read_by_python(self.paths[ordinal], first):
            yield self._as_arrow(ordinal, first, self._values(some), some)
            first += len(some.lines)

    def _read_by_python(self, path: str, first: int) -> Iterator[Records]:
        """Yield the records of a file from the first that is wanted on."""
        text, width = self.text, len(self.names)
        is_json = isinstance(text, JsonLines)
        row_of = row_reader(self.names, self.types, lenient=text.lenient)
        some = Records()
        with open_text(path, text.encoding, lenient=text.lenient) as stream:
            for line, fields, record, why in islice(text.records(stream), first, None):
                row: Sequence[Any] = fields
                reason = NOT_JSON if is_json else NOT_CSV
                if why is not None:
                    reason = INVALID_ENCODING if why == NOT_UTF_8 else reason
                elif is_json:
                    try:
                        row = row_of(fields[0])
                    except NotOneObject as error:
                        why = str(error)
                elif len(fields) != width:
                    reason = WRONG_FIELD_COUNT
                    why = f"it has {len(fields)} fields instead of {width}"
                if why is not None:
                    if not text.lenient:
                        raise SchemaMismatch(
                            f"line {line} of {path}: {why}",
                            remedy="correct the file at the source, or let the spout quarantine "
                            "what is malformed.",
                        )
                    some.wrong[len(some.lines)] = reason, why
                    row = [None] * width
                some.lines.append(line)
                some.rows.append(row)
                if text.lenient:
                    some.texts.append(record)
                if len(some.lines) == ROWS_AT_ONCE:
                    yield some
                    some = Records()
        if some.lines:
            yield some

    def _values(self, records: Records) -> list[pa.Array]:
        columns = zip(self.types, zip(*records.rows, strict=True), strict=True)
        values = [pa.array(column, type_) for type_, column in columns]
        if not isinstance(self.text, Csv):
            return values
        empty = pa.scalar("", pa.string())
        return [pc.if_else(pc.equal(value, empty), None, value) for value in values]

    def _as_arrow(
        self, ordinal: int, first: int, values: Sequence[pa.Array], records: Records
    ) -> pa.RecordBatch:
        """Return numbered rows with these values, and with what else is known of the records."""
        count = len(values[0])
        none = pa.nulls(count, pa.string())
        lines = pa.array(records.lines, pa.int64()) if records.lines else none.cast(pa.int64())
        texts = pa.array(records.texts, pa.string()) if records.texts else none
        wrong = [none, none]
        if records.wrong:
            reasons = [records.wrong.get(place, (None, None)) for place in range(count)]
            wrong = [pa.array(column, pa.string()) for column in zip(*reasons, strict=True)]
        columns = [
            pa.array(np.full(count, ordinal, np.int32)),
            pa.array(np.arange(first, first + count)),
            lines,
            *wrong,
            texts,
            *values,
        ]
        return pa.RecordBatch.from_arrays(columns, names=names_of(len(self.names)))


def check_header(path: str, text: Csv, names: Sequence[str]) -> None:
    """Raise SchemaMismatch unless the first record has the columns' names, in their order."""
    with open_text(path, text.encoding, lenient=text.lenient) as stream:
        header = next(replace(text, header=False).records(stream), None)
    if header is None:
        return  # an empty file
    _, fields, _, why = header
    if why or [name.lower() for name in fields] != [name.lower() for name in names]:
        raise SchemaMismatch(
            f"the header of {path} is {why or list(fields)}, the schema has {list(names)}",
            remedy="correct the spout's schema, or the file at the source.",
        )


def names_of(width: int) -> list[str]:
    """Return the names of the columns that ReadRecords yields."""
    known = ["_ordinal", "_row", "_line", "_reason", "_why", "_record"]
    return [*known, *(f"t{n}" for n in range(width))]
