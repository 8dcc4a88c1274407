"""DeltaSpout: what versions of a Delta table add, exactly once, whatever becomes of its files.

The tables are written by the library deltalake, by its own engine; Spark reads their files only.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable, write_deltalake

from reliability import DeltaSpout, FileSpout
from reliability.core.errors import (
    ExclusionNotPossible,
    FileRefused,
    InvalidDefinition,
    LibraryMissing,
    RowsUnaccounted,
    SchemaMismatch,
    SourceChanged,
    SourceIsATable,
    SourceRewritten,
    SourceUnreadable,
)
from reliability.core.spout import BatchMeta, NoItems, only
from reliability.deployment.lazy import pa, pq
from reliability.spouts.delta_log import read_metadata
from reliability.spouts.log_item import DeltaFile
from reliability.spouts.log_spout import LogSpout
from reliability.testing import Source, check_spout
from reliability.testing.allocated import Txids
from reliability.transaction.correct.exclude import exclude, find_item, include
from reliability.transaction.emit.refreeze import refreeze
from tests.support.batches import batches_of, meta_of
from tests.support.fix_pipeline import pipeline_of
from tests.support.fix_postgres import rows
from tests.support.lake import (
    TOTALS,
    Values,
    lose_driver,
    outlive_clean_up,
    read,
    read_all,
    record,
    table_of,
    topology,
)

MODE, PHYSICAL = "delta.columnMapping.mode", "delta.columnMapping.physicalName"
FEED = {"delta.enableChangeDataFeed": "true"}


def append(path: Path, *values: Values, **more: Any) -> None:
    """Commit a version that adds rows; the first makes the table."""
    more = {"partition_by": ["day"], **more} if not (path / "_delta_log").exists() else more
    write_deltalake(str(path), table_of(values), **{"mode": "append", **more})


@pytest.fixture
def orders(tmp_path):
    """A table with two versions, partitioned by a name that has to be encoded."""
    path: Path = tmp_path / "orders"
    append(path, (1, "Mon day", 5), (1, "Mon day", 5), (2, "50%", 7))
    append(path, (3, "Mon day", 9))
    return path


def log_of(path: Path, version: int) -> Path:
    return path / "_delta_log" / f"{version:020}.json"


def actions_of(path: Path, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log_of(path, version).read_text().splitlines()]


def added_by(path: Path, version: int) -> list[Path]:
    """Return the files that a version adds."""
    adds = [action["add"] for action in actions_of(path, version) if "add" in action]
    return [path / unquote(add["path"]) for add in adds]


def plan_of(spout: DeltaSpout) -> list[Any]:
    return spout.plan(None, NoItems())


# --- the contract --------------------------------------------------------------------------------


class Orders(Source):
    """A Delta table to which people append; once it is optimised in between."""

    def __init__(self, path: Path):
        self.path, self.numbers = path, count(1)
        self.spout: LogSpout = DeltaSpout(str(path))

    def append(self, *values: Values) -> None:
        append(self.path, *values)

    def moves(self) -> None:
        DeltaTable(str(self.path)).optimize.z_order(["price"])

    def files(self, version: int) -> list[Path]:
        return added_by(self.path, version)

    def add(self):
        number = next(self.numbers)
        append(self.path, (number, "Mon day", 5), (number, "50%", 5), configuration=FEED)
        if number == 4:
            DeltaTable(str(self.path)).optimize.compact()

    def change(self):
        [first] = added_by(self.path, 0)
        pq.write_table(pq.read_table(first, partitioning=None).slice(0, 0), first)

    def lose(self):
        added_by(self.path, 1)[0].unlink()

    def rows(self):
        return DeltaTable(str(self.path)).to_pyarrow_table().to_pylist()


@pytest.mark.slow
def test_it_keeps_the_contract(tmp_path, spark):
    path = tmp_path / "orders"
    append(path, (0, "Mon day", 1))
    spout = DeltaSpout(str(path), opaque=True, max_files_per_batch=2)
    more = replace(spout, max_versions_per_batch=3, max_files_per_batch=None)
    tried = check_spout(spout, Orders(path), spark=spark, others=[more])
    assert {"a change and a refreeze", "a loss and a refreeze"} <= {*tried}


def test_six_batches_through_all_that_happens(tmp_path, pipeline, connection):
    outlive_clean_up(Orders(tmp_path / "orders"), pipeline, connection)


# --- changes -------------------------------------------------------------------------------------


def changed(orders: Path, operation: str) -> None:
    table = DeltaTable(str(orders))
    if operation == "delete":
        table.delete("customer = 1")
    elif operation == "update":
        table.update(predicate="customer = 3", updates={"price": "10"})
    elif operation == "merge":
        source = table_of([(2, "50%", 70), (4, "Tue", 1)])
        merge = table.merge(source, "s.customer = t.customer", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    else:
        write_deltalake(str(orders), table_of([(9, "Sun", 1)]), mode="overwrite")


OPERATIONS = ["delete", "update", "merge", "overwrite"]


def test_a_version_that_changes_rows_is_refused_with_a_way_out_or_left_out(orders, caplog):
    """What is before it is emitted first: `since=` behind it, as its error advises, passed it over.

    Ignored changes count nothing twice.
    """
    refuse, ignore = Txids(), Txids()
    spout = DeltaSpout(str(orders))
    ignoring = replace(spout, changes="ignore")
    assert record(spout, refuse) == record(ignoring, ignore) == [4]
    for version, operation in zip(count(3, 3), OPERATIONS, strict=False):
        append(orders, (6, "Tue", 3))
        changed(orders, operation)
        append(orders, (5, "Tue", 3))
        assert record(spout, refuse) == [1]
        rewrites = rf"version {version} of .*rewrites \d+ files"
        with pytest.raises(SourceRewritten, match=rewrites) as refused:
            record(spout, refuse)
        assert "changes=" in str(refused.value)
        assert record(replace(spout, since=version + 1), refuse) == [1]
        assert record(spout, refuse) == []
        assert record(ignoring, ignore) == [1, 1]
        assert f"version {version} of" in caplog.text
    assert "is left out" in caplog.text


@pytest.mark.parametrize("has_feed", [True, False], ids=["with a feed", "by whole files"])
def test_change_data_adds_up_to_the_table(tmp_path, spark, has_feed):
    """Inserts less deletes are the table, with and without a change data feed of its own."""
    path, txids = tmp_path / "orders", Txids()
    feed = {"configuration": FEED} if has_feed else {}
    append(path, (1, "Mon day", 5), (1, "Mon day", 5), (2, "50%", 7), **feed)
    append(path, (3, "Mon day", 9), (4, "Mon day", 2))
    spout = DeltaSpout(str(path), changes="feed", since=0)
    for operation in (*OPERATIONS, "delete"):
        changed(path, operation)
        record(spout, txids)
    DeltaTable(str(path)).optimize.compact()
    assert record(spout, txids) == []
    changes = read_all(spark, spout, txids)
    total: Counter[Any] = Counter()
    for (*row, change, _version), times in changes.items():
        is_new = change in ("insert", "update_postimage")
        total[tuple(row)] += times if is_new else -times
    now = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    assert +total == Counter((r["customer"], r["day"], r["price"]) for r in now)
    assert -total == Counter()
    kinds = {change for *_, change, _ in changes}
    assert kinds == {"insert", "delete", *(("update_preimage", "update_postimage") * has_feed)}
    assert {version for *_, version in changes} == {0, 1, 2, 3, 4, 5}  # 6 deletes nothing


def test_a_merge_that_only_inserts_is_read_though_it_writes_change_data(tmp_path):
    path = tmp_path / "orders"
    append(path, (1, "Mon", 5), partition_by=None, configuration=FEED)
    spouts = [DeltaSpout(str(path), changes=changes) for changes in ("refuse", "ignore", "feed")]
    txids = [Txids() for _ in spouts]
    assert [*map(record, spouts, txids)] == [[1]] * 3
    merge = DeltaTable(str(path)).merge(
        table_of([(2, "Tue", 7)]), "s.customer = t.customer", "s", "t"
    )
    merge.when_not_matched_insert_all().execute()
    assert {"add", "cdc"} <= {*chain.from_iterable(actions_of(path, 1))}
    assert [*map(record, spouts, txids)] == [[1]] * 3


def test_columns_that_come_with_an_emptied_table_are_read_from_later_files(tmp_path):
    """Such a version only removes files, which have the old columns; the log goes on with new."""
    path, txids = tmp_path / "orders", Txids()
    spout = DeltaSpout(str(path), changes="feed")
    append(path, (1, "Mon", 5), partition_by=None)
    record(spout, txids)
    empty = table_of([]).append_column("note", pa.array([], pa.string()))
    write_deltalake(str(path), empty, mode="overwrite", schema_mode="overwrite")
    record(spout, txids)
    more = table_of([(5, "Tue", 3)]).append_column("note", pa.array(["new"]))
    write_deltalake(str(path), more, mode="append")
    record(spout, txids)
    files = [each for meta in txids.batches.values() for each in only(DeltaFile, meta.items)]
    assert ["note" in each.schema for each in files] == [False, False, True]


def test_a_removed_file_of_which_the_log_says_little_is_looked_at(tmp_path):
    """Its size may be left out; 0 was taken for a file that clean-up took."""
    path = tmp_path / "orders"
    spout = DeltaSpout(str(path), changes="feed", since=1)
    append(path, (1, "Mon", 5), (2, "Mon", 7), partition_by=None)
    DeltaTable(str(path)).delete("price = 5")
    forget(path, 1, "size", "partitionValues", "extendedFileMetadata", "stats")
    [removed, _] = items = plan_of(spout)
    assert (removed.change, removed.rows) == ("delete", 2)
    spout.verify(BatchMeta(items=tuple(items), emitted=spout.count(items)))


def test_a_file_that_is_gone_before_it_was_looked_at_is_said_with_a_way_out(tmp_path):
    """The library writes no statistics of what it removes."""
    txids, spout = Txids(), DeltaSpout(str(tmp_path / "t"), changes="feed")
    append(tmp_path / "t", (1, "a", 5), (2, "a", 6))
    assert record(spout, txids) == [2]
    DeltaTable(str(tmp_path / "t")).delete("customer = 1")
    DeltaTable(str(tmp_path / "t")).vacuum(0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(SourceChanged, match=r"is gone, and an emission .* set since="):
        record(spout, txids)
    assert record(replace(spout, since=2), txids) == []


def test_a_refreeze_gives_up_a_file_that_is_gone_and_none_that_is_being_restored(orders):
    """The rows of one that was not complete yet were left out."""
    spout = DeltaSpout(str(orders))
    [meta] = batches_of(spout)
    file = Path(meta.items[0].identity)
    file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(SourceUnreadable, match="is not a complete Parquet file"):
        spout.refresh(meta)
    file.unlink()
    assert [item.is_lost for item in spout.refresh(meta)] == [True, False, False]


def test_a_file_of_a_feed_cannot_be_excluded(tmp_path, connection):
    """C9: it was recorded under the name of the file, which no change of it has."""
    append(tmp_path / "t", (1, "a", 5))
    append(tmp_path / "t", (2, "a", 6))
    run = pipeline_of(
        topology(DeltaSpout(str(tmp_path / "t"), changes="feed", since=0)), connection
    )
    run.emit(None)
    file = str(added_by(tmp_path / "t", 1)[0])
    for name in (file, Path(file).name):
        with pytest.raises(ExclusionNotPossible, match="delete the rows in the table"):
            find_item(connection, "orders", name, file)
    [_, (item,)] = rows(connection, "SELECT item FROM reliability.source_item ORDER BY txid, item")
    assert find_item(connection, "orders", item, item) == item


def test_an_excluded_file_of_a_version_that_is_passed_stays_excluded(tmp_path, connection):
    """C9: it said that the next run emits it, and none did: a log is not listed again."""
    path = tmp_path / "orders"
    append(path, (1, "a", 5))
    run = pipeline_of(topology(DeltaSpout(str(path))), connection)
    assert run.emit(None) == [1]
    for version, txids in ((1, [2, 3]), (3, [4])):
        append(path, (2, "a", 6))
        item = str(added_by(path, version)[0])
        exclude(connection, "orders", item, "bad")
        append(path, (3, "a", 7))
        if version == 1:  # nobody has read on
            include(connection, "orders", item, "good")
        assert run.again(f"from {version}").emit(None) == txids
    with pytest.raises(ExclusionNotPossible, match="stays excluded: no txid of orders has it"):
        include(connection, "orders", item, "good")


def test_a_file_that_is_included_while_a_run_emits_is_emitted(tmp_path, connection, monkeypatch):
    """C9: the run had planned without it, and the log was read past it."""
    path = tmp_path / "orders"
    append(path, (1, "a", 5))
    run = pipeline_of(topology(DeltaSpout(str(path))), connection)
    assert run.emit(None) == [1]
    append(path, (2, "a", 6), (3, "b", 7))
    item = str(added_by(path, 1)[-1])
    exclude(connection, "orders", item, "bad")
    plan, others = DeltaSpout.plan, [partial(include, connection, "orders", item, "good")]

    def plan_late(self, *asked):
        found = plan(self, *asked)
        if others:
            others.pop()()
        return found

    monkeypatch.setattr(DeltaSpout, "plan", plan_late)
    assert run.again("2").emit(None) == [2]
    assert (item,) in rows(connection, "SELECT item FROM reliability.source_item WHERE txid = 2")


def test_an_opaque_batch_may_have_passed_an_excluded_file_whatever_its_txid(
    tmp_path, pipeline, connection
):
    path = tmp_path / "orders"
    append(path, (1, "a", 5))
    run = pipeline(topology(DeltaSpout(str(path), opaque=True)))
    [txid] = run.emit(None)
    for number, goes_on in enumerate((run.begin, run.transact)):
        goes_on(txid)
        other = str(tmp_path / f"{number}.parquet")
        exclude(connection, "orders", other, "bad")
        with pytest.raises(ExclusionNotPossible, match="stays excluded"):
            include(connection, "orders", other, "good")
        lose_driver(connection)


def begun(path: Path, **options: Any) -> tuple[DeltaSpout, Txids, str]:
    """Emit the first file of a snapshot of three, and return its path."""
    append(path, (1, "a", 5), (2, "b", 6), (3, "c", 7))
    spout, txids = DeltaSpout(str(path), opaque=True, max_files_per_batch=1, **options), Txids()
    first = batches_of(spout)[0]
    txids.record(first)
    [item] = only(DeltaFile, first.items)
    return spout, txids, item.path


@pytest.mark.parametrize(("first", "then"), [("refuse", "feed"), ("feed", "refuse")])
def test_what_is_left_of_a_version_when_changes_becomes_another_is_read_once(tmp_path, first, then):
    """E1: its files have other identities then; the first file counted twice."""
    spout, txids, path = begun(tmp_path / "orders", changes=first)
    left = only(DeltaFile, replace(spout, changes=then).plan(None, txids))
    assert len(left) == 2
    assert path not in {item.path for item in left}


def test_a_version_that_drops_a_column_is_no_batch_with_those_before_it(tmp_path):
    """E8: its first file is a removed one, with the columns of before; their values were lost."""
    path = str(tmp_path / "orders")
    write_deltalake(path, pa.table({"id": [1, 2], "v": [1, 2]}))
    write_deltalake(path, pa.table({"id": [3], "v": [3]}), mode="append")
    other = pa.table({"id": [1, 2]})
    write_deltalake(path, other, mode="overwrite", schema_mode="overwrite")
    spout = DeltaSpout(path, changes="feed", since=0, max_versions_per_batch=None)
    versions = [{item.version for item in only(DeltaFile, b)} for b in spout.cut(plan_of(spout))]
    assert versions == [{0, 1}, {2}]


def test_what_is_left_of_a_snapshot_that_is_gone_is_passed_over_once_since_is_set(tmp_path):
    """The way out that its error names led to the same error."""
    path = tmp_path / "orders"
    spout, txids, _ = begun(path)
    append(path, (4, "d", 5))
    append(path, (5, "e", 5))
    DeltaTable(str(path)).create_checkpoint()
    for version in (0, 1):
        log_of(path, version).unlink()
    with pytest.raises(SourceChanged, match="since="):
        spout.plan(None, txids)
    assert [item.version for item in replace(spout, since=2).plan(None, txids)] == [2]


def test_a_version_whose_last_file_is_excluded_is_read_once(tmp_path, connection):
    """C9: it was read again by each emission, and once its log was gone, none went on."""
    path = tmp_path / "orders"
    append(path, (1, "a", 5))
    run = pipeline_of(topology(DeltaSpout(str(path))), connection)
    assert run.emit(None) == [1]
    append(path, (2, "a", 6), (3, "b", 7))
    exclude(connection, "orders", str(added_by(path, 1)[-1]), "bad")
    assert run.again("2").emit(None) == [2]
    append(path, (4, "a", 8))
    DeltaTable(str(path)).create_checkpoint()
    for version in (0, 1):
        log_of(path, version).unlink()
    assert run.again("3").emit(None) == [3]


def test_a_refreeze_leaves_an_excluded_file_in_its_place(tmp_path, connection):
    """C9: it put it last; the log's position was then that of a file amid its version."""
    path = tmp_path / "orders"
    append(path, (1, "a", 5), (2, "b", 6), (3, "c", 7))
    own = topology(DeltaSpout(str(path)))
    assert pipeline_of(own, connection).emit(None) == [1]
    asked = "SELECT i ->> 'path' FROM reliability.transaction, jsonb_array_elements(batch_meta) i"
    before = rows(connection, asked)
    exclude(connection, "orders", before[0][0], "bad")
    Path(before[1][0]).unlink()
    assert refreeze(connection, own, 1, "it is gone") is not None
    assert rows(connection, asked) == before


