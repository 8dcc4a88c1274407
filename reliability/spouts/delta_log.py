"""The log of a Delta table: the table as it is, and what each version has added and removed.

Only this module uses the library `deltalake`. That library finds the table, its latest version and
its files at a version. What one version changes stands in the JSON file of its commit, which is
read as Delta's protocol has it (https://github.com/delta-io/delta/blob/master/PROTOCOL.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, TypeAlias
from urllib.parse import unquote

from reliability.core.column import quoted
from reliability.core.errors import SchemaMismatch, SourceChanged, SourceUnreadable
from reliability.core.remedy import Remedy
from reliability.deployment.lazy import fs, library, pa
from reliability.spouts.file_names import identity_of_decoded, is_uri, locate, without_file_scheme
from reliability.spouts.filesystem import open_filesystem
from reliability.spouts.log_item import LogFile
from reliability.spouts.table_log import Commit, LoggedFile, TableLog, not_read

Action: TypeAlias = Mapping[str, Any]
_SAME = ("boolean", "float", "double", "date", "timestamp", "timestamp_ntz", "string", "binary")
_PLAIN = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    **{name: name for name in _SAME},
}
_PUT_BACK = "restore the table; or read it by a topology with another name, which begins anew."
_OF_A_FILE = ("path", "size_bytes", "num_records", "partition", "partition_values")
_MODE, _PHYSICAL = "delta.columnMapping.mode", "delta.columnMapping.physicalName"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The columns of a table at a version.

    :param schema: all of them, as Spark's DDL
    :param stored: those that are in files, if they have other names there; else empty
    """

    schema: str
    stored: str


