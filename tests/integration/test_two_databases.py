"""One topology, its states in two databases: emit to commit (G3, C6)."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from reliability import Count, FileSpout, State, Step, Sum, Topology
from reliability.core.errors import AttemptIncomplete
from reliability.core.leases import Leases
from reliability.transaction.maintain.sweep import sweep
from tests.support.fix_pipeline import month, write_parquet
from tests.support.fix_postgres import execute, rows

ROWS = [
    {"customer": n % 3, "day": date(1997, 1, 1 + n % 5), "price": Decimal(n)} for n in range(20)
]
HERE = "SELECT customer, orders, _txid FROM per_customer ORDER BY 1"
THERE = "SELECT sum(orders), sum(revenue), max(_txid) FROM per_day"
STATUS = "SELECT txid, attempt_id, status FROM reliability.attempt ORDER BY 1, 2"
C = "SELECT commit_number FROM reliability.checkpoint WHERE phase = 'COMMITTED'"


def customers(batch):
    return {"per_customer": batch}


def days(batch):
    return {"per_day": batch}


def spread(folder):
    """A step for each database."""
    return Topology(
        "shop",
        spout=FileSpout(f"{folder}/{{data_interval_start:%Y-%m}}/*.parquet"),
        states=[
            State("per_customer", key={"customer": "bigint"}, values={"orders": Count()}),
            State(
                "per_day",
                key={"day": "date"},
                values={"orders": Count(), "revenue": Sum("price", "numeric(14,2)")},
                database="warehouse",
            ),
        ],
        steps=[
            Step("customers", customers, feeds=["per_customer"]),
            Step("days", days, feeds=["per_day"]),
        ],
        max_spout_pending=2,
    )


@pytest.fixture
def warehouse(add_database):
    """A session with the second database."""
    return add_database("warehouse")


@pytest.fixture
def emitted(tmp_path, python_pipeline, warehouse):
    for number in (1, 2):
        write_parquet(tmp_path / f"1997-{number:02}" / "a.parquet", ROWS)
    shop = python_pipeline(spread(tmp_path))
    shop.emit(month(1997, 1))
    assert shop.emit(month(1997, 2)) == [1, 2]
    return shop


def test_each_database_seals_its_own_part_and_has_the_same_commit_number(
    emitted, connection, warehouse
):
    """An attempt is processed only when every database has sealed it."""
    grant = emitted.begin(1, "customers")
    emitted.run_step(grant, "customers")
    emitted.runner.end_step(grant, "customers")
    assert emitted.begin(1, "days") == grant
    emitted.run_step(grant, "days")
    execute(warehouse, "DELETE FROM reliability.ack WHERE partition = 0")
    with pytest.raises(AttemptIncomplete, match="per_day"):
        emitted.runner.end_step(grant, "days")
    assert rows(connection, STATUS) == [(1, 0, "FAILED")]
    emitted.transact(1)
    assert rows(connection, STATUS) == [(1, 0, "FAILED"), (1, 1, "COMMITTED")]
    swept = sweep(connection, "shop", Leases(), clean=True)
    assert [str(attempt) for attempt in swept.cleaned] == ["1:0"]
    left = "SELECT DISTINCT _attempt_id FROM reliability_contribution.shop__per_day"
    assert rows(warehouse, left) == [(1,)]
    assert not sweep(connection, "shop", Leases(), clean=True)
    assert rows(connection, HERE) == [(0, 7, 1), (1, 7, 1), (2, 6, 1)]
    assert rows(warehouse, THERE) == [(20, Decimal("190.00"), 1)]
    assert rows(connection, C) == rows(warehouse, C) == [(1,)]
    assert rows(connection, "SELECT sink FROM reliability.ack GROUP BY 1") == [("per_customer",)]
    assert rows(warehouse, "SELECT sink FROM reliability.ack GROUP BY 1") == [("per_day",)]
    emitted.transact(2)
    assert rows(warehouse, THERE) == [(40, Decimal("380.00"), 2)]
    assert rows(connection, C) == rows(warehouse, C) == [(2,)]


def test_a_begin_that_died_before_it_told_every_database_is_made_good(
    emitted, connection, warehouse
):
    """C6: else Spark would run for an attempt that the other database has never heard of."""
    work, request_id = emitted.work("days"), emitted.request(1, "days")
    emitted.runner.begin(1, request_id, work)
    execute(
        warehouse,
        "DELETE FROM reliability.sink; DELETE FROM reliability.attempt_event;"
        "DELETE FROM reliability.attempt; DELETE FROM reliability.transaction",
    )
    emitted.transact(1)
    assert rows(warehouse, THERE) == [(20, Decimal("190.00"), 1)]
    assert rows(connection, STATUS) == [(1, 0, "COMMITTED")]