def test_a_file_that_came_went_and_came_back_between_emissions_is_read_once(orders):
    """E1: it was in the plan twice, and in one batch counted twice; the feed alone reads it so."""
    feed, plain = DeltaSpout(str(orders), changes="feed"), DeltaSpout(str(orders), changes="ignore")
    with_feed, without = Txids(), Txids()
    assert record(feed, with_feed) == record(plain, without) == [4]
    DeltaTable(str(orders)).delete()
    DeltaTable(str(orders)).restore(1)
    assert record(feed, with_feed) == [4, 4]
    assert record(plain, without) == []
    assert record(replace(plain, since=0, max_versions_per_batch=None), Txids()) == [4]


def test_a_batch_of_changes_is_read_as_such_or_not_at_all(orders, spark):
    """With another `changes=`, a replay added the rows that it had taken out.

    An empty batch has the columns of the table.
    """
    for changes, more in (("refuse", []), ("feed", ["_change_type", "_commit_version"])):
        spout = DeltaSpout(str(orders), changes=changes)
        frame = spout.frame(spark, BatchMeta(items=(), emitted=spout.count(())))
        assert frame.columns == ["customer", "day", "price", *more, "_x", "_n"]
    DeltaTable(str(orders)).delete("price = 5")
    feed, txids = DeltaSpout(str(orders), changes="feed", since=0), Txids()
    record(feed, txids)
    with pytest.raises(SourceChanged, match="would count rows that are gone"):
        replace(feed, changes="ignore").frame(spark, txids.batches[3])
    plain = Txids()
    record(DeltaSpout(str(orders), changes="ignore", since=0), plain)
    found = feed.frame(spark, plain.batches[1]).select("_change_type", "_commit_version")
    assert {tuple(row) for row in found.collect()} == {("insert", 0)}


