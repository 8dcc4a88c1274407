"""Spouts: what they plan, how they cut and count, and how they fail."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from reliability import Csv, FileSpout, MemorySpout, TableSpout
from reliability.core.errors import (
    FileRefused,
    IntervalOverlap,
    InvalidDefinition,
    LedgerCorruption,
    NothingToEmit,
    SourceChanged,
    SourceIsATable,
    SourceItemUnknown,
    SourceUnreadable,
)
from reliability.core.fold import Fold
from reliability.core.spout import (
    WHOLE,
    BatchMeta,
    Interval,
    ItemPart,
    NoItems,
    Verdict,
    check_overlap,
    read_parts,
    source_item,
)
from reliability.deployment.lazy import pa, pq
from reliability.spouts.file_item import FileItem
from reliability.spouts.filesystem import find_files
from reliability.spouts.memory import MemorySlice
from reliability.spouts.table import TableKeys
from reliability.spouts.text import line_end
from reliability.spouts.tuple_ids import fold_rows
from reliability.testing.allocated import Txids
from spark_apps import global_count
from tests.support.json_document import ListOfNumbers

DAY = timedelta(days=1)
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def parquet(path, rows=3, column="n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({column: list(range(rows))}), path)
    return path


class AllocatedItems:
    """What txids have: item -> the part of it that txid 1 has."""

    def __init__(self, **parts):
        self.parts = parts.pop("parts", parts)

    def which(self, identities):
        return {name for name in identities if self.parts.get(name) == WHOLE}

    def keys(self, source):
        return {1: self.parts[source]} if source in self.parts else {}

    def of_source(self, source):
        return None


def plan(spout, interval=None, **taken):
    return spout.plan(interval, AllocatedItems(**taken))


def names(batches):
    return [[os.path.basename(item.identity) for item in batch] for batch in batches]


def meta_of(spout, items):
    return BatchMeta(items=tuple(items), emitted=spout.count(items))


def test_a_fold_does_not_depend_on_how_the_rows_were_cut(monkeypatch):
    whole = fold_rows(3, 100)
    monkeypatch.setattr("reliability.spouts.tuple_ids.ROWS_AT_ONCE", 7)
    assert fold_rows(3, 100) == whole
    assert fold_rows(4, 100).xor != whole.xor
    assert fold_rows(0, 0) == Fold()


def test_file_spout_lists_by_interval_and_path(tmp_path):
    for name in ("2026-01/b.parquet", "2026-01/a.parquet", "2026-02/c.parquet"):
        parquet(tmp_path / name)
    spout = FileSpout(f"{tmp_path}/{{data_interval_start:%Y-%m}}/*.parquet")
    items = plan(spout, Interval(START, START + 31 * DAY))
    assert [os.path.basename(item.identity) for item in items] == ["a.parquet", "b.parquet"]
    assert spout.timed
    assert [len(batch) for batch in spout.cut(items)] == [1, 1]
    both = FileSpout(spout.pattern, max_files_per_batch=2)
    assert [len(batch) for batch in both.cut(items)] == [2]
    assert both.count(items) == fold_rows(0, 3) + fold_rows(1, 3)


def test_an_interval_without_files_is_an_error_unless_it_is_normal(tmp_path):
    with pytest.raises(NothingToEmit, match="no file matches"):
        plan(FileSpout(f"{tmp_path}/*.parquet"))
    assert plan(FileSpout(f"{tmp_path}/*.parquet", allow_empty=True)) == []


def test_a_broken_file_is_refused(tmp_path):
    path = parquet(tmp_path / "a.parquet", rows=1000)
    whole, spout = path.read_bytes(), FileSpout(str(path))
    for broken in (b"", b"not parquet at all, not at all", whole[:-8] + b"\xff\xff\xff\x7fPAR1"):
        path.write_bytes(broken)
        with pytest.raises(SourceUnreadable, match=r"a\.parquet"):
            plan(spout)
    path.write_bytes(whole[:-20])
    with pytest.raises(SourceUnreadable, match="may be truncated"):  # it may still be written
        plan(spout)
    hour_ago = path.stat().st_mtime - 3600
    os.utime(path, (hour_ago, hour_ago))
    with pytest.raises(FileRefused, match=r"may be truncated.*exclude TOPOLOGY .*a\.parquet"):
        plan(spout)


def test_verify_finds_a_file_that_is_gone_or_changed(tmp_path):
    """As the ledger has it, which does not store the columns of a file."""
    spout = FileSpout(f"{tmp_path}/*.parquet")
    path = parquet(tmp_path / "a.parquet")
    meta = meta_of(spout, plan(spout))
    assert meta.items[0].columns == (("n", "bigint"),)
    assert "columns" not in meta.to_json()[0]
    stored = BatchMeta.from_json(meta.to_json(), meta.emitted)
    assert stored == meta
    spout.verify(stored)
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
    with pytest.raises(FileRefused, match=r"b\.parquet has no column n, which .*a\.parquet has"):
        spout.cut(plan(spout))
    spout = FileSpout(f"{tmp_path}/*.parquet")
    kept = meta_of(spout, plan(spout))
    parquet(tmp_path / "b.parquet")  # the source was corrected, and is refrozen
    assert len(spout.refresh(kept)) == 2
    parquet(tmp_path / "b.parquet", column="third")
    with pytest.raises(FileRefused, match="has no column third"):
        spout.refresh(kept)


def test_memory_spout_cuts_the_batches_of_the_global_count():
    spout = global_count.topology.spout
    batches = spout.cut(plan(spout))
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
    """Else another `take` would count old rows again; and rows that are gone are noticed."""
    one, two = (MemorySpout(schema={"n": "int"}, partitions=[[1, 2], [3]], take=n) for n in (1, 2))
    assert plan(one) == plan(two)
    left = plan(two, parts={"memory:0:0": WHOLE, "memory:1:0": WHOLE})
    assert [item.identity for item in left] == ["memory:0:1"]
    meta = meta_of(two, plan(two))
    two.verify(meta)
    lost = replace(two, partitions=[[1], [3]])
    with pytest.raises(SourceChanged, match="memory:0:1 no longer has the 1 rows it had"):
        lost.verify(meta)
    refrozen = meta_of(lost, lost.refresh(meta))
    assert [item.identity for item in refrozen.items] == ["memory:0:0", "memory:1:0"]
    lost.verify(refrozen)


def test_batch_meta_survives_the_ledger():
    items = (
        FileItem(path="/a", size=1, mtime_ns=2, rows=3, footer_digest="d"),
        FileItem(path="/b", size=1, mtime_ns=2, rows=3, first_group=1, last_group=2, first_row=5),
        MemorySlice(partition=0, offset=3, rows=1),
        TableKeys(table="table:/public.t", key="id", keys="{[1,4),[7,9)}", rows=5, xor=-1),
    )
    meta = BatchMeta(items=items, emitted=Fold(1, 4))
    assert BatchMeta.from_json(json.loads(json.dumps(meta.to_json())), meta.emitted) == meta
    assert meta.verdict is Verdict.EXACT
    assert [item.identity for item in items] == [
        "/a", "/b#5-8", "memory:0:3", "table:/public.t#1-9"]  # fmt: skip
    # that of the first release is read, too
    old = {"kind": "file", "path": "/a", "size": 1, "mtime_ns": 2, "rows": 3, "footer_digest": "d"}
    assert BatchMeta.from_json([old], Fold()).items == items[:1]
    assert (items[0].source, items[0].part) == ("/a", WHOLE)


def test_every_process_reads_the_librarys_own_source_items():
    """The ledger's side imports no spout, and reads batches of each."""
    code = (
        "from reliability.core.spout import BatchMeta; from reliability.core.fold import Fold;"
        "item = {'kind': 'memory', 'partition': 0, 'offset': 1, 'rows': 2};"
        "print(BatchMeta.from_json([item], Fold()).items[0].identity)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "memory:0:1"


def test_two_classes_of_source_items_cannot_have_one_kind():
    class Other(MemorySlice):
        pass

    with pytest.raises(InvalidDefinition, match="MemorySlice"):
        source_item(Other)
    assert source_item(MemorySlice) is MemorySlice  # its module may be imported again


def test_a_commit_needs_no_class_of_somebody_elses_source_items():
    """E4: the ledger says what they are a part of; for the library's own, their fields do."""
    whole = ListOfNumbers(name="a", rows=3)
    half = FileItem(path="/b", size=1, mtime_ns=2, rows=3, first_group=1, last_group=2, first_row=5)
    written = json.loads(json.dumps(BatchMeta(items=(whole, half), emitted=Fold()).to_json()))
    assert [set(item) & {"_part"} for item in written] == [{"_part"}, set()]
    assert BatchMeta.from_json(written, Fold()).items == (whole, half)
    unknown = written[0] | {"kind": "tape"}
    assert read_parts([unknown, written[1]]) == (ItemPart.of(whole), ItemPart.of(half))


@pytest.mark.parametrize("read", [lambda items: BatchMeta.from_json(items, Fold()), read_parts])
def test_an_unknown_source_item_is_worth_a_retry_and_an_unreadable_one_corruption(read):
    with pytest.raises(SourceItemUnknown, match=r"'tape'.* the tasks of the pipeline's DAG"):
        read([{"kind": "tape"}])
    for broken in ({"kind": "file", "path": "/a"}, {"path": "/a"}):
        with pytest.raises(LedgerCorruption):
            read([broken])


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


# --- E1: parts of a file, whatever the limits are at the time -------------------------------------


@pytest.fixture
def grouped(tmp_path):
    """Ten rows in row groups of 4, 4 and 2, and a small file."""
    path = tmp_path / "big.parquet"
    pq.write_table(pa.table({"n": list(range(10))}), path, row_group_size=4)
    parquet(tmp_path / "small.parquet")
    return path


def spout_of(path, **limits):
    return FileSpout(f"{path.parent}/*.parquet", **{"max_files_per_batch": 9, **limits})


@pytest.mark.parametrize(
    ("limits", "batches"),
    [
        ({}, [["big.parquet", "small.parquet"]]),
        ({"max_files_per_batch": 1}, [["big.parquet"], ["small.parquet"]]),
        ({"max_rows_per_batch": 13}, [["big.parquet", "small.parquet"]]),
        ({"max_rows_per_batch": 12}, [["big.parquet"], ["small.parquet"]]),
        ({"max_rows_per_batch": 8}, [["big.parquet#0-8"], ["big.parquet#8-10", "small.parquet"]]),
        (
            {"max_rows_per_batch": 8, "max_files_per_batch": 1},
            [["big.parquet#0-8"], ["big.parquet#8-10"], ["small.parquet"]],
        ),
        (  # a row group that is larger than the limit is a batch of its own
            {"max_rows_per_batch": 3},
            [["big.parquet#0-4"], ["big.parquet#4-8"], ["big.parquet#8-10"], ["small.parquet"]],
        ),
        (
            {"max_bytes_per_batch": 1},
            [["big.parquet#0-4"], ["big.parquet#4-8"], ["big.parquet#8-10"], ["small.parquet"]],
        ),
    ],
)
def test_limits_by_files_rows_and_bytes(grouped, limits, batches):
    spout = spout_of(grouped, **limits)
    assert names(spout.cut(plan(spout))) == batches


def test_a_file_comes_whole_or_in_pieces_as_it_was_emitted_first(grouped):
    """E1: limits change, a row's txid does not; its other row groups come."""
    most_rows = "max_rows_per_batch"
    for limits in ({}, {most_rows: 8}, {most_rows: 2}, {"max_bytes_per_batch": 1}):
        spout = spout_of(grouped, **limits)
        for taken in (WHOLE, "{[0,10)}"):
            assert names([plan(spout, parts={str(grouped): taken})]) == [["small.parquet"]]
        rest = plan(spout, parts={str(grouped): "{[4,8)}"})
        assert names([rest]) == [["big.parquet#0-4", "big.parquet#8-10", "small.parquet"]]
    # E6: with other row groups, some of its rows would have two txids, or none
    with pytest.raises(SourceChanged, match=r"big\.parquet was emitted in part"):
        plan(spout_of(grouped), parts={str(grouped): "{[0,6)}"})


def test_what_is_added_to_a_file_that_was_emitted_in_pieces_is_not_taken_for_the_rest(grouped):
    """E6: the rows may have moved, so that one would count twice and another never."""
    spout, txids = spout_of(grouped, max_rows_per_batch=4), Txids()
    for items in spout.cut(spout.plan(None, txids)):
        txids.record(BatchMeta(items=items, emitted=spout.count(items)))
    assert spout.plan(None, txids) == []
    pq.write_table(pa.table({"n": [50, *range(10), 60]}), grouped, row_group_size=4)
    with pytest.raises(SourceChanged, match="has other row groups now"):
        spout.plan(None, txids)
    pq.write_table(pa.table({"n": [50, *range(9), *range(90, 96)]}), grouped, row_group_size=2)
    with pytest.raises(SourceChanged, match="was written again since"):
        spout.plan(None, txids)


def test_pieces_of_a_file_fold_to_the_whole_file_and_are_verified(grouped):
    """E6."""
    spout = spout_of(grouped, max_rows_per_batch=4)
    pieces = plan(spout)[:3]
    assert Fold.of(spout.count([piece]) for piece in pieces) == fold_rows(0, 10)
    assert spout.count(pieces) == fold_rows(0, 10)  # one file, one ordinal
    stored = [item.bytes for item in pieces]
    assert 0 < sum(stored) < grouped.stat().st_size
    by_bytes = spout_of(grouped, max_bytes_per_batch=stored[0] + stored[1])
    assert names(by_bytes.cut(pieces)) == [["big.parquet#0-8"], ["big.parquet#8-10"]]
    meta = meta_of(spout, pieces[1:2])
    spout.verify(meta)
    os.utime(grouped, ns=(1, 1))
    with pytest.raises(SourceChanged, match=r"changed: mtime_ns [0-9]+ is now 1\. "):
        spout.verify(meta)


# --- text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "header", "rows"),
    [
        ("", False, 0),
        ("a,b", False, 1),
        ("a,b\n1,2\n", True, 1),
        ("", True, 0),
        ('1,"two\nlines"\n2,"a ""quote"", and\r\nmore"\n', False, 2),
        ("1,2\n\n\n3,4\n", False, 2),  # Spark passes over empty lines too
        ('1\n""\n', False, 2),
        ("1," + "x" * 200_000 + "\n", False, 1),
    ],
)
def test_records_of_csv_are_counted_without_spark(tmp_path, text, header, rows):
    """V6."""
    (tmp_path / "a.csv").write_text(text, newline="")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(text.encode()))
    spout = FileSpout(f"{tmp_path}/*", format=Csv(header=header), schema="a int, b string")
    items = plan(spout)
    assert [item.rows for item in items] == [rows, rows]
    meta = meta_of(spout, items)
    assert meta.emitted == Fold.of(fold_rows(ordinal, rows) for ordinal in (0, 1))
    assert meta.verdict is Verdict.EXACT
    counted = replace(spout, format=Csv(header=header, counted=True))
    meta = meta_of(counted, plan(counted))
    assert (meta.emitted, meta.verdict) == (Fold(0, 2 * rows), Verdict.COUNTED)


