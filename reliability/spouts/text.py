"""CSV and JSON lines at the source: their records are counted by other code than Spark's (V6).

A count is no proof where Spark reads a text in its own way: it passes over what follows the first
object of a line, reads an array as several records, and keeps half of a line end in a value. So a
file is refused here, by its line, unless both read the same records and values.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from json import JSONDecodeError
from typing import TextIO

from reliability.core.errors import SourceUnreadable
from reliability.spouts.file_item import FileItem
from reliability.spouts.filesystem import open_filesystem, stat
from reliability.spouts.names import locate

_BLANK = " \t\r\n"
_MARK = "\ufeff"
# Spark decompresses a file of such a name, or takes it for compressed; pyarrow does not.
_NOT_DECOMPRESSED = (".deflate", ".lz4", ".snappy", ".zstd")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class _ReadOtherwise(ValueError):
    """Spark would read the text otherwise than it is counted."""


def read_file(path: str, format: str, *, header: bool) -> FileItem:
    """Describe a text file and count its records; raise SourceUnreadable if it is no such text.

    What its name says is compressed (.gz, .bz2, .zst) is read through, as Spark does.
    """
    import pyarrow as pa

    try:
        seen = stat(path)
        if not seen.mtime_ns and not seen.etag:
            raise OSError("its file system tells neither time nor ETag, a change would not show")
        if path.endswith(_NOT_DECOMPRESSED):
            raise OSError("compressed files are .gz, .bz2 or .zst")
        with _opened(path) as text:
            lines = _without_mark(text)
            rows = _csv_records(lines, header) if format == "csv" else _json_objects(lines)
    except (OSError, pa.ArrowException, UnicodeDecodeError, csv.Error, _ReadOtherwise) as error:
        raise SourceUnreadable(
            f"{locate(path)} cannot be read as {format}: {error}",
            remedy="correct the file at the source, or rename it; nothing was allocated.",
        ) from error
    return FileItem(
        path=path,
        size=seen.size,
        mtime_ns=seen.mtime_ns,
        etag=seen.etag,
        rows=rows,
        is_text=True,
    )


def line_end(path: str) -> str:
    r"""Return what ends the records of a CSV file: `\n` or `\r\n`."""
    with _opened(path) as text:
        lines = _Lines(_without_mark(text))
        next(_records(lines), None)
        return _end(lines.last) or "\n"


@contextmanager
def _opened(path: str) -> Iterator[TextIO]:
    filesystem, inner = open_filesystem(path)
    with filesystem.open_input_stream(inner) as stream:
        yield io.TextIOWrapper(stream, encoding="utf-8", newline="")  # line ends as they are


def _without_mark(text: TextIO) -> Iterator[str]:
    """Return the lines without the byte order mark of the first one, as Spark reads them."""
    first = text.readline()
    if first == _MARK:
        raise _ReadOtherwise("it holds a byte order mark alone, which Spark takes for a record")
    return chain([first.removeprefix(_MARK)], text)


# --- CSV -----------------------------------------------------------------------------------------


class _Lines:
    """The lines of a text, on their way to a csv reader.

    :ivar last: the line that was read last, with its end
    :ivar number: its number; the first is 1
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = lines
        self.last = ""
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self.number += 1
            self.last = line
            if "\0" in line:
                raise _ReadOtherwise("it holds U+0000, behind which Spark drops quotes")
            yield line


def _records(lines: _Lines) -> Iterator[list[str]]:
    csv.field_size_limit(sys.maxsize)  # a process has one limit: set it wherever one reads
    return csv.reader(lines, strict=True)


def _csv_records(text: Iterable[str], header: bool) -> int:
    """Count the records; what ends one must end each, or Spark would keep it in a value."""
    lines = _Lines(text)
    records = 0
    allowed = {"\n", "\r\n", ""}
    try:
        for record in _records(lines):
            if record:
                records += 1
            end = _end(lines.last)
            if end not in allowed:
                raise _ReadOtherwise(f"it ends in {end!r}; all have to in \\n, or all in \\r\\n")
            allowed = {end, ""}  # the last record of a file needs none
    except (csv.Error, _ReadOtherwise) as error:
        raise _ReadOtherwise(f"line {lines.number}: {error}") from error
    return max(records - header, 0)


def _end(line: str) -> str:
    """Return what ends a line; nothing at the end of a file."""
    end = line[-2:]
    if end == "\r\n":
        return end
    return end[-1:] if end[-1:] in ("\n", "\r") else ""


# --- JSON ----------------------------------------------------------------------------------------


def _json_objects(lines: Iterable[str]) -> int:
    """Count the lines; each that is not blank must be one JSON object."""
    objects = 0
    for number, line in enumerate(lines, start=1):
        record = line.strip(_BLANK)
        if not record:
            continue
        try:
            if _scan(record)[1] != len(record) or record[0] != "{" or "\\u" in record:
                _check_object(record)
        except (ValueError, RecursionError) as error:
            why = f"{error.msg} ({error.pos})" if isinstance(error, JSONDecodeError) else error
            raise _ReadOtherwise(f"line {number} is not one JSON object: {why}") from error
        objects += 1
    return objects


def _check_object(record: str) -> None:
    if record[0] != "{":
        raise _ReadOtherwise(f"it starts with {record[:20]!r}")
    end = _scan(record)[1]
    if end != len(record):
        raise _ReadOtherwise(f"{record[end : end + 20]!r} follows it")
    if _SURROGATE.search(record):
        _check_surrogates(record)


def _check_surrogates(record: str) -> None:
    try:
        json.dumps(json.loads(record, parse_int=len), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _ReadOtherwise("a text in it has half of a surrogate pair") from None


def _without_repeated(members: list[tuple[str, object]]) -> None:
    # Of equal names Spark, and Python, keep the last.
    if len(dict(members)) != len(members):
        names = [name for name, _ in members]
        raise _ReadOtherwise(f"it has {max(names, key=names.count)!r} twice")


# Numbers are not made: that takes time, and Python refuses long ones.
_scan = json.JSONDecoder(
    object_pairs_hook=_without_repeated, parse_int=len, parse_float=len
).raw_decode