def test_a_batch_of_a_feed_whose_columns_change_type_is_refused(tmp_path):
    """Each of its attempts failed, and the advice was to cast what had been written."""
    path = str(tmp_path / "orders")
    write_deltalake(path, pa.table({"id": [1], "more": [{"a": 1}]}))
    other = pa.table({"id": [1], "more": [{"a": 1, "b": 2}]})
    write_deltalake(path, other, mode="overwrite", schema_mode="overwrite")
    feed = DeltaSpout(path, changes="feed", since=0)
    with pytest.raises(SourceRewritten, match=r"version 1 .* column more is struct<"):
        feed.cut(plan_of(feed))
    without = replace(feed, schema="id bigint", drift="ignore")
    assert len(without.cut(plan_of(without))) == 2


def test_columns_that_spark_cannot_take_are_refused_at_emission(tmp_path):
    """Each attempt failed."""
    for number, (name, changes, what) in enumerate(
        [
            ("_X", "refuse", "which the library adds"),
            ("_tmp_metadata_row_index", "refuse", "writes the rows' numbers"),
            ("_change_type", "feed", "which the feed adds"),
        ]
    ):
        path = f"{tmp_path}/{number}"
        write_deltalake(path, pa.table({"id": [1], name: [1]}))
        with pytest.raises(SchemaMismatch, match=what):
            plan_of(DeltaSpout(path, changes=changes))


