"""The spout of a table that has a log of versions: of Delta Lake or Iceberg.

The first emission takes the table as it is. Each later one takes what the versions since have
added. Rows that are only moved to other files are no new rows: the log says so. Versions that
change or remove rows are refused, or left out, or read as change data.

A data file never changes, and belongs to one txid for ever. It stays where it is until the table's
own clean-up removes it, some time after the table has replaced it.
"""

from __future__ import annotations

import json
import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from reliability.core.errors import (
    FileRefused,
    InvalidDefinition,
    ReliabilityError,
    SchemaMismatch,
    SourceChanged,
    SourceRewritten,
    SourceUnreadable,
)
from reliability.core.fold import Fold, reserved
from reliability.core.lineage import Dataset
from reliability.core.remedy import Remedy
from reliability.core.spout import AllocatedItems, BatchMeta, Interval, SourceItem, Spout, only
from reliability.deployment.lazy import F, fs
from reliability.spark.frames.accounting_columns import with_tuple_ids
from reliability.spouts.data_file import columns_in, fits, frame_of_files
from reliability.spouts.ddl import check_types
from reliability.spouts.file_item import FileItem, datasets_of_files
from reliability.spouts.file_names import identity_of_file, locate
from reliability.spouts.filesystem import look
from reliability.spouts.footer import read_file
from reliability.spouts.log_item import DELETE, FEED, FEED_COLUMNS, INSERT, LogFile
from reliability.spouts.parquet import REFUSE, Parquet
from reliability.spouts.parquet_columns import Columns, difference, why_unusable
from reliability.spouts.table_log import Commit, LoggedFile, TableLog, gone
from reliability.spouts.tuple_ids import fold_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)
IGNORE = "ignore"
#: What is wrong with one version, and not with those before it.
REFUSED = (FileRefused, SchemaMismatch, SourceChanged, SourceRewritten)
CHANGES = (REFUSE, IGNORE, FEED)


