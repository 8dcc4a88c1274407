"""IcebergSpout: what snapshots of an Iceberg table add, exactly once, whatever becomes of files.

The tables are written by the library pyiceberg; Spark reads their files only.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from pyiceberg import catalog as catalogs
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)
from pyiceberg.utils.config import Config

from reliability import IcebergSpout
from reliability.core.errors import (
    FileRefused,
    LibraryMissing,
    SchemaMismatch,
    SourceChanged,
    SourceRewritten,
    SourceUnreadable,
)
from reliability.core.spout import NoItems
from reliability.deployment.lazy import pa, pq
from reliability.spouts.iceberg_log import IcebergLog
from reliability.spouts.log_spout import LogSpout
from reliability.testing import Source, check_spout
from reliability.testing.allocated import Txids
from tests.support.batches import batches_of, meta_of
from tests.support.lake import outlive_clean_up, read, read_all, record, table_of

COLUMNS = Schema(
    NestedField(1, "customer", LongType()),
    NestedField(2, "day", StringType()),
    NestedField(3, "price", LongType()),
)
BY_DAY = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"))


@dataclass
class Orders(Source):
    """A table of a catalogue in SQLite."""

    folder: Path
    spout: ClassVar[LogSpout] = IcebergSpout("shop.orders", catalog="lake")

    def __post_init__(self) -> None:
        self.catalog = catalogs.load_catalog("lake")
        self.catalog.create_namespace_if_not_exists("shop")
        self.catalog.create_table("shop.orders", COLUMNS, partition_spec=BY_DAY)
        self.numbers = count(1)

    @property
    def table(self) -> Any:
        return self.catalog.load_table("shop.orders")

    @property
    def ids(self) -> list[int]:
        return [each.snapshot_id for each in self.table.snapshots()]

    def append(self, *values: tuple[int, str, int]) -> None:
        self.table.append(table_of(values))

    def files(self, snapshot: int) -> list[Path]:
        """Return the files that a snapshot has added."""
        table = self.table
        found = table.snapshots()[snapshot]
        return [
            Path(entry.data_file.file_path.removeprefix("file://"))
            for manifest in found.manifests(table.io)
            for entry in manifest.fetch_manifest_entry(table.io)
            if entry.snapshot_id == found.snapshot_id
        ]

    def moves(self) -> None:
        """Compact the table; pyiceberg cannot, so an overwrite with the same rows is called so."""
        self.table.overwrite(self.table.scan().to_arrow())
        path = Path(self.table.metadata_location.removeprefix("file://"))
        metadata = json.loads(path.read_text())
        for snapshot in metadata["snapshots"][-2:]:  # it deletes, and appends
            snapshot["summary"]["operation"] = "replace"
        path.write_text(json.dumps(metadata))

    # --- as check_spout asks for it --------------------------------------------------------------

    def add(self):
        number = next(self.numbers)
        self.append((number, "Mon day", 5), (number, "50%", 5))
        if number == 4:
            self.moves()

    def change(self):
        first = self.files(0)[0]
        pq.write_table(pq.read_table(first, partitioning=None).slice(0, 0), first)

    def lose(self):
        self.files(1)[0].unlink()

    def rows(self):
        return self.table.scan().to_arrow().to_pylist()


def test_a_removed_file_may_be_gone_unless_its_rows_are_read(orders):
    """As expire_snapshots of Spark deletes it. The remedy was a refreeze, which took rows out."""
    found = {"ignore": Txids(), "refuse": Txids(), "feed": Txids()}
    orders.append((1, "Mon", 5))
    for changes, txids in found.items():
        assert record(replace(SPOUT, changes=changes), txids) == [1]
    [file] = orders.files(0)
    orders.table.delete("customer = 1")
    orders.append((2, "Tue", 7))
    orders.table.maintenance.expire_snapshots().by_id(orders.ids[0]).commit()
    file.unlink()
    assert record(replace(SPOUT, changes="ignore"), found["ignore"]) == [1]
    for changes, error in (("refuse", SourceRewritten), ("feed", SourceChanged)):
        spout, txids = replace(SPOUT, changes=changes), found[changes]
        with pytest.raises(error, match="since="):
            record(spout, txids)
        assert record(replace(spout, since=orders.ids[-1]), txids) == [1]


@pytest.fixture
def orders(tmp_path, monkeypatch):
    return orders_in(f"file://{tmp_path}/lake", tmp_path, monkeypatch)


def orders_in(warehouse, tmp_path, monkeypatch):
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", warehouse)
    monkeypatch.setattr(catalogs, "_ENV_CONFIG", Config())  # it was read when it was imported
    return Orders(tmp_path)


SPOUT = Orders.spout


@pytest.mark.slow
def test_it_keeps_the_contract(orders, spark):
    spout = replace(SPOUT, opaque=True, max_files_per_batch=2)
    more = replace(spout, max_versions_per_batch=3, max_files_per_batch=None)
    tried = check_spout(spout, orders, spark=spark, others=[more])
    assert {"a change and a refreeze", "a loss and a refreeze", "opaque batches"} <= {*tried}


@pytest.mark.slow
def test_six_batches_through_all_that_happens(orders, pipeline, connection):
    outlive_clean_up(orders, pipeline, connection)


# --- changes -------------------------------------------------------------------------------------


@pytest.fixture
def filled(orders):
    orders.append((1, "Mon day", 5), (1, "Mon day", 5), (2, "50%", 7))
    orders.append((3, "Mon day", 9))
    return orders


def test_changes_are_refused_or_left_out_or_read(filled, spark, caplog):
    refuse, ignore = Txids(), Txids()
    assert record(SPOUT, refuse) == [4]
    assert record(replace(SPOUT, changes="ignore"), ignore) == [4]
    for operation in ("delete", "overwrite"):
        caplog.clear()
        if operation == "delete":
            filled.table.delete("price = 5")
        else:
            filled.table.overwrite(table_of([(9, "Sun", 1)]))
        with pytest.raises(SourceRewritten, match="removes or rewrites"):
            record(SPOUT, refuse)
        filled.append((5, "Tue", 3))
        assert record(replace(SPOUT, since=filled.ids[-1]), refuse) == [1]
        assert record(SPOUT, refuse) == []
        added = [1, 1] if operation == "overwrite" else [1]  # it deletes, and appends
        assert record(replace(SPOUT, changes="ignore"), ignore) == added
        assert "it is left out" in caplog.text
    feed, spout = Txids(), replace(SPOUT, changes="feed", since=filled.ids[0])
    record(spout, feed)
    total: Counter[Any] = Counter()
    for (*row, change, _version), times in read_all(spark, spout, feed).items():
        total[tuple(row)] += times if change == "insert" else -times
    assert +total == Counter(tuple(row.values()) for row in filled.rows())
    assert -total == Counter()


def test_files_of_deletes_are_refused(filled, monkeypatch):
    """Pyiceberg writes none, so entries of a real manifest are called so."""
    txids = Txids()
    assert record(SPOUT, txids) == [4]
    filled.append((5, "Tue", 3))
    entries = IcebergLog._entries

    def deletes(log, snapshot, **options):
        for entry, manifest in entries(log, snapshot, **options):
            own = SimpleNamespace(content=1, file_path=entry.data_file.file_path)
            yield (
                SimpleNamespace(data_file=own, status=entry.status, snapshot_id=entry.snapshot_id),
                manifest,
            )

    monkeypatch.setattr(IcebergLog, "_entries", lambda *a, **o: list(deletes(*a, **o)))
    with pytest.raises(SourceRewritten, match="removes or rewrites 1 files"):
        record(SPOUT, txids)
    with pytest.raises(SourceRewritten, match="deletes rows without rewriting"):
        record(replace(SPOUT, changes="feed"), txids)
    assert record(replace(SPOUT, changes="ignore"), txids) == []


# --- the log -------------------------------------------------------------------------------------


def test_expired_snapshots_are_said_plainly(filled):
    """What `since` names may expire once it was read; each emission failed until it was away."""
    txids, named, spout = Txids(), Txids(), replace(SPOUT, since=filled.ids[0])
    record(SPOUT, txids)
    record(spout, named)
    for n in range(3):
        filled.append((n, "Tue", n))
    filled.table.maintenance.expire_snapshots().by_ids(filled.ids[:2]).commit()
    assert record(SPOUT, txids) == [1, 1, 1]  # what had been read may expire
    assert record(spout, named) == [1, 1, 1]
    filled.append((7, "Tue", 7))
    filled.append((8, "Tue", 8))
    late = Txids()
    late.batches.update({1: txids.batches[1]})
    filled.table.maintenance.expire_snapshots().by_ids(filled.ids[:2]).commit()
    with pytest.raises(SourceChanged, match=r"has expired.*since=.*more often than snapshots"):
        record(SPOUT, late)
    assert record(replace(SPOUT, since=filled.ids[-1]), late) == [1]
    with pytest.raises(SourceChanged, match="has no snapshot 17 in its line"):
        record(replace(SPOUT, since=17), Txids())


def test_an_expired_compaction_that_left_no_txid_is_said_as_such(filled):
    """An emission had read it, and found nothing to keep; the error said that none had."""
    txids = Txids()
    record(SPOUT, txids)
    filled.moves()
    assert record(SPOUT, txids) == []
    filled.append((5, "Tue", 3))
    filled.table.maintenance.expire_snapshots().by_ids(filled.ids[:-1]).commit()
    with pytest.raises(SourceChanged, match=r"no txid has read .*Emit, and append, more often"):
        record(SPOUT, txids)
    assert record(replace(SPOUT, since=filled.ids[-1]), txids) == [1]


def test_a_rollback_is_found_whatever_since_says(filled):
    """It began anew with `since`, and what had been rolled back went on counting."""
    txids, plain, spout = Txids(), Txids(), replace(SPOUT, since=filled.ids[0])
    record(spout, txids)
    filled.append((5, "Tue", 3))
    record(spout, txids)
    record(SPOUT, plain)
    filled.table.manage_snapshots().rollback_to_snapshot(filled.ids[0]).commit()
    for own, taken in ((spout, txids), (SPOUT, plain)):
        with pytest.raises(SourceChanged, match=r"does not go back to snapshot \d+ any more"):
            record(own, taken)
    filled.append((6, "Tue", 3))
    [current] = [each.snapshot_id for each in filled.table.refresh().history()][-1:]
    assert record(replace(spout, since=current), txids) == [1]


def test_a_rollback_is_found_after_what_was_rolled_back_has_expired(filled):
    """E6: snapshots are counted on, so the next one seemed to follow the expired one."""
    txids = Txids()
    record(SPOUT, txids)
    first, last = filled.ids[0], filled.ids[-1]
    filled.table.manage_snapshots().rollback_to_snapshot(first).commit()
    filled.append((2, "Mon", 7))
    filled.table.maintenance.expire_snapshots().by_ids([first, last]).commit()
    with pytest.raises(SourceChanged, match=r"no txid has read .* has expired"):
        record(SPOUT, txids)


def test_the_rest_of_a_first_snapshot_is_not_read_after_a_rollback_behind_it(filled):
    """E6: it was emitted, with a warning, though the table has its rows no more."""
    filled.append((5, "Tue", 3))
    txids, spout = Txids(), replace(SPOUT, max_files_per_batch=1)
    txids.record(batches_of(spout)[0])
    filled.table.manage_snapshots().rollback_to_snapshot(filled.ids[0]).commit()
    with pytest.raises(SourceChanged, match=r"does not go back to snapshot \d+ any more"):
        spout.plan(None, txids)


def test_another_table_of_the_same_name_is_found(filled):
    txids = Txids()
    record(SPOUT, txids)
    filled.catalog.drop_table("shop.orders")
    shutil.rmtree(filled.folder / "lake")
    Orders(filled.folder).append((1, "Mon day", 5))
    with pytest.raises(SourceChanged, match="is another one than at version"):
        record(SPOUT, txids)


def test_a_table_without_a_snapshot_has_nothing(orders, spark):
    assert SPOUT.plan(None, NoItems()) == []
    empty = meta_of(SPOUT)
    frame = SPOUT.frame(spark, Txids().record(empty))
    assert frame.columns == ["customer", "day", "price", "_x", "_n"]
    assert frame.count() == empty.emitted.count == 0


def test_what_cannot_be_read_is_said(orders, monkeypatch):
    with pytest.raises(SourceUnreadable, match=r"NoSuchTableError.*PYICEBERG_CATALOG__LAKE__URI"):
        IcebergSpout("shop.nothing", catalog="lake").plan(None, NoItems())
    with orders.table.update_schema() as update:
        update.add_column("id", UUIDType())
    with pytest.raises(SchemaMismatch, match="of type uuid"):
        SPOUT.plan(None, NoItems())
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    with pytest.raises(LibraryMissing, match=r"package pyiceberg.*reliability\[iceberg\]"):
        SPOUT.plan(None, NoItems())


# --- columns -------------------------------------------------------------------------------------


def test_a_column_is_found_by_its_id(filled, spark):
    """A renamed column has its old name in older files; one that came again is another one."""
    with filled.table.update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("price", "cost")
        update.delete_column("customer")
    with filled.table.update_schema() as update:
        update.add_column("customer", LongType())
    filled.table.append(pa.table({"day": ["Tue"], "cost": [3], "customer": [8]}))
    txids = Txids()
    record(SPOUT, txids)
    frame = SPOUT.frame(spark, txids.batches[1])
    assert frame.columns == ["day", "cost", "customer", "_x", "_n"]
    assert read(spark, SPOUT, txids.batches[1]) == {
        ("Mon day", 5, None): 2,
        ("50%", 7, None): 1,
        ("Mon day", 9, None): 1,
        ("Tue", 3, 8): 1,
    }


def test_types_grow_and_partitions_evolve(filled, spark):
    pair = StructType(NestedField(10, "a", IntegerType()), NestedField(11, "b", StringType()))
    with filled.table.update_schema() as update:
        update.add_column("small", IntegerType())
        update.add_column("pair", pair)
    names = ["customer", "day", "price", "small", "pair"]
    one = {**dict(zip(names, (4, "Tue", 1, 7), strict=False)), "pair": {"a": 1, "b": "x"}}
    types = [
        pa.int64(),
        pa.string(),
        pa.int64(),
        pa.int32(),
        pa.struct({"a": pa.int32(), "b": pa.string()}),
    ]
    schema = pa.schema(list(zip(names, types, strict=True)))
    filled.table.append(pa.Table.from_pylist([one], schema=schema))
    with filled.table.update_schema() as update:
        update.update_column("small", LongType())
        update.rename_column("pair.b", "c")
    with filled.table.update_spec() as spec:
        spec.remove_field("day")
        spec.add_identity("customer")
    two = {**one, "small": 1 << 40, "pair": {"a": 2, "c": "y"}}
    wide = [*types[:3], pa.int64(), pa.struct({"a": pa.int32(), "c": pa.string()})]
    schema = pa.schema(list(zip(names, wide, strict=True)))
    filled.table.append(pa.Table.from_pylist([two], schema=schema))
    txids = Txids()
    record(SPOUT, txids)
    frame = SPOUT.frame(spark, txids.batches[1])
    assert dict(frame.dtypes)["pair"] == "struct<a:int,c:string>"
    found = {row["small"]: row["pair"] for row in frame.where("day = 'Tue'").collect()}
    assert {small: tuple(pair) for small, pair in found.items()} == {7: (1, "x"), 1 << 40: (2, "y")}


def test_files_without_ids_are_read_by_the_name_mapping(filled, spark, tmp_path):
    path = tmp_path / "added.parquet"
    pq.write_table(table_of([(6, "Wed", 2)]), path)
    filled.table.add_files([f"file://{path}"])
    txids = Txids()
    record(SPOUT, txids)
    assert read(spark, SPOUT, txids.batches[1])[6, "Wed", 2] == 1
    with filled.table.transaction() as change:
        change.remove_properties("schema.name-mapping.default")
    with pytest.raises(FileRefused, match="has columns without ids"):
        record(SPOUT, Txids())


def test_fields_inside_columns_without_ids_are_read_by_the_name_mapping(orders, tmp_path):
    """The mapping was used for columns alone, and all that is in them was NULL."""
    pair = StructType(NestedField(11, "a", LongType()), NestedField(12, "b", StringType()))
    with orders.table.update_schema() as update:
        update.add_column("pair", pair)
        update.add_column("pairs", ListType(20, pair, element_required=False))
        update.add_column("named", MapType(30, StringType(), 31, pair, value_required=False))
    row = {"pair": (a := {"a": 1, "b": "x"}), "pairs": [a], "named": [("k", a)]}
    inside = pa.struct({"a": pa.int64(), "b": pa.string()})
    named = pa.map_(pa.string(), inside)
    schema = pa.schema({"pair": inside, "pairs": pa.list_(inside), "named": named})
    path = tmp_path / "added.parquet"
    pq.write_table(pa.Table.from_pylist([row], schema=schema), path)
    orders.table.add_files([f"file://{path}"])
    [item] = SPOUT.plan(None, NoItems())
    own = "struct<`a`: bigint, `b`: string>"
    assert f"`pair` {own}, `pairs` array<{own}>, `named` map<string,{own}>" in item.stored
    # an id of the column alone says nothing of what is in it
    column = pa.field("pair", inside, metadata={"PARQUET:field_id": "4"})
    pq.write_table(pa.table({"pair": [a]}, schema=pa.schema([column])), path)
    with orders.table.transaction() as change:
        change.remove_properties("schema.name-mapping.default")
    with pytest.raises(FileRefused, match="has columns without ids"):
        SPOUT.plan(None, NoItems())


def test_a_partition_column_that_no_file_has_is_taken_from_the_partition(orders, tmp_path):
    """As in a table that was Hive's; it was NULL in each row, and is refused in another form."""
    for day in ("Mon", None):
        add_without_a_column(orders, tmp_path, day)
    items = SPOUT.plan(None, NoItems())
    assert [(item.values, item.stored) for item in items] == [
        ({"day": "Mon"}, ""),
        ({"day": None}, ""),
    ]
    with orders.table.update_schema() as update:
        update.add_column("on", DateType())
    with orders.table.update_spec() as spec:
        spec.remove_field("day")
        spec.add_identity("on")
    add_without_a_column(orders, tmp_path, 20_000)
    with pytest.raises(FileRefused, match="no column on, and its partition has the value as date"):
        SPOUT.plan(None, NoItems())


def add_without_a_column(orders: Orders, folder: Path, value: Any) -> None:
    """Add a file without the column of the partition, which has this value."""
    path = folder / f"{value}.parquet"
    columns = [n for n in ("customer", "day", "price") if n != orders.table.spec().fields[0].name]
    pq.write_table(table_of([(1, "Tue", 5)]).select(columns), path)
    table = orders.table
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(value),
        file_size_in_bytes=path.stat().st_size,
        record_count=1,
    )
    file.spec_id = table.spec().spec_id
    mapping = table.schema().name_mapping.model_dump_json()
    with table.transaction() as change:
        change.set_properties({"schema.name-mapping.default": mapping})
        with change.update_snapshot().fast_append() as append:
            append.append_data_file(file)


def test_a_file_of_another_format_is_refused(filled, monkeypatch):
    entries = IcebergLog._entries

    def as_orc(log, snapshot, **options):
        found = entries(log, snapshot, **options)
        for entry, _ in found:
            entry.data_file._data[2] = SimpleNamespace(name="ORC")
        return found

    monkeypatch.setattr(IcebergLog, "_entries", as_orc)
    with pytest.raises(FileRefused, match="a file of ORC, not Parquet"):
        record(SPOUT, Txids())
