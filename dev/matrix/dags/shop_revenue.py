"""The pipeline that each combination of versions runs: a new user's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reliability import Count, FileSpout, State, Sum, Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def orders(batch: DataFrame) -> dict[str, DataFrame]:
    """Each order counts, in both tables."""
    return {"revenue_by_customer": batch, "revenue_by_day": batch}


totals = {"orders": Count(), "revenue": Sum("price", "numeric(14,2)")}
topology = Topology(
    "shop_revenue",
    spout=FileSpout("data/shop/{data_interval_start:%Y-%m-%d}/*.parquet", allow_empty=True),
    process=orders,
    states=[
        State("revenue_by_customer", key={"customer": "text"}, values=totals),
        State("revenue_by_day", key={"day": "date"}, values=totals),
    ],
)
