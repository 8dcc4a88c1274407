"""Spouts: what they plan, how they cut and count, and how they fail."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone

import pytest

from reliability import FileSpout, MemorySpout
from reliability.core.errors import (
    IntervalOverlap,
    LedgerCorruption,
    NothingToEmit,
    SchemaMismatch,
    SourceChanged,
    SourceUnreadable,
)
from reliability.core.fold import Fold
from reliability.core.spout import BatchMeta, FileItem, Interval, MemorySlice, check_overlap
from reliability.spouts.file import check_one_schema
from reliability.spouts.tuple_ids import fold_rows
from spark_apps import global_count

DAY = timedelta(days=1)
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def parquet(path, rows=3, column="n"):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({column: list(range(rows))}), path)
    return path


def meta_of(spout, items):
    return BatchMeta(items=tuple(items), emitted=spout.count(items))


def test_a_fold_does_not_depend_on_how_the_rows_were_cut(monkeypatch):
    whole = fold_rows(3, 100)
    monkeypatch.setattr("reliability.spouts.tuple_ids.ROWS_AT_ONCE", 7)
    assert fold_rows(3, 100) == whole
    assert fold_rows(4, 100).xor != whole.xor
    assert fold_rows(0, 0) == Fold()


def test_known_tuple_ids():
    """As Spark's xxhash64(bigint 5, bigint 0) has it; test_frames compares with Spark itself."""
    assert fold_rows(5, 1) == Fold(-8387534019531596278, 1)


def test_file_spout_lists_by_interval_and_path(tmp_path):
    for name in ("2026-01/b.parquet", "2026-01/a.parquet", "2026-02/c.parquet"):
        parquet(tmp_path / name)
    spout = FileSpout(f"{tmp_path}/{{data_interval_start:%Y-%m}}/*.parquet")
    items = spout.plan(Interval(START, START + 31 * DAY))
    assert [os.path.basename(item.identity) for item in items] == ["a.parquet", "b.parquet"]
    assert spout.timed
    assert [len(batch) for batch in spout.cut(items)] == [1, 1]
    both = FileSpout(spout.pattern, max_files_per_batch=2)
    assert [len(batch) for batch in both.cut(items)] == [2]
    assert both.count(items) == fold_rows(0, 3) + fold_rows(1, 3)


def test_an_interval_without_files_is_an_error_unless_it_is_normal(tmp_path):
    with pytest.raises(NothingToEmit, match="no file matches"):
        FileSpout(f"{tmp_path}/*.parquet").plan(None)
    assert FileSpout(f"{tmp_path}/*.parquet", allow_empty=True).plan(None) == []


@pytest.mark.parametrize("damage", ["truncate", "empty", "text", "tail"])
def test_a_broken_file_is_refused(tmp_path, damage):
    path = parquet(tmp_path / "a.parquet", rows=1000)
    whole = path.read_bytes()
    path.write_bytes(
        {
            "truncate": whole[: len(whole) // 2],
            "empty": b"",
            "text": b"not parquet at all, not at all",
            "tail": whole[:-8] + b"\xff\xff\xff\x7fPAR1",
        }[damage]
    )
    with pytest.raises(SourceUnreadable, match=r"a\.parquet"):
        FileSpout(f"{tmp_path}/*.parquet").plan(None)


def test_verify_finds_a_file_that_is_gone_or_changed(tmp_path):
    spout = FileSpout(f"{tmp_path}/*.parquet")
    path = parquet(tmp_path / "a.parquet")
    meta = meta_of(spout, spout.plan(None))
    spout.verify(meta)
    parquet(path, rows=4)
    with pytest.raises(SourceChanged, match="rows 3 is now 4"):
        spout.verify(meta)
    path.unlink()
    with pytest.raises(SourceChanged, match="unreadable"):
        spout.verify(meta)


def test_files_of_one_batch_must_have_the_same_columns(tmp_path):
    parquet(tmp_path / "a.parquet")
    parquet(tmp_path / "b.parquet", column="other")
    spout = FileSpout(f"{tmp_path}/*.parquet", max_files_per_batch=2)
    with pytest.raises(SchemaMismatch, match=r"b\.parquet"):
        check_one_schema(meta_of(spout, spout.plan(None)))


def test_memory_spout_cuts_the_batches_of_the_global_count():
    spout = global_count.topology.spout
    batches = spout.cut(spout.plan(None))
    assert [words_of(spout, batch) for batch in batches] == [
        ["cat", "dog", "chicken", "cat", "dog", "apple", "cat", "cat", "cat"],
        ["cat", "dog", "apple", "banana", "cat", "cat", "dog"],
        ["dog", "dog", "dog"],
    ]


def words_of(spout, batch):
    assert isinstance(spout, MemorySpout)
    slices = [item for item in batch if isinstance(item, MemorySlice)]
    return [word for item in slices for (word,) in spout.rows_of(item)]


def test_memory_rows_are_the_same_items_however_many_are_taken():
    """Else another `take` would count old rows again."""
    items = [MemorySpout(schema={"n": "int"}, partitions=[[1, 2, 3]], take=take).plan(None)
             for take in (1, 2)]  # fmt: skip
    assert items[0] == items[1]


def test_memory_spout_notices_rows_that_are_gone():
    spout = MemorySpout(schema={"n": "int"}, partitions=[[1, 2, 3]], take=2)
    meta = meta_of(spout, spout.plan(None))
    spout.verify(meta)
    with pytest.raises(SourceChanged):
        MemorySpout(schema={"n": "int"}, partitions=[[1, 2]], take=2).verify(meta)


def test_batch_meta_survives_the_ledger():
    items = (
        FileItem(path="/a", size=1, mtime_ns=2, rows=3, footer_digest="d"),
        MemorySlice(partition=0, offset=3, rows=1),
    )
    meta = BatchMeta(items=items, emitted=Fold(1, 4))
    assert BatchMeta.from_json(meta.to_json(), meta.emitted) == meta


@pytest.mark.parametrize("broken", [[{"kind": "tape"}], [{"kind": "file", "path": "/a"}], [{}]])
def test_unreadable_batch_meta_is_corruption(broken):
    with pytest.raises(LedgerCorruption):
        BatchMeta.from_json(broken, Fold())


@pytest.mark.parametrize(
    ("start", "days", "overlaps"),
    [(0, 31, False), (31, 28, False), (-31, 31, False), (15, 30, True), (0, 1, True), (5, 0, True)],
)
def test_a_partly_overlapping_interval_names_both(start, days, overlaps):
    """E1: the same interval is a replay, one beside it is new, anything between is refused."""
    emitted = [(Interval(START, START + 31 * DAY), "scheduled__1")]
    wanted = Interval(START + start * DAY, START + (start + days) * DAY)
    if not overlaps:
        return check_overlap(wanted, emitted)
    with pytest.raises(IntervalOverlap, match="scheduled__1") as raised:
        check_overlap(wanted, emitted)
    assert str(wanted) in str(raised.value)