def test_a_feed_that_differs_from_the_schema_is_not_told_to_leave_a_file_out(orders):
    """`exclude` refuses files of a feed."""
    for changes, is_told in (("refuse", True), ("feed", False)):
        with pytest.raises(FileRefused) as refused:
            plan_of(DeltaSpout(str(orders), changes=changes, schema="customer bigint"))
        assert refused.value.remedy.runs("exclude") is is_told
        assert refused.value.remedy.runs("resume_runs")


def test_dates_beyond_those_of_python_stop_no_emission(tmp_path):
    """The statistics of a file ended it with an OverflowError."""
    days = pa.array([4_000_000], pa.int32()).cast(pa.date32())
    write_deltalake(str(tmp_path), pa.table({"day": days}))
    [item] = plan_of(DeltaSpout(str(tmp_path)))
    assert item.rows == 1


def test_what_is_left_of_a_snapshot_is_read_by_its_own_partition(tmp_path):
    """It was refused as a fault of deltalake."""
    path = tmp_path / "orders"
    spout, txids, _ = begun(path, changes="ignore")
    append(path, (3, "c", 7), mode="overwrite", schema_mode="overwrite", partition_by=["customer"])
    left = only(DeltaFile, spout.plan(None, txids))
    assert [item.values for item in left] == [{"day": "b"}, {"day": "c"}]


