"""FileSpout: a transactional spout over Parquet files, a batch at a time.

What it needs from its source: a file never changes once it has been emitted, and stays until
nobody wants its txid replayed. If the source breaks that, the attempt fails (SOURCE_CHANGED)
before anything of it counts: the files are compared with BatchMeta when an attempt begins to
read and again when it is sealed.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reliability.core.errors import (
    InvalidDefinition,
    NothingToEmit,
    SchemaMismatch,
    SourceChanged,
    SourceUnreadable,
)
from reliability.core.fold import Fold
from reliability.core.spout import BatchMeta, FileItem, Interval, SourceItem
from reliability.settings import home
from reliability.spouts.tuple_ids import fold_rows

PARQUET_MAGIC = b"PAR1"


@dataclass(frozen=True)
class FileSpout:
    """Parquet files that match a pattern; `{data_interval_start:%Y-%m}` makes it timed.

    :param pattern: a glob, in which `{data_interval_start:…}` and `{data_interval_end:…}` stand
        for the run's interval in UTC; a relative one starts at RELIABILITY_HOME
    :param max_files_per_batch: a txid reads at most so many files
    :param allow_empty: an interval without files is normal, not an error
    """

    pattern: str
    max_files_per_batch: int = 1
    allow_empty: bool = False

    def __post_init__(self) -> None:
        if self.max_files_per_batch < 1:
            raise InvalidDefinition("FileSpout: max_files_per_batch starts at 1")

    @property
    def timed(self) -> bool:
        return "{data_interval_" in self.pattern

    def plan(self, interval: Interval | None) -> list[SourceItem]:
        """List the matching files by path, each with the row count of its own footer."""
        pattern = self._pattern_of(interval)
        found = glob.glob(pattern, root_dir=home(), recursive=True)
        paths = sorted(path for path in found if locate(path).is_file())
        if not paths and not self.allow_empty:
            raise NothingToEmit(f"no file matches {locate(pattern)}")
        return [read_file_item(path) for path in paths]

    def _pattern_of(self, interval: Interval | None) -> str:
        pattern = self.pattern
        if interval is not None:
            pattern = pattern.format(
                data_interval_start=interval.start, data_interval_end=interval.end
            )
        return pattern

    def cut(self, items: Sequence[SourceItem]) -> list[tuple[SourceItem, ...]]:
        """Cut the files, in their order, into batches of max_files_per_batch."""
        step = self.max_files_per_batch
        return [tuple(items[first : first + step]) for first in range(0, len(items), step)]

    def count(self, items: Sequence[SourceItem]) -> Fold:
        """Fold the tuple ids of a batch from the footers' row counts."""
        return Fold.of(fold_rows(ordinal, item.rows) for ordinal, item in enumerate(items))

    def verify(self, meta: BatchMeta) -> None:
        """Raise SourceChanged if a file is gone or is not what it was."""
        for item in meta.items:
            assert isinstance(item, FileItem)
            try:
                found = read_file_item(item.path)
            except SourceUnreadable as error:
                raise SourceChanged(f"{item.path} was emitted and is now unreadable") from error
            if found != item:
                raise SourceChanged(f"{item.path} changed: {_difference(item, found)}")


def locate(path: str) -> Path:
    """Return where a file lies now.

    A relative path stays relative in the ledger: a clone that moves, or a deployment behind a
    symbolic link, must not make new source items of files that were counted.
    """
    return home() / path


def check_one_schema(meta: BatchMeta) -> None:
    """Raise SchemaMismatch if the files of a batch differ in their columns.

    Spark reads them all by the first one's schema, and would read what another lacks as NULL.
    """
    import pyarrow.parquet as pq

    first, *others = [(item.identity, pq.read_schema(locate(item.identity))) for item in meta.items]
    for path, schema in others:
        if not schema.equals(first[1]):
            raise SchemaMismatch(f"{path} and {first[0]} have different columns")


def read_file_item(path: str) -> FileItem:
    """Describe a Parquet file; raise SourceUnreadable if it is missing, truncated or other."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        stat = locate(path).stat()
        footer_digest = _footer_digest(locate(path))
        rows = pq.read_metadata(locate(path)).num_rows
    except (OSError, pa.ArrowException) as error:
        raise SourceUnreadable(f"{locate(path)} is not a whole Parquet file: {error}") from error
    return FileItem(
        path=path,
        size=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        rows=rows,
        footer_digest=footer_digest,
    )


def _footer_digest(path: Path) -> str:
    """Digest a Parquet file's footer: schema, row groups, offsets and statistics."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - 8, 0))
        tail = file.read(8)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != PARQUET_MAGIC or length + 12 > size:
            raise OSError("its end is not that of a Parquet file, it may be truncated")
        file.seek(size - 8 - length)
        return hashlib.sha256(file.read(length)).hexdigest()[:16]


def _difference(item: FileItem, found: FileItem) -> str:
    return ", ".join(
        f"{name} {getattr(item, name)} is now {getattr(found, name)}"
        for name in ("size", "mtime_ns", "rows", "footer_digest")
        if getattr(item, name) != getattr(found, name)
    )