def test_the_driver_reads_a_field_as_long_as_emission_does(tmp_path):
    """Emission raises the limit of csv fields, in a process of its own."""
    (tmp_path / "a.csv").write_text(f"1,{'x' * 140_000}\n")
    limit = csv.field_size_limit(131_072)
    try:
        assert line_end(str(tmp_path / "a.csv")) == "\n"
    finally:
        csv.field_size_limit(limit)


def test_text_that_is_not_whole_is_refused(tmp_path):
    for name, broken in (
        ("a.csv", b"\xff\xfe1,2"),
        ("a.csv.gz", gzip.compress(b"1,2\n" * 1000)[:-10]),
        ("b.csv.gz", b""),
    ):
        path = tmp_path / name
        path.write_bytes(broken)
        with pytest.raises(SourceUnreadable, match=rf"{name} cannot be read as csv"):
            plan(FileSpout(str(path), format=Csv(), schema="a int, b string"))


def test_text_is_a_batch_of_its_own_beyond_the_limit_and_is_verified_by_size_and_time(tmp_path):
    """E6."""
    for name in "abc":
        (tmp_path / f"{name}.csv").write_text("1\n2\n")
    spout = FileSpout(f"{tmp_path}/*", 9, format=Csv(), schema="a int", max_rows_per_batch=1)
    spout = replace(spout, max_bytes_per_batch=3)
    items = plan(spout)
    assert names(spout.cut(items)) == [["a.csv"], ["b.csv"], ["c.csv"]]
    meta = meta_of(spout, items)
    spout.verify(meta)
    (tmp_path / "b.csv").write_text("1\n2\n3")
    with pytest.raises(SourceChanged, match=r"b\.csv changed: size 4 is now 5"):
        spout.verify(meta)
    (tmp_path / "a.csv").unlink()
    with pytest.raises(SourceChanged, match=r"a\.csv was emitted and is now unreadable"):
        spout.verify(meta)


