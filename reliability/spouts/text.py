"""CSV and JSON lines at the source: this module counts their records, without Spark (V6).

The count proves nothing if Spark reads the text differently: Spark ignores what follows the first
object of a line, reads an array as several records, and keeps half of a line end in a value. So a
file is refused, with the number of the line, unless Spark reads the same records and values.
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
_BYTE_ORDER_MARK = "\ufeff"
# Spark decompresses files with these names, pyarrow does not.
_NOT_DECOMPRESSED = (".deflate", ".lz4", ".snappy", ".zstd")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class _ReadDifferently(ValueError):
    """Spark would read the text differently from how it is counted here."""


def read_file(path: str, format: str, *, header: bool) -> FileItem:
    """Describe a text file and count its records.

    A file with the extension .gz, .bz2 or .zst is decompressed, as Spark does.

    :raises SourceUnreadable: the file is missing, or not in this format
    """
    import pyarrow as pa

    try:
        info = stat(path)
        if not info.mtime_ns and not info.etag:
            raise OSError("its file system has neither time nor ETag: a change would go unnoticed")
        if path.endswith(_NOT_DECOMPRESSED):
            raise OSError("compressed files are .gz, .bz2 or .zst")
        with _open(path) as text:
            lines = _without_byte_order_mark(text)
            rows = _csv_records(lines, header) if format == "csv" else _json_objects(lines)
    except (OSError, pa.ArrowException, UnicodeDecodeError, csv.Error, _ReadDifferently) as error:
        raise SourceUnreadable(
            f"{locate(path)} cannot be read as {format}: {error}",
            remedy="correct the file at the source, or rename it; nothing was allocated.",
        ) from error
    return FileItem(
        path=path,
        size=info.size,
        mtime_ns=info.mtime_ns,
        etag=info.etag,
        rows=rows,
        is_text=True,
    )


def line_end(path: str) -> str:
    r"""Return the line end of the records of a CSV file: `\n` or `\r\n`."""
    with _open(path) as text:
        lines = _Lines(_without_byte_order_mark(text))
        next(_records(lines), None)
        return _end_of(lines.last) or "\n"


@contextmanager
def _open(path: str) -> Iterator[TextIO]:
    filesystem, inner = open_filesystem(path)
    with filesystem.open_input_stream(inner) as stream:
        yield io.TextIOWrapper(stream, encoding="utf-8", newline="")  # keep line ends


def _without_byte_order_mark(text: TextIO) -> Iterator[str]:
    """Return the lines without a byte order mark, as Spark reads them."""
    first = text.readline()
    if first == _BYTE_ORDER_MARK:
        raise _ReadDifferently("it has a byte order mark alone, which Spark reads as a record")
    return chain([first.removeprefix(_BYTE_ORDER_MARK)], text)


# --- CSV -----------------------------------------------------------------------------------------


class _Lines:
    """The lines of a text, for a csv reader.

    :ivar last: the line that was read last, with its line end
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
                raise _ReadDifferently("it contains U+0000, after which Spark drops quotes")
            yield line


def _records(lines: _Lines) -> Iterator[list[str]]:
    csv.field_size_limit(sys.maxsize)  # the limit is the process's, so others may have changed it
    return csv.reader(lines, strict=True)


def _csv_records(text: Iterable[str], header: bool) -> int:
    """Count the records; all must have one line end, or Spark would keep it in a value."""
    lines = _Lines(text)
    records = 0
    allowed = {"\n", "\r\n", ""}
    try:
        for record in _records(lines):
            if record:
                records += 1
            end = _end_of(lines.last)
            if end not in allowed:
                raise _ReadDifferently(f"it ends in {end!r}; all must end in \\n, or all in \\r\\n")
            allowed = {end, ""}  # the last record needs no line end
    except (csv.Error, _ReadDifferently) as error:
        raise _ReadDifferently(f"line {lines.number}: {error}") from error
    return max(records - header, 0)


def _end_of(line: str) -> str:
    """Return the line end of a line; the last line of a file may have none."""
    end = line[-2:]
    if end == "\r\n":
        return end
    return end[-1:] if end[-1:] in ("\n", "\r") else ""


# --- JSON ----------------------------------------------------------------------------------------


def _json_objects(lines: Iterable[str]) -> int:
    """Count the lines that are not blank; each must be one JSON object."""
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
            raise _ReadDifferently(f"line {number} is not one JSON object: {why}") from error
        objects += 1
    return objects


def _check_object(record: str) -> None:
    if record[0] != "{":
        raise _ReadDifferently(f"it starts with {record[:20]!r}")
    end = _scan(record)[1]
    if end != len(record):
        raise _ReadDifferently(f"{record[end : end + 20]!r} follows the object")
    if _SURROGATE.search(record):
        _check_surrogates(record)


def _check_surrogates(record: str) -> None:
    try:
        json.dumps(json.loads(record, parse_int=len), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _ReadDifferently("a string in it has half of a surrogate pair") from None


def _check_unique(members: list[tuple[str, object]]) -> None:
    # Of equal names, Spark and Python keep only the last.
    if len(dict(members)) != len(members):
        names = [name for name, _ in members]
        raise _ReadDifferently(f"it has {max(names, key=names.count)!r} twice")


# Numbers are not converted: that takes time, and Python refuses long ones.
_scan = json.JSONDecoder(object_pairs_hook=_check_unique, parse_int=len, parse_float=len).raw_decode
