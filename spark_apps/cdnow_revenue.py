"""Revenue of a real online shop, per customer and per day: the demo's topology."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reliability import Count, FileSpout, Max, Min, State, Sum, Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def purchases(batch: DataFrame) -> dict[str, DataFrame]:
    """Feed every purchase to both states."""
    return {
        "customer_totals": batch,
        "daily_revenue": batch.withColumnRenamed("ordered_on", "day"),
    }


topology = Topology(
    "cdnow_revenue",
    spout=FileSpout("data/cdnow/{data_interval_start:%Y-%m}/*.parquet", max_files_per_batch=1),
    process=purchases,
    states=[
        State(
            "customer_totals",
            key={"customer_id": "bigint"},
            values={
                "orders": Count(),
                "cds": Sum("cds", "bigint"),
                "revenue": Sum("value", "numeric(14,2)"),
                "first_order": Min("ordered_on", "date"),
                "last_order": Max("ordered_on", "date"),
            },
        ),
        State(
            "daily_revenue",
            key={"day": "date"},
            values={"orders": Count(), "revenue": Sum("value", "numeric(14,2)")},
        ),
    ],
    max_spout_pending=3,
)
