"""CombinerAggregators: combine rows to a value, and add the part of a txid to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reliability.core.aggregators.column import (
    ROW_COUNT,
    Column,
    CombinerAggregator,
    Generated,
    written,
)
from reliability.core.aggregators.combining import Avg, Count, Max, Min, Sum
from reliability.core.aggregators.rows import Append, First, Latest, Upsert, winning_row

__all__ = [
    "ROW_COUNT",
    "Append",
    "Avg",
    "Column",
    "CombinerAggregator",
    "Count",
    "First",
    "Generated",
    "Latest",
    "Max",
    "Min",
    "Sum",
    "Upsert",
    "aggregator_from_definition",
    "columns_of",
    "written",
]

_AGGREGATORS: dict[str, type[CombinerAggregator]] = {
    aggregator.__name__: aggregator
    for aggregator in (Count, Sum, Avg, Min, Max, First, Latest, Upsert, Append)
}


def aggregator_from_definition(data: Mapping[str, Any]) -> CombinerAggregator:
    """Read what `definition` wrote; raise KeyError or TypeError for anything else."""
    arguments = {name: value for name, value in data.items() if name != "aggregator"}
    return _AGGREGATORS[str(data["aggregator"])](**arguments)


def columns_of(values: Mapping[str, CombinerAggregator]) -> tuple[Column | Generated, ...]:
    """Return the columns of a state's values in order; columns of Upserts come last."""
    columns: list[Column | Generated] = []
    upserts: dict[str, Upsert] = {}
    for name, value in values.items():
        if isinstance(value, Upsert):
            upserts[name] = value
        else:
            columns += value.columns(name)
    if upserts:
        columns += winning_row(upserts, prefix="_", least=False)
    return tuple(columns)