def test_a_removed_file_without_the_values_of_its_partition_is_refused(orders):
    """They would be NULL, and the deletes would cancel nothing."""
    DeltaTable(str(orders)).delete("price = 5")
    forget(orders, 2, "partitionValues")
    with pytest.raises(SourceRewritten, match=r"removes .* without the values of its partition"):
        plan_of(DeltaSpout(str(orders), changes="feed", since=2))
    assert plan_of(DeltaSpout(str(orders), changes="ignore", since=2)) == []


def forget(path: Path, version: int, *names: str) -> None:
    """Let a version say less of the files that it removes."""
    lines = actions_of(path, version)
    for line in lines:
        for name in names:
            line.get("remove", {}).pop(name, None)
    log_of(path, version).write_text("\n".join(map(json.dumps, lines)))


def test_a_deletion_vector_is_refused(orders):
    """Spark's reader of Parquet would read the rows that are gone."""
    append(orders, (5, "Tue", 3))
    lines = actions_of(orders, 2)
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "sizeInBytes": 4,
              "cardinality": 1, "offset": 1}  # fmt: skip
    for line in lines:
        if "add" in line:
            line["add"]["deletionVector"] = vector
    log_of(orders, 2).write_text("\n".join(map(json.dumps, lines)))
    for changes in ("refuse", "ignore", "feed"):
        with pytest.raises(SourceRewritten, match=r"in version 2, rows of .* are deleted, and"):
            plan_of(DeltaSpout(str(orders), changes=changes, since=2))


def test_a_table_that_may_have_deletion_vectors_is_asked_for_them(orders, monkeypatch):
    lines = actions_of(orders, 0)
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    log_of(orders, 0).write_text("\n".join(map(json.dumps, lines)))
    spout, asked = DeltaSpout(str(orders)), DeltaTable.deletion_vectors
    assert len(plan_of(spout)) == 3

    def vectors(table):
        file = pa.array([added_by(orders, 1)[0].as_uri()])
        mask = pa.array([[False]])
        return pa.table({"filepath": file, "selection_vector": mask}).cast(pa.schema(asked(table)))

    monkeypatch.setattr(DeltaTable, "deletion_vectors", vectors)
    with pytest.raises(SourceRewritten, match=r"in version 1, rows of .* are deleted") as whole:
        plan_of(spout)
    assert "since=" not in whole.value.what_to_do  # it would skip all that is there
    monkeypatch.delattr(DeltaTable, "deletion_vectors")
    with pytest.raises(SourceUnreadable, match="of which this release of deltalake says nothing"):
        plan_of(spout)


