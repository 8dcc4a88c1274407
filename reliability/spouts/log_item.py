"""A data file of a table, as one version of the table's log has it: DeltaFile and IcebergFile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from reliability.core.spout import SourceItem, source_item
from reliability.spouts.data_file import DataFile, columns_in
from reliability.spouts.file_item import FileItem

INSERT, DELETE, FEED = "insert", "delete", "feed"
"""What the rows of a file are: new ones, ones that are gone, or changes that each say what."""
FEED_COLUMNS = "_change_type string, _commit_version bigint"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile(SourceItem):
    """A data file, and what the log says of it.

    :param path: as a FileItem has it
    :param version: of the log entry
    :param behind: how many more files that entry has
    :param schema: all columns of the table then, as Spark's DDL
    :param stored: the columns of the file itself, as a DataFile has them
    :param partition: the values of partition columns as text, as a JSON object
    :param change: what its rows are
    :param is_named: its identity has version and change, as one file may come and go
    :param is_snapshot: the entry stands for the whole table, as it was at the first emission
    :param is_lost: the file was gone when its txid was refrozen, and nothing of it is read
    :param sequence: as a LoggedFile has it
    :param next_schema: likewise
    :param next_stored: likewise
    """

    path: str
    size: int
    rows: int
    table_id: str
    version: int
    behind: int
    schema: str
    stored: str = ""
    partition: str = "{}"
    change: str = INSERT
    is_named: bool = False
    is_snapshot: bool = False
    is_lost: bool = False
    sequence: int = 0
    next_schema: str = ""
    next_stored: str = ""

    @property
    def identity(self) -> str:
        return f"{self.path}@{self.version}:{self.change}" if self.is_named else self.path

    def identities_at(self, version: int | None) -> set[str]:
        """Return its identity, and the one that it had if `changes=` was different then.

        :param version: the last that has been read, in whole or in part: a file of it may have been
            counted by its other identity
        """
        if self.version != version or self.change != INSERT:
            return {self.identity}
        return {self.identity, replace(self, is_named=not self.is_named).identity}

    @property
    def columns_after(self) -> dict[str, str]:
        """Return the columns of the table behind its version: `schema`, and `stored` of these."""
        if self.next_schema:
            return {"schema": self.next_schema, "stored": self.next_stored}
        return {"schema": self.schema, "stored": self.stored}

    @property
    def values(self) -> Mapping[str, str | None]:
        values: dict[str, str | None] = json.loads(self.partition)
        return values

    def data_file(self, ordinal: int, *, has_changes: bool) -> DataFile:
        """Return how Spark reads it.

        :param has_changes: what it has changed is in the columns of a change data feed
        """
        schema, stored, values = self.schema, self.stored, dict(self.values)
        if has_changes:
            schema = f"{schema}, {FEED_COLUMNS}"
            values["_commit_version"] = str(self.version)
            if self.change == FEED:
                stored = stored and f"{stored}, _change_type string"
            else:
                values["_change_type"] = self.change
        return DataFile(
            path=self.path,
            size=self.size,
            ordinal=ordinal,
            schema=schema,
            stored=stored,
            partition=values,
        )

    def described(self) -> FileItem:
        """Return what a policy for columns looks at."""
        columns = columns_in(self.schema)
        return FileItem(path=self.path, size=self.size, mtime_ns=0, rows=self.rows, columns=columns)


@source_item
@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaFile(LogFile):
    """A data file of a table of Delta Lake."""

    kind: ClassVar[str] = "delta"


@source_item
@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergFile(LogFile):
    """A data file of a table of Iceberg; its version is the id of a snapshot."""

    kind: ClassVar[str] = "iceberg"
