"""Exactly-once batch transactions: Airflow decides when, Spark works, Postgres decides what counts.

A pipeline is a Topology: a spout, a process function and its states. Importing this package
imports none of Airflow, pyspark, pyarrow and psycopg2, so that DAG files parse fast.
"""

from __future__ import annotations

from typing import Any

from reliability.core.aggregators import (
    Append,
    Avg,
    Count,
    First,
    Latest,
    Max,
    Min,
    Sum,
    Upsert,
)
from reliability.core.definitions import Topology
from reliability.core.graph import Step
from reliability.core.history import History
from reliability.core.state import (
    ContributionState,
    OpaqueState,
    State,
    TransactionalState,
)
from reliability.spouts.file import FileSpout
from reliability.spouts.memory import MemorySpout
from reliability.spouts.table import TableSpout

__version__ = "0.1.0"

__all__ = [
    "Append",
    "Avg",
    "ContributionState",
    "Count",
    "FileSpout",
    "First",
    "History",
    "Latest",
    "Max",
    "MemorySpout",
    "Min",
    "OpaqueState",
    "State",
    "Step",
    "Sum",
    "TableSpout",
    "Topology",
    "TransactionalState",
    "Upsert",
    "aggregate",
]


def __getattr__(name: str) -> Any:
    # aggregate() is used only in process functions, where pyspark is installed.
    if name == "aggregate":
        from reliability.spark.frames import aggregate

        return aggregate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
