"""Files of an object store: listing, identity, faults, and reading without jars.

The store is moto's, of S3's kind. Spark has no jars for it here, so its tasks read through Arrow.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from datetime import datetime
from itertools import count
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from reliability import Csv, DeltaSpout, FileSpout, Parquet
from reliability.core.errors import SchemaMismatch, SourceChanged, SourceIsATable, SourceUnreadable
from reliability.core.spout import BatchMeta, NoItems, Spout, only
from reliability.deployment.lazy import F, pa, pq
from reliability.spark.session import pin_settings
from reliability.spouts import filesystem, parquet_rows
from reliability.spouts.changed_files import changed_since
from reliability.spouts.file_item import FileItem
from reliability.spouts.filesystem import find_files
from reliability.testing import Source, check_spout
from reliability.testing.allocated import Txids
from tests.integration.test_iceberg import orders_in
from tests.integration.test_parquet_types import REFUSED, types
from tests.support.batches import batches_of, fold_of_rows, meta_of
from tests.support.fix_postgres import rows
from tests.support.lake import Values, live_through_six_batches, table_of, topology
from tests.support.object_store import SECRET, ObjectStore, object_store


@pytest.fixture(scope="module")
def started(spark):
    """A store that clients here and in Spark's Python processes find by the usual variables."""
    with object_store() as store, pytest.MonkeyPatch.context() as patch:
        for name, value in store.env.items():
            patch.setenv(name, value)
            patch.setitem(spark.sparkContext.environment, name, value)
        filesystem._remote.cache_clear()
        yield store
    filesystem._remote.cache_clear()


@pytest.fixture
def store(started):
    """The store, empty."""
    for page in started.client.get_paginator("list_objects_v2").paginate(Bucket=started.bucket):
        keys = [{"Key": each["Key"]} for each in page.get("Contents", ())]
        if keys:
            started.client.delete_objects(Bucket=started.bucket, Delete={"Objects": keys})
    started.requests.clear()
    return started


