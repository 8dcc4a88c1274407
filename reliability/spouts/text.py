"""CSV and JSON lines, whose records are numbered; at the source they are counted, without Spark.

Unless malformed records go into the quarantine, a file with one is refused here, with the number of
the line, and nothing is allocated.

Text that is only counted is read by Spark's own readers (V6). Then the count proves nothing if
Spark reads other records. So such a file is refused too if its bytes mean something else to Spark.
"""

from __future__ import annotations

import codecs
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from reliability.core.errors import InvalidDefinition, SourceUnreadable
from reliability.core.set_aside import FAIL, QUARANTINE, check_malformed, check_told
from reliability.deployment.lazy import pa
from reliability.spouts.ddl import read_ddl
from reliability.spouts.file_format import FileFormat
from reliability.spouts.file_item import FileItem
from reliability.spouts.file_names import locate
from reliability.spouts.filesystem import stat
from reliability.spouts.records import (
    BYTE_ORDER_MARK,
    UTF_8,
    NotOneObject,
    Record,
    TooManyQuotes,
    check_object,
    csv_records,
    json_records,
    open_text,
    refuse_surrogates,
    without_byte_order_mark,
)

_DECOMPRESSED = (".gz", ".bz2", ".zst")
# Spark decompresses files with these names, pyarrow does not.
_NOT_DECOMPRESSED = (".deflate", ".lz4", ".snappy", ".zstd")


class _Refused(ValueError):
    """The text has a record that cannot be read, or that Spark would read differently."""