# --- paths and URIs -------------------------------------------------------------------------------


@pytest.fixture
def memory_files():
    """A file system that pyarrow lacks, and that tells no modification time."""
    import fsspec

    files = fsspec.filesystem("memory")
    files.store.clear()
    for name in ("/in/2026/a.csv", "/in/2026/b.csv", "/in/2025/a.csv", "/in/.x/a.csv", "/in/a.csv"):
        files.pipe(name, b"1\n2\n")
    yield files
    files.store.clear()


def test_a_glob_means_the_same_on_any_file_system(memory_files, tmp_path):
    for name in memory_files.find("/"):
        path = tmp_path / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for pattern, found in {
        "in/2026/*.csv": ["in/2026/a.csv", "in/2026/b.csv"],
        "in/*/a.csv": ["in/2025/a.csv", "in/2026/a.csv"],
        "in/**/*.csv": ["in/2025/a.csv", "in/2026/a.csv", "in/2026/b.csv", "in/a.csv"],
        "in/202[!6]/?.csv": ["in/2025/a.csv"],
        "in/2026/b.csv": ["in/2026/b.csv"],
        "in/.x/*.csv": ["in/.x/a.csv"],
        "in/2026/*.parquet": [],
        "nowhere/*": [],
        "in/**": ["in/2025/a.csv", "in/2026/a.csv", "in/2026/b.csv", "in/a.csv"],
    }.items():
        assert find_files(f"memory:///{pattern}") == [f"memory:///{name}" for name in found]
        local = [os.path.relpath(path, tmp_path) for path in find_files(f"{tmp_path}/{pattern}")]
        assert local == found


