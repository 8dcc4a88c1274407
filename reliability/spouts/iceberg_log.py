"""The log of an Iceberg table: its snapshots, and the data files that each has added and removed.

Only this module uses the library `pyiceberg`. A version is the id of a snapshot; the order is that
of the current snapshot's parents. A file's columns are found by their ids, as a column that was
renamed has its old name in older files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from reliability.core.column import quoted
from reliability.core.errors import FileRefused, SchemaMismatch, SourceChanged, SourceUnreadable
from reliability.core.remedy import Remedy
from reliability.deployment.lazy import library, pa, pq
from reliability.spouts.ddl import ddl_of
from reliability.spouts.file_names import identity_of_decoded, locate
from reliability.spouts.filesystem import open_filesystem
from reliability.spouts.log_item import LogFile
from reliability.spouts.table_log import Commit, LoggedFile, TableLog, gone, not_read

_PLAIN = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "string": "string",
    "binary": "binary",
}
_AS_TEXT = ("int", "long", "string")  # types whose values are exact as text
_ID = b"PARQUET:field_id"
_ABSENT = "_reliability_absent_"  # a column that a file was written without
_MOVED = "replace"  # the operation of a snapshot that has only moved rows
_DATA = 0  # the content of a data file; others say which rows of data files are gone


class IcebergLog(TableLog):
    """The log of a table of a catalogue.

    :param catalog: its name in the configuration of pyiceberg
    :param table: with its namespaces, `shop.orders`
    :raises LibraryMissing: the library is not installed
    :raises SourceUnreadable: there is no such table, or it cannot be read
    """

    def __init__(self, catalog: str, table: str) -> None:
        self.where = f"the table {table} of {catalog}"
        catalogs = library("pyiceberg.catalog", "iceberg", "an IcebergSpout")
        try:
            self._table: Any = catalogs.load_catalog(catalog).load_table(table)
        except Exception as error:  # each catalogue has errors of its own
            raise SourceUnreadable(
                f"{self.where} cannot be read: {type(error).__name__}: {error}",
                remedy="name the catalogue as pyiceberg's configuration does "
                f"(PYICEBERG_CATALOG__{catalog.upper()}__URI, or .pyiceberg.yaml), and let it be "
                "reached; this run has allocated no txid.",
            ) from error
        metadata = self._table.metadata
        self.table_id = str(metadata.table_uuid)
        self.version = metadata.current_snapshot_id or 0
        fields = self._table.schema().fields
        self.schema = ddl_of((each.name, _type(each.field_type)) for each in fields)
        self._snapshots = {each.snapshot_id: each for each in metadata.snapshots}
        self._schemas = {each.schema_id: each for each in metadata.schemas}
        self._line = self._line_of_descent()

    def _line_of_descent(self) -> list[int]:
        """Return the ids of the current snapshot and its parents, the oldest first.

        The first one may be a parent that has expired: only its id is known.
        """
        line: list[int] = []
        number: int | None = self.version or None
        while number is not None and number not in line:
            line.append(number)
            snapshot = self._snapshots.get(number)
            number = snapshot.parent_snapshot_id if snapshot else None
        return line[::-1]

    def files_at(self, version: int) -> list[LoggedFile]:
        if not version:
            return []
        snapshot = self._snapshots.get(version)
        if snapshot is None:
            raise self._expired(f"snapshot {version}")
        has_expired = any(number not in self._snapshots for number in self._line[:1])
        if version not in self._line and not has_expired:
            raise self._left(version)
        entries = [each for each, _ in self._entries(snapshot)]
        masked = any(entry.data_file.content != _DATA for entry in entries)
        files = [
            self._file(entry.data_file, snapshot, is_masked=masked)
            for entry in entries
            if entry.data_file.content == _DATA
        ]
        return sorted(files, key=lambda each: each.path)

    def commits(self, since: int | None, last: LogFile | None) -> Iterator[Commit]:
        for number in self._line[self._start(since, last) :]:
            snapshot = self._snapshots.get(number)
            if snapshot is None:
                raise self._expired(f"snapshot {number}")
            yield self._commit(snapshot)

    def _start(self, since: int | None, last: LogFile | None) -> int:
        """Return the index in the line of descent of the first snapshot to read."""
        has_since = since is not None and since in self._snapshots and since in self._line
        begin = self._line.index(since) if since is not None and has_since else 0
        if last is None:
            self._check_since(since, has_since)
            return begin
        if last.version in self._line:  # `since` may have expired meanwhile
            return max(begin, self._line.index(last.version) + (not last.behind))
        is_expired = last.version not in self._snapshots
        if is_expired and not last.behind and self._follows(last):
            return begin
        self._check_since(since, has_since)
        if since is not None and self._is_later(since, last):
            return begin
        if is_expired:
            raise self._expired("a snapshot that no txid has read")
        raise self._left(last.version)

    def _left(self, version: int) -> SourceChanged:
        return SourceChanged(
            f"{self.where} does not go back to snapshot {version} any more, which a txid "
            "has read: it was rolled back, or its main branch was replaced",
            remedy=Remedy(
                "set the branch to that snapshot, or to one behind it; then {resume_runs}."
            ),
        )

    def _check_since(self, since: int | None, has_since: bool) -> None:
        if since is not None and not has_since:
            raise SourceChanged(
                f"{self.where} has no snapshot {since} in its line",
                remedy="set since= in the IcebergSpout to the id of one that it has.",
            )

    def _is_later(self, since: int, last: LogFile) -> bool:
        """Say whether a person has set `since` after the file was read, as far as is known."""
        snapshot, known = self._snapshots[since], self._snapshots.get(last.version)
        if last.sequence and snapshot.sequence_number:
            return bool(snapshot.sequence_number > last.sequence)
        return known is None or bool(snapshot.timestamp_ms > known.timestamp_ms)

    def _follows(self, last: LogFile) -> bool:
        """Say whether the oldest snapshot that is left is the next one after an expired one.

        Some libraries let it forget its parent; only the second format of tables counts snapshots.
        They are counted on after a rollback: it must have what the expired one has written.
        """
        oldest = self._snapshots.get(self._line[0]) if self._line else None
        if not (oldest and last.sequence and oldest.sequence_number == last.sequence + 1):
            return False
        return any(
            last.sequence in (entry.file_sequence_number, manifest.sequence_number)
            for entry, manifest in self._entries(oldest, with_deleted=True)
        )

    def _commit(self, snapshot: Any) -> Commit:
        operation = snapshot.summary.operation.value if snapshot.summary else ""
        commit = Commit(version=snapshot.snapshot_id, operation=operation)
        if operation == _MOVED:
            return commit
        for entry, manifest in self._entries(snapshot, with_deleted=True):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            if entry.snapshot_id != snapshot.snapshot_id or entry.status.name == "EXISTING":
                continue
            is_new = entry.status.name == "ADDED"
            if entry.data_file.content != _DATA:
                commit.masks += is_new
                continue
            if is_new:
                commit.added.append(self._file(entry.data_file, snapshot))
            else:
                commit.removed.append(partial(self._file, entry.data_file, snapshot))
        return commit

    def _entries(self, snapshot: Any, *, with_deleted: bool = False) -> list[tuple[Any, Any]]:
        """Return the entries of a snapshot's manifests, each with its manifest."""
        io = self._table.io
        try:
            return [
                (entry, manifest)
                for manifest in snapshot.manifests(io)
                for entry in manifest.fetch_manifest_entry(io, discard_deleted=not with_deleted)
            ]
        except OSError as error:
            raise SourceUnreadable(
                f"a manifest of snapshot {snapshot.snapshot_id} of {self.where} cannot be read: "
                f"{error}"
            ) from error

    def _file(self, entry: Any, snapshot: Any, *, is_masked: bool = False) -> LoggedFile:
        path = identity_of_decoded(entry.file_path)
        if entry.file_format.name != "PARQUET":
            raise FileRefused(f"{locate(path)} is a file of {entry.file_format.name}, not Parquet")
        schema = self._schemas.get(snapshot.schema_id) or self._table.schema()
        own = self._columns(path)
        partition = self._only_in_partition(entry, schema, own)
        inside = [each for each in schema.fields if each.name not in partition]
        wanted = [(each.name, _type(each.field_type)) for each in inside]
        stored = [_column(each, own) for each in inside]
        return LoggedFile(
            path=path,
            size=entry.file_size_in_bytes,
            rows=entry.record_count,
            schema=ddl_of((each.name, _type(each.field_type)) for each in schema.fields),
            stored="" if stored == wanted else ddl_of(stored),
            partition=partition,
            has_masked_rows=is_masked,
            sequence=snapshot.sequence_number or 0,
        )

    def _only_in_partition(
        self, entry: Any, schema: Any, own: Mapping[int | None, pa.Field]
    ) -> dict[str, str | None]:
        """Return the values of columns that a file lacks since its partition has them, as in Hive.

        :param own: the file's columns by their ids
        :raises FileRefused: a value's text is not exact
        """
        lacking = {each.field_id: each for each in schema.fields if each.field_id not in own}
        parts = enumerate(self._table.specs()[entry.spec_id].fields) if lacking else ()
        values: dict[str, str | None] = {}
        for number, part in parts:
            if str(part.transform) != "identity" or part.source_id not in lacking:
                continue
            column, value = lacking[part.source_id], entry.partition[number]
            if value is not None and str(column.field_type) not in _AS_TEXT:
                place = locate(identity_of_decoded(entry.file_path))
                raise FileRefused(
                    f"{place} has no column {column.name}, and its "
                    f"partition has the value as {column.field_type}, which is not read",
                    remedy=Remedy("let the table rewrite the file; then {resume_runs}."),
                )
            values[column.name] = None if value is None else str(value)
        return values

    def _columns(self, path: str) -> dict[int | None, pa.Field]:
        """Return the columns of a file by their ids."""
        filesystem, inner = open_filesystem(path)
        try:
            with filesystem.open_input_file(inner) as file:
                own = pq.read_schema(file)
        except FileNotFoundError:
            raise gone(path) from None
        except (OSError, pa.ArrowException) as error:
            raise SourceUnreadable(f"{locate(path)} cannot be read: {error}") from error
        columns = [*own] if _have_ids(own) else self._by_name(path, own)
        return {_id_of(each): each for each in columns}

    def _by_name(self, path: str, own: pa.Schema) -> list[pa.Field]:
        """Return the columns of a file that lacks ids, with those of the table's name mapping."""
        mapping = self._table.name_mapping()
        if mapping is None:
            raise FileRefused(
                f"{locate(path)} has columns without ids, and {self.where} has no name mapping",
                remedy=Remedy(
                    "set the table's property schema.name-mapping.default; then {resume_runs}."
                ),
            )
        return _mapped(own, mapping.root)

    def _expired(self, what: str) -> SourceChanged:
        return SourceChanged(
            f"{what} of {self.where} has expired, and it is not known what it has changed",
            remedy=Remedy(
                "find out from the writers which rows came since; then set since= in the "
                "IcebergSpout to the first snapshot that is to be read, and {resume_runs}. Emit, "
                "and append, more often than snapshots expire: a txid alone keeps how far was read."
            ),
        )


