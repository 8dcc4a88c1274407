"""The records of CSV and JSON lines, numbered: the emission and Spark read the same ones (V6).

The emission counts the records, and Spark's tasks read them by this module. So both have the same
records, and a record's number identifies it as the row index of Parquet does.

A record that cannot be read has the reason instead of its fields. It ends with its first line: a
quote that is never closed does not swallow what follows.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any, TextIO

from reliability.core.errors import SchemaMismatch
from reliability.spouts.filesystem import open_filesystem

if TYPE_CHECKING:
    import pyarrow as pa

UTF_8 = "utf-8"
#: characters of a CSV record; a longer one has a quote that is not closed
MAX_RECORD = 1 << 24
#: bytes of CSV that are parsed at once
BLOCK = 1 << 22
#: rows that are handed to Spark at once
ROWS_AT_ONCE = 10_000

NOT_UTF_8 = "it is not valid in the file's encoding"
# reasons of the quarantine: one stands for many records
INVALID_ENCODING, NOT_CSV, NOT_JSON = "INVALID_ENCODING", "NOT_CSV", "NOT_JSON"
WRONG_FIELD_COUNT = "WRONG_FIELD_COUNT"
_BLANK = " \t\r\n"
_FORM = "it does not have the form of the schema"
BYTE_ORDER_MARK = "\ufeff"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


#: line, fields, text and, if it cannot be read, why
Record = tuple[int, Sequence[str], str, str | None]


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


@contextmanager
def open_text(path: str, encoding: str, *, lenient: bool = False) -> Iterator[TextIO]:
    """Open a file, with its line ends; .gz, .bz2 and .zst are decompressed.

    :param lenient: keep bytes that are not valid as surrogates, instead of an error
    """
    filesystem, inner = open_filesystem(path)
    errors = "surrogateescape" if lenient else "strict"
    with filesystem.open_input_stream(inner, buffer_size=1 << 20) as stream:
        yield io.TextIOWrapper(stream, encoding=encoding, errors=errors, newline="")


# --- CSV -----------------------------------------------------------------------------------------


class _Lines:
    """The lines of a text for a csv reader, which may be given back.

    :ivar number: of the line that was read last; the first is 1
    :ivar taken: the lines of the record that is read now
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._again: deque[str] = deque()
        self._size = 0
        self.number = 0
        self.taken: list[str] = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._lines)
        self.number += 1
        self.taken.append(line)
        self._size += len(line)
        if self._size > MAX_RECORD:
            raise csv.Error(f"a record has more than {MAX_RECORD:,} characters")
        return line

    def begin_record(self) -> None:
        self.taken = []
        self._size = 0

    def give_back_all_but_one(self) -> None:
        self._again.extendleft(reversed(self.taken[1:]))
        self.number -= len(self.taken) - 1
        del self.taken[1:]


def csv_records(text: Iterable[str]) -> Iterator[Record]:
    """Yield line, fields, text and, if it cannot be read, why, of each record.

    An empty line has neither fields nor a reason: it is no record.
    """
    csv.field_size_limit(sys.maxsize)  # the limit is the process's, so others may have changed it
    lines = _Lines(text)
    reader = csv.reader(lines, strict=True)
    is_windows: bool | None = None  # as the first record ends
    while True:
        lines.begin_record()
        begin = lines.number + 1
        why = None
        fields: Sequence[str] = ()
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            lines.give_back_all_but_one()
            reader = csv.reader(lines, strict=True)
            why = str(error)
        taken = lines.taken
        if is_windows is None:
            is_windows = taken[-1].endswith("\r\n")
        if is_windows and len(taken) > 1:
            # a line end inside quotes becomes \n, as in any other file
            fields = [value.replace("\r\n", "\n") for value in fields]
        yield begin, fields, taken[0] if len(taken) == 1 else "".join(taken), why


# --- JSON lines ----------------------------------------------------------------------------------


class NotOneObject(ValueError):
    """A line is not one JSON object that Spark would read as it stands."""


def json_records(text: Iterable[str], check: Callable[[str], None] | None) -> Iterator[Record]:
    """Yield line, object, text and, if it cannot be read, why, of each line that is not blank.

    :param check: raises NotOneObject if a line is not one JSON object
    """
    for number, line in enumerate(text, start=1):
        record = line.strip(_BLANK)
        if not record:
            continue
        why = None
        if check is not None:
            try:
                check(record)
            except NotOneObject as error:
                why = str(error)
        yield number, () if why else (record,), record, why


def check_object(record: str) -> None:
    """Raise NotOneObject unless Spark reads exactly this record from the line.

    Spark ignores what follows the first object of a line, reads an array as several records, and
    keeps the last of equal names.
    """
    try:
        if _scan(record)[1] != len(record) or record[0] != "{" or "\\u" in record:
            _check_slowly(record)
    except (ValueError, RecursionError) as error:
        why = f"{error.msg} ({error.pos})" if isinstance(error, JSONDecodeError) else error
        raise NotOneObject(f"it is not one JSON object: {why}") from error


