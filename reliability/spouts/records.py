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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from json import JSONDecodeError
from typing import TextIO

from reliability.spouts.filesystem import open_filesystem

UTF_8 = "utf-8"
#: characters of a CSV record; a longer one has a quote that is not closed
MAX_RECORD = 1 << 24
#: characters that are read again, behind quotes that are not closed
MAX_GIVEN_BACK = 1 << 28

NOT_UTF_8 = "it is not valid in the file's encoding"
_BLANK = " \t\r\n"
BYTE_ORDER_MARK = "\ufeff"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

#: line, fields, text and, if it cannot be read, why
Record = tuple[int, Sequence[str], str, str | None]


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


class TooManyQuotes(ValueError):
    """A text has so many quotes that are not closed that reading it would take for ever."""


class _Lines:
    """The lines of a text for a csv reader, which may be given back.

    :ivar number: of the line that was read last; the first is 1
    :ivar taken: the lines of the record that is read now
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._again: deque[str] = deque()
        self._size = 0
        self._given_back = 0
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
        """Return all lines but the first.

        :raises TooManyQuotes: that was done for too much text
        """
        self._given_back += self._size
        if self._given_back > MAX_GIVEN_BACK:
            raise TooManyQuotes(f"quotes that are not closed, most recently in line {self.number}")
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


def json_records(text: Iterable[str]) -> Iterator[Record]:
    """Yield line, object and text of each line that is not blank; whether it is one is not seen."""
    for number, line in enumerate(text, start=1):
        if record := line.strip(_BLANK):
            yield number, (record,), record, None


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


# --- both ----------------------------------------------------------------------------------------


def without_byte_order_mark(text: Iterable[str]) -> Iterator[str]:
    """Yield the lines; the first without the mark that some editors write before it."""
    lines = iter(text)
    yield from (first.removeprefix(BYTE_ORDER_MARK) for first in islice(lines, 1))
    yield from lines


def refuse_surrogates(record: Record) -> Record:
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
