"""Several processing steps per txid, anchored in one attempt (rules R4, A5, V1)."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from psycopg2.sql import SQL

from reliability import Count, FileSpout, State, Step, Sum, Topology
from reliability.core.coordinator import Submit, Wait
from reliability.core.errors import RowsUnaccounted
from tests.support.fix_pipeline import TWENTY, in_both_engines, month, write_parquet
from tests.support.fix_postgres import rows

ATTEMPTS = "SELECT attempt_id, status FROM reliability.attempt ORDER BY attempt_id"
FAR_LEASE = "SELECT lease_until > clock_timestamp() + interval '20 min' FROM reliability.attempt"
MONTHS = [(1997, 20, Decimal("190.00"))]


def per_year(days):
    """The days that step `daily` has staged, each with its orders and revenue."""
    from pyspark.sql import functions as F

    return {
        "per_year": days.select(
            F.year("day").cast("bigint").alias("year"), "orders", "revenue", "_x", "_n"
        )
    }


def shop_in_steps(folder, yearly=per_year):
    revenue = {"orders": Count(), "revenue": Sum("price", "numeric(14,2)")}
    return Topology(
        "shop",
        spout=FileSpout(f"{folder}/{{data_interval_start:%Y-%m}}/*.parquet"),
        states=[
            State("per_customer", key={"customer": "bigint"}, values=revenue),
            State("per_day", key={"day": "date"}, values=revenue),
            State(
                "per_year",
                key={"year": "bigint"},
                values={
                    "orders": Sum("orders", "bigint"),
                    "revenue": Sum("revenue", "numeric(14,2)"),
                },
            ),
        ],
        steps=[
            Step("daily", lambda batch: {"per_day": batch}, feeds=["per_day"]),
            Step("customers", lambda batch: {"per_customer": batch}, feeds=["per_customer"]),
            Step("yearly", yearly, feeds=["per_year"], reads=["per_day"]),
        ],
        module=__name__,
    )


@pytest.fixture
def emitted(tmp_path, python_pipeline):
    """A run whose step `yearly` reads what `daily` stages, which Spark alone can."""
    write_parquet(tmp_path / "1997-01" / "a.parquet", TWENTY)
    shop = python_pipeline(shop_in_steps(tmp_path))
    assert shop.emit(month(1997, 1)) == [1]
    return shop


def test_a_task_for_each_step_and_one_attempt_for_all(emitted, connection, spark):
    """Each of Airflow's tasks comes in its turn; a later step reads what an earlier one staged."""
    emitted.transact(1, step="daily")
    emitted.transact(1, step="customers")
    assert rows(connection, ATTEMPTS) == [(0, "PROCESSING")]
    emitted.spark = spark
    emitted.transact(1, step="yearly")
    assert rows(connection, ATTEMPTS) == [(0, "PROCESSED")]
    emitted.transact(1)
    assert rows(connection, ATTEMPTS) == [(0, "COMMITTED")]
    assert rows(connection, "SELECT year, orders, revenue FROM per_year") == MONTHS
    assert rows(connection, "SELECT sum(orders), sum(revenue) FROM per_customer") == [MONTHS[0][1:]]
    steps = "SELECT step, claimed_by, status FROM reliability.attempt_step ORDER BY step"
    assert rows(connection, steps) == [
        ("customers", "customers", "DONE"),
        ("daily", "daily", "DONE"),
        ("yearly", "yearly", "DONE"),
    ]


def test_two_steps_run_beside_each_other_under_one_attempt(emitted, connection):
    """A7: acks and the driver of a running step say nothing about the cluster's queue.

    R2 fences what one's own task left behind, never what another task of the run works on.
    """
    daily = emitted.begin(1, "daily")
    customers = emitted.begin(1, "customers")
    assert daily == customers
    yearly = emitted.work("yearly")
    action = emitted.runner.next_action(1, emitted.request(1, "yearly"), yearly)
    assert isinstance(action, Wait)  # for `daily`, which another task runs
    emitted.run_step(customers, "customers")
    assert rows(connection, FAR_LEASE) == [(True,)]
    emitted.runner.end_step(customers, "customers")
    emitted.run_step(daily, "daily")  # it has started: from here on the lease is that of progress
    assert rows(connection, FAR_LEASE) == [(False,)]
    emitted.runner.end_step(daily, "daily")
    assert emitted.runner.next_action(1, emitted.request(1, "yearly"), yearly) == Submit("yearly")
    assert emitted.try_begin(1, "daily") is None  # its step is done: nothing to take up


@in_both_engines
def test_a_row_lost_between_two_steps_is_missed(tmp_path, pipeline, connection):
    """V1: the accounts travel with the staged rows; the state fed last balances on its own."""
    write_parquet(tmp_path / "1997-01" / "a.parquet", TWENTY)
    lossy = shop_in_steps(tmp_path, lambda days: per_year(days.where("day <> DATE '1997-01-03'")))
    steps = [lossy.steps[0], lossy.steps[2]]
    shop = pipeline(replace(lossy, states=lossy.states[1:], steps=steps))
    shop.emit(month(1997, 1))
    with pytest.raises(RowsUnaccounted, match="per_year: 4 of 20 emitted rows"):
        shop.transact(1)
    assert rows(connection, "SELECT count(*) FROM per_year") == [(0,)]


def test_a_lease_covers_the_queue_of_every_step(emitted, connection):
    """A7: between two steps nothing acks, and the second may wait for a worker slot."""
    emitted.transact(1, step="customers")
    with connection.transaction() as tx:
        tx.run(SQL("UPDATE reliability.attempt SET lease_until = now() + interval '1 min'"))
    emitted.begin(1, "daily")
    assert rows(connection, FAR_LEASE) == [(True,)]