# --- the log -------------------------------------------------------------------------------------


def test_the_first_emission_takes_the_table_as_it_is(orders):
    DeltaTable(str(orders)).delete("customer = 1")
    DeltaTable(str(orders)).optimize.compact()
    assert sum(record(DeltaSpout(str(orders)), Txids())) == 2
    txids, spout = Txids(), DeltaSpout(str(orders), since=0)
    assert record(spout, txids) == [3, 1]
    with pytest.raises(SourceRewritten):
        record(spout, txids)
    assert plan_of(replace(spout, since=99)) == []


def test_files_of_a_clone_stay_where_they_are(orders, tmp_path):
    """Its log names them by absolute URIs; some writers have one slash behind `file:`."""
    for number, scheme in enumerate(("file:", "file://", "")):
        clone = tmp_path / f"clone {number}"
        (clone / "_delta_log").mkdir(parents=True)
        lines = actions_of(orders, 0)
        for line in lines:
            if "add" in line:
                line["add"]["path"] = f"{scheme}{orders}/{line['add']['path']}"
        log_of(clone, 0).write_text("\n".join(map(json.dumps, lines)))
        spout = DeltaSpout(f"{scheme}{clone}", since=0)
        meta = meta_of(spout)
        found = {f"/{item.path.lstrip('/')}" for item in only(DeltaFile, meta.items)}
        assert found == {*map(str, added_by(orders, 0))}
        spout.verify(meta)


def test_a_log_that_was_cleaned_up_is_said_plainly(orders):
    txids = Txids()
    spout = DeltaSpout(str(orders))
    record(spout, txids)
    append(orders, (5, "Tue", 3))
    append(orders, (6, "Tue", 3))
    DeltaTable(str(orders)).create_checkpoint()
    for version in (0, 1, 2):
        log_of(orders, version).unlink()
    with pytest.raises(SourceChanged, match=r"no version 2 any more.*since=.*logRetentionDuration"):
        record(spout, txids)
    assert record(replace(spout, since=3), txids) == [1]
    assert [len(meta.items) for meta in txids.batches.values()] == [3, 1]


def test_a_table_that_was_put_back_is_found_and_so_is_another_one(orders, tmp_path):
    txids = Txids()
    spout = DeltaSpout(str(orders))
    append(orders, (5, "Tue", 3))
    record(spout, txids)
    log_of(orders, 2).unlink()
    with pytest.raises(SourceChanged, match="has version 1, and a txid has read version 2"):
        record(spout, txids)
    orders.rename(tmp_path / "old")
    append(orders, (1, "Mon day", 5))
    with pytest.raises(SourceChanged, match="is another one than at version 2"):
        record(spout, txids)


@pytest.mark.parametrize(("begins_with", "later"), [((), 0), ((5, "Tue", 3), 1)])
def test_a_table_that_was_put_back_and_went_on_is_found(orders, begins_with, later):
    """E6: its versions had the numbers of those that a txid has read, and were passed over."""
    txids = Txids()
    spout = DeltaSpout(str(orders))
    if begins_with:  # else what was read last is the table as it was first
        record(spout, txids)
    append(orders, begins_with or (6, "Tue", 3))
    record(spout, txids)
    log_of(orders, 2).unlink()
    for price in range(1 + later):
        append(orders, (7, "Tue", price))
    with pytest.raises(SourceChanged, match=r"version 2 of .* is another one than a txid has read"):
        record(spout, txids)


def test_the_rest_of_a_snapshot_is_not_taken_from_a_table_that_was_put_back(tmp_path):
    """E6: its files are others, of rows that may have counted."""
    spout, txids, path = begun(tmp_path / "orders")
    assert len(spout.plan(None, txids)) == 2
    file = Path("/", path)
    file.rename(file.with_name("other.parquet"))
    log = log_of(tmp_path / "orders", 0)
    log.write_text(log.read_text().replace(file.name, "other.parquet"))
    with pytest.raises(SourceChanged, match=r"version 0 of .* is another one than a txid has read"):
        spout.plan(None, txids)


def test_another_release_of_the_library_that_hides_partitions_is_refused(orders, monkeypatch):
    """Its values would be NULL, and nothing else would show it."""
    found = DeltaTable.get_add_actions

    def without(table, *arguments):
        files = pa.table(found(table, *arguments))
        return files.drop_columns([n for n in files.column_names if n.startswith("partition")])

    monkeypatch.setattr(DeltaTable, "get_add_actions", without)
    with pytest.raises(SourceUnreadable, match=r"the partition \[\], and of the table \['day'\]"):
        plan_of(DeltaSpout(str(orders)))


def test_what_is_no_table_is_said_and_for_its_files_the_spout_to_use(orders, tmp_path, monkeypatch):
    with pytest.raises(SourceIsATable, match="read a table of Delta Lake with a DeltaSpout"):
        FileSpout(f"{orders}/*/*.parquet").plan(None, NoItems())
    with pytest.raises(SourceUnreadable, match="is no table of Delta Lake"):
        plan_of(DeltaSpout(str(tmp_path)))
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(LibraryMissing, match=r"reliability\[delta\]"):
        plan_of(DeltaSpout(str(tmp_path)))