@dataclass(frozen=True, kw_only=True)
class LogSpout(Spout):
    """The rows that are added to a table; with `changes="feed"`, all that happens to rows.

    A batch has whole versions of the table, unless one exceeds the limits by itself.

    :cvar file_type: the class of its items
    :param changes: what becomes of a version that changes or removes rows. `refuse`: emission fails
        with SOURCE_REWRITTEN. `ignore`: the version is left out as a whole. `feed`: rows have two
        more columns, `_change_type` (`insert`, `delete`, `update_preimage`, `update_postimage`) and
        `_commit_version`
    :param since: the first version that is read; without it, the first emission takes the table as
        it is then
    :param schema: Spark's DDL; without it, a batch has the columns that the table had at its last
        version
    :param drift: if the table's columns differ from `schema`: `refuse`, `ignore` or `widen`
    :param max_versions_per_batch: the most versions of which a txid has something
    :param max_files_per_batch: the most files that a txid reads
    :param max_rows_per_batch: the most rows that a txid reads
    :param max_bytes_per_batch: the most stored bytes that a txid reads
    :param opaque: a new attempt of a txid may read other files, until the txid commits
    """

    file_type: ClassVar[type[LogFile]]
    changes: str = REFUSE
    since: int | None = None
    schema: str = ""
    drift: str = REFUSE
    max_versions_per_batch: int | None = 1
    max_files_per_batch: int | None = None
    max_rows_per_batch: int | None = None
    max_bytes_per_batch: int | None = None
    opaque: bool = False

    def __post_init__(self) -> None:
        own = type(self).__name__
        if self.changes not in CHANGES:
            raise InvalidDefinition(f"{own}: changes {self.changes!r} is not one of {CHANGES}")
        if self.since is not None and self.since < 0:
            raise InvalidDefinition(f"{own}: since is a version of the table, 0 or more")
        names = [name for name, _ in check_types(own, self.schema)] if self.schema else []
        feed = [n for n, _ in columns_in(FEED_COLUMNS) if self.changes == FEED and n in names]
        if taken := [*reserved(names), *feed]:
            raise InvalidDefinition(f"{own}: the library adds the columns {taken} itself")
        self._parquet.check_schema(self.schema)
        for name in ("versions", "files", "rows", "bytes"):
            limit = getattr(self, f"max_{name}_per_batch")
            if limit is not None and limit < 1:
                raise InvalidDefinition(f"a spout's max_{name}_per_batch must be at least 1")

    @abstractmethod
    def log(self) -> TableLog:
        """Read the table's log as it is now.

        :raises LibraryMissing: the package that reads it is not installed
        :raises SourceUnreadable: there is no such table, or it cannot be read
        """

    @property
    def _parquet(self) -> Parquet:
        return Parquet(drift=self.drift)

    # --- emission --------------------------------------------------------------------------------

    def plan(self, interval: Interval | None, allocated: AllocatedItems) -> list[LogFile]:
        """List the files that versions have added since the last one that a txid has.

        What comes before a version that is refused is listed without it, so that a person who
        passes the version over by `since` loses nothing else; the next emission raises.
        """
        log, last = self.log(), allocated.last(self.file_type)
        if last is not None and last.table_id != log.table_id:
            raise SourceChanged(
                f"{log.where} is another one than at version {last.version}, which a txid has read",
                remedy="restore the table. If it was replaced on purpose, read it by a topology "
                "with another name, which begins anew.",
            )
        versions: list[list[LogFile]] = []
        refused: ReliabilityError | None = None
        try:
            for files in self._versions(log, last):
                versions.append(files)
        except REFUSED as error:
            refused = error
        found = [item for version in versions for item in version]
        names = {item: item.identities_at(last.version if last else None) for item in found}
        known = allocated.which([name for own in names.values() for name in own])
        new: list[LogFile] = []
        try:
            for version in versions:
                own = [item for item in version if known.isdisjoint(names[item])]
                self._check_columns(own)
                new += own
                known |= {item.identity for item in own}  # a file that came, went and came back
        except REFUSED as error:
            refused = error
        if refused is not None:
            if not new:
                raise refused
            logger.warning("what comes before it is emitted, and nothing more: %s", refused.what)
        return _counted_behind(new)

    def _versions(self, log: TableLog, last: LogFile | None) -> Iterator[list[LogFile]]:
        """Yield the files of each version since the last item that a txid has."""
        if last is None and self.since is None:
            yield self._snapshot(log, log.version)
            return
        if last and last.version >= (self.since or 0):
            log.check_same(last)
        if last and last.is_snapshot and last.behind:
            yield self._rest_of_snapshot(log, last.version)
            last = replace(last, behind=0)
        for commit in log.commits(self.since, last):
            yield list(self._items(log, self._changes_of(log, commit), commit.version))

    def _rest_of_snapshot(self, log: TableLog, version: int) -> list[LogFile]:
        """Return it all; nothing if it is gone and a person has said where to go on."""
        try:
            return self._snapshot(log, version)
        except SourceChanged:
            if self.since is None:
                raise
            return []

    def _snapshot(self, log: TableLog, version: int) -> list[LogFile]:
        files = [(INSERT, each) for each in log.files_at(version)]
        return list(self._items(log, files, version, is_snapshot=True))

    def _changes_of(self, log: TableLog, commit: Commit) -> list[tuple[str, LoggedFile]]:
        """Return the files of a version that have something to count.

        :raises SourceRewritten: the version changes rows in a way that the spout does not read
        """
        has_feed = bool(commit.feed) and self.changes == FEED  # else what is added says it all
        if not commit.removed and not commit.masks and not has_feed:
            return [(INSERT, each) for each in commit.added]
        changes = f"version {commit.version} of {log.where} ({commit.operation}) "
        if self.changes == IGNORE:
            logger.warning(
                "%sremoves %s files and adds %s: it is left out",
                *(changes, len(commit.removed) + commit.masks, len(commit.added)),
            )
            return []
        if self.changes == REFUSE:
            raise SourceRewritten(
                f"{changes}removes or rewrites {len(commit.removed) + commit.masks} files, whose "
                "rows may have counted"
            )
        if has_feed:
            return [(FEED, each) for each in commit.feed]
        if commit.masks:
            raise _masked(f"{changes}deletes rows without rewriting their files")
        removed = [(DELETE, describe()) for describe in commit.removed]
        return [*removed, *((INSERT, each) for each in commit.added)]

    def _items(
        self,
        log: TableLog,
        files: Sequence[tuple[str, LoggedFile]],
        version: int,
        *,
        is_snapshot: bool = False,
    ) -> Iterator[LogFile]:
        for change, each in files:
            if each.has_masked_rows:
                what = f"in version {version}, rows of {locate(each.path)} are deleted"
                raise _masked(what, is_snapshot=is_snapshot)
            if each.partition is None:
                raise SourceRewritten(
                    f"version {version} of {log.where} removes {locate(each.path)} without the "
                    "values of its partition",
                    remedy="set since= to the version behind it, and let the writer say them: "
                    "partitionValues, which older ones leave out.",
                )
            size, rows = each.size, each.rows
            if size is None or rows is None:
                found = _found(each.path)
                size, rows = found.size, found.rows if rows is None else rows
            yield self.file_type(
                path=each.path,
                size=size,
                rows=rows,
                table_id=log.table_id,
                version=version,
                behind=0,  # counted when it is known what is new
                schema=each.schema,
                stored=each.stored,
                partition=json.dumps(each.partition, sort_keys=True),
                change=change,
                is_named=self.changes == FEED,
                is_snapshot=is_snapshot,
                sequence=each.sequence,
                next_schema=each.next_schema,
                next_stored=each.next_stored,
            )

    def cut(self, items: Sequence[SourceItem]) -> list[tuple[SourceItem, ...]]:
        """Fill batches with versions, in their order; cut a version only if it exceeds a limit."""
        versions: dict[int, list[LogFile]] = {}
        for item in only(LogFile, items):
            versions.setdefault(item.version, []).append(item)
        batches: list[list[LogFile]] = []
        for files in versions.values():
            whole = [files] if self._allows(files) else [[item] for item in files]
            for part in whole:
                if batches and self._have_room(batches[-1], part):
                    batches[-1] += part
                else:
                    batches.append([*part])
        for batch in batches:
            self._check_one_schema(batch)
        return [tuple(batch) for batch in batches]

    def _have_room(self, batch: Sequence[LogFile], more: Sequence[LogFile]) -> bool:
        """Say whether more files fit; without a schema a batch has the columns of its versions."""
        have_same_columns = bool(self.schema) or {batch[-1].schema} == {i.schema for i in more}
        return have_same_columns and self._allows([*batch, *more])

    def _allows(self, items: Sequence[LogFile]) -> bool:
        limits = (
            (len({item.version for item in items}), self.max_versions_per_batch),
            (len(items), self.max_files_per_batch),
            (sum(item.rows for item in items), self.max_rows_per_batch),
            (sum(item.size for item in items), self.max_bytes_per_batch),
        )
        return all(limit is None or number <= limit for number, limit in limits)

    def count(self, items: Sequence[SourceItem]) -> Fold:
        return Fold.of(fold_rows(ordinal, item.rows) for ordinal, item in enumerate(items))

    # --- attempts --------------------------------------------------------------------------------

    def verify(self, meta: BatchMeta) -> None:
        for item in only(LogFile, meta.items):
            if not item.is_lost and not _has_file(item.path, item.size):
                raise SourceChanged(
                    f"{locate(item.path)} of version {item.version} is gone or has another size; "
                    "the table's clean-up removes files that it has replaced",
                    remedy=Remedy(
                        "restore the file, and run {resume_runs}; or run {refreeze}, which "
                        "leaves its rows out. Clean-up should wait for longer than batches take."
                    ),
                )

    def refresh(self, meta: BatchMeta) -> list[LogFile]:
        """Return the items; of a file that is gone nothing is read, and it stays taken."""
        return [_as_it_is(item) for item in only(LogFile, meta.items)]

    def frame(self, spark: SparkSession, meta: BatchMeta) -> DataFrame:
        items = [(n, i) for n, i in enumerate(only(LogFile, meta.items)) if not i.is_lost]
        if not items:
            return self._empty_frame(spark)
        if self.changes != FEED and any(item.change != INSERT for _, item in items):
            raise SourceChanged(
                f"the batch has changes of rows, and the spout has changes={self.changes!r}, which "
                "would count rows that are gone",
                remedy='set changes="feed" again; a topology with another name may have another '
                "one.",
            )
        files = [item.data_file(n, has_changes=self.changes == FEED) for n, item in items]
        return frame_of_files(spark, files, self._wanted([item for _, item in items]))

    def _empty_frame(self, spark: SparkSession) -> DataFrame:
        schema = self.schema or self.log().schema
        if self.changes == FEED:
            schema = f"{schema}, {FEED_COLUMNS}"
        return with_tuple_ids(spark.createDataFrame([], schema), F.lit(0), F.lit(0))

    # --- columns ---------------------------------------------------------------------------------

    def _check_columns(self, items: Iterable[LogFile]) -> None:
        """Raise an error unless Spark and the spout's schema can have the columns of all files.

        :raises SchemaMismatch: it cannot have the name of a column
        :raises FileRefused: a file does not agree with the schema
        """
        for item in {item.schema: item for item in items}.values():
            self._check_names(item)
            try:
                self._parquet.check_file(item.described(), self.schema)
            except FileRefused as error:
                if not item.is_named:
                    raise
                text = "{first}; then run {resume_runs}."  # a file of a feed is not left out
                raise FileRefused(error.what, remedy=replace(error.remedy, text=text)) from None

    def _check_names(self, item: LogFile) -> None:
        names = [name for name, _ in columns_in(item.schema)]
        feed = [name for name, _ in columns_in(FEED_COLUMNS) if item.is_named]
        why = why_unusable(names)
        if taken := [name for name in names if name.lower() in feed]:
            why = f"it has columns of its own called {taken}, which the feed adds", "rename them"
        if why is not None:
            what, remedy = why
            raise SchemaMismatch(
                f"version {item.version} of the table of {locate(item.path)}: {what}",
                remedy=Remedy(
                    "{first} in the table; then set since= of the spout to the version behind it, "
                    "or write the table anew, and {resume_runs}.",
                    {"first": remedy},
                ),
            )

    def _check_one_schema(self, batch: Sequence[LogFile]) -> None:
        """Raise SourceRewritten if the removed rows of a batch do not fit the added ones."""
        if self.schema:
            return
        wanted = dict(columns_in(batch[-1].schema))
        for item in {item.schema: item for item in batch}.values():
            for name, type_ in columns_in(item.schema):
                if not fits(type_, wanted.get(name, type_)):
                    raise SourceRewritten(
                        f"version {item.version} of the table of {locate(item.path)} removes rows "
                        f"in which column {name} is {type_}, and adds others in which it is "
                        f"{wanted[name]}",
                        remedy=Remedy(
                            "let since= of the spout begin behind the version, or leave the column "
                            'out with schema= and drift="ignore"; then {resume_runs}.'
                        ),
                    )

    def _wanted(self, items: Sequence[LogFile]) -> Columns:
        """Return the columns of a batch."""
        own = columns_in(FEED_COLUMNS) if self.changes == FEED else ()
        if not self.schema:
            return (*columns_in(items[-1].schema), *own)
        if self.drift == REFUSE:
            return (*columns_in(self.schema), *own)
        return (*self._parquet.columns([item.described() for item in items], self.schema), *own)

    def changed_columns(self, items: Sequence[SourceItem], earlier: BatchMeta) -> list[str]:
        before = only(LogFile, earlier.items)
        after = only(LogFile, items)
        if not before or not after:
            return []
        one, other = after[-1], before[-1]
        why = difference(
            columns_in(one.schema),
            columns_in(other.schema),
            f"version {one.version}",
            f"version {other.version}",
        )
        return [why] if why else []

    def drifted_columns(self, items: Sequence[SourceItem]) -> list[str] | None:
        files = {item.schema: item.described() for item in only(LogFile, items)}
        return self._parquet.drifted_columns([*files.values()], self.schema)

    def identity_of(self, path: str) -> str:
        return identity_of_file(path)

    def datasets(self, items: Sequence[SourceItem]) -> Sequence[Dataset]:
        files = only(LogFile, items)
        return datasets_of_files(item.described() for item in files)