def test_text_on_a_file_system_that_tells_no_time_is_refused(memory_files):
    """E6: a change of it would not show."""
    spout = FileSpout("memory:///in/2026/*.csv", format=Csv(), schema="a int")
    with pytest.raises(SourceUnreadable, match="neither time nor ETag"):
        plan(spout)


def test_an_etag_is_compared(memory_files, monkeypatch):
    """E6."""
    tags = {"/in/2026/a.csv": '"one"', "/in/2026/b.csv": '"one"'}
    files = type(memory_files)
    plain = files.info
    monkeypatch.setattr(
        files, "info", lambda self, path, **o: plain(self, path, **o) | {"ETag": tags.get(path)}
    )
    spout = FileSpout("memory:///in/2026/*.csv", 9, format=Csv(), schema="a int")
    meta = meta_of(spout, plan(spout))
    spout.verify(meta)
    tags["/in/2026/b.csv"] = '"two"'
    with pytest.raises(SourceChanged, match=r"b\.csv changed: etag one is now two"):
        spout.verify(meta)


# --- tables of files ------------------------------------------------------------------------------

TABLES = {
    "Delta Lake": ["lake/t/_delta_log/00.json", "lake/t/day=1/a.csv"],
    "Hudi": ["lake/t/.hoodie/hoodie.properties", "lake/t/2026/01/a.csv"],
    "Iceberg": ["lake/t/metadata/v1.metadata.json", "lake/t/data/day=1/a.csv"],
}


