"""The topologies of this project's side, over the generated files below RELIABILITY_HOME."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reliability import (
    Append,
    Count,
    FileSpout,
    Latest,
    Max,
    MemorySpout,
    State,
    Sum,
    Topology,
    TransactionalState,
    Upsert,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reliability.core.column import CombinerAggregator

#: The columns of the generated rows, besides the id.
VALUES = {
    "customer_id": "bigint",
    "amount": "numeric(14,2)",
    "ts": "timestamptz",
    "kind": "text",
    "qty": "integer",
}
ROWS = {"id": "bigint", **VALUES}


def feed_orders(batch: DataFrame) -> dict[str, DataFrame]:
    return {"orders": batch}


def feed_parts(batch: DataFrame) -> dict[str, DataFrame]:
    revenue = "l_extendedprice * (1 - l_discount) AS revenue"
    return {"parts": batch.selectExpr("*", "l_partkey AS part", revenue)}


def feed_customers(batch: DataFrame) -> dict[str, DataFrame]:
    return {"customers": batch.withColumnRenamed("o_custkey", "customer")}


def feed_totals(batch: DataFrame) -> dict[str, DataFrame]:
    return {"totals": batch}


def feed_total(batch: DataFrame) -> dict[str, DataFrame]:
    return {"total": batch}


def totals(name: str, files: str = "", **more: CombinerAggregator) -> Topology:
    """Return a topology with a txid for each small file.

    :param files: their folder, by default that of its name
    :param more: values beside the count and the sum
    """
    return Topology(
        name,
        spout=FileSpout(f"{files or name}/*.parquet"),
        process=feed_totals,
        states=[
            State(
                "totals",
                key={"customer_id": "bigint"},
                values={"n": Count(), "amount": Sum("amount", "numeric(14,2)"), **more},
            )
        ],
        max_spout_pending=1000,
    )


def appends(name: str, *, as_view: bool = False) -> Topology:
    """Return a topology that appends every row, to a table or to what a view shows."""
    values = {column: Append(column, type_) for column, type_ in ROWS.items()}
    return Topology(
        name,
        spout=FileSpout("append/*.parquet", max_files_per_batch=100),
        process=feed_orders,
        states=[State("orders", values=values, as_view=as_view)],
    )


def by_minute(name: str) -> Topology:
    """Return a topology with a small file for each minute, and a table of its own."""
    return Topology(
        name,
        spout=FileSpout(name + "/{data_interval_start:%Y-%m-%dT%H%M}.parquet"),
        process=feed_totals,
        states=[replace(totals(name).states[0], table=f"totals_of_{name}")],
        max_spout_pending=1000,
    )


def upserts(name: str, kind: type[State]) -> Topology:
    """Return a topology that loads a table in one month and upserts into it in the next."""
    latest = {c: Upsert(c, by={"ts": "timestamptz"}, type=type_) for c, type_ in VALUES.items()}
    return Topology(
        name,
        spout=FileSpout("upsert/{data_interval_start:%Y-%m}/*.parquet", max_files_per_batch=100),
        process=feed_orders,
        states=[kind("orders", key={"id": "bigint"}, values=latest)],
    )


append = appends("append")
append_as_view = appends("append_as_view", as_view=True)
upsert = upserts("upsert", State)
upsert_without_history = upserts("upsert_without_history", TransactionalState)
lineitem = Topology(
    "lineitem",
    spout=FileSpout("lineitem/*.parquet", max_files_per_batch=100),
    process=feed_parts,
    states=[
        State(
            "parts",
            key={"part": "bigint"},
            values={
                "lines": Count(),
                "quantity": Sum("l_quantity", "numeric(20,2)"),
                "revenue": Sum("revenue", "numeric(20,4)"),
                "last_shipped": Max("l_shipdate", "date"),
            },
        )
    ],
)
orders = Topology(
    "orders",
    spout=FileSpout("orders/*.parquet", max_files_per_batch=100),
    process=feed_customers,
    states=[
        State(
            "customers",
            key={"customer": "bigint"},
            values={
                "orders": Count(),
                "spent": Sum("o_totalprice", "numeric(20,2)"),
                "last_order": Max("o_orderdate", "date"),
            },
        )
    ],
)
txids = totals("txids")
history = totals("history")
BY = {"seen": "bigint"}
history_max = totals("history_max", "history", more=Max("amount", "numeric(14,2)"))
history_latest = totals("history_latest", "history", more=Latest("amount", by=BY))
history_upsert = totals("history_upsert", "history", more=Upsert("amount", by=BY))
small = replace(totals("small"), engine="submit")
small_warm = replace(
    small,
    name="small_warm",
    engine="warm",
    states=[replace(small.states[0], table="warm_totals")],
)
growth = by_minute("growth")
small_steps = Topology(
    "small_steps",
    spout=MemorySpout({"n": "bigint"}, [list(range(100_000))], take=100),
    process=feed_total,
    states=[State("total", values={"n": Sum("n")})],
)
