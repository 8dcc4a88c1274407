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
from spark_apps.cdnow_revenue import purchases, topology
from tests.replay.reader import Reader
from tests.support.fix_pipeline import month, pipeline_of
from tests.support.fix_postgres import rows

TABLES = {name: f"SELECT * FROM {name} ORDER BY 1" for name in ("customer_totals", "daily_revenue")}
WRONG = {"factor": "1"}  # what the code does wrong to February


def with_a_mistake(batch):
    """The month's prices in another currency: right at first, then wrong, then right again."""
    from pyspark.sql import functions as F

    in_february = F.col("ordered_on").between("1997-02-01", "1997-02-28")
    factor = F.when(in_february, F.lit(Decimal(WRONG["factor"]))).otherwise(F.lit(Decimal(1)))
    return purchases(batch.withColumn("value", (F.col("value") * factor).cast("decimal(14,2)")))


@pytest.fixture
def shop(connection, spark):
    """February: two files, two txids."""
    corrected = replace(topology, process=with_a_mistake, steps=(), module=__name__)
    shop = pipeline_of(corrected, connection, spark)
    WRONG["factor"] = "1"
    transact_all(shop, 2)
    return shop


def tables(connection):
    return {name: rows(connection, statement) for name, statement in TABLES.items()}


def replay(shop, txid):
    again = shop.again()
    again.emit(month(1997, 2))
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
    fresh = pipeline_of(shop.runner.topology, LedgerConnection(connection.dsn), spark)
    fresh.run = replace(fresh.run, run_id="scheduled__1997-03")
    shop.waits_until = fresh.waits_until = time.monotonic() + 120  # each commits what is due
    with Reader(connection.dsn, SEEN) as reader:
        WRONG["factor"] = "1.10"
        shop = replay(shop, 1)
        wrong = tables(connection)
        assert wrong != before
        WRONG["factor"] = "1"
        thread = threading.Thread(target=transact_all, args=(fresh, 3))
        thread.start()
        shop = replay(shop, 1)
        thread.join()
    assert len(reader.seen) >= 3
    asked = (
        "SELECT txid, (moved ->> 'revenue')::numeric FROM reliability.difference"
        " WHERE state = 'daily_revenue' ORDER BY difference_id"
    )
    [(there, by), (back, by_again)] = rows(connection, asked)
    assert (there, back, by > 0, by + by_again) == (1, 1, True, 0)
