"""A batch from emit to commit, on real Spark and real Postgres (rules A1, A2, E6, V1, V3)."""

from __future__ import annotations

import os
import socket
from datetime import date
from decimal import Decimal

import pytest

from reliability import Append, FileSpout, State, Sum, Topology
from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import (
    AttemptFenced,
    FrameWithoutAccounting,
    SchemaMismatch,
    SourceChanged,
)
from reliability.deployment.lazy import pa, pq
from reliability.transaction.inspect.attempt_report import attempt_report
from tests.support.accounts import staged
from tests.support.fix_pipeline import TWENTY, in_both_engines, month, shop, write_parquet
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


CUSTOMERS = [
    (1, 2, Decimal("12.00"), date(1997, 1, 1), date(1997, 1, 3)),
    (2, 3, Decimal("166.00"), date(1997, 1, 1), date(1997, 1, 2)),
    (None, 2, Decimal("5.00"), date(1997, 1, 3), date(1997, 1, 3)),
]
DAYS = [
    (date(1997, 1, 1), 2, Decimal("23.77")),
    (date(1997, 1, 2), 2, Decimal("154.00")),
    (date(1997, 1, 3), 2, Decimal("0.23")),
    (None, 1, Decimal("5.00")),
]


@pytest.fixture
def folder(tmp_path):
    write_parquet(tmp_path / "1997-01" / "a.parquet", JANUARY)
    write_parquet(tmp_path / "1997-01" / "b.parquet", LATER)
    return tmp_path


@in_both_engines
def test_two_txids_commit_in_order_and_a_replay_of_the_same_changes_nothing(
    folder, pipeline, connection
):
    shop_pipeline = pipeline(shop(folder))
    assert shop_pipeline.emit(month(1997, 1)) == [1, 2]
    shop_pipeline.transact(1)
    shop_pipeline.transact(2)
    assert rows(connection, PER_CUSTOMER) == CUSTOMERS
    assert rows(connection, PER_DAY) == DAYS
    again = shop_pipeline.again()
    assert again.emit(month(1997, 1)) == [1, 2]
    again.transact(1)
    assert (rows(connection, PER_CUSTOMER), rows(connection, PER_DAY)) == (CUSTOMERS, DAYS)
    commits = "SELECT txid, attempt_id, replaced_attempt FROM reliability.commit_log"
    assert rows(connection, commits) == [(1, 0, None), (2, 0, None), (1, 1, 0)]


def test_a_type_that_does_not_fit_names_the_file_that_has_another(tmp_path, pipeline, connection):
    for name, column in (("1", pa.array([1], pa.int64())), ("2", pa.array(["1"]))):
        pq.write_table(pa.table({"distance": column}), tmp_path / f"{name}.parquet")
    distances = State("distances", values={"distance": Sum("distance", "bigint")})
    spout = FileSpout(f"{tmp_path}/*.parquet")
    flights = Topology(
        "flights", spout, [distances], lambda b: {"distances": b}, max_spout_pending=2
    )
    pipe = pipeline(flights)
    assert pipe.emit(None) == [1, 2]
    with pytest.raises(SchemaMismatch) as raised:
        pipe.run_step(pipe.begin(2))
    assert "Compared with the file of txid 1: " in raised.value.what
    assert "2.parquet" in raised.value.what
    assert "distance" in raised.value.what
    assert "string" in raised.value.what
    for command in ("reliability replay flights 2 --refreeze", "reliability alter flights"):
        assert command in raised.value.what_to_do


# --- what fails an attempt -----------------------------------------------------------------------


@pytest.fixture
def twenty_rows(tmp_path):
    write_parquet(tmp_path / "1997-01" / "a.parquet", TWENTY)
    return tmp_path


@in_both_engines
def test_a_driver_of_a_fenced_attempt_does_nothing(twenty_rows, pipeline, connection):
    shop_pipeline = pipeline(shop(twenty_rows))
    shop_pipeline.emit(month(1997, 1))
    zombie = shop_pipeline.begin(1)
    shop_pipeline.begin(1)
    with pytest.raises(AttemptFenced):
        shop_pipeline.run_step(zombie)
    statuses = "SELECT status FROM reliability.attempt ORDER BY attempt_id"
    assert rows(connection, statuses) == [("FENCED",), ("PROCESSING",)]
    assert rows(connection, "SELECT count(*) FROM reliability.ack") == [(0,)]


def test_a_frame_without_accounting_is_refused_at_plan_time(twenty_rows, spark):
    def process(batch):
        return {"per_customer": batch, "per_day": batch.groupBy("day", "price").count()}

    with pytest.raises(FrameWithoutAccounting, match="per_day"):
        staged(spark, shop(twenty_rows, process), month(1997, 1))


def test_a_file_that_changed_after_its_batch_was_emitted(twenty_rows, python_pipeline, connection):
    """E6: at begin, and again when the attempt is sealed."""
    shop_pipeline = python_pipeline(shop(twenty_rows))
    shop_pipeline.emit(month(1997, 1))
    grant = shop_pipeline.begin(1)
    shop_pipeline.run_step(grant)
    original = twenty_rows / "1997-01" / "a.parquet"
    kept, of = original.read_bytes(), original.stat()
    write_parquet(original, TWENTY[:-1])
    with pytest.raises(SourceChanged):
        shop_pipeline.seal(grant)
    with pytest.raises(SourceChanged):
        shop_pipeline.run_step(shop_pipeline.begin(1))
    assert rows(connection, "SELECT curr_txid FROM reliability.topology") == [(1,)]
    original.write_bytes(kept)
    os.utime(original, ns=(of.st_atime_ns, of.st_mtime_ns))
    shop_pipeline.transact(1)
    assert rows(connection, "SELECT sum(orders) FROM per_day") == [(20,)]


def test_an_attempt_stages_on_so_many_sessions_and_no_more(folder, pipeline, connection):
    lines = State("lines", values={"customer": Append("customer", "bigint")})
    spout = shop(folder).spout
    topology = Topology(
        "lines", spout, [lines], lambda b: {"lines": b.repartition(5)}, max_staging_sessions=2
    )
    pipe = pipeline(topology)
    pipe.emit(month(1997, 1))
    pipe.process(1)
    assert rows(connection, "SELECT partitions FROM reliability.sink") == [(2,)]
    [step] = attempt_report(connection, "lines", TransactionAttempt(1, 0)).steps
    assert step["driver_host"] == socket.gethostname()
    assert step["application_id"] == pipe.spark.sparkContext.applicationId
    assert __name__ in step["code"]["modules"]