@pytest.fixture(params=["local", "remote"])
def lake(request, tmp_path):
    """Write files, and return where they lie: a folder, or a file system of fsspec's."""
    if request.param == "local":
        root = str(tmp_path)

        def write(name):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("1\n")
    else:
        files = request.getfixturevalue("memory_files")
        root = "memory://"

        def write(name):
            files.pipe(f"/{name}", b"1\n")

    return root, write


def names_in(root, pattern):
    from reliability.spouts.table_formats import check_no_table

    found = find_files(f"{root}/{pattern}")
    check_no_table(found)
    return [path.rpartition("lake/")[2] for path in found]


@pytest.mark.parametrize("name", TABLES)
def test_files_of_a_table_are_refused_however_deep_they_lie(lake, name):
    """E1: a file that the table has replaced stays, and would count twice."""
    root, write = lake
    for file in TABLES[name]:
        write(file)
    folder = TABLES[name][1].removesuffix("/a.csv")
    for pattern in ("lake/t/**/*.csv", f"{folder}/*.csv"):
        with pytest.raises(SourceIsATable, match=rf"a\.csv is a file of a table of {name}"):
            names_in(root, pattern)


def test_what_only_looks_like_a_table_is_read(lake):
    """Nor is a table beside it, or what somebody reads of a table's log."""
    root, write = lake
    files = ["a/data/x.csv", "a/metadata/notes.json", "b/_delta_log.csv", "c/_delta_log/0.json",
             "c/_delta_log/1.json", "data/y.csv"]  # fmt: skip
    for file in files:
        write(f"lake/{file}")
    assert names_in(root, "lake/[ab]/**/*.csv") == ["a/data/x.csv"]
    assert names_in(root, "lake/data/*") == ["data/y.csv"]
    assert names_in(root, "lake/c/_delta_log/*") == ["c/_delta_log/0.json", "c/_delta_log/1.json"]