def parquet(table: Any, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def numbers(*values: int, group: int = 2) -> bytes:
    return parquet(pa.table({"n": pa.array(values, pa.int64())}), row_group_size=group)


def read(spark: Any, spout: Spout, meta: BatchMeta) -> Counter[Any]:
    """Return the rows of a batch, and check that their fold is the emitted one."""
    found = spout.frame(spark, meta).collect()
    assert fold_of_rows(found) == meta.emitted
    return Counter(tuple(row[:-2]) for row in found)


# --- the contract --------------------------------------------------------------------------------


class Objects(Source):
    """A folder of a bucket with some numbers in each object."""

    def __init__(self, store: ObjectStore):
        self.store, self.numbers, self.values = store, count(), dict[str, list[int]]()

    def write(self, number: int, *values: int) -> None:
        key = f"in/{number:03}.parquet"
        self.store.put(key, numbers(*values))
        self.values[key] = [*values]

    def add(self) -> None:
        number = next(self.numbers)
        self.write(number, number, 5, 5)

    def change(self) -> None:
        self.write(0, 7)

    def lose(self) -> None:
        self.store.delete("in/001.parquet")
        del self.values["in/001.parquet"]

    def rows(self):
        return [{"n": n} for values in self.values.values() for n in values]


@pytest.mark.slow
def test_it_keeps_the_contract(store, spark):
    spout = FileSpout("s3://lake/in/*.parquet", schema="n bigint", opaque=True)
    pieces = replace(spout, max_files_per_batch=2, max_rows_per_batch=2)
    assert check_spout(spout, Objects(store), spark=spark, others=[pieces])


class Orders:
    """A folder of objects to which people add; each becomes a batch."""

    def __init__(self, store: ObjectStore):
        self.store, self.numbers = store, count()
        self.spout = FileSpout("s3a://lake/orders/*.parquet")

    def append(self, *values: Values) -> None:
        self.store.put(f"orders/{next(self.numbers):03}.parquet", parquet(table_of(values)))

    def moves(self) -> None:
        """Let the store move an object to another class, by a copy of its bytes."""
        key = "orders/000.parquet"
        self.store.client.copy_object(
            Bucket="lake",
            Key=key,
            CopySource=f"lake/{key}",
            StorageClass="STANDARD_IA",
            MetadataDirective="REPLACE",
        )


@pytest.mark.slow
def test_six_batches_through_all_that_happens(store, pipeline, connection):
    lived = live_through_six_batches(Orders(store), pipeline, connection)
    store.delete("orders/002.parquet")
    lived.is_lost(lived.runs[1], 3, r"002\.parquet was emitted and is now unreadable")
    lived.goes_on()
    lived.check([*lived.batches[:2], *lived.batches[3:]])


def test_a_table_of_delta_lake_is_read_from_it(store, spark):
    place, feed = "s3://lake/delta/orders", {"delta.enableChangeDataFeed": "true"}
    values = [(1, "Mon day", 5), (2, "50%", 7)]
    write_deltalake(place, table_of(values), partition_by=["day"], configuration=feed)
    write_deltalake(place, table_of([(3, "Mon day", 9)]), mode="append")
    DeltaTable(place).optimize.compact()
    spout, txids = DeltaSpout(place), Txids()
    for batch in spout.cut(spout.plan(None, txids)):
        txids.record(BatchMeta(items=batch, emitted=spout.count(batch)))
    found: Counter[Any] = Counter()
    for meta in txids.batches.values():
        spout.verify(meta)
        found += read(spark, spout, meta)
    assert found == Counter([*values, (3, "Mon day", 9)])
    with pytest.raises(SourceIsATable, match="DeltaSpout"):
        batches_of(FileSpout(f"{place}/**/*.parquet"))


def test_a_table_of_iceberg_is_read_from_it(store, spark, tmp_path, monkeypatch):
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__S3__ENDPOINT", store.address)
    orders = orders_in("s3://lake/iceberg", tmp_path, monkeypatch)
    orders.append((1, "Mon", 5), (2, "Tue", 7))
    orders.append((3, "Mon", 9))
    [one] = batches_of(replace(orders.spout, max_versions_per_batch=2))
    orders.spout.verify(one)
    assert read(spark, orders.spout, one) == Counter([(1, "Mon", 5), (2, "Tue", 7), (3, "Mon", 9)])


# --- listing and identity ------------------------------------------------------------------------


def test_a_listing_of_thousands_of_keys_has_pages(store):
    from moto.s3.models import s3_backends

    [account] = s3_backends
    backend = s3_backends[account]["aws"]
    for number in range(2_500):
        backend.put_object("lake", f"in/day={number % 3}/{number:05}.csv", b"1\n")
    backend.put_object("lake", "in/day=1/", b"")  # what a console makes for a folder
    backend.put_object("lake", "in/day=1/_SUCCESS", b"")
    store.requests.clear()
    found = find_files("s3://lake/in/day=*/*.csv")
    assert len(found) == 2_500
    assert found[0] == "s3://lake/in/day=0/00000.csv"
    assert len(store.requests) < 10


def test_many_objects_are_asked_for_at_once(store):
    for number in range(32):
        store.put(f"in/{number}.csv", b"1\n")
    slow = 0.1
    with store.failing(lambda method, path: time.sleep(slow)):
        begun = time.monotonic()
        [meta] = batches_of(FileSpout("s3://lake/in/*.csv", 100, schema="n int"))
    assert meta.emitted.count == 32
    in_a_row = slow * sum(path.endswith(".csv") for _, path in store.requests)
    assert time.monotonic() - begun < in_a_row / 4


def test_an_object_is_known_by_its_etag(store):
    store.put("in/a.csv", b"1\n")
    spout = FileSpout("s3://lake/in/*.csv", schema="n int")
    meta = meta_of(spout)
    [item] = only(FileItem, meta.items)
    assert item.etag
    time.sleep(1.1)  # the store tells times in seconds
    store.put("in/a.csv", b"1\n")
    spout.verify(meta)  # the same bytes, later
    assert [*changed_since(meta.items)] == []
    store.put("in/a.csv", b"2\n")  # as many bytes
    with pytest.raises(SourceChanged, match=r"s3://lake/in/a\.csv changed: etag \w+ is now \w+"):
        spout.verify(meta)
    [(path, why)] = changed_since(meta.items)
    assert (path, why) == ("s3://lake/in/a.csv", "of the same size, with another ETag")
    old = replace(item, etag="")  # of an earlier release
    with pytest.raises(SourceChanged, match="mtime_ns"):
        spout.verify(replace(meta, items=(replace(old, mtime_ns=1),)))


# --- what goes wrong -----------------------------------------------------------------------------


def test_requests_that_fail_are_sent_again(store, spark):
    asked, answers = count(), [503, None, None, 500, None, None, None]
    for number in range(2):
        store.put(f"in/{number}.parquet", numbers(number, 5, 5))
    spout = FileSpout("s3://lake/in/*.parquet", 2)
    with store.failing(lambda method, path: answers[next(asked) % len(answers)]):
        [meta] = batches_of(spout)
        spout.verify(meta)
        assert read(spark, spout, meta) == Counter({(5,): 4, (0,): 1, (1,): 1})


def test_a_store_that_stays_away_allocates_nothing(store, pipeline, connection):
    source = Orders(store)
    source.append((1, "Mon", 5))
    run = pipeline(topology(source.spout))
    down = store.failing(lambda method, path: 503)
    with down, pytest.raises(SourceUnreadable, match="SLOW_DOWN"):
        run.emit(None)
    assert run.again("later").emit(None) == [1]
    [(stored,)] = rows(connection, "SELECT batch_meta::text FROM reliability.transaction")
    assert "s3a://lake/orders/000.parquet" in stored
    assert SECRET not in stored


def test_who_may_not_read_is_told_so(store):
    store.put("in/a.parquet", numbers(1))
    spout = FileSpout("s3://lake/in/*.parquet")
    denied = store.failing(lambda method, path: 403)
    with denied, pytest.raises(SourceUnreadable, match="ACCESS_DENIED") as error:
        spout.plan(None, NoItems())
    assert SECRET not in str(error.value)
    other = FileSpout("s3://other/*.parquet")
    with pytest.raises(SourceUnreadable, match="s3://other does not exist"):
        other.plan(None, NoItems())


def test_spark_s_own_reader_of_text_needs_its_jars(store, spark):
    store.put("in/a.csv", b"1\n2\n")
    spout = FileSpout("s3://lake/in/*.csv", schema="n int", format=Csv(counted=True))
    with pytest.raises(SourceUnreadable, match=r"lacks the jars.*leave out counted=True"):
        spout.frame(spark, meta_of(spout))
    spout = replace(spout, format=Csv())
    assert read(spark, spout, meta_of(spout)) == Counter([(1,), (2,)])


# --- reading through Arrow -----------------------------------------------------------------------


@pytest.fixture
def without_jars(monkeypatch):
    """Let local files be read as those of a store whose jars Spark lacks."""
    monkeypatch.setattr(parquet_rows, "reads_by_spark", lambda spark, path: False)


def by_both(monkeypatch: Any, spark: Any, spout: FileSpout) -> tuple[Any, Any]:
    """Return the schema and the rows that Spark reads, and those that Arrow does."""
    meta = meta_of(spout)
    found = []
    for by_spark in (True, False):
        with monkeypatch.context() as patch:
            patch.setattr(parquet_rows, "reads_by_spark", lambda spark, path, by=by_spark: by)
            frame = spout.frame(spark, meta)
            read = frame.orderBy("_x").collect()
            assert fold_of_rows(read) == meta.emitted
            found.append((frame.dtypes, read))
    return found[0], found[1]


def test_arrow_reads_each_type_as_spark_does(tmp_path, spark, monkeypatch):
    pin_settings(spark)
    columns = {
        name: column["v"]
        for name, column in types().items()
        if name not in REFUSED and "v" in column and name != "nested"
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    one, other = by_both(monkeypatch, spark, FileSpout(f"{tmp_path}/*.parquet"))
    assert one == other
    assert len(columns) > 25


@pytest.mark.parametrize("options", [{}, {"max_rows_per_batch": 3}])
def test_arrow_reads_odd_names_and_old_times_as_spark_does(tmp_path, spark, monkeypatch, options):
    pin_settings(spark)
    times = [datetime(1900 + 40 * n, 1, 2, 3, 4, 5, 678901) for n in range(5)]
    table = pa.table({"a.b": range(5), "a b": range(5), "c,;{}()=": range(5), "_metadata": times})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, row_group_size=2)
    one, other = by_both(monkeypatch, spark, FileSpout(f"{tmp_path}/*.parquet", **options))
    assert one == other


def test_arrow_reads_files_whose_columns_differ(tmp_path, spark, monkeypatch):
    pin_settings(spark)
    a = {"id": pa.array([1, None], pa.int32()), "price": pa.array([0.5, 1], pa.float32())}
    pq.write_table(pa.table(a), tmp_path / "a.parquet")
    pq.write_table(
        pa.table({"note": ["new"], "id": pa.array([2], pa.int16())}), tmp_path / "b.parquet"
    )
    spout = FileSpout(
        f"{tmp_path}/*.parquet", 2, schema="id int, price float", format=Parquet(drift="widen")
    )
    one, other = by_both(monkeypatch, spark, spout)
    assert one == other


def test_what_arrow_cannot_read_as_spark_does_is_refused(tmp_path, spark, without_jars):
    path = tmp_path / "a.parquet"
    spout = FileSpout(str(path))
    pq.write_table(pa.table({"v": [{"b c": 1}]}), path)
    with pytest.raises(SchemaMismatch, match="without the jars"):
        spout.frame(spark, meta_of(spout))
    table = pa.table({"v": [1]}).replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})
    pq.write_table(table, path)
    with pytest.raises(Exception, match="calendar that Spark had before"):
        spout.frame(spark, meta_of(spout)).collect()


