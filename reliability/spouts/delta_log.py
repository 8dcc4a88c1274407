"""The log of a Delta table: the table as it is, and what each version has added and removed.

Only this module uses the library `deltalake`. That library finds the table, its latest version and
its files at a version. What one version changes stands in the JSON file of its commit, which is
read as Delta's protocol has it (https://github.com/delta-io/delta/blob/master/PROTOCOL.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any
from urllib.parse import unquote

from reliability.core.column import quoted
from reliability.core.errors import LibraryMissing, SchemaMismatch, SourceChanged, SourceUnreadable
from reliability.deployment.lazy import fs, pa
from reliability.spouts.file_names import identity_of_file, is_uri, locate
from reliability.spouts.filesystem import open_filesystem

_SAME = ("boolean", "float", "double", "date", "timestamp", "timestamp_ntz", "string", "binary")
_PLAIN = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    **{name: name for name in _SAME},
}
_MODE, _PHYSICAL = "delta.columnMapping.mode", "delta.columnMapping.physicalName"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedFile:
    """A data file as the log has it.

    :param path: as a FileItem has it
    :param rows: None if the log does not say
    :param partition: values as text
    """

    path: str
    size: int
    rows: int | None
    partition: Mapping[str, str | None]
    is_change: bool = True
    has_deletion_vector: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The columns of a table at a version.

    :param schema: all of them, as Spark's DDL
    :param stored: those that are in files, if they have other names there; else empty
    """

    table_id: str
    schema: str
    stored: str


@dataclass(slots=True, kw_only=True)
class Commit:
    """What one version has changed.

    :ivar metadata: the new one, if it changed
    """

    version: int
    operation: str = ""
    metadata: Metadata | None = None
    added: list[LoggedFile] = field(default_factory=list)
    removed: list[LoggedFile] = field(default_factory=list)
    feed: list[LoggedFile] = field(default_factory=list)


class DeltaLog:
    """The log of the table at a path.

    :raises LibraryMissing: the library is not installed
    :raises SourceUnreadable: there is no such table, or it cannot be read
    """

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/")
        self._place = locate(self.path)
        self._library: Any = _deltalake()
        self._table = self._load(None)
        self.version = int(self._table.version())

    @cached_property
    def table_id(self) -> str:
        return str(self._table.metadata().id)

    def metadata_at(self, version: int) -> Metadata:
        """Return the columns at a version.

        :raises SourceChanged: the log does not reach back to it
        """
        table = self._table if version == self.version else self._load(version)
        own = table.metadata()
        return read_metadata(
            {
                "id": own.id,
                "schemaString": table.schema().to_json(),
                "partitionColumns": own.partition_columns,
                "configuration": own.configuration,
            }
        )

    def files_at(self, version: int) -> list[LoggedFile]:
        """Return all files of the table at a version, by path.

        :raises SourceChanged: the log does not reach back to it
        """
        table = self._table if version == self.version else self._load(version)
        masked = set()
        if "deletionVectors" in (table.protocol().reader_features or ()):
            vectors = pa.table(table.deletion_vectors()).to_pylist()
            masked = {unquote(each["filepath"].rpartition("/")[2]) for each in vectors}
        files = [
            LoggedFile(
                path=self._identity(each["path"]),
                size=each["size_bytes"],
                rows=each.get("num_records"),
                partition=_texts(each.get("partition") or {}),
                has_deletion_vector=unquote(each["path"]).rpartition("/")[2] in masked,
            )
            for each in pa.table(table.get_add_actions()).to_pylist()
        ]
        return sorted(files, key=lambda each: each.path)

    def commit(self, version: int) -> Commit:
        """Read what a version has changed.

        :raises SourceChanged: the log does not have it any more
        :raises SourceUnreadable: it cannot be read
        """
        filesystem, inner = open_filesystem(f"{self.path}/_delta_log/{version:020}.json")
        try:
            with filesystem.open_input_stream(inner) as file:
                lines = file.read().decode().splitlines()
        except FileNotFoundError:
            raise SourceChanged(
                f"the log of {self._place} has no version {version} any more, and it is not known "
                "what it has changed",
                remedy="find out from the writers which rows came since; then set since= in the "
                "DeltaSpout to the first version that is to be read, and {resume_runs}. Emit more "
                "often than delta.logRetentionDuration, or raise that.",
            ) from None
        except OSError as error:
            raise SourceUnreadable(f"the log of {self._place} cannot be read: {error}") from error
        commit = Commit(version=version)
        for line in filter(None, lines):
            self._take(commit, json.loads(line))
        return commit

    def _take(self, commit: Commit, action: Mapping[str, Any]) -> None:
        match action:
            case {"commitInfo": {"operation": operation}}:
                commit.operation = str(operation)
            case {"metaData": metadata}:
                commit.metadata = read_metadata(metadata)
            case {"add": add}:
                commit.added.append(self._file(add))
            case {"remove": remove}:
                commit.removed.append(self._file(remove))
            case {"cdc": cdc}:
                commit.feed.append(self._file(cdc))

    def _file(self, action: Mapping[str, Any]) -> LoggedFile:
        statistics = json.loads(action.get("stats") or "{}")
        values = action.get("partitionValues") or {}
        return LoggedFile(
            path=self._identity(action["path"]),
            size=action.get("size") or 0,
            rows=statistics.get("numRecords"),
            partition={name: value or None for name, value in values.items()},
            is_change=action["dataChange"],
            has_deletion_vector=action.get("deletionVector") is not None,
        )

    def _identity(self, path: str) -> str:
        """Return the name of a file, which the log has relative to the table, and encoded."""
        path = unquote(path)
        whole = path if is_uri(path) or path.startswith("/") else f"{self.path}/{path}"
        return identity_of_file(whole)

    def _load(self, version: int | None) -> Any:
        try:
            return self._library.DeltaTable(self._place, version=version)
        except self._library.exceptions.TableNotFoundError as error:
            if version is None:
                raise SourceUnreadable(f"{self._place} is no table of Delta Lake") from error
            raise SourceChanged(
                f"the log of {self._place} does not reach back to version {version}",
                remedy="set since= in the DeltaSpout to a version that it has.",
            ) from error
        except (self._library.exceptions.DeltaError, OSError) as error:
            raise SourceUnreadable(f"{self._place} cannot be read: {error}") from error


