"""A batch from emit to commit, on real Spark and real Postgres."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from reliability import FileSpout, State, Sum, Topology
from reliability.core.errors import SchemaMismatch
from spark_apps import global_count
from tests.support.fix_pipeline import in_both_engines, month, shop, write_parquet
from tests.support.fix_postgres import rows

JANUARY = [
    {"customer": 1, "day": date(1997, 1, 1), "price": Decimal("11.77")},
    {"customer": 2, "day": date(1997, 1, 1), "price": Decimal("12.00")},
    {"customer": 2, "day": date(1997, 1, 2), "price": Decimal("77.00")},
    {"customer": 2, "day": date(1997, 1, 2), "price": Decimal("77.00")},  # equal rows are real
    {"customer": None, "day": date(1997, 1, 3), "price": None},
]
LATER = [
    {"customer": 1, "day": date(1997, 1, 3), "price": Decimal("0.23")},
    {"customer": None, "day": None, "price": Decimal("5.00")},
]
PER_CUSTOMER = (
    "SELECT customer, orders, revenue, first_day, last_day FROM per_customer ORDER BY customer"
)
PER_DAY = "SELECT day, orders, revenue FROM per_day ORDER BY day"


@pytest.fixture
def folder(tmp_path):
    write_parquet(tmp_path / "1997-01" / "a.parquet", JANUARY)
    write_parquet(tmp_path / "1997-01" / "b.parquet", LATER)
    return tmp_path


def test_two_txids_of_an_interval_commit_in_order(folder, pipeline, connection):
    shop_pipeline = pipeline(shop(folder))
    assert shop_pipeline.emit(month(1997, 1)) == [1, 2]
    shop_pipeline.transact(1)
    shop_pipeline.transact(2)
    assert rows(connection, PER_CUSTOMER) == [
        (1, 2, Decimal("12.00"), date(1997, 1, 1), date(1997, 1, 3)),
        (2, 3, Decimal("166.00"), date(1997, 1, 1), date(1997, 1, 2)),
        (None, 2, Decimal("5.00"), date(1997, 1, 3), date(1997, 1, 3)),
    ]
    assert rows(connection, PER_DAY) == [
        (date(1997, 1, 1), 2, Decimal("23.77")),
        (date(1997, 1, 2), 2, Decimal("154.00")),
        (date(1997, 1, 3), 2, Decimal("0.23")),
        (None, 1, Decimal("5.00")),
    ]


def test_global_count_is_9_16_19(pipeline, connection):
    count = pipeline(global_count.topology)
    assert count.emit(None) == [1, 2, 3]
    counts = []
    for txid in (1, 2, 3):
        count.transact(txid)
        counts += rows(connection, "SELECT words FROM global_count")
    assert counts == [(9,), (16,), (19,)]
    assert count.again("later").emit(None) == []


@in_both_engines
def test_replay_of_the_same_batch_changes_nothing(folder, pipeline, connection):
    shop_pipeline = pipeline(shop(folder))
    for txid in shop_pipeline.emit(month(1997, 1)):
        shop_pipeline.transact(txid)
    before = rows(connection, PER_CUSTOMER), rows(connection, PER_DAY)
    again = shop_pipeline.again()
    assert again.emit(month(1997, 1)) == [1, 2]
    again.transact(1)
    again.transact(2)
    assert (rows(connection, PER_CUSTOMER), rows(connection, PER_DAY)) == before
    assert rows(
        connection, "SELECT txid, attempt_id, replaced_attempt FROM reliability.commit_log"
    ) == [
        (1, 0, None),
        (2, 0, None),
        (1, 1, 0),
        (2, 1, 0),
    ]


def test_a_type_that_does_not_fit_names_the_file_that_has_another(tmp_path, pipeline, connection):
    """Not in both engines: of a driver's error the ledger keeps what happened, not the remedy."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, column in (("1", pa.array([1], pa.int64())), ("2", pa.array(["1"]))):
        pq.write_table(pa.table({"distance": column}), tmp_path / f"{name}.parquet")
    distances = State("distances", values={"distance": Sum("distance", "bigint")})
    spout = FileSpout(f"{tmp_path}/*.parquet")
    pipe = pipeline(Topology("flights", spout, [distances], distances_of, max_spout_pending=2))
    assert pipe.emit(None) == [1, 2]
    with pytest.raises(SchemaMismatch) as raised:
        pipe.run_step(pipe.begin(2))
    assert "Compared with the file of txid 1: " in raised.value.what
    assert "2.parquet" in raised.value.what
    assert "distance" in raised.value.what
    assert "string" in raised.value.what
    assert "reliability replay flights 2 --refreeze" in raised.value.remedy


def distances_of(batch):
    return {"distances": batch}