def _column(wanted: Any, names: Mapping[int | None, pa.Field]) -> tuple[str, str]:
    """Return what a column is called in a file, and its type; one that is not there is NULL."""
    if getattr(wanted, "initial_default", None) is not None and wanted.field_id not in names:
        raise SchemaMismatch(
            f"column {wanted.name} has a default for older files, which Spark's reader of Parquet "
            "does not know",
            remedy="let the table rewrite its files.",
        )
    if (own := names.get(wanted.field_id)) is None:
        return f"{_ABSENT}{wanted.field_id}", _type(wanted.field_type)
    return own.name, _type(wanted.field_type, own.type)


def _type(type_: Any, own: pa.DataType | None = None) -> str:
    """Return the type in Spark's DDL; given the file's, with the names that fields have there."""
    match type(type_).__name__:
        case "StructType":
            fields = {_id_of(each): each for each in own} if own is not None else {}
            columns = [
                _column(each, fields) if own is not None else (each.name, _type(each.field_type))
                for each in type_.fields
            ]
            return f"struct<{', '.join(f'{quoted(name)}: {each}' for name, each in columns)}>"
        case "ListType":
            inner = own.value_type if own is not None else None
            return f"array<{_type(type_.element_type, inner)}>"
        case "MapType":
            pair = (own.key_type, own.item_type) if own is not None else (None, None)
            return f"map<{_type(type_.key_type, pair[0])},{_type(type_.value_type, pair[1])}>"
        case "DecimalType":
            return f"decimal({type_.precision},{type_.scale})"
        case "FixedType":
            return "binary"
    if str(type_) not in _PLAIN:
        raise not_read(type_)
    return _PLAIN[str(type_)]