def _check_slowly(record: str) -> None:
    if record[0] != "{":
        raise NotOneObject(f"it starts with {record[:20]!r}")
    end = _scan(record)[1]
    if end != len(record):
        raise NotOneObject(f"{record[end : end + 20]!r} follows the object")
    if _SURROGATE.search(record):
        _check_surrogates(record)


def _check_surrogates(record: str) -> None:
    try:
        json.dumps(json.loads(record, parse_int=len), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise NotOneObject("a string in it has half of a surrogate pair") from None


def _check_unique(members: list[tuple[str, object]]) -> None:
    # Of equal names, Spark and Python keep only the last.
    if len(dict(members)) != len(members):
        names = [name for name, _ in members]
        raise NotOneObject(f"it has {max(names, key=names.count)!r} twice")


# Numbers are not converted: that takes time, and Python refuses long ones.
_scan = json.JSONDecoder(object_pairs_hook=_check_unique, parse_int=len, parse_float=len).raw_decode


class _Number(str):
    """A number as it stands in JSON."""

    __slots__ = ()


class _Nested(Exception):
    """A column of strings has an object or an array."""


def row_reader(
    names: Sequence[str], types: Sequence[pa.DataType], *, lenient: bool
) -> Callable[[str], list[Any]]:
    """Return a function that reads a JSON object as a row of texts; NULL for a missing member.

    It raises NotOneObject if the line is not one object of this form.

    :param lenient: the emission has not checked the line
    """
    import pyarrow as pa

    hook = _unique if lenient else None
    fast = json.JSONDecoder(
        object_pairs_hook=hook, parse_int=str, parse_float=str, parse_constant=str
    )
    exact = json.JSONDecoder(
        object_pairs_hook=hook, parse_int=_Number, parse_float=_Number, parse_constant=_Number
    )
    is_flat = all(map(pa.types.is_string, types))
    are_texts = {str, type(None)}.issuperset
    columns = [(name, _texts_of(type_)) for name, type_ in zip(names, types, strict=True)]

    def read(record: str) -> list[Any]:
        if lenient:
            check_object(record)
        try:
            return _row(fast, record)
        except _Nested:
            return _row(exact, record)

    def _row(decoder: json.JSONDecoder, record: str) -> list[Any]:
        try:
            found = decoder.raw_decode(record)[0]
        except (ValueError, RecursionError) as error:
            raise NotOneObject(f"it is not one JSON object: {error}") from error
        get = found.get
        if is_flat:  # most values are texts by now: this line decides how fast JSON is read
            values = [*map(get, names)]
            if are_texts(map(type, values)):
                return values
        is_exact = decoder is exact
        return [None if (v := get(name)) is None else text(v, is_exact) for name, text in columns]

    return read


def _texts_of(type_: pa.DataType) -> Callable[[Any, bool], Any]:
    """Return a function that turns a value of JSON into texts of this type."""
    import pyarrow as pa

    if pa.types.is_struct(type_):
        fields = [(f.name, _texts_of(f.type)) for f in type_]

        def struct(value: Any, is_exact: bool) -> Any:
            if not isinstance(value, dict):
                raise NotOneObject(_FORM)
            found = ((name, value.get(name), text) for name, text in fields)
            return {name: None if v is None else text(v, is_exact) for name, v, text in found}

        return struct
    if pa.types.is_list(type_):
        element = _texts_of(type_.value_type)

        def array(value: Any, is_exact: bool) -> Any:
            if not isinstance(value, list):
                raise NotOneObject(_FORM)
            return [None if v is None else element(v, is_exact) for v in value]

        return array
    return _text_of


def _text_of(value: Any, is_exact: bool) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if not is_exact:
        raise _Nested
    return _written(value)


def _written(value: Any) -> str:
    """Write a value as JSON, with its numbers as they stood."""
    match value:
        case _Number():
            return str(value)
        case dict():
            members = (f"{_written(name)}: {_written(member)}" for name, member in value.items())
            return f"{{{', '.join(members)}}}"
        case list():
            return f"[{', '.join(map(_written, value))}]"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    _check_unique(members)
    return dict(members)


# --- both ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat:
    """How a text file is read.

    :param format: `csv` or `jsonl`
    :param lenient: a record that cannot be read has a reason; otherwise it is an error
    """

    format: str
    header: bool = False
    encoding: str = UTF_8
    lenient: bool = False

    def records(self, text: Iterable[str], *, checked: bool) -> Iterator[Record]:
        """Yield line, fields, text and, if it cannot be read, why, of each record but the header.

        :param checked: each line of JSON is read, to check that it is one object
        """
        lines = without_byte_order_mark(text)
        found: Iterator[Record]
        if self.format == "csv":
            found = iter(one for one in csv_records(lines) if one[1] or one[3])
            if self.header:
                next(found, None)
        else:
            found = json_records(lines, check_object if checked else None)
        return map(_refuse_surrogates, found) if self.lenient else found


def without_byte_order_mark(text: Iterable[str]) -> Iterator[str]:
    lines = iter(text)
    for first in lines:
        yield first.removeprefix(BYTE_ORDER_MARK)
        break
    yield from lines


def _refuse_surrogates(
    record: Record,
) -> Record:
    """Give a record with bytes that are not valid a reason, and show them as escapes."""
    line, _, text, why = record
    if text.isascii():
        return record
    try:
        text.encode()
    except UnicodeEncodeError:
        shown = text.encode(UTF_8, "surrogateescape").decode(UTF_8, "backslashreplace")
        return line, (), shown, why or NOT_UTF_8
    return record


# --- in Spark ------------------------------------------------------------------------------------


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
            return
        path = self.paths[ordinal]
        first = 0
        with open_text(path, self.text.encoding, lenient=self.text.lenient) as stream:
            for some in self._some(stream, path):
                yield self._as_arrow(ordinal, first, some)
                first += len(some.lines)

    def _read_checked_csv(self, ordinal: int) -> Iterator[pa.RecordBatch]:
        """Read CSV that the emission has checked by Arrow, which is ten times as fast as Python."""
        import pyarrow as pa

        path = self.paths[ordinal]
        first = 0
        try:
            for batch in read_with_arrow(path, self.text, self.width):
                yield self._with_numbers(ordinal, first, batch.columns)
                first += batch.num_rows
        except pa.ArrowInvalid:
            with open_text(path, self.text.encoding) as stream:
                for _ in self._some(stream, path):  # raises an error that names the line
                    pass
            raise

    def _with_numbers(self, ordinal: int, first: int, values: Sequence[pa.Array]) -> pa.RecordBatch:
        import pyarrow as pa

        rows = len(values[0])
        none = pa.nulls(rows, pa.string())
        columns = [*_numbers(ordinal, first, rows), pa.nulls(rows, pa.int64()), none, none, none]
        return pa.RecordBatch.from_arrays([*columns, *values], names=names_of(self.width))

    def _some(self, stream: TextIO, path: str) -> Iterator[Records]:
        lenient, width = self.text.lenient, self.width
        is_json = self.text.format != "csv"
        not_read = NOT_JSON if is_json else NOT_CSV
        row_of = row_reader(self.names, self.types, lenient=lenient)
        found = Records()
        for line, parts, text, why in self.text.records(stream, checked=False):
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
        found = next(csv_records(without_byte_order_mark(stream)), None)
    if found is None:
        return  # an empty file
    _, fields, _, why = found
    if why or [name.lower() for name in fields] != [name.lower() for name in names]:
        raise SchemaMismatch(
            f"the header of {path} is {why or list(fields)}, the schema has {list(names)}",
            remedy="correct the spout's schema, or the file at the source.",
        )


def read_with_arrow(path: str, text: TextFormat, width: int) -> Iterator[pa.RecordBatch]:
    """Read CSV whose records are known to be well-formed; an empty field is NULL.

    :raises pyarrow.ArrowInvalid: a record has another number of fields
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow_csv

    skipped, is_windows, is_empty = _start_of(path, text)
    if is_empty:
        return
    names = [str(place) for place in range(width)]
    filesystem, inner = open_filesystem(path)
    with filesystem.open_input_stream(inner) as stream:
        reader = arrow_csv.open_csv(
            stream,
            arrow_csv.ReadOptions(
                use_threads=False,
                block_size=BLOCK,
                skip_rows=skipped,
                column_names=names,
                encoding=text.encoding,
            ),
            arrow_csv.ParseOptions(newlines_in_values=True),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
        for batch in reader:
            values = batch.columns
            if is_windows:  # a line end inside quotes becomes \n, as in any other file
                values = [pc.replace_substring(value, "\r\n", "\n") for value in values]
            yield pa.RecordBatch.from_arrays(values, names=names)


def _start_of(path: str, text: TextFormat) -> tuple[int, bool, bool]:
    r"""Return how many lines are above the first record, if `\r\n` ends it, if there is none."""
    above = int(text.header)
    is_windows: bool | None = None
    with open_text(path, text.encoding) as stream:
        for line, fields, record, _ in csv_records(without_byte_order_mark(stream)):
            if is_windows is None:
                is_windows = record.endswith("\r\n")
            if fields and not above:
                return line - 1, is_windows, False
            above -= bool(fields)
    return 0, False, True


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
