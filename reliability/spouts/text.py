"""CSV and JSON lines at the source: this module counts their records, without Spark (V6).

Unless malformed records go into the quarantine, a file with one is refused here, with the number of
the line, and nothing is allocated.

Text that is only counted is read by Spark's own readers. Then the count proves nothing if Spark
reads other records. So such a file is refused, too, if its bytes mean something else to Spark.
"""

from __future__ import annotations

from collections.abc import Iterable

from reliability.core.errors import SourceUnreadable
from reliability.spouts.file_item import FileItem
from reliability.spouts.file_names import locate
from reliability.spouts.filesystem import stat
from reliability.spouts.records import (
    BYTE_ORDER_MARK,
    UTF_8,
    TextFormat,
    TooManyQuotes,
    csv_records,
    open_text,
    without_byte_order_mark,
)

# Spark decompresses files with these names, pyarrow does not.
_NOT_DECOMPRESSED = (".deflate", ".lz4", ".snappy", ".zstd")


class _Refused(ValueError):
    """The text has a record that cannot be read, or that Spark would read differently."""


def read_file(path: str, text: TextFormat, *, is_numbered: bool) -> FileItem:
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
        with open_text(path, text.encoding, lenient=text.lenient) as lines:
            rows = _count(lines if is_numbered else _as_spark_reads(lines, text), text)
    except (OSError, pa.ArrowException, UnicodeError, _Refused, TooManyQuotes) as error:
        raise SourceUnreadable(
            f"{locate(path)} cannot be read as {text.format}: {error}",
            remedy="correct the file at the source, or rename it; nothing was allocated.",
        ) from error
    return FileItem(
        path=path,
        size=info.size,
        mtime_ns=info.mtime_ns,
        etag=info.etag,
        rows=rows,
        is_text=True,
        is_numbered=is_numbered,
    )


def line_end(path: str) -> str:
    r"""Return the line end of the records of a CSV file: `\n` or `\r\n`."""
    with open_text(path, UTF_8) as lines:
        for _, _, record, _ in csv_records(lines):
            return _end_of(record) or "\n"
    return "\n"


def _count(lines: Iterable[str], text: TextFormat) -> int:
    """Count the records.

    Unless malformed ones are quarantined, all records of CSV must have one line end.
    """
    if text.format == "csv" and not text.lenient:
        return _count_strictly(lines, text)
    count = 0
    for line, _, _, why in text.records(lines, checked=not text.lenient):
        if why is not None and not text.lenient:
            raise _Refused(f"line {line}: {why}")
        count += 1
    return count


def _count_strictly(lines: Iterable[str], text: TextFormat) -> int:
    count = 0
    allowed = {"\n", "\r\n", ""}
    for line, fields, record, why in csv_records(without_byte_order_mark(lines)):
        if why is not None:
            raise _Refused(f"line {line}: {why}")
        end = _end_of(record)
        if end not in allowed:
            raise _Refused(
                f"line {line}: it ends in {end!r}; all must end in \\n, or all in \\r\\n"
            )
        allowed = {end, ""}  # the last record needs no line end
        count += bool(fields)
    return max(count - text.header, 0)


def _as_spark_reads(lines: Iterable[str], text: TextFormat) -> Iterable[str]:
    """Refuse what Spark's own readers take for something else."""
    for number, line in enumerate(lines, start=1):
        if number == 1 and line == BYTE_ORDER_MARK:
            raise _Refused("it has a byte order mark alone, which Spark reads as a record")
        if text.format == "csv" and "\0" in line:
            raise _Refused(f"line {number}: it contains U+0000, after which Spark drops quotes")
        yield line


def _end_of(line: str) -> str:
    """Return the line end of a line; the last line of a file may have none."""
    end = line[-2:]
    if end == "\r\n":
        return end
    return end[-1:] if end[-1:] in ("\n", "\r") else ""
