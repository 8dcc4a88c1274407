"""DeltaSpout: the rows of a Delta table, in the order of the versions of its log.

The first emission takes the table as it is. Each later one takes what the versions since have
added. Rows that are only moved to other files (OPTIMIZE, Z-ORDER) are no new rows: the log says so.
Versions that change or remove rows are refused, or left out, or read as change data.

A file of a Delta table never changes, and belongs to one txid for ever. It stays where it is until
VACUUM removes it, some time after the table has replaced it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reliability.core.errors import (
    InvalidDefinition,
    SourceChanged,
    SourceRewritten,
    SourceUnreadable,
)
from reliability.core.fold import Fold, reserved
from reliability.core.lineage import Dataset
from reliability.core.spout import AllocatedItems, BatchMeta, Interval, SourceItem, Spout, only
from reliability.deployment.lazy import F
from reliability.spark.frames.accounting_columns import with_tuple_ids
from reliability.spouts.data_file import columns_in, frame_of_files
from reliability.spouts.ddl import read_ddl
from reliability.spouts.delta_item import DELETE, FEED, FEED_COLUMNS, INSERT, DeltaFile
from reliability.spouts.delta_log import Commit, DeltaLog, LoggedFile, Metadata, has_file
from reliability.spouts.file_item import datasets_of_files
from reliability.spouts.file_names import identity_of_file, locate
from reliability.spouts.footer import read_file
from reliability.spouts.parquet import REFUSE, Parquet
from reliability.spouts.parquet_columns import Columns, difference
from reliability.spouts.tuple_ids import fold_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)
IGNORE = "ignore"
CHANGES = (REFUSE, IGNORE, FEED)


@dataclass(frozen=True)
class DeltaSpout(Spout):
    """The rows that are added to a Delta table; with `changes="feed"`, all that happens to rows.

    A batch has whole versions of the table, unless one exceeds the limits by itself.

    :param path: of the table: absolute, relative to RELIABILITY_HOME, or a URI that Spark, pyarrow
        and deltalake can read
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

    path: str
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
        if self.changes not in CHANGES:
            raise InvalidDefinition(f"DeltaSpout: changes {self.changes!r} is not one of {CHANGES}")
        if self.since is not None and self.since < 0:
            raise InvalidDefinition("DeltaSpout: since is a version of the table, 0 or more")
        names = [name for name, _ in read_ddl(self.schema) or ()]
        own = [n for n, _ in columns_in(FEED_COLUMNS) if self.changes == FEED and n in names]
        if taken := [*reserved(names), *own]:
            raise InvalidDefinition(f"DeltaSpout: the library adds the columns {taken} itself")
        if self.schema and read_ddl(self.schema) is None:
            raise InvalidDefinition("DeltaSpout: the schema has more than names and types")
        self._parquet.check_schema(self.schema)
        for name in ("versions", "files", "rows", "bytes"):
            limit = getattr(self, f"max_{name}_per_batch")
            if limit is not None and limit < 1:
                raise InvalidDefinition(f"a spout's max_{name}_per_batch must be at least 1")

    @property
    def _parquet(self) -> Parquet:
        return Parquet(drift=self.drift)

    # --- emission --------------------------------------------------------------------------------

    def plan(self, interval: Interval | None, allocated: AllocatedItems) -> list[DeltaFile]:
        """List the files that versions have added since the last one that a txid has."""
        log = DeltaLog(self.path)
        last = allocated.last(DeltaFile)
        self._check_same_table(log, last)
        found = list(self._since(log, last))
        known = allocated.which([item.identity for item in found])
        new = [item for item in found if item.identity not in known]
        self._check_columns(new)
        return new

    def _check_same_table(self, log: DeltaLog, last: DeltaFile | None) -> None:
        if last is None:
            return
        where = f"the table at {locate(self.path)}"
        if last.table_id != log.table_id:
            what = f"{where} is another one than at version {last.version}, which a txid has read"
        elif last.version > log.version:
            what = f"{where} has version {log.version}, and a txid has read version {last.version}"
        else:
            return
        raise SourceChanged(
            what,
            remedy="restore the table. If it was replaced on purpose, read it by a topology with "
            "another name, which begins anew.",
        )

    def _since(self, log: DeltaLog, last: DeltaFile | None) -> Iterator[DeltaFile]:
        """Yield the files of all versions from the last one on, or from `since` if it is later."""
        since = self.since or 0
        if last is None and self.since is None:
            yield from self._snapshot(log, log.version)
            return
        if last is not None and last.version >= since:
            if last.behind and last.is_snapshot:
                yield from self._snapshot(log, last.version)
            first = last.version + (not last.behind or last.is_snapshot)
            metadata = Metadata(table_id=last.table_id, schema=last.schema, stored=last.stored)
            if first == last.version:
                metadata = _metadata_before(log, first)
        else:
            first = since
            if first > log.version:
                return
            metadata = _metadata_before(log, first)
        for version in range(first, log.version + 1):
            commit = log.commit(version)
            before, metadata = metadata, commit.metadata or metadata
            yield from self._items(self._changes_of(commit), version, metadata, before)

    def _snapshot(self, log: DeltaLog, version: int) -> Iterator[DeltaFile]:
        files = [(INSERT, each) for each in log.files_at(version)]
        metadata = log.metadata_at(version)
        yield from self._items(files, version, metadata, metadata, is_snapshot=True)

    def _changes_of(self, commit: Commit) -> list[tuple[str, LoggedFile]]:
        """Return the files of a version that have something to count.

        :raises SourceRewritten: the version changes rows, and the spout refuses that
        """
        added = [each for each in commit.added if each.is_change]
        removed = [each for each in commit.removed if each.is_change]
        if not removed and not commit.feed:
            return [(INSERT, each) for each in added]
        if self.changes == FEED:
            if commit.feed:
                return [(FEED, each) for each in commit.feed]
            return [*((DELETE, each) for each in removed), *((INSERT, each) for each in added)]
        if self.changes == IGNORE:
            logger.warning(
                "version %s of %s (%s) removes %s files and adds %s: it is left out",
                *(commit.version, locate(self.path), commit.operation, len(removed), len(added)),
            )
            return []
        raise SourceRewritten(
            f"version {commit.version} of {locate(self.path)} ({commit.operation}) removes or "
            f"rewrites {len(removed)} files, whose rows may have counted"
        )

    def _items(
        self,
        files: Sequence[tuple[str, LoggedFile]],
        version: int,
        metadata: Metadata,
        before: Metadata,
        *,
        is_snapshot: bool = False,
    ) -> Iterator[DeltaFile]:
        for number, (change, each) in enumerate(files):
            if each.has_deletion_vector:
                raise SourceRewritten(
                    f"{locate(each.path)} has a deletion vector in version {version}: some of its "
                    "rows are gone, and Spark's reader of Parquet would read them",
                    remedy='let changes="feed" read the change data feed of a table that has one; '
                    "or rewrite the table with REORG TABLE … APPLY (PURGE), switch "
                    "delta.enableDeletionVectors off, and set since= to the version behind it.",
                )
            columns = before if change == DELETE else metadata
            yield DeltaFile(
                path=each.path,
                size=each.size,
                rows=read_file(each.path).rows if each.rows is None else each.rows,
                table_id=metadata.table_id,
                version=version,
                behind=len(files) - 1 - number,
                schema=columns.schema,
                stored=columns.stored,
                partition=json.dumps(each.partition, sort_keys=True),
                change=change,
                is_named=self.changes == FEED,
                is_snapshot=is_snapshot,
            )

    def cut(self, items: Sequence[SourceItem]) -> list[tuple[SourceItem, ...]]:
        """Fill batches with versions, in their order; cut a version only if it exceeds a limit."""
        versions: dict[int, list[DeltaFile]] = {}
        for item in only(DeltaFile, items):
            versions.setdefault(item.version, []).append(item)
        batches: list[list[DeltaFile]] = []
        for files in versions.values():
            whole = [files] if self._allows(files) else [[item] for item in files]
            for part in whole:
                if batches and self._have_room(batches[-1], part):
                    batches[-1] += part
                else:
                    batches.append([*part])
        return [tuple(batch) for batch in batches]

    def _have_room(self, batch: Sequence[DeltaFile], more: Sequence[DeltaFile]) -> bool:
        """Say whether more files fit; without a schema a batch has the columns of its versions."""
        have_same_columns = bool(self.schema) or batch[-1].schema == more[0].schema
        return have_same_columns and self._allows([*batch, *more])

    def _allows(self, items: Sequence[DeltaFile]) -> bool:
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
        for item in only(DeltaFile, meta.items):
            if not item.is_lost and not has_file(item.path, item.size):
                raise SourceChanged(
                    f"{locate(item.path)} of version {item.version} is gone or has another size; "
                    "VACUUM removes files that the table has replaced",
                    remedy="restore the file, and run {resume_runs}; or run {refreeze}, which "
                    "leaves its rows out. VACUUM should retain files for longer than batches take.",
                )

    def refresh(self, meta: BatchMeta) -> list[DeltaFile]:
        """Return the items; of a file that is gone nothing is read, and it stays taken."""
        return [_as_it_is(item) for item in only(DeltaFile, meta.items)]

    def frame(self, spark: SparkSession, meta: BatchMeta) -> DataFrame:
        items = [(n, i) for n, i in enumerate(only(DeltaFile, meta.items)) if not i.is_lost]
        if not items:
            return self._empty_frame(spark)
        files = [item.data_file(ordinal) for ordinal, item in items]
        return frame_of_files(spark, files, self._wanted([item for _, item in items]))

    def _empty_frame(self, spark: SparkSession) -> DataFrame:
        schema = self.schema
        if not schema:
            log = DeltaLog(self.path)
            schema = log.metadata_at(log.version).schema
        if self.changes == FEED:
            schema = f"{schema}, {FEED_COLUMNS}"
        return with_tuple_ids(spark.createDataFrame([], schema), F.lit(0), F.lit(0))

    # --- columns ---------------------------------------------------------------------------------

    def _check_columns(self, items: Iterable[DeltaFile]) -> None:
        """Raise FileRefused unless all files can be read by the spout's schema."""
        for item in {item.schema: item for item in items}.values():
            self._parquet.check_file(item.described(), self.schema)

    def _wanted(self, items: Sequence[DeltaFile]) -> Columns:
        """Return the columns of a batch."""
        own = columns_in(FEED_COLUMNS) if self.changes == FEED else ()
        if not self.schema:
            return (*columns_in(items[-1].schema), *own)
        if self.drift == REFUSE:
            return (*columns_in(self.schema), *own)
        return (*self._parquet.columns([item.described() for item in items], self.schema), *own)

    def changed_columns(self, items: Sequence[SourceItem], earlier: BatchMeta) -> list[str]:
        before = only(DeltaFile, earlier.items)
        after = only(DeltaFile, items)
        if not before or not after:
            return []
        one, other = after[-1], before[-1]
        why = difference(
            columns_in(one.schema),
            columns_in(other.schema),
            f"version {one.version}",
            f"version {other.version}",
        )
        return [f"{locate(self.path)}: {why}"] if why else []

    def drifted_columns(self, items: Sequence[SourceItem]) -> list[str] | None:
        files = {item.schema: item.described() for item in only(DeltaFile, items)}
        return self._parquet.drifted_columns([*files.values()], self.schema)

    def identity_of(self, path: str) -> str:
        return identity_of_file(path)

    def datasets(self, items: Sequence[SourceItem]) -> Sequence[Dataset]:
        files = only(DeltaFile, items)
        return datasets_of_files(item.described() for item in files)


def _metadata_before(log: DeltaLog, version: int) -> Metadata:
    """Return the columns before a version, or with it if the log goes no further back."""
    try:
        return log.metadata_at(max(version - 1, 0))
    except SourceChanged:
        return log.metadata_at(version)


def _as_it_is(item: DeltaFile) -> DeltaFile:
    """Return an item as its file is now: nobody but a person by hand changes one."""
    if has_file(item.path, item.size):
        if not item.is_lost:
            return item
        return replace(item, rows=read_file(item.path).rows, is_lost=False)
    try:
        found = read_file(item.path)
    except SourceUnreadable:
        return item.lost()
    return replace(item, rows=found.rows, size=found.size, is_lost=False)
