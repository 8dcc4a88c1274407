"""FileSpout: files that match a pattern, Parquet, CSV or JSON lines, a batch at a time.

What it needs from its source: a file is whole when it appears under the pattern, never changes once
it has been emitted, and stays until nobody wants its txid replayed. If the source breaks that:

- a file that is not whole, or not of its format, costs nothing: SOURCE_UNREADABLE at emission
- a file that changed or is gone fails the attempt before anything of it counts, SOURCE_CHANGED, or
  SOURCE_MOVED while an opaque spout's next attempt may read another batch: files are compared
  with BatchMeta when an attempt begins to read and again when it is sealed (E6)
- a file whose name Spark cannot read, or whose text it would read otherwise than it is counted
  here, costs nothing either: SOURCE_UNREADABLE
- a record of a text file with too few or too many values fails the attempt,
  PROCESS_FUNCTION_FAILED, and so does a value that its column cannot hold as it stands,
  SCHEMA_MISMATCH; it is never NULL, and never rounded
- a file of which some row groups were emitted and that has others now: SOURCE_CHANGED at emission

A Parquet batch is verified by XOR and count, from the footers. Spark knows no row index of text, so
a batch of text is verified by count alone: COUNTED (V6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reliability.core.errors import (
    InvalidDefinition,
    NothingToEmit,
    RefreezeNotPossible,
    SourceChanged,
    SourceUnreadable,
)
from reliability.core.fold import Fold
from reliability.core.keys import covers, read_ranges, touches
from reliability.core.spout import (
    WHOLE,
    AllocatedItems,
    BatchMeta,
    Interval,
    SourceItem,
    SpoutKind,
    kind_of,
)
from reliability.spouts import parquet, text
from reliability.spouts.file_frame import file_frame
from reliability.spouts.file_item import FileItem, ordinals
from reliability.spouts.filesystem import find_files, find_spelled, stat
from reliability.spouts.limits import Limits, cut_files
from reliability.spouts.names import check_name, is_utf8, locate, spellings
from reliability.spouts.patterns import check_pattern, for_interval, is_timed
from reliability.spouts.tuple_ids import fold_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("parquet", "csv", "jsonl")
_FACTS = ("size", "mtime_ns", "etag", "rows", "footer_digest")


@dataclass(frozen=True)
class FileSpout:
    """Files that match a pattern; `{data_interval_start:%Y-%m}` in it makes the spout timed.

    A file that exceeds the limit of rows or bytes is cut between its Parquet row groups; a row
    group that does, and a text file, is a batch of its own.

    :param pattern: a glob, in which `{data_interval_start:…}` and `{data_interval_end:…}` stand
        for the run's interval in UTC; a path, relative to RELIABILITY_HOME or absolute, or a URI
        that pyarrow or fsspec, and Spark, can read
    :param max_files_per_batch: a txid reads at most so many files
    :param allow_empty: an interval without files is normal, not an error
    :param format: `parquet`, `csv` or `jsonl`
    :param schema: Spark's DDL, `id bigint, day date`; CSV and JSON lines need it, and an opaque
        spout, whose batch may be empty; Parquet files are then held to it
    :param header: the first record of each CSV file names the columns; they must be the schema's
    :param max_rows_per_batch: a txid reads at most so many rows
    :param max_bytes_per_batch: a txid reads at most so many bytes, as they are stored
    :param opaque: a new attempt of a txid may see other files, until it commits
    :param ready_file: a glob like `pattern`; while nothing matches it, nothing is emitted or begun
    """

    pattern: str
    max_files_per_batch: int = 1
    allow_empty: bool = False
    format: str = "parquet"
    schema: str = ""
    header: bool = False
    max_rows_per_batch: int | None = None
    max_bytes_per_batch: int | None = None
    opaque: bool = False
    ready_file: str = ""

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InvalidDefinition(f"FileSpout: format {self.format!r} is none of {FORMATS}")
        if self.header and self.format != "csv":
            raise InvalidDefinition("FileSpout: only CSV has a header")
        if not self.schema and (self.opaque or self.format != "parquet"):
            raise InvalidDefinition(
                f"FileSpout: {'an opaque spout' if self.opaque else self.format} needs a schema",
                remedy='give it as Spark reads it: schema="id bigint, day date".',
            )
        check_pattern("FileSpout: pattern", self.pattern)
        check_pattern("FileSpout: ready_file", self.ready_file)
        if is_timed(self.ready_file) and not self.timed:
            raise InvalidDefinition(
                f"FileSpout: ready_file {self.ready_file!r} asks for an interval, and the pattern "
                "has none: it would never be there"
            )
        _ = self.limits  # checks itself

    @property
    def limits(self) -> Limits:
        return Limits(
            files=self.max_files_per_batch,
            rows=self.max_rows_per_batch,
            bytes=self.max_bytes_per_batch,
        )

    @property
    def kind(self) -> SpoutKind:
        return kind_of(self.opaque)

    @property
    def timed(self) -> bool:
        return is_timed(self.pattern)

    def is_ready(self, txid: int, interval: Interval | None) -> bool:
        """Say whether the ready file is there."""
        return not self.ready_file or bool(find_files(for_interval(self.ready_file, interval)))

    def plan(self, interval: Interval | None, taken: AllocatedItems) -> list[SourceItem]:
        """List what no txid has of the matching files, by path, with the rows that each holds.

        Files that a txid has are not even opened.
        """
        pattern = for_interval(self.pattern, interval)
        found = find_spelled(pattern)
        if not found and not self.allow_empty:
            raise NothingToEmit(f"no file matches {locate(pattern)}")
        names = spellings(found)
        known = taken.which([name for own in names.values() for name in own if is_utf8(name)])
        new = {path: own for path, own in names.items() if known.isdisjoint(own)}
        for path in new:
            check_name(path)
        return [item for path, own in new.items() for item in self._new(path, own, taken)]

    def _new(self, path: str, names: Sequence[str], taken: AllocatedItems) -> list[FileItem]:
        if self.format != "parquet":
            return [text.read_file(path, self.format, header=self.header)]
        whole, groups = parquet.read_with_groups(path)
        # Once a file was emitted in pieces, its rest comes in pieces, whatever the limits are now.
        had = [part for name in names for part in taken.keys(name).values()]
        parts = [part for part in had if part != WHOLE]
        if parts and len(groups) < 2:
            raise SourceChanged(f"{path} was emitted in pieces, and has only one now")
        if len(groups) < 2 or (not parts and self.limits.hold([whole])):
            return [whole]
        return _without(groups, [r for part in parts for r in read_ranges(part)])

    def cut(self, items: Sequence[SourceItem]) -> list[tuple[SourceItem, ...]]:
        """Fill batches up to the limits, in the order of the paths."""
        files = [item for item in items if isinstance(item, FileItem)]
        return list(cut_files(files, self.limits))

    def count(self, items: Sequence[SourceItem]) -> Fold:
        """Fold the tuple ids of a batch from the footers' row counts; text has a count alone."""
        files = [item for item in items if isinstance(item, FileItem)]
        if any(item.is_counted for item in files):
            return Fold(0, sum(item.rows for item in files))
        place = ordinals(files)
        return Fold.of(fold_rows(place[i.path], i.rows, first=i.first_row) for i in files)

    def verify(self, meta: BatchMeta) -> None:
        """Raise SourceChanged if a file is gone or is not what it was."""
        for item in meta.items:
            assert isinstance(item, FileItem)
            try:
                found = _look_again(item)
            except (SourceUnreadable, OSError) as error:
                raise SourceChanged(f"{item.path} was emitted and is now unreadable") from error
            if found != item:
                raise SourceChanged(f"{item.path} changed: {_difference(item, found)}")

    def refresh(self, meta: BatchMeta) -> list[SourceItem]:
        """Describe the files of a batch as they are now; one that is gone is left out."""
        files = [item for item in meta.items if isinstance(item, FileItem)]
        for item in files:
            if not item.is_whole:
                raise RefreezeNotPossible(f"{item.path} is cut into pieces that several txids read")
        there = [path for path in dict.fromkeys(item.path for item in files) if _is_there(path)]
        return [self._describe(path) for path in there]

    def frame(self, spark: SparkSession, meta: BatchMeta) -> DataFrame:
        """Read the files; a record or a value that does not fit the schema fails the job."""
        return file_frame(spark, self, meta)

    def _describe(self, path: str) -> FileItem:
        if self.format == "parquet":
            return parquet.read_file(path)
        return text.read_file(path, self.format, header=self.header)


def _is_there(path: str) -> bool:
    try:
        stat(path)
    except FileNotFoundError:
        return False
    return True


def _without(groups: Sequence[FileItem], taken: Sequence[tuple[int, int]]) -> list[FileItem]:
    """Return the row groups that no txid has."""
    left = []
    for group in groups:
        rows = (group.first_row, group.first_row + group.rows)
        if not touches(taken, *rows):
            left.append(group)
        elif not covers(taken, *rows):
            raise SourceChanged(f"{group.path} was emitted in part, and has other row groups now")
    return left


def _look_again(item: FileItem) -> FileItem:
    if item.is_text:
        seen = stat(item.path)
        return replace(item, size=seen.size, mtime_ns=seen.mtime_ns, etag=seen.etag)
    found = parquet.read_file(item.path)
    if item.is_whole:
        return found
    # The same footer has the same row groups.
    return replace(
        item,
        size=found.size,
        mtime_ns=found.mtime_ns,
        etag=found.etag,
        footer_digest=found.footer_digest,
    )


def _difference(item: FileItem, found: FileItem) -> str:
    return ", ".join(
        f"{name} {getattr(item, name)} is now {getattr(found, name)}"
        for name in _FACTS
        if getattr(item, name) != getattr(found, name)
    )
