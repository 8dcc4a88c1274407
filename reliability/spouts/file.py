"""FileSpout: batches of files that match a pattern, in Parquet, CSV or JSON lines.

A file must be complete when it appears under the pattern, must not change once it is emitted, and
must stay until nobody wants to replay its txid. If the source breaks these rules:

- A file that is incomplete or not of its format raises SOURCE_UNREADABLE at emission, and nothing
  is allocated. The same goes for a file whose name Spark cannot read, and for text that Spark
  would read differently from how it is counted here.
- A Parquet file that has been incomplete for a while, or that Spark cannot read because of its
  columns, raises FILE_REFUSED at emission: no retry can help.
- A file that changed or is gone fails the attempt before any of it counts: SOURCE_CHANGED, or
  SOURCE_MOVED if an opaque spout's next attempt may read another batch. Files are compared with
  BatchMeta when an attempt begins to read and again when it is sealed (E6).
- A text record with too few or too many values fails the attempt: SCHEMA_MISMATCH. So does a value
  that does not fit its column exactly. A value never becomes NULL and is never rounded. With
  `malformed="quarantine"`, such records go into the quarantine instead. At emission, text is then
  refused only if too many quotes are never closed, or if its encoding cannot pass over bytes that
  are not valid.
- A file of which some row groups were emitted, and that has other row groups now, raises
  SOURCE_CHANGED at emission.

A batch is verified by XOR and count: of Parquet from the footers, of text by the numbers of its
records. Text with `counted=True` is read by Spark's own readers, which have no numbers, and is
verified by its count alone: COUNTED (V6).
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reliability.core.errors import (
    FileRefused,
    InvalidDefinition,
    NothingToEmit,
    RefreezeNotPossible,
    ReliabilityError,
    SourceChanged,
    SourceUnreadable,
)
from reliability.core.fold import Fold, reserved
from reliability.core.keys import covers, read_ranges, touches
from reliability.core.lineage import Dataset
from reliability.core.set_aside import FAIL, QUARANTINE, check_malformed, check_told
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
from reliability.spouts.datasets import datasets_of_files
from reliability.spouts.ddl import read_ddl
from reliability.spouts.drift import REFUSE, check_batch, check_files, check_policy, drifted
from reliability.spouts.file_frame import file_frame
from reliability.spouts.file_item import FileItem, ordinals
from reliability.spouts.file_names import check_name, is_utf8, locate, names_of
from reliability.spouts.filesystem import find_files, stat
from reliability.spouts.limits import Limits, cut_files
from reliability.spouts.patterns import check_pattern, for_interval, is_timed
from reliability.spouts.records import UTF_8, TextFormat
from reliability.spouts.table_formats import check_no_table
from reliability.spouts.tuple_ids import fold_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("parquet", "csv", "jsonl")
_COMPARED = ("size", "mtime_ns", "etag", "rows", "footer_digest")


@dataclass(frozen=True)
class FileSpout:
    """Files that match a pattern; `{data_interval_start:%Y-%m}` in it makes the spout timed.

    A Parquet file that exceeds the limit of rows or bytes is cut between its row groups. A text
    file or a row group that exceeds it is a batch of its own.

    :param pattern: a glob, in which `{data_interval_start:…}` and `{data_interval_end:…}` stand
        for the run's interval in UTC. It is a path, absolute or relative to RELIABILITY_HOME, or a
        URI that both Spark and pyarrow or fsspec can read
    :param max_files_per_batch: the most files that a txid reads
    :param allow_empty: an interval without files is not an error
    :param format: `parquet`, `csv` or `jsonl`
    :param schema: Spark's DDL, `id bigint, day date`. CSV and JSON lines need it, and so does an
        opaque spout, whose batch may be empty. Parquet files must match it if it is given
    :param header: the first record of each CSV file names the columns, which must be the schema's
    :param encoding: of text, as Python names it
    :param malformed: what happens to a text record that cannot be read, or does not fit the schema:
        `fail` the emission or the attempt, or `quarantine` the record
    :param mask_malformed: the quarantine does not show what stands in a malformed record
    :param counted: verify text by its count alone, and let Spark's own readers read it: they split
        a large JSON file, and need no Python
    :param max_rows_per_batch: the most rows that a txid reads
    :param max_bytes_per_batch: the most stored bytes that a txid reads
    :param opaque: a new attempt of a txid may read other files, until the txid commits
    :param ready_file: a glob like `pattern`; nothing is emitted or begun until a file matches it
    :param drift: what becomes of a Parquet file whose columns are not those of `schema`: `refuse`,
        `ignore` or `widen`, as docs/spouts.md has it
    """

    pattern: str
    max_files_per_batch: int = 1
    allow_empty: bool = False
    format: str = "parquet"
    schema: str = ""
    header: bool = False
    encoding: str = UTF_8
    malformed: str = FAIL
    mask_malformed: bool = False
    counted: bool = False
    max_rows_per_batch: int | None = None
    max_bytes_per_batch: int | None = None
    opaque: bool = False
    ready_file: str = ""
    drift: str = REFUSE

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InvalidDefinition(f"FileSpout: format {self.format!r} is not one of {FORMATS}")
        if self.header and self.format != "csv":
            raise InvalidDefinition("FileSpout: only CSV has a header")
        self._check_text()
        if not self.schema and (self.opaque or self.format != "parquet"):
            raise InvalidDefinition(
                f"FileSpout: {'an opaque spout' if self.opaque else self.format} needs a schema",
                remedy='write it as Spark\'s DDL: schema="id bigint, day date".',
            )
        self._check_names()
        check_policy(self.drift, self.schema, self.format)
        check_pattern("FileSpout: pattern", self.pattern)
        check_pattern("FileSpout: ready_file", self.ready_file)
        if is_timed(self.ready_file) and not self.timed:
            raise InvalidDefinition(
                f"FileSpout: ready_file {self.ready_file!r} has an interval, but the pattern has "
                "none: the file would never exist"
            )
        _ = self.limits  # Limits checks itself

    def _check_names(self) -> None:
        names = [name for name, _ in read_ddl(self.schema) or ()]
        if taken := reserved(names):
            raise InvalidDefinition(f"FileSpout: the library adds the columns {taken} itself")
        if self.malformed == QUARANTINE:
            check_told(names)

    def _check_text(self) -> None:
        check_malformed(self.malformed, "FileSpout")
        try:
            "".encode(self.encoding)  # not a codec that is no encoding of text, such as rot13
            is_utf_8 = codecs.lookup(self.encoding).name == UTF_8
        except LookupError:
            raise InvalidDefinition(
                f"FileSpout: Python knows no encoding {self.encoding!r}"
            ) from None
        special = {
            "encoding": not is_utf_8,
            "malformed": self.malformed != FAIL,
            "mask_malformed": self.mask_malformed,
        }
        given = [name for name, is_special in special.items() if is_special]
        if self.format == "parquet" and (given or self.counted):
            raise InvalidDefinition(f"FileSpout: {[*given, 'counted'][0]} is for text, not Parquet")
        if self.counted and given:
            raise InvalidDefinition(
                f"FileSpout: text that is only counted is read by Spark, without {given[0]}",
                remedy="remove counted=True.",
            )

    @property
    def text(self) -> TextFormat:
        """Return how its text is read."""
        return TextFormat(
            format=self.format,
            header=self.header,
            encoding=self.encoding,
            lenient=self.malformed == QUARANTINE,
        )

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
        """Say whether the ready file exists."""
        return not self.ready_file or bool(find_files(for_interval(self.ready_file, interval)))

    def plan(self, interval: Interval | None, allocated: AllocatedItems) -> list[SourceItem]:
        """List, by path, the matching files and parts of files that no txid has.

        Files that a txid has as a whole are not opened.
        """
        pattern = for_interval(self.pattern, interval)
        found = find_files(pattern)
        if not found and not self.allow_empty:
            raise NothingToEmit(f"no file matches {locate(pattern)}")
        files = {path: names_of(path) for path in found}
        known = allocated.which([n for names in files.values() for n in names if is_utf8(n)])
        new = {path: names for path, names in files.items() if known.isdisjoint(names)}
        for path in new:
            check_name(path)
        check_no_table(new)
        items = [item for path, names in new.items() for item in self._new(path, names, allocated)]
        self._check_columns(items)
        return [*items]

    def _new(self, path: str, names: Sequence[str], allocated: AllocatedItems) -> list[FileItem]:
        if self.format != "parquet":
            return [self._describe(path)]
        whole, groups = parquet.read_with_groups(path)
        # If some of a file was emitted in pieces, so is the rest, whatever the limits are now.
        known = [part for name in names for part in allocated.keys(name).values()]
        parts = [part for part in known if part != WHOLE]
        if parts and len(groups) < 2:
            raise SourceChanged(f"{path} was emitted in pieces, and has only one now")
        if len(groups) < 2 or (not parts and self.limits.allow([whole])):
            return [whole]
        return _new_groups(groups, [rows for part in parts for rows in read_ranges(part)])

    def cut(self, items: Sequence[SourceItem]) -> list[tuple[SourceItem, ...]]:
        """Fill batches up to the limits, in the order of the paths.

        :raises FileRefused: Parquet files of a batch do not have the same columns
        """
        batches = list(cut_files(_files(items), self.limits))
        for batch in batches:
            self._check_together(_files(batch))
        return [*batches]

    def count(self, items: Sequence[SourceItem]) -> Fold:
        """Fold the tuple ids of a batch from its files' numbers of rows.

        Text with `counted=True` has only a count.
        """
        files = _files(items)
        if any(item.is_counted for item in files):
            return Fold(0, sum(item.rows for item in files))
        ordinal = ordinals(files)
        return Fold.of(fold_rows(ordinal[i.path], i.rows, first=i.first_row) for i in files)

    def verify(self, meta: BatchMeta) -> None:
        """Raise SourceChanged if a file is gone or has changed."""
        for item in meta.items:
            assert isinstance(item, FileItem)
            try:
                found = _current(item)
            except (SourceUnreadable, FileRefused, OSError) as error:
                raise SourceChanged(f"{item.path} was emitted and is now unreadable") from error
            if found != item:
                raise SourceChanged(f"{item.path} changed: {_difference(item, found)}")

    def refresh(self, meta: BatchMeta) -> list[SourceItem]:
        """Describe the files of a batch that exist, as they are now."""
        files = _files(meta.items)
        for item in files:
            if not item.is_whole:
                raise RefreezeNotPossible(f"{item.path} is cut into pieces that several txids read")
        found = [self._describe(path) for path in ordinals(files) if _exists(path)]
        self._check_columns(found)
        self._check_together(found)
        return [*found]

    def changed_columns(self, items: Sequence[SourceItem], earlier: BatchMeta) -> list[str]:
        """Say which Parquet files have other columns than the last file of a committed batch.

        Spark reads each batch by its own columns, so this is not an error.
        """
        before = [item for item in _files(earlier.items) if not item.is_text]
        if self.format != "parquet" or not before:
            return []
        try:
            last = parquet.read_file(before[-1].path)
        except ReliabilityError:
            return []  # it was archived
        new = {item.path: item for item in _files(items)}.values()
        return [said for item in new if (said := parquet.changed_columns(item, last))]

    def drifted_columns(self, items: Sequence[SourceItem]) -> list[str] | None:
        """Say which Parquet files differ from the schema; None if no policy lets them differ."""
        if self.drift == REFUSE:
            return None
        return drifted(_files(items), self.schema, self.drift)

    def datasets(self, items: Sequence[SourceItem]) -> Sequence[Dataset]:
        """Return the folders of the items' files."""
        return datasets_of_files(_files(items))

    def frame(self, spark: SparkSession, meta: BatchMeta) -> DataFrame:
        """Read the files; a record or a value that does not fit the schema fails the job.

        With `malformed="quarantine"` it is quarantined instead.
        """
        return file_frame(spark, self, meta)

    def _check_columns(self, files: Sequence[FileItem]) -> None:
        if self.schema and self.format == "parquet":
            check_files(files, self.schema, self.drift)

    def _check_together(self, files: Sequence[FileItem]) -> None:
        if self.drift == REFUSE:
            parquet.check_one_schema(files)
        else:
            check_batch(files, self.schema, self.drift)

    def _describe(self, path: str) -> FileItem:
        if self.format == "parquet":
            return parquet.read_file(path)
        return text.read_file(path, self.text, is_numbered=not self.counted)


def _files(items: Sequence[SourceItem]) -> list[FileItem]:
    return [item for item in items if isinstance(item, FileItem)]


def _exists(path: str) -> bool:
    try:
        stat(path)
    except FileNotFoundError:
        return False
    return True


def _new_groups(groups: Sequence[FileItem], known: Sequence[tuple[int, int]]) -> list[FileItem]:
    """Return the row groups that no txid has.

    :param known: the rows that txids have, [first, end)
    """
    new = []
    for group in groups:
        rows = (group.first_row, group.first_row + group.rows)
        if not touches(known, *rows):
            new.append(group)
        elif not covers(known, *rows):
            raise SourceChanged(f"{group.path} was emitted in part, and has other row groups now")
    return new


def _current(item: FileItem) -> FileItem:
    """Return the item as it is at the source now."""
    if item.is_text:
        info = stat(item.path)
        return replace(item, size=info.size, mtime_ns=info.mtime_ns, etag=info.etag)
    found = parquet.read_file(item.path)
    if item.is_whole:
        return found
    # If the footer is the same, so are the row groups.
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
        for name in _COMPARED
        if getattr(item, name) != getattr(found, name)
    )
