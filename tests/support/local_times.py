"""A topology of datetimes without a zone, wherever pyspark takes them for local time (V7)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from reliability import Max, MemorySpout, State, Topology
from reliability.deployment.lazy import F

GAP = datetime(2024, 3, 10, 2, 30)  # no such time in New York


def told(moment: datetime) -> str:
    """Return how a Python function on an executor sees it."""
    return moment.isoformat(" ")


def use_times(batch: Any) -> dict[str, Any]:
    """Compare with a literal, and call a Python function that gets no Arrow."""
    said = F.udf(told, "string", useArrow=False)
    return {"times": batch.withColumn("literal", F.lit(GAP)).withColumn("said", said("at"))}


topology = Topology(
    "local_times",
    spout=MemorySpout(schema={"at": "timestamp"}, partitions=[[GAP]], take=1),
    process=use_times,
    states=[
        State(
            "times",
            values={
                "at": Max("at", "timestamptz"),
                "literal": Max("literal", "timestamptz"),
                "said": Max("said", "text"),
            },
        )
    ],
)