def test_values_with_ends_of_lines_that_json_does_not_know_are_read(orders):
    """They stand in the log as they are, in statistics and in the values of partitions."""
    days = {f"one{end}two" for end in ("\u2028", "\u2029", "\x85")}
    append(orders, *((5, day, 3) for day in days))
    assert {item.values["day"] for item in plan_of(DeltaSpout(str(orders), since=2))} == days


def test_statistics_that_are_missing_or_wrong_count_nothing_wrong(orders, pipeline, connection):
    """Without them the footers tell the rows; if they lie, the attempt fails."""
    path = log_of(orders, 1)
    path.write_text(path.read_text().replace("numRecords", "numNothing"))
    assert record(DeltaSpout(str(orders), since=0), Txids()) == [3, 1]
    path.write_text(path.read_text().replace(r"\"numNothing\":1", r"\"numRecords\":2"))
    first = pipeline(topology(DeltaSpout(str(orders), since=1)))
    assert first.emit(None) == [1]
    with pytest.raises(RowsUnaccounted):
        first.process(1)
    assert rows(connection, TOTALS) == []


# --- batches and columns -------------------------------------------------------------------------


def test_a_batch_has_whole_versions_up_to_the_limits(orders):
    append(orders, *((9, f"day {n}", n) for n in range(5)))
    spout = DeltaSpout(str(orders), since=0, max_versions_per_batch=None, max_rows_per_batch=4)
    assert record(spout, Txids()) == [4, 4, 1]  # two versions; one cut between its files
    assert record(replace(spout, max_rows_per_batch=None), Txids()) == [9]
    assert record(replace(spout, max_files_per_batch=2), Txids()) == [3, 2, 2, 2]
    assert len(record(replace(spout, max_bytes_per_batch=1), Txids())) == 8


PARTITIONS = {
    "day": (date(2026, 1, 1), "date"),
    "at": (NOON := datetime(2026, 1, 1, 12, 30, 0, 123456, tzinfo=timezone.utc), "timestamp"),
    "number": (7, "int"),
    "price": (Decimal("1.50"), "decimal(5,2)"),
    "is_new": (True, "boolean"),
    "ratio": (0.5, "double"),
    "note": ("a=b/c 50%", "string"),
}


def test_values_of_partitions_have_their_types(tmp_path, spark):
    """By a snapshot as by the log."""
    nulls = dict.fromkeys(PARTITIONS)
    values = {name: value for name, (value, _) in PARTITIONS.items()}
    types = {"day": pa.date32(), "at": pa.timestamp("us", "UTC"), "number": pa.int32(),
             "price": pa.decimal128(5, 2), "is_new": pa.bool_(), "ratio": pa.float64(),
             "note": pa.string()}  # fmt: skip
    schema = pa.schema([("id", pa.int64()), *types.items()])
    table = pa.Table.from_pylist([{"id": 1, **values}, {"id": 2, **nulls}], schema=schema)
    write_deltalake(str(tmp_path), table, partition_by=list(PARTITIONS))
    del values["at"]
    for since in (None, 0):
        spout, txids = DeltaSpout(str(tmp_path), since=since), Txids()
        record(spout, txids)
        found = spout.frame(spark, txids.batches[1]).drop("_x", "_n")
        assert dict(found.dtypes) == {"id": "bigint", **{n: t for n, (_, t) in PARTITIONS.items()}}
        by_id = {row["id"]: row.asDict() for row in found.collect()}
        assert by_id[1].pop("at").timestamp() == NOON.timestamp()
        assert by_id == {1: {"id": 1, **values}, 2: {"id": 2, **nulls}}


def test_columns_that_come_later_are_null_before_and_follow_a_policy(orders, spark):
    declared = DeltaSpout(str(orders), since=0, schema=SCHEMA, max_versions_per_batch=None)
    spout, taken, txids = replace(declared, schema=""), Txids(), Txids()
    assert record(declared, taken) == [4]
    more = table_of([(5, "Tue", 3)]).append_column("note", pa.array(["new"]))
    write_deltalake(str(orders), more, mode="append", schema_mode="merge")
    assert record(spout, txids) == [4, 1]  # a batch has the columns of its versions
    frames = [spout.frame(spark, meta) for meta in txids.batches.values()]
    assert ["note" in frame.columns for frame in frames] == [False, True]
    [change] = spout.changed_columns(txids.batches[2].items, txids.batches[1])
    assert "version 1 has no column note, which version 2 has as string" in change
    whole = Txids()
    record(DeltaSpout(str(orders)), whole)
    found = read(spark, DeltaSpout(str(orders)), whole.batches[1])
    assert Counter(row[3] for row in found.elements()) == {None: 4, "new": 1}

    with pytest.raises(FileRefused, match="note"):
        record(declared, taken)
    for drift, names in (("ignore", []), ("widen", ["note"])):
        txids, spout = Txids(), replace(declared, drift=drift)
        assert record(spout, txids) == [5]
        frame = spout.frame(spark, txids.batches[1])
        assert frame.columns == ["customer", "day", "price", *names, "_x", "_n"]
        assert frame.count() == 5
        assert spout.drifted_columns(txids.batches[1].items)


