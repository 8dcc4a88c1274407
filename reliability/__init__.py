"""Exactly-once batch transactions: Airflow decides when, Spark works, Postgres decides what counts.

A pipeline is a Topology: a spout, a process function and its states. Importing this package
imports none of Airflow, pyspark, pyarrow and psycopg2, so that DAG files parse fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from reliability.core.aggregators import Append, Avg, Count, First, Latest, Max, Min, Sum, Upsert
from reliability.core.audits import audit, in_range, not_null, references, unique
from reliability.core.definitions import Topology
from reliability.core.graph import Step
from reliability.core.state import (
    ContributionState,
    History,
    OpaqueState,
    State,
    TransactionalState,
)
from reliability.spouts.delta import DeltaSpout
from reliability.spouts.file import FileSpout
from reliability.spouts.iceberg import IcebergSpout
from reliability.spouts.kafka import KafkaSpout
from reliability.spouts.memory import MemorySpout
from reliability.spouts.parquet import Parquet
from reliability.spouts.table import TableSpout
from reliability.spouts.text import Csv, JsonLines
from reliability.spouts.updated_rows import UpdatedRowsSpout

if TYPE_CHECKING:
    from reliability.spark.frames.accounting import aggregate, show_accounting
    from reliability.spark.frames.set_aside_rows import drop, fan_out, quarantine
    from reliability.spark.run_here import run

__version__ = "0.1.0"

__all__ = [
    "Append",
    "Avg",
    "ContributionState",
    "Count",
    "Csv",
    "DeltaSpout",
    "FileSpout",
    "First",
    "History",
    "IcebergSpout",
    "JsonLines",
    "KafkaSpout",
    "Latest",
    "Max",
    "MemorySpout",
    "Min",
    "OpaqueState",
    "Parquet",
    "State",
    "Step",
    "Sum",
    "TableSpout",
    "Topology",
    "TransactionalState",
    "UpdatedRowsSpout",
    "Upsert",
    "aggregate",
    "audit",
    "drop",
    "fan_out",
    "in_range",
    "not_null",
    "quarantine",
    "references",
    "run",
    "show_accounting",
    "unique",
]
_LATER = {
    "aggregate": "reliability.spark.frames.accounting",
    "drop": "reliability.spark.frames.set_aside_rows",
    "fan_out": "reliability.spark.frames.set_aside_rows",
    "quarantine": "reliability.spark.frames.set_aside_rows",
    "run": "reliability.spark.run_here",
    "show_accounting": "reliability.spark.frames.accounting",
}


def __getattr__(name: str) -> Any:
    # Process functions use them, where pyspark is installed; and `run` opens the ledger.
    if module := _LATER.get(name):
        return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
