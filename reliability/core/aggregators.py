"""CombinerAggregators: how rows become a value, and how one txid's part goes in and out of it.

Each aggregator is written down once, in the three places where it runs:

- `spark`: the SQL expression over the rows of a group, in the processing phase;
- `fold`, `combine`: how Postgres folds staged rows of a key and adds them to the target row;
- `swap`: the exact inverse, new contribution for old (rule H3), or None where there is none
  and the value is recomputed from the kept contributions.

In the templates `{value}` and `{count}` are column names; `target`, `added`, `old` and `new` are
the rows that have them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

EXACT_TYPES = ("bigint", "numeric", "decimal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One stored column of an aggregator; a leading underscore marks hidden bookkeeping."""

    name: str
    type: str
    spark: str
    fold: str
    combine: str
    swap: str | None


@dataclass(frozen=True)
class CombinerAggregator(ABC):
    """What the aggregators share; the idea is Trident's CombinerAggregator."""

    @abstractmethod
    def columns(self, name: str) -> tuple[Column, ...]:
        """Return the stored columns of the value called `name`; the first is the value."""

    @abstractmethod
    def definition(self) -> dict[str, str | None]:
        """Return what makes two aggregators the same, for the digest of a state."""


@dataclass(frozen=True)
class Count(CombinerAggregator):
    """Number of rows, or of rows where `column` is not NULL; bigint."""

    column: str | None = None

    def columns(self, name: str) -> tuple[Column, ...]:
        counted = "1" if self.column is None else f"`{self.column}`"
        return (_count_column(name, f"count({counted})"),)

    def definition(self) -> dict[str, str | None]:
        return {"aggregator": "Count", "column": self.column}


@dataclass(frozen=True)
class Sum(CombinerAggregator):
    """Sum of `column`; NULL while every summed value is NULL.

    A hidden count of the values that are not NULL lets a replay turn the sum NULL again.
    """

    column: str
    type: str = "bigint"

    def columns(self, name: str) -> tuple[Column, ...]:
        hidden = f"_{name}_count"
        # Floats have no inverse: 0.3 + 1e16 - 1e16 is 0. Numeric may hold NaN, and NaN - NaN is
        # NaN; Spark's decimals hold none, so what was staged for a numeric sum is exact.
        exact = self.type.split("(")[0].strip().lower() in EXACT_TYPES
        value = Column(
            name=name,
            type=self.type,
            spark=f"sum(`{self.column}`)",
            fold="sum({value})",
            combine="coalesce(target.{value} + added.{value}, target.{value}, added.{value})",
            swap=(
                "CASE WHEN target.{count} - old.{count} + new.{count} > 0 THEN "
                "coalesce(target.{value}, 0) - coalesce(old.{value}, 0) + coalesce(new.{value}, 0)"
                " END"
            )
            if exact
            else None,
        )
        return (value, _count_column(hidden, f"count(`{self.column}`)"))

    def definition(self) -> dict[str, str | None]:
        return {"aggregator": "Sum", "column": self.column, "type": self.type}


@dataclass(frozen=True)
class Min(CombinerAggregator):
    """Least value of `column` that is not NULL."""

    column: str
    type: str = "bigint"

    def columns(self, name: str) -> tuple[Column, ...]:
        return (_extreme_column(name, self.column, self.type, "min", "least"),)

    def definition(self) -> dict[str, str | None]:
        return {"aggregator": "Min", "column": self.column, "type": self.type}


@dataclass(frozen=True)
class Max(CombinerAggregator):
    """Greatest value of `column` that is not NULL."""

    column: str
    type: str = "bigint"

    def columns(self, name: str) -> tuple[Column, ...]:
        return (_extreme_column(name, self.column, self.type, "max", "greatest"),)

    def definition(self) -> dict[str, str | None]:
        return {"aggregator": "Max", "column": self.column, "type": self.type}


_AGGREGATORS: dict[str, type[CombinerAggregator]] = {
    aggregator.__name__: aggregator for aggregator in (Count, Sum, Min, Max)
}


def aggregator_from_definition(data: Mapping[str, str | None]) -> CombinerAggregator:
    """Read what `definition` wrote; raise KeyError or TypeError for anything else."""
    arguments = {name: value for name, value in data.items() if name != "aggregator"}
    return _AGGREGATORS[str(data["aggregator"])](**arguments)


def _count_column(name: str, spark: str) -> Column:
    return Column(
        name=name,
        type="bigint",
        spark=spark,
        fold="sum({value})::bigint",
        combine="target.{value} + added.{value}",
        swap="target.{value} - old.{value} + new.{value}",
    )


def _extreme_column(name: str, column: str, type_: str, fold: str, pick: str) -> Column:
    # Postgres's least and greatest pass over NULL, as min and max do.
    return Column(
        name=name,
        type=type_,
        spark=f"{fold}(`{column}`)",
        fold=fold + "({value})",
        combine=pick + "(target.{value}, added.{value})",
        swap=None,
    )


ROW_COUNT = _count_column("_rows", "count(1)")
"""The hidden count of every state: a key whose last row goes, goes itself (rule H3)."""