def test_the_place_of_a_row_is_known(store, spark):
    store.put("in/a b/x.parquet", numbers(1, 2, 3))
    frame = FileSpout("s3://lake/in/*/*.parquet").frame(
        spark, meta_of(FileSpout("s3://lake/in/*/*.parquet"))
    )
    told = frame.select("n", F.col("_metadata.file_path"), F.col("_metadata.row_index"))
    assert [tuple(row) for row in told.orderBy("n").collect()] == [
        (n + 1, "s3://lake/in/a b/x.parquet", n) for n in range(3)
    ]
    assert "_metadata" not in frame.columns


def test_spark_reads_by_its_own_file_system_where_it_has_one(store, spark, tmp_path):
    """It is called s3a, whatever the pattern says; here it leads to a folder."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    name = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"
    settings = {
        "fs.s3a.impl": name,
        "fs.viewfs.overload.scheme.target.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
        "fs.viewfs.mounttable.lake.link./in": f"file://{tmp_path}/in",
    }
    before = {key: hadoop.get(key) for key in settings}
    for key, value in settings.items():
        hadoop.set(key, value)
    try:
        (tmp_path / "in").mkdir()
        for number in range(2):
            data = numbers(number, 5)
            store.put(f"in/{number} x.parquet", data)
            (tmp_path / "in" / f"{number} x.parquet").write_bytes(data)
        spout = FileSpout("s3://lake/in/*.parquet", 2)
        [meta] = batches_of(spout)
        store.requests.clear()
        frame = spout.frame(spark, meta)
        assert "FileScan" in frame._jdf.queryExecution().executedPlan().toString()
        assert read(spark, spout, meta) == Counter({(5,): 2, (0,): 1, (1,): 1})
    finally:
        for key, value in before.items():
            hadoop.unset(key) if value is None else hadoop.set(key, value)