def _have_ids(columns: Iterable[pa.Field]) -> bool:
    """Say whether columns of a file have ids, and the fields inside of them."""
    return all(_id_of(each) is not None and _have_ids(_fields_in(each.type)) for each in columns)


def _fields_in(own: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(own):
        return [*own]
    if pa.types.is_map(own):
        return [*_fields_in(own.key_type), *_fields_in(own.item_type)]
    return _fields_in(own.value_type) if pa.types.is_nested(own) else []


def _mapped(columns: Iterable[pa.Field], mapping: Sequence[Any]) -> list[pa.Field]:
    """Return those columns that a name mapping knows, with its ids, and so the fields inside."""
    known = {name: each for each in mapping for name in each.names if each.field_id is not None}
    return [
        pa.field(
            own.name,
            _mapped_type(own.type, known[own.name].fields),
            metadata={_ID: str(known[own.name].field_id)},
        )
        for own in columns
        if own.name in known
    ]


def _mapped_type(own: pa.DataType, mapping: Sequence[Any]) -> pa.DataType:
    inside = {name: each.fields for each in mapping for name in each.names}
    if pa.types.is_struct(own):
        return pa.struct(_mapped(own, mapping))
    if pa.types.is_map(own):
        key = _mapped_type(own.key_type, inside.get("key", ()))
        return pa.map_(key, _mapped_type(own.item_type, inside.get("value", ())))
    if pa.types.is_nested(own):
        return pa.list_(_mapped_type(own.value_type, inside.get("element", ())))
    return own


def _id_of(column: pa.Field) -> int | None:
    number = (column.metadata or {}).get(_ID)
    return int(number) if number is not None else None
