"""The demo's pipeline on its real files and real Spark: corrected, corrected back, rolled back.

Another run commits fresh months all the while, and a reader looks: both tables always speak of the
same purchases (G3).
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from decimal import Decimal

import pytest

from reliability.ledger.connection import LedgerConnection
from reliability.transaction.correct.rollback import release, roll_back
from spark_apps.cdnow_revenue import purchases, topology
from tests.replay.reader import Reader
from tests.support.fix_pipeline import Pipeline, month
from tests.support.fix_postgres import rows
from tests.support.runner import TransactionRunner

TABLES = {name: f"SELECT * FROM {name} ORDER BY 1" for name in ("customer_totals", "daily_revenue")}
WRONG = {"factor": "1"}  # what the code does wrong to the second month


def with_a_mistake(batch):
    """The month's prices in another currency: right at first, then wrong, then right again."""
    from pyspark.sql import functions as F

    in_february = F.col("ordered_on").between("1997-02-01", "1997-02-28")
    factor = F.when(in_february, F.lit(Decimal(WRONG["factor"]))).otherwise(F.lit(Decimal(1)))
    return purchases(batch.withColumn("value", (F.col("value") * factor).cast("decimal(14,2)")))


@pytest.fixture(scope="module")
def months():
    """January and February: four files, four txids. March is for the fresh commits."""
    return (1, 2)


@pytest.fixture
def shop(connection, spark, months):
    corrected = replace(topology, process=with_a_mistake, steps=(), module=__name__)
    shop = Pipeline(TransactionRunner(corrected, connection), spark)
    WRONG["factor"] = "1"
    for number in months:
        transact_all(shop, number)
    return shop


def tables(connection):
    return {name: rows(connection, statement) for name, statement in TABLES.items()}


def replay(shop, *txids):
    again = shop.again()
    again.emit(month(1997, 2))
    for txid in txids:
        again.transact(txid)
    return again


SEEN = (
    "SELECT (SELECT (sum(orders), sum(revenue))::text FROM customer_totals),"
    " (SELECT (sum(orders), sum(revenue))::text FROM daily_revenue)"
)


def transact_all(shop, number):
    for txid in shop.emit(month(1997, number)):
        shop.transact(txid)


def test_a_wrong_month_is_corrected_while_fresh_months_commit(shop, connection, spark):
    before = tables(connection)
    fresh = Pipeline(
        TransactionRunner(shop.runner.topology, LedgerConnection(connection.dsn)), spark
    )
    fresh.run = replace(fresh.run, run_id="scheduled__1997-03")
    shop.waits_until = fresh.waits_until = time.monotonic() + 120  # each commits what is due
    with Reader(connection.dsn, SEEN) as reader:
        WRONG["factor"] = "1.10"
        shop = replay(shop, 3, 4)
        wrong = tables(connection)
        assert wrong != before
        WRONG["factor"] = "1"
        thread = threading.Thread(target=transact_all, args=(fresh, 3))
        thread.start()
        shop = replay(shop, 3, 4)
        thread.join()
    assert len(reader.seen) >= 4
    roll_back(connection, "cdnow_revenue", 4, "March is another test's")
    assert tables(connection) == before
    asked = (
        "SELECT txid, state, rows_changed, (moved ->> 'revenue')::numeric"
        " FROM reliability.difference WHERE commit_number IS NOT NULL AND attempt_id IS NOT NULL"
        " AND state = 'daily_revenue' ORDER BY difference_id"
    )
    [there, *_], back = rows(connection, asked)[:2], rows(connection, asked)[2:]
    assert there[3] > 0
    assert {(t, -by) for t, _, _, by in rows(connection, asked)[:2]} == {
        (t, by) for t, _, _, by in back
    }


def test_rolled_back_and_processed_again_it_is_the_original(shop, connection):
    before = tables(connection)
    roll_back(connection, "cdnow_revenue", 1, "a wrong delivery")
    assert rows(connection, "SELECT sum(orders) FROM daily_revenue")[0][0] < 10_000
    [run, *_] = release(connection, "cdnow_revenue")
    assert run.txids[0] == 2
    again = shop.again()
    for number in (1, 2):
        transact_all(again, number)
    assert tables(connection) == before
