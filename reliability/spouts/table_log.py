"""What a table's log says: Delta Lake and Iceberg write each version of a table into one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from reliability.core.errors import SchemaMismatch, SourceChanged
from reliability.core.remedy import Remedy
from reliability.spouts.file_names import locate
from reliability.spouts.log_item import LogFile


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedFile:
    """A data file as a version has it.

    :param path: as a FileItem has it
    :param size: None if the log does not say
    :param rows: likewise
    :param schema: the columns of the table then, as Spark's DDL
    :param stored: the file's own columns, as a DataFile has them
    :param partition: values as text, as a DataFile has them; None if the log does not say
    :param has_masked_rows: some of its rows are gone by what another file says
    :param sequence: counts the versions, where they are not numbered themselves
    :param next_schema: the columns behind the version, if it has changed them; else empty
    :param next_stored: of these, as a DataFile has them
    """

    path: str
    size: int | None
    rows: int | None
    schema: str
    stored: str = ""
    partition: Mapping[str, str | None] | None = field(default_factory=dict)
    has_masked_rows: bool = False
    sequence: int = 0
    next_schema: str = ""
    next_stored: str = ""


@dataclass(slots=True, kw_only=True)
class Commit:
    """What one version has changed; files that hold moved rows only are not among these.

    :ivar removed: describes each file, which clean-up may have deleted: only who reads it asks
    :ivar feed: files of change data, which stand for what is added and removed
    :ivar masks: how many files it adds that say which rows of others are gone
    """

    version: int
    operation: str = ""
    added: list[LoggedFile] = field(default_factory=list)
    removed: list[Callable[[], LoggedFile]] = field(default_factory=list)
    feed: list[LoggedFile] = field(default_factory=list)
    masks: int = 0


def gone(path: str) -> SourceChanged:
    """Return the error of a file that clean-up has deleted before an emission has described it."""
    return SourceChanged(
        f"{locate(path)} is gone, and an emission has to open it",
        remedy=Remedy(
            "restore the file, and run {resume_runs}; or set since= of the spout to a later "
            "version or snapshot first, which leaves out what came before it. Clean-up should "
            "wait for longer than emissions take."
        ),
    )


def not_read(type_: object) -> SchemaMismatch:
    """Return the error of a column of a type that Spark has no reader for."""
    return SchemaMismatch(
        f"the table has a column of type {type_}, which Spark does not read from its files",
        remedy="write it as another type.",
    )


class TableLog(ABC):
    """The log of one table, as it is when the object is made.

    :ivar where: the table, in words
    :ivar table_id: what tells it from another one with the same name
    :ivar version: the latest one
    :ivar schema: the columns at that version, as Spark's DDL
    """

    where: str
    table_id: str
    version: int
    schema: str

    @abstractmethod
    def files_at(self, version: int) -> Sequence[LoggedFile]:
        """Return all files of the table at a version, always in the same order.

        :raises SourceChanged: the log does not reach back to it
        """

    def check_same(self, last: LogFile) -> None:  # noqa: B027 - the versions may have ids
        """Check that a version is the one that a txid has read: the table may have been put back.

        :raises SourceChanged: it is another one
        """

    @abstractmethod
    def commits(self, since: int | None, last: LogFile | None) -> Iterator[Commit]:
        """Read versions, in their order: all that follow a file's, and its own if files are behind.

        :param since: the first version that counts; None if all do
        :param last: the last file that a txid has; None if none has any, then `since` is given
        :raises SourceChanged: the log has lost a version, or does not go back to the file's
        :raises SourceUnreadable: it cannot be read
        """