class DeltaLog(TableLog):
    """The log of the table at a path.

    :raises LibraryMissing: the library is not installed
    :raises SourceUnreadable: there is no such table, or it cannot be read
    """

    def __init__(self, path: str) -> None:
        self.path = without_file_scheme(path).rstrip("/")
        self._place = locate(self.path)
        self.where = f"the table at {self._place}"
        self._library = library("deltalake", "delta", "a DeltaSpout")
        self._table = self._load(None)
        self.version = int(self._table.version())
        self.table_id = str(self._table.metadata().id)
        self.schema = self._metadata_at(self.version).schema

    def files_at(self, version: int) -> list[LoggedFile]:
        table, metadata = self._at(version), self._metadata_at(version)
        masked = set()
        if "deletionVectors" in (table.protocol().reader_features or ()):
            if not hasattr(table, "deletion_vectors"):
                raise SourceUnreadable(
                    f"{self._place} may have deletion vectors, of which this release of deltalake "
                    "says nothing",
                    remedy="install a newer release of deltalake.",
                )
            vectors = pa.table(table.deletion_vectors()).to_pylist()
            masked = {unquote(each["filepath"].rpartition("/")[2]) for each in vectors}
        # its statistics are of no use here, and some are beyond Python's dates
        actions = pa.table(table.get_add_actions())
        own = [name for name in actions.column_names if name in _OF_A_FILE]
        found = actions.select(own).to_pylist()
        is_encoded = self._are_encoded([each["path"] for each in found])
        files = [
            LoggedFile(
                path=self._identity(each["path"], is_encoded=is_encoded),
                size=each["size_bytes"],
                rows=each.get("num_records"),
                schema=metadata.schema,
                stored=metadata.stored,
                partition=self._partition(each, table.metadata().partition_columns),
                has_masked_rows=unquote(each["path"]).rpartition("/")[2] in masked,
            )
            for each in found
        ]
        return sorted(files, key=lambda each: each.path)

    def commits(self, since: int | None, last: LogFile | None) -> Iterator[Commit]:
        first = since or 0
        metadata: Metadata | None = None
        if last is not None and last.version >= first:
            first = last.version + (not last.behind)
            if not last.behind:
                metadata = Metadata(**last.columns_after)
        if first > self.version:
            return
        metadata = metadata or self._metadata_before(first)
        for version in range(first, self.version + 1):
            actions = self._actions(version)
            before = metadata
            for action in actions:
                if changed := action.get("metaData"):
                    metadata = read_metadata(changed)
            yield self._commit(version, actions, before, metadata)

    def check_same(self, last: LogFile) -> None:
        if last.version > self.version:
            raise SourceChanged(
                f"{self.where} has version {self.version}, and a txid has read version "
                f"{last.version}",
                remedy=_PUT_BACK,
            )
        try:
            if last.is_snapshot:
                paths = {file.path for file in self.files_at(last.version)}
            else:
                actions = chain.from_iterable(one.values() for one in self._actions(last.version))
                paths = {self._identity(one["path"]) for one in actions if "path" in one}
        except SourceChanged:  # the log does not reach back to it
            return
        # of a table that was moved, the names of its files are the same
        if _name_in(last.path) not in map(_name_in, paths):
            raise SourceChanged(
                f"version {last.version} of {self.where} is another one than a txid has read",
                remedy=_PUT_BACK,
            )

    def _commit(
        self, version: int, actions: Sequence[Action], before: Metadata, after: Metadata
    ) -> Commit:
        commit = Commit(version=version)
        for action in actions:
            match action:
                case {"commitInfo": {"operation": operation}}:
                    commit.operation = str(operation)
                case {"add": {"dataChange": True} as add}:
                    commit.added.append(self._file(add, after))
                case {"remove": {"dataChange": True} as remove}:
                    file = self._file(remove, before)
                    if before != after:
                        file = replace(file, next_schema=after.schema, next_stored=after.stored)
                    commit.removed.append(partial(replace, file))
                case {"cdc": cdc}:
                    commit.feed.append(self._file(cdc, after))
        return commit

    def _actions(self, version: int) -> list[Action]:
        filesystem, inner = open_filesystem(f"{self.path}/_delta_log/{version:020}.json")
        try:
            with filesystem.open_input_stream(inner) as file:
                lines = file.read().decode().split("\n")  # values may have other ends of lines
        except FileNotFoundError:
            raise SourceChanged(
                f"the log of {self._place} has no version {version} any more, and it is not known "
                "what it has changed",
                remedy=Remedy(
                    "find out from the writers which rows came since; then set since= in the "
                    "DeltaSpout to the first version that is to be read, and {resume_runs}. Emit "
                    "more often than delta.logRetentionDuration, or raise that."
                ),
            ) from None
        except OSError as error:
            raise SourceUnreadable(f"the log of {self._place} cannot be read: {error}") from error
        return [json.loads(line) for line in lines if line]

    def _file(self, action: Action, metadata: Metadata) -> LoggedFile:
        statistics = json.loads(action.get("stats") or "{}")
        values = action.get("partitionValues")  # which one that removes a file may leave out
        if values is None and not self._table.metadata().partition_columns:
            values = {}
        return LoggedFile(
            path=self._identity(action["path"]),
            size=action.get("size"),
            rows=statistics.get("numRecords"),
            schema=metadata.schema,
            stored=metadata.stored,
            partition=values and {name: value or None for name, value in values.items()},
            has_masked_rows=action.get("deletionVector") is not None,
        )

    def _partition(self, found: Action, columns: Sequence[str]) -> dict[str, str | None]:
        """Return the values of a file's partition as the log writes them.

        :param columns: by which the table was partitioned then
        """
        values = found.get("partition") or found.get("partition_values") or {}
        if set(values) != set(columns):
            raise SourceUnreadable(
                f"deltalake says of a file of {self._place} the partition {sorted(values)}, and of "
                f"the table {columns}",
                remedy="install a release of deltalake that docs/sources/delta.md names.",
            )
        return {name: None if value is None else _text(value) for name, value in values.items()}

    def _are_encoded(self, paths: Sequence[str]) -> bool:
        """Say whether the library returns paths as the log has them; early releases decode them."""
        ambiguous = next((path for path in paths if "%" in path), None)
        if ambiguous is None:
            return True
        filesystem, inner = open_filesystem(self._identity(ambiguous, is_encoded=False))
        return bool(filesystem.get_file_info(inner).type != fs.FileType.File)

    def _identity(self, path: str, *, is_encoded: bool = True) -> str:
        """Return the name of a file, which the log has encoded, relative to the table or whole."""
        path = unquote(path) if is_encoded else path
        is_whole = is_uri(path) or path.startswith(("/", "file:/"))
        return identity_of_decoded(path if is_whole else f"{self.path}/{path}")

    def _metadata_at(self, version: int) -> Metadata:
        table = self._at(version)
        own = table.metadata()
        return read_metadata(
            {
                "schemaString": table.schema().to_json(),
                "partitionColumns": own.partition_columns,
                "configuration": own.configuration,
            }
        )

    def _metadata_before(self, version: int) -> Metadata:
        """Return the columns before a version, or with it if the log goes no further back."""
        try:
            return self._metadata_at(max(version - 1, 0))
        except SourceChanged:
            return self._metadata_at(version)

    def _at(self, version: int) -> Any:
        return self._table if version == self.version else self._load(version)

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


def _name_in(path: str) -> str:
    return path.rpartition("/")[2]


def read_metadata(action: Mapping[str, Any]) -> Metadata:
    """Read the columns of a table.

    :raises SchemaMismatch: Spark has no such column, finds it in files by its number only, or the
        log does not tell its values
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
    if binary := [f["name"] for f in fields if f["name"] in partition and f["type"] == "binary"]:
        raise SchemaMismatch(
            f"the partition column {binary[0]} is binary, whose values the log has in no one way",
            remedy="write it as a string, or keep it out of the partition.",
        )
    inside = [each for each in fields if each["name"] not in partition]
    return Metadata(
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
    raise not_read(type_)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
