"""Read numbered records in Spark's tasks, by the code that counts them at emission (V6)."""

from __future__ import annotations

import json
from collections import UserString
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from reliability.core.errors import SchemaMismatch
from reliability.core.texts import as_exact_json
from reliability.deployment.lazy import np, pa, pc
from reliability.spouts.csv_blocks import NotRegular, read_blocks
from reliability.spouts.records import NOT_UTF_8, NotOneObject, check_object, open_text
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
    """What a Spark task needs to read a file, as plain values.

    :param names: of the columns
    :param types: of each column, with strings for all values
    """

    text: TextFormat
    names: Sequence[str]
    types: Sequence[pa.DataType]

    def read(self, file: tuple[int, str]) -> Iterator[pa.RecordBatch]:
        """Yield the records of a file, given its ordinal in the batch and where it is.

        CSV that the emission has checked is read by Arrow, and by Python what is not regular.
        """
        ordinal, path = file
        if isinstance(self.text, Csv) and self.text.header:
            check_header(path, self.text, self.names)
        first = 0
        if isinstance(self.text, Csv) and not self.text.lenient:
            try:
                for values in read_blocks(path, self.text, len(self.names)):
                    yield self._as_arrow(ordinal, first, values, Records())
                    first += len(values[0])
                return
            except NotRegular:
                pass
        for some in self._read_by_python(path, first):
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


# --- a JSON object as a row of texts: numbers as they stand in the file (V6) ---------------------
# Spark's `from_json` rounds a number on its way to a string.

_FORM = "it does not have the form of the schema"


class _Number(UserString):
    """A number as it stands in JSON: no str, so that it is not taken for one."""


class _Nested(Exception):
    """A column of strings has an object or an array."""


def row_reader(
    names: Sequence[str], types: Sequence[pa.DataType], *, lenient: bool
) -> Callable[[str], list[Any]]:
    """Return a function that reads a JSON object as a row of texts; NULL for a missing member.

    It raises NotOneObject if the line is not one object of this form.

    :param lenient: the emission has not checked the line
    """
    fast = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
    exact = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=_Number)
    is_flat = all(map(pa.types.is_string, types))
    are_texts = {str, type(None)}.issuperset
    columns = [(name, _texts_of(type_)) for name, type_ in zip(names, types, strict=True)]

    def read(record: str) -> list[Any]:
        if lenient:
            check_object(record)
        try:
            try:
                return row_of(fast, record)
            except _Nested:
                return row_of(exact, record)
        except NotOneObject:
            raise
        except (ValueError, RecursionError) as error:  # it may be nested too deeply
            raise NotOneObject(f"it is not one JSON object: {error}") from error

    def row_of(decoder: json.JSONDecoder, record: str) -> list[Any]:
        get = decoder.raw_decode(record)[0].get
        if is_flat:  # most values are texts by now: this line decides how fast JSON is read
            values = [*map(get, names)]
            if are_texts(map(type, values)):
                return values
        is_exact = decoder is exact
        return [None if (v := get(name)) is None else text(v, is_exact) for name, text in columns]

    return read


def _texts_of(type_: pa.DataType) -> Callable[[Any, bool], Any]:
    """Return a function that turns a value of JSON into texts of this type."""
    if pa.types.is_struct(type_):
        fields = [(f.name, _texts_of(f.type)) for f in type_]

        def struct(value: Any, is_exact: bool) -> Any:
            if not isinstance(value, dict):
                raise NotOneObject(_FORM)
            members = ((name, value.get(name), text) for name, text in fields)
            return {name: None if v is None else text(v, is_exact) for name, v, text in members}

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
    return as_exact_json(value)