def test_a_folder_that_may_not_be_listed_is_no_table_and_said(tmp_path, monkeypatch, caplog):
    """Emission and lag ended in a traceback: the folder is only beside what is read."""
    from pyarrow.fs import FileSelector

    from reliability.spouts.filesystem import open_filesystem
    from reliability.spouts.table_formats import check_no_table

    class OthersFolder:
        def __init__(self, inner):
            self.inner = inner

        def get_file_info(self, asked):
            if isinstance(asked, FileSelector):
                raise PermissionError(13, f"Cannot list {asked.base_dir}")
            return self.inner.get_file_info(asked)

    for name in ("metadata", "data"):
        (tmp_path / name).mkdir()

    def opened(path):
        filesystem, inner = open_filesystem(path)
        return OthersFolder(filesystem), inner

    monkeypatch.setattr("reliability.spouts.table_formats.open_filesystem", opened)
    check_no_table([f"{tmp_path}/data/a.csv"])
    assert f"{tmp_path}/metadata" in caplog.text


def test_a_table_is_found_before_anything_is_emitted(tmp_path):
    """E1."""
    (tmp_path / "_delta_log").mkdir()
    parquet(tmp_path / "a.parquet")
    with pytest.raises(SourceIsATable, match="above it has _delta_log"):
        plan(FileSpout(f"{tmp_path}/*.parquet"))


def test_each_folder_is_looked_at_once(tmp_path, monkeypatch):
    """A hundred files in ten folders: two names in each folder on their way, in one call."""
    from reliability.spouts import table_formats

    asked: list[int] = []
    known = table_formats._folders_among

    def counted(filesystem, paths):
        asked.append(len(paths))
        return known(filesystem, paths)

    monkeypatch.setattr(table_formats, "_folders_among", counted)
    table_formats.check_no_table([f"{tmp_path}/{n % 10}/{n}.csv" for n in range(100)])
    above = len(tmp_path.parts) - 1
    assert asked == [2 * (10 + above), 0]


def test_a_file_system_that_nobody_knows_is_named():
    with pytest.raises(SourceUnreadable, match="tape://robot"):
        plan(FileSpout("tape://robot/*.parquet"))


# --- kinds, readiness, definitions ----------------------------------------------------------------