def _counted_behind(items: Sequence[LogFile]) -> list[LogFile]:
    """Return items that say how many of these are behind them; what is excluded is not waited for.

    Otherwise the version would be read again, until its log is gone.
    """
    left = Counter(item.version for item in items)
    counted = []
    for item in items:
        left[item.version] -= 1
        counted.append(replace(item, behind=left[item.version]))
    return counted


def _masked(what: str, *, is_snapshot: bool = False) -> SourceRewritten:
    go_on = "" if is_snapshot else "; then set since= to the version behind that"
    return SourceRewritten(
        f"{what}, and Spark's reader of Parquet would read them",
        remedy="let the table rewrite its files (in Delta Lake REORG TABLE … APPLY (PURGE), in "
        f"Iceberg rewrite_data_files), and its writers copy on write{go_on}. A Delta table that "
        'has a change data feed is read by changes="feed".',
    )


def _found(path: str) -> FileItem:
    """Describe a file that no txid has read."""
    if (found := _read(path)) is None:
        raise gone(path)
    return found


def _read(path: str) -> FileItem | None:
    """Describe a data file; None if it is not there."""
    try:
        return read_file(path)
    except SourceUnreadable:
        if look(path).type == fs.FileType.NotFound:
            return None
        raise


def _has_file(path: str, size: int) -> bool:
    """Say whether a data file is there, as long as it was."""
    info = look(path)
    return bool(info.type == fs.FileType.File and info.size == size)


def _as_it_is(item: LogFile) -> LogFile:
    """Return an item as its file is now: nobody but a person by hand changes one."""
    if _has_file(item.path, item.size):
        if not item.is_lost:
            return item
        return replace(item, rows=read_file(item.path).rows, is_lost=False)
    if (found := _read(item.path)) is None:
        return replace(item, rows=0, is_lost=True)
    return replace(item, rows=found.rows, size=found.size, is_lost=False)