@dataclass(frozen=True, kw_only=True)
class TextFormat(FileFormat):
    """Text, whose records are numbered and read by Python unless they are only counted.

    :param encoding: as Python names it
    :param malformed: what happens to a record that cannot be read, or does not fit the schema:
        `fail` the emission or the attempt, or `quarantine` the record
    :param mask_malformed: the quarantine does not show what stands in a malformed record
    :param counted: verify the text by its count alone, and let Spark's own readers read it: they
        split a large JSON file, and need no Python
    """

    name: ClassVar[str]
    encoding: str = UTF_8
    malformed: str = FAIL
    mask_malformed: bool = False
    counted: bool = False

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_malformed(self.malformed, name)
        try:
            "".encode(self.encoding)  # not a codec that is no encoding of text, such as rot13
            is_utf_8 = codecs.lookup(self.encoding).name == UTF_8
        except LookupError:
            raise InvalidDefinition(f"{name}: Python knows no encoding {self.encoding!r}") from None
        if self.counted and (self.lenient or self.mask_malformed or not is_utf_8):
            raise InvalidDefinition(
                f"{name}: text that is only counted is read by Spark: in UTF-8, and a malformed "
                "record fails the attempt",
                remedy="remove counted=True.",
            )

    @property
    def lenient(self) -> bool:
        """Say whether a record that cannot be read has a reason; otherwise it is an error."""
        return self.malformed == QUARANTINE

    @property
    def needs_schema(self) -> str:
        return type(self).__name__

    def check_schema(self, schema: str) -> None:
        if self.lenient:
            check_told(name for name, _ in read_ddl(schema) or ())

    def read(self, path: str, schema: str = "") -> tuple[FileItem, None]:
        """Describe a text file and count its records.

        A file with the extension .gz, .bz2 or .zst is decompressed, as Spark does.
        """
        try:
            info = stat(path)
            if not info.mtime_ns and not info.etag:
                raise OSError(
                    "its file system has neither time nor ETag: a change would go unnoticed"
                )
            if path.endswith(_NOT_DECOMPRESSED):
                raise OSError("compressed files are .gz, .bz2 or .zst")
            if path.endswith(_DECOMPRESSED) and not info.size:
                raise OSError("it is truncated: a compressed file without rows has bytes, too")
            with open_text(path, self.encoding, lenient=self.lenient) as lines:
                rows = self._count(_as_spark_reads(lines, self) if self.counted else lines)
        except (OSError, pa.ArrowException, UnicodeError, _Refused, TooManyQuotes) as error:
            raise SourceUnreadable(
                f"{locate(path)} cannot be read as {self.name}: {error}",
                remedy="correct the file at the source, or rename it; nothing was allocated.",
            ) from error
        is_numbered = not self.counted
        known = info._asdict()
        return FileItem(path=path, **known, rows=rows, is_text=True, is_numbered=is_numbered), None

    def records(self, lines: Iterable[str]) -> Iterator[Record]:
        """Yield line, fields, text and, if it cannot be read, why, of each but the header."""
        records = self._records(without_byte_order_mark(lines))
        return map(refuse_surrogates, records) if self.lenient else records

    @abstractmethod
    def _records(self, lines: Iterable[str]) -> Iterator[Record]:
        """Yield the records that are quarantined, too."""

    def _count(self, lines: Iterable[str]) -> int:
        """Count the records.

        Unless malformed ones are quarantined, all records of CSV must have one line end.
        """
        if self.lenient:
            return sum(1 for _ in self.records(lines))
        return self._count_strictly(without_byte_order_mark(lines))

    @abstractmethod
    def _count_strictly(self, lines: Iterable[str]) -> int:
        """Count the records; raise _Refused for the first that cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Csv(TextFormat):
    """CSV by RFC 4180.

    :param header: the first record of each file names the columns, which must be the schema's
    """

    name: ClassVar[str] = "csv"
    header: bool = False

    def check_schema(self, schema: str) -> None:
        super().check_schema(schema)
        nested = [name for name, type_ in read_ddl(schema) or () if "<" in type_]
        if nested:
            raise InvalidDefinition(
                f"Csv: a field is one value, and columns {nested} of the schema have several",
                remedy="read a string, and convert it in the process function.",
            )

    def _records(self, lines: Iterable[str]) -> Iterator[Record]:
        records = (record for record in csv_records(lines) if record[1] or record[3])
        if self.header:
            next(records, None)
        return records

    def _count_strictly(self, lines: Iterable[str]) -> int:
        count = 0
        allowed = {"\n", "\r\n", ""}
        for line, fields, record, why in csv_records(lines):
            if why is not None:
                raise _Refused(f"line {line}: {why}")
            end = _end_of(record)
            if end not in allowed:
                raise _Refused(
                    f"line {line}: it ends in {end!r}; all must end in \\n, or all in \\r\\n"
                )
            allowed = {end, ""}  # the last record needs no line end
            count += bool(fields)
        return max(count - self.header, 0)


@dataclass(frozen=True, kw_only=True)
class JsonLines(TextFormat):
    """JSON lines: each line that is not blank is one object."""

    name: ClassVar[str] = "jsonl"

    def _records(self, lines: Iterable[str]) -> Iterator[Record]:
        return json_records(lines)

    def _count_strictly(self, lines: Iterable[str]) -> int:
        count = 0
        for line, _, record, _ in json_records(lines):
            try:
                check_object(record)
            except NotOneObject as error:
                raise _Refused(f"line {line}: {error}") from error
            count += 1
        return count


def line_end(path: str) -> str:
    with open_text(path, UTF_8) as lines:
        for _, _, record, _ in csv_records(lines):
            return _end_of(record) or "\n"
    return "\n"


def _as_spark_reads(lines: Iterable[str], text: TextFormat) -> Iterable[str]:
    """Refuse what Spark's own readers take for something else."""
    for number, line in enumerate(lines, start=1):
        if number == 1 and line == BYTE_ORDER_MARK:
            raise _Refused("it has a byte order mark alone, which Spark reads as a record")
        if isinstance(text, Csv) and "\0" in line:
            raise _Refused(f"line {number}: it contains U+0000, after which Spark drops quotes")
        yield line


def _end_of(line: str) -> str:
    """Return the line end of a line; the last line of a file may have none."""
    return next((end for end in ("\r\n", "\n", "\r") if line.endswith(end)), "")