def test_the_ready_file_says_when(tmp_path):
    """Trident's isReady."""
    spout = FileSpout(
        f"{tmp_path}/{{data_interval_start:%Y-%m}}/*.parquet",
        ready_file=f"{tmp_path}/{{data_interval_start:%Y-%m}}/_SUCCESS",
    )
    january = Interval(START, START + 31 * DAY)
    assert not spout.is_ready(1, january)
    parquet(tmp_path / "2026-01" / "a.parquet")
    (tmp_path / "2026-01" / "_SUCCESS").touch()
    assert spout.is_ready(1, january)
    assert not spout.is_ready(2, Interval(START + 31 * DAY, START + 59 * DAY))
    assert FileSpout("x/*").is_ready(1, None)
    assert TableSpout("t", key="id").is_ready(1, None)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: FileSpout("*", 0), "max_files_per_batch"),
        (lambda: FileSpout("*", max_rows_per_batch=0), "max_rows_per_batch"),
        (lambda: FileSpout("*", max_bytes_per_batch=0), "max_bytes_per_batch"),
        (lambda: FileSpout("*", format="xml"), "xml"),  # type: ignore[arg-type]
        (lambda: FileSpout("*", format=Csv()), "Csv needs a schema"),
        (lambda: FileSpout("*.jsonl"), "JsonLines needs a schema"),
        (lambda: FileSpout("*", opaque=True), "opaque spout needs a schema"),
        (lambda: Csv(malformed="drop"), "drop"),
        (
            lambda: FileSpout("*.csv", schema="n int, tags array<int>"),
            r"columns \['tags'\] of the schema",
        ),
        (lambda: FileSpout("*", ready_file="{data_interval_start:%d}/ok"), "never exist"),
        (lambda: TableSpout("t", key="id", max_rows_per_batch=0), "max_rows_per_batch"),
        (lambda: TableSpout("t", key="id", lag_seconds=5), "lag_column"),
        (lambda: TableSpout("t", key="id", lag_column="at"), "lag_seconds"),
        (lambda: TableSpout("t", key="id", rows_change=True), "rows_change needs opaque=True"),
        (lambda: TableSpout("t", key="id", database="host=h").plan(None, NoItems()), "host=h"),
    ],
)
def test_a_definition_that_does_not_hold_together_is_refused(make, named):
    with pytest.raises(InvalidDefinition, match=named):
        make()


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("in/{ds}/*", "{ds} is not a placeholder"),
        ("in/{data_intervall_start:%Y}/*", "is not a placeholder"),
        ("in/{{ data_interval_start }}/*", "is not a placeholder"),
        ("in/*.{csv,json}", "{csv,json} is not a placeholder"),
        ("in/{data_interval_start:%Y/*", "is not a placeholder"),
        ("in/{data_interval_start.day_of_week}/*", "day_of_week"),
        ("in/{data_interval_start.isoformat}/*", "is a function of the time, not a part of it"),
        ("in/{data_interval_start:YYYY-MM}/*", "is the same for every interval"),
    ],
)
def test_a_brace_that_is_no_placeholder_is_refused(pattern, said):
    """It would match nothing, and with allow_empty every run would be green."""
    with pytest.raises(InvalidDefinition, match=re.escape(said)):
        FileSpout(pattern, allow_empty=True)
    with pytest.raises(InvalidDefinition, match=re.escape(said)):
        FileSpout("{data_interval_start:%d}/*", ready_file=pattern)


def test_seconds_since_1970_were_those_of_the_host_and_are_refused():
    """In Berlin, by a process in UTC, the run of one hour read the file of the next."""
    for directive in ("%s", "%-s", "%Y%%%s"):
        with pytest.raises(InvalidDefinition, match="depends on the time zone of the process"):
            FileSpout(f"{{data_interval_start:{directive}}}/*")
    FileSpout("{data_interval_start:%Y%%s}/*")  # a percent sign and an s


def test_a_brace_in_brackets_is_itself(tmp_path):
    parquet(tmp_path / "{a}" / "2026-01" / "{b}.parquet")
    month = Interval(START, START + 31 * DAY)
    for name in ("2026-01", "{data_interval_start:%Y-%m}"):
        spout = FileSpout(f"{tmp_path}/[{{]a}}/{name}/[{{]b[}}].parquet")
        assert len(spout.plan(month if spout.timed else None, NoItems())) == 1


# --- time zones ----------------------------------------------------------------------------------


def test_dates_in_patterns_are_those_of_the_spouts_time_zone(tmp_path):
    """A day of Berlin begins in UTC's day before, and an hour of it occurs twice in October."""
    day, hour = "{data_interval_start:%Y-%m-%d}", "{data_interval_start:%Y-%m-%dT%H%z}"
    night = Interval.parse("2026-10-25T02+02:00/2026-10-25T02+01:00")
    for zone, form, expected in [
        ("", day, "2026-10-25"),
        ("Europe/Berlin", hour, "2026-10-25T02+0200"),
        ("America/New_York", day, "2026-10-24"),
    ]:
        parquet(tmp_path / expected / "a.parquet")
        spout = FileSpout(
            f"{tmp_path}/{form}/*", ready_file=f"{tmp_path}/{form}/a.parquet", time_zone=zone
        )
        assert [item.path.split("/")[-2] for item in spout.plan(night, NoItems())] == [expected]
        assert spout.is_ready(1, night)
        assert not spout.is_ready(1, Interval.parse("2026-10-28"))


def test_a_time_zone_that_there_is_none_of_is_refused():
    for zone in ("Berlin", "CET+2", "Europe", "../zone", "+02:00"):
        with pytest.raises(InvalidDefinition, match=r"no time zone .*Europe/Berlin"):
            FileSpout("{data_interval_start:%Y}/*", time_zone=zone)
