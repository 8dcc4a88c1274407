"""FileSpout: batches of files that match a pattern, in Parquet, CSV or JSON lines.

A file must be complete when it appears under the pattern, must not change once it is emitted, and
must stay until nobody wants to replay its txid. docs/spouts.md says what happens otherwise. What
can be seen at emission is refused there, and nothing is allocated. Files are compared with
BatchMeta when an attempt begins to read and again when it is sealed (E6).

A batch is verified by XOR and count: of Parquet from the footers, of text by the numbers of its
records. Text with `counted=True` is read by Spark's own readers, which have no numbers, and is
verified by its count alone: COUNTED (V6).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reliability.core.errors import (
    FileRefused,
    InvalidDefinition,
    NothingToEmit,
    RefreezeNotPossible,
    SourceChanged,
    SourceUnreadable,
)
from reliability.core.fold import Fold, reserved
from reliability.core.keys import covers, read_ranges, touches
from reliability.core.lineage import Dataset
from reliability.core.periods import UTC, zone_called
from reliability.core.spout import (
    WHOLE,
    AllocatedItems,
    BatchMeta,
    Interval,
    SourceItem,
    Spout,
    only,
)
from reliability.deployment.lazy import F, fs
from reliability.spark.frames.accounting_columns import METADATA, with_tuple_ids
from reliability.spark.frames.jvm import hide
from reliability.spouts.changed_files import changes_of
from reliability.spouts.ddl import read_ddl
from reliability.spouts.file_format import FileFormat
from reliability.spouts.file_item import FileItem, datasets_of_files, joined, ordinals
from reliability.spouts.file_names import check_name, identity_of_file, is_utf8, locate, names_of
from reliability.spouts.filesystem import find_files, look, of_each
from reliability.spouts.parquet import Parquet
from reliability.spouts.parquet_frame import parquet_frame, schema_of_any_file
from reliability.spouts.patterns import check_pattern, for_interval, is_timed
from reliability.spouts.spark_files import has_metadata
from reliability.spouts.table_formats import check_no_table
from reliability.spouts.text import Csv, JsonLines, TextFormat
from reliability.spouts.text_frame import text_frame
from reliability.spouts.tuple_ids import fold_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TEXT = re.compile(r"\.(csv|jsonl|ndjson)(?:\.(?:gz|bz2|zst))?\Z")
# what Spark tells of the file of a row
_METADATA = (
    "struct<file_path: string, file_name: string, file_size: bigint, file_block_start: bigint, "
    "file_block_length: bigint, file_modification_time: timestamp, row_index: bigint>"
)


@dataclass(frozen=True)
class FileSpout(Spout):
    """Files that match a pattern; `{data_interval_start:%Y-%m}` in it makes the spout timed.

    A Parquet file that exceeds the limit of rows or bytes is cut between its row groups. A text
    file or a row group that exceeds it is a batch of its own.

    :param pattern: a glob, in which `{data_interval_start:…}` and `{data_interval_end:…}` stand
        for the run's interval, in UTC or in `time_zone`. It is a path, absolute or relative to
        RELIABILITY_HOME, or a URI that both Spark and pyarrow or fsspec can read
    :param max_files_per_batch: the most files that a txid reads
    :param allow_empty: an interval without files is not an error
    :param format: `Parquet()`, `Csv()` or `JsonLines()` with options; without it, the ending of the
        pattern decides: `.csv`, `.jsonl` and `.ndjson`, compressed or not, are text
    :param schema: Spark's DDL, `id bigint, day date`. CSV and JSON lines need it, and so does an
        opaque spout, whose batch may be empty. Parquet files must match it if it is given
    :param max_rows_per_batch: the most rows that a txid reads
    :param max_bytes_per_batch: the most stored bytes that a txid reads
    :param opaque: a new attempt of a txid may read other files, until the txid commits
    :param ready_file: a glob like `pattern`; nothing is emitted or begun until a file matches it
    :param time_zone: in which the dates of patterns are written, such as `Europe/Berlin` or `UTC`;
        a schedule that is not in UTC needs it
    """

    pattern: str
    max_files_per_batch: int = 1
    allow_empty: bool = False
    format: FileFormat | None = None
    schema: str = ""
    max_rows_per_batch: int | None = None
    max_bytes_per_batch: int | None = None
    opaque: bool = False
    ready_file: str = ""
    time_zone: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.file_format, FileFormat):
            raise InvalidDefinition(
                f"FileSpout: format {self.format!r} is not Parquet(), Csv() or JsonLines()"
            )
        needs_schema = self.file_format.needs_schema or ("an opaque spout" if self.opaque else "")
        if needs_schema and not self.schema:
            raise InvalidDefinition(
                f"FileSpout: {needs_schema} needs a schema",
                remedy='write it as Spark\'s DDL: schema="id bigint, day date".',
            )
        if taken := reserved(name for name, _ in read_ddl(self.schema) or ()):
            raise InvalidDefinition(f"FileSpout: the library adds the columns {taken} itself")
        self.file_format.check_schema(self.schema)
        check_pattern("FileSpout: pattern", self.pattern)
        check_pattern("FileSpout: ready_file", self.ready_file)
        if is_timed(self.ready_file) and not self.timed:
            raise InvalidDefinition(
                f"FileSpout: ready_file {self.ready_file!r} has an interval, but the pattern has "
                "none: the file would never exist"
            )
        if self.time_zone:
            try:
                zone_called(self.time_zone)
            except ValueError as error:
                raise InvalidDefinition(
                    f"FileSpout: {error} here",
                    remedy='write a name such as time_zone="Europe/Berlin", or "UTC".',
                ) from error
        for name in ("max_files_per_batch", "max_rows_per_batch", "max_bytes_per_batch"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise InvalidDefinition(f"a spout's {name} must be at least 1")

    @property
    def file_format(self) -> FileFormat:
        return format_of(self.pattern) if self.format is None else self.format

    @property
    def timed(self) -> bool:
        return is_timed(self.pattern)

    def is_ready(self, txid: int, interval: Interval | None) -> bool:
        return not self.ready_file or bool(find_files(self.of_interval(self.ready_file, interval)))

    def of_interval(self, pattern: str, interval: Interval | None) -> str:
        """Replace the placeholders of one of its patterns."""
        return for_interval(pattern, interval, self.time_zone or UTC)

    def plan(self, interval: Interval | None, allocated: AllocatedItems) -> list[FileItem]:
        """List, by path, the matching files and parts of files that no txid has.

        Files that a txid has as a whole are not opened.
        """
        pattern = self.of_interval(self.pattern, interval)
        paths = find_files(pattern)
        if not paths and not self.allow_empty:
            raise NothingToEmit(f"no file matches {locate(pattern)}")
        files = {path: names_of(path) for path in paths}
        known = allocated.which([n for names in files.values() for n in names if is_utf8(n)])
        new = {path: names for path, names in files.items() if known.isdisjoint(names)}
        for path in new:
            check_name(path)
        check_no_table(new)
        read = of_each(new, lambda path: self.file_format.read(path, self.schema))
        return [
            item
            for names, file in zip(new.values(), read, strict=True)
            for item in self._new(*file, names, allocated)
        ]

    def _new(
        self,
        whole: FileItem,
        pieces: Sequence[FileItem] | None,
        names: Sequence[str],
        allocated: AllocatedItems,
    ) -> list[FileItem]:
        if pieces is None:
            return [whole]
        # If some of a file was emitted in pieces, so is the rest, whatever the limits are now.
        known = [part for name in names for part in allocated.keys(name).values()]
        parts = [part for part in known if part != WHOLE]
        if parts and len(pieces) < 2:
            raise SourceChanged(f"{whole.path} was emitted in pieces, and has only one now")
        if len(pieces) < 2 or (not parts and self._allows([whole])):
            return [whole]
        new = _new_pieces(pieces, [rows for part in parts for rows in read_ranges(part)])
        if new and parts:  # what is new of a file that was written again may have counted
            before = next(filter(None, map(allocated.of_source, names)), None)
            if isinstance(before, FileItem) and before.footer_digest != whole.footer_digest:
                raise SourceChanged(
                    f"{whole.path} was emitted in part, and was written again since"
                )
        return new

    def cut(self, items: Sequence[SourceItem]) -> Sequence[tuple[SourceItem, ...]]:
        """Fill one batch after another up to the limits, in the order of the paths.

        An item that is larger than a limit and cannot be cut further is a batch of its own.
        """
        batches: list[list[FileItem]] = []
        for item in only(FileItem, items):
            if batches and self._allows([*batches[-1], item]):
                batches[-1].append(item)
            else:
                batches.append([item])
        for batch in batches:
            self.file_format.check_batch(batch, self.schema)
        return [joined(batch) for batch in batches]

    def _allows(self, items: Sequence[FileItem]) -> bool:
        limits = (
            (len({item.path for item in items}), self.max_files_per_batch),
            (sum(item.rows for item in items), self.max_rows_per_batch),
            (sum(item.bytes for item in items), self.max_bytes_per_batch),
        )
        return all(limit is None or number <= limit for number, limit in limits)

    def count(self, items: Sequence[SourceItem]) -> Fold:
        """Fold the tuple ids of a batch from its files' numbers of rows.

        Text with `counted=True` has only a count.
        """
        files = only(FileItem, items)
        if any(item.is_counted for item in files):
            return Fold(0, sum(item.rows for item in files))
        ordinal = ordinals(files)
        return Fold.of(fold_rows(ordinal[i.path], i.rows, first=i.first_row) for i in files)

    def verify(self, meta: BatchMeta) -> None:
        items = {item.path: item for item in only(FileItem, meta.items)}
        of_each(items, lambda path: _check_unchanged(items[path]))

    def refresh(self, meta: BatchMeta) -> list[FileItem]:
        """Describe the files of a batch that exist, as they are now."""
        files = only(FileItem, meta.items)
        for item in files:
            if not item.is_whole:
                raise RefreezeNotPossible(f"{item.path} is cut into pieces that several txids read")
        paths = [path for path in ordinals(files) if look(path).type == fs.FileType.File]
        items = of_each(paths, lambda path: self.file_format.read(path, self.schema)[0])
        self.file_format.check_batch(items, self.schema)
        return items

    def identity_of(self, path: str) -> str:
        return identity_of_file(path)

    def changed_columns(self, items: Sequence[SourceItem], earlier: BatchMeta) -> list[str]:
        return self.file_format.changed_columns(
            only(FileItem, items), only(FileItem, earlier.items)
        )

    def drifted_columns(self, items: Sequence[SourceItem]) -> list[str] | None:
        return self.file_format.drifted_columns(only(FileItem, items), self.schema)

    def datasets(self, items: Sequence[SourceItem]) -> Sequence[Dataset]:
        return datasets_of_files(only(FileItem, items))

    def frame(self, spark: SparkSession, meta: BatchMeta) -> DataFrame:
        """Read the files; a record or a value that does not fit the schema fails the job.

        With `malformed="quarantine"` it is quarantined instead.
        """
        if not meta.items:
            return self._empty_frame(spark)
        if isinstance(self.file_format, Parquet):
            return parquet_frame(spark, self.file_format, self.schema, meta)
        assert isinstance(self.file_format, TextFormat)
        return text_frame(spark, self.file_format, self.schema, meta)

    def _empty_frame(self, spark: SparkSession) -> DataFrame:
        """Return the frame of no files: they are excluded, were deleted, or have yet to come."""
        schema = self.schema or schema_of_any_file(spark, self.pattern)
        frame = with_tuple_ids(spark.createDataFrame([], schema), F.lit(0), F.lit(0))
        if has_metadata(frame.columns):
            return frame
        # a process function may read where each row comes from, as of any other batch
        return hide(frame.withColumn(METADATA, F.lit(None).cast(_METADATA)), [METADATA])


def format_of(pattern: str) -> FileFormat:
    """Return the format that the ending of a pattern names, with its defaults.

    >>> [type(format_of(pattern)).__name__ for pattern in ("*.csv.gz", "*.jsonl", "in/*")]
    ['Csv', 'JsonLines', 'Parquet']
    """
    ending = _TEXT.search(pattern)
    if ending is None:
        return Parquet()
    return Csv() if ending[1] == "csv" else JsonLines()


def _check_unchanged(item: FileItem) -> None:
    try:
        changes = ", ".join(changes_of(item))
    except (SourceUnreadable, FileRefused, OSError) as error:
        raise SourceChanged(f"{item.path} was emitted and is now unreadable") from error
    if changes:
        raise SourceChanged(f"{item.path} changed: {changes}")


def _new_pieces(pieces: Sequence[FileItem], known: Sequence[tuple[int, int]]) -> list[FileItem]:
    """Return the pieces of a file that no txid has.

    :param known: the rows that txids have, [first, end)
    """
    new = []
    for piece in pieces:
        rows = (piece.first_row, piece.first_row + piece.rows)
        if not touches(known, *rows):
            new.append(piece)
        elif not covers(known, *rows):
            raise SourceChanged(f"{piece.path} was emitted in part, and has other row groups now")
    return new