def test_columns_with_quotes_in_their_names_are_read(tmp_path):
    """Emission stopped with an AssertionError."""
    names = ["it's", 'a"b', "a`b", "q``q", "a b,c:d"]
    write_deltalake(str(tmp_path), pa.table({name: [1] for name in names}))
    [item] = plan_of(DeltaSpout(str(tmp_path)))
    columns = item.data_file(0, has_changes=False).columns
    assert columns == tuple((name, "bigint") for name in names)
    declared = DeltaSpout(str(tmp_path), schema=item.schema, drift="widen")
    assert plan_of(declared) == [item]


def test_fields_inside_columns_have_any_name(tmp_path, spark):
    """Spark does not read the text of such a type: each attempt failed with a ParseException."""
    for columns in ({"day": ["Mon"]}, {"day": ["Tue"], "pair": [{"it's": 1, "a b": "x", "é`": 2}]}):
        new = pa.table({"id": [1], **columns})
        write_deltalake(str(tmp_path), new, mode="append", schema_mode="merge", partition_by="day")
    txids, spout = Txids(), DeltaSpout(str(tmp_path))
    record(spout, txids)
    found = read(spark, spout, txids.batches[1])
    assert found == {(1, "Mon", None): 1, (1, "Tue", (1, "x", 2)): 1}


SCHEMA = "customer bigint, day string, price bigint"


def test_columns_with_other_names_in_the_files_are_read(tmp_path, spark):
    """Column mapping by name: the log tells what a column is called in a file."""
    path = tmp_path / "mapped"
    append(path, (1, "Mon", 5), (2, "Tue", 7), partition_by=None)
    lines = actions_of(path, 0)
    metadata = next(line["metaData"] for line in lines if "metaData" in line)
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"]):
        field["metadata"] = {PHYSICAL: field["name"], "delta.columnMapping.id": number}
        field["name"] = f"my {field['name']}"
    metadata["schemaString"] = json.dumps(schema)
    metadata["configuration"] = {MODE: "name"}
    log_of(path, 0).write_text("\n".join(map(json.dumps, lines)))
    for since in (None, 0):
        txids, spout = Txids(), DeltaSpout(str(path), since=since)
        assert record(spout, txids) == [2]
        frame = spout.frame(spark, txids.batches[1])
        assert frame.columns == ["my customer", "my day", "my price", "_x", "_n"]
        assert [tuple(row)[:3] for row in frame.collect()] == [(1, "Mon", 5), (2, "Tue", 7)]


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"configuration": {MODE: "id"}}, "maps its columns by their ids"),
        (
            {"configuration": {MODE: "name"}, "partitionColumns": ["a"]},
            "maps its columns and has partitions",
        ),
        # a snapshot and the log had each a value of its own, neither the right one
        ({"partitionColumns": ["a"]}, "the partition column a is binary"),
    ],
)
def test_what_the_library_cannot_map_is_refused(more, what):
    schema = {"type": "struct", "fields": [{"name": "a", "type": "binary", "metadata": {}}]}
    with pytest.raises(SchemaMismatch, match=what):
        read_metadata({"id": "x", "schemaString": json.dumps(schema), **more})


def test_types_are_those_of_spark():
    pair = {"type": "struct", "fields": [{"name": "b", "type": "short", "metadata": {}}]}
    values = {"type": "array", "elementType": pair}
    nested = {"type": "map", "keyType": "string", "valueType": values}
    assert ddl(nested) == "`a` map<string,array<struct<`b`: smallint>>>"
    assert (ddl("long"), ddl("decimal(5, 2)")) == ("`a` bigint", "`a` decimal(5,2)")
    with pytest.raises(SchemaMismatch, match="of type variant"):
        ddl("variant")


def ddl(type_: Any) -> str:
    schema = {"type": "struct", "fields": [{"name": "a", "type": type_, "metadata": {}}]}
    return read_metadata({"id": "x", "schemaString": json.dumps(schema)}).schema


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"changes": "all"}, "changes 'all' is not one of"),
        ({"since": -1}, "since is a version"),
        ({"max_rows_per_batch": 0}, "max_rows_per_batch must be at least 1"),
        ({"schema": "_n bigint"}, "adds the columns"),
        ({"schema": "_change_type string", "changes": "feed"}, "adds the columns"),
        ({"schema": "id bigint COMMENT 'x'"}, "cannot tell the types of the schema"),
        ({"schema": "a int, b int NOT NULL, c varchar(9), d array<bigin>"}, "schema: b, c, d"),
        ({"drift": "any"}, "drift 'any' is not one of"),
    ],
)
def test_a_wrong_definition_is_refused(options, what):
    with pytest.raises(InvalidDefinition, match=what):
        DeltaSpout("orders", **options)