def has_file(path: str, size: int) -> bool:
    """Say whether a data file is there, as long as it was."""
    filesystem, inner = open_filesystem(path)
    info = filesystem.get_file_info(inner)
    return bool(info.type == fs.FileType.File and info.size == size)


def read_metadata(action: Mapping[str, Any]) -> Metadata:
    """Read the columns of a table.

    :raises SchemaMismatch: Spark has no such column, or finds it in files by its number only
    """
    fields = json.loads(action["schemaString"])["fields"]
    mode = (action.get("configuration") or {}).get(_MODE, "none")
    if mode == "id":
        raise SchemaMismatch(
            "the table maps its columns by their ids",
            remedy=f"set its property {_MODE} to name.",
        )
    partition = set(action.get("partitionColumns") or ())
    if mode == "name" and partition:  # and deltalake does not open one that it has not made itself
        raise SchemaMismatch(
            "the table maps its columns and has partitions, which deltalake does not read",
            remedy=f"write it anew without {_MODE}, and read that.",
        )
    inside = [each for each in fields if each["name"] not in partition]
    return Metadata(
        table_id=action["id"],
        schema=_fields(fields, is_stored=False),
        stored=_fields(inside, is_stored=True) if mode == "name" else "",
    )


def _fields(fields: Sequence[Mapping[str, Any]], *, is_stored: bool, between: str = " ") -> str:
    return ", ".join(
        f"{quoted(_name(each, is_stored))}{between}{_type(each['type'], is_stored)}"
        for each in fields
    )


def _name(column: Mapping[str, Any], is_stored: bool) -> str:
    return str(column["metadata"][_PHYSICAL] if is_stored else column["name"])


def _type(type_: Any, is_stored: bool) -> str:
    match type_:
        case str() if type_ in _PLAIN:
            return _PLAIN[type_]
        case str() if type_.startswith("decimal("):
            return type_.replace(" ", "")
        case {"type": "array", "elementType": element}:
            return f"array<{_type(element, is_stored)}>"
        case {"type": "map", "keyType": key, "valueType": value}:
            return f"map<{_type(key, is_stored)},{_type(value, is_stored)}>"
        case {"type": "struct", "fields": fields}:
            return f"struct<{_fields(fields, is_stored=is_stored, between=': ')}>"
    raise SchemaMismatch(
        f"the table has a column of type {type_}, which Spark does not read from its files",
        remedy="write it as another type.",
    )


def _texts(partition: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the values of a partition as the log writes them."""
    return {name: None if value is None else _text(value) for name, value in partition.items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _deltalake() -> Any:
    try:
        return import_module("deltalake")
    except ImportError as error:
        raise LibraryMissing(
            "a DeltaSpout needs the package deltalake, which is not installed here",
            remedy='pip install "airflow-provider-reliability[delta]"',
        ) from error
