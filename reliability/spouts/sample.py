"""A small part of a source, for `reliability check`: read as a batch is, and recorded nowhere."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from reliability.core.errors import DataIntervalMissing, NothingToEmit
from reliability.core.fold import Fold
from reliability.core.keys import cut_ranges, read_ranges, write_ranges
from reliability.core.spout import BatchMeta, Interval, NoItems, SourceItem, Spout
from reliability.spouts.file import FileSpout
from reliability.spouts.file_item import FileItem
from reliability.spouts.file_names import is_uri, locate
from reliability.spouts.filesystem import find_files
from reliability.spouts.parquet import Parquet
from reliability.spouts.patterns import match_any_interval
from reliability.spouts.table import TableKeys, TableSpout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ALL_KEYS = "{[-9223372036854775808,)}"  # the statements need a lower end


class HasNoFiles(Exception):
    """Files are given for a spout that reads none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Some rows of one batch.

    :param rows: how many rows there are at most; None if `meta` has exactly the sample
    :param of: how many rows the source items have
    """

    spout: Spout
    meta: BatchMeta
    rows: int | None
    of: int

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the rows as the process function gets them."""
        frame = self.spout.frame(spark, self.meta)
        return frame if self.rows is None else frame.limit(self.rows)

    @property
    def places(self) -> list[str]:
        return list(dict.fromkeys(item.source for item in self.meta.items))


def take_samples(
    spout: Spout, interval: Interval | None, files: Sequence[str], rows: int
) -> list[Sample]:
    """Return a sample of the first batch of an interval, or of each batch of the given files.

    :param files: paths or globs, for a FileSpout
    :param rows: the most rows of each sample
    :raises NothingToEmit: there is nothing to read
    :raises DataIntervalMissing: the spout needs an interval
    :raises HasNoFiles: files are given, but the spout does not read files
    """
    if files and not isinstance(spout, FileSpout):
        raise HasNoFiles(f"the topology reads from a {type(spout).__name__}, which has no files")
    if isinstance(spout, TableSpout):
        return [_of_table(spout, rows)]
    if isinstance(spout, FileSpout):
        items = _plan_files(spout, interval, files)
    else:
        if spout.timed and interval is None:
            raise DataIntervalMissing("the spout reads by interval", remedy="add --interval.")
        items = list(spout.plan(interval if spout.timed else None, NoItems()))
    if not (batches := spout.cut(items)):
        raise NothingToEmit("the source has no rows for a sample")
    return [_of_batch(spout, batch, rows) for batch in (batches if files else batches[:1])]


def _plan_files(
    spout: FileSpout, interval: Interval | None, files: Sequence[str]
) -> list[SourceItem]:
    """Describe the given files, or the first of the pattern; no other file is opened."""
    if not files:
        wanted = spout.of_interval(spout.pattern, interval)
        if interval is None:
            wanted = match_any_interval(spout.pattern)
        paths = find_files(wanted)
        files = [locate(path) for path in paths[: spout.max_files_per_batch]]
        if not files:
            raise NothingToEmit(f"no file matches {locate(wanted)}")
    whole = replace(spout, format=spout.file_format, ready_file="", allow_empty=False)
    spouts = [replace(whole, pattern=_as_pattern(file)) for file in files]
    return [item for of_file in spouts for item in of_file.plan(None, NoItems())]


def _as_pattern(file: str) -> str:
    """Return a pattern for a file, or for a glob, in the current folder or the home."""
    if is_uri(file):
        return file
    if Path(file).exists():
        return _literal(Path(file).absolute())
    here = f"{_literal(Path.cwd())}/{file}"
    return here if not Path(file).is_absolute() and find_files(here) else file


def _literal(path: Path) -> str:
    return glob.escape(str(path)).replace("{", "[{]")


def _of_batch(spout: Spout, batch: Sequence[SourceItem], rows: int) -> Sample:
    total = sum(item.rows for item in batch)
    is_parquet = isinstance(spout, FileSpout) and isinstance(spout.file_format, Parquet)
    if total > rows and is_parquet:
        batch = _first_rows(batch, rows)
    taken = sum(item.rows for item in batch)
    meta = BatchMeta(items=tuple(batch), emitted=spout.count(batch))
    return Sample(spout=spout, meta=meta, rows=rows if taken > rows else None, of=total)


def _first_rows(batch: Sequence[SourceItem], rows: int) -> list[SourceItem]:
    """Cut a batch of Parquet files after some rows: Spark then skips the others by their index."""
    taken: list[SourceItem] = []
    for item in batch:
        assert isinstance(item, FileItem)
        if item.rows > rows > 0:
            item = replace(item, rows=rows, last_group=item.last_group or 1)
        if rows > 0:
            taken.append(item)
            rows -= item.rows
    return taken


def _of_table(spout: TableSpout, rows: int) -> Sample:
    """Take the first keys of a table, without the lock that an emission takes."""
    table = spout.source_table
    table.columns(spout.columns, spout.lag_column)
    keys, total = table.present(_ALL_KEYS)
    if not total.count:
        raise NothingToEmit(f"table {spout.table} is empty")
    first = write_ranges(cut_ranges(read_ranges(keys), rows)[0])
    fold: Fold = table.fold(first)
    item = TableKeys(table=spout.source, key=spout.key, keys=first, rows=fold.count, xor=fold.xor)
    meta = BatchMeta(items=(item,), emitted=fold)
    return Sample(spout=spout, meta=meta, rows=None, of=total.count)
