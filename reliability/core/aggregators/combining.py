"""Aggregators that combine the values of all rows: Count, Sum, Avg, Min, Max."""

from __future__ import annotations

from dataclasses import dataclass

from reliability.core.aggregators.column import (
    Column,
    CombinerAggregator,
    Generated,
    count_column,
    exchanged,
    quoted,
)
from reliability.core.types import in_order, is_exact, is_ordered_alike

FLOAT = "double precision"


@dataclass(frozen=True)
class Count(CombinerAggregator):
    """Number of rows, or of rows where `column` is not NULL; bigint."""

    column: str | None = None

    def columns(self, name: str) -> tuple[Column | Generated, ...]:
        counted = "1" if self.column is None else quoted(self.column)
        return (count_column(name, f"count({counted})"),)


@dataclass(frozen=True)
class Sum(CombinerAggregator):
    """Sum of `column`; NULL while every summed value is NULL.

    A hidden count of the values that are not NULL lets a replay reset the sum to NULL.

    :param type: bigint, numeric or double precision, the types of Spark's sums
    """

    column: str
    type: str = "bigint"

    def __post_init__(self) -> None:
        possible = is_exact(self.type) or self.type == FLOAT
        self._check(possible, "a sum is bigint, numeric or double precision")

    def columns(self, name: str) -> tuple[Column | Generated, ...]:
        return _sum_and_count(name, f"_{name}_count", self.column, self.type)


@dataclass(frozen=True)
class Avg(CombinerAggregator):
    """Mean of the values of `column` that are not NULL; NULL if there is none.

    Stored as an exact sum and a count, from which Postgres generates the mean: means cannot be
    combined, and nothing can be subtracted from a rounded mean.

    :param type: numeric, rounded to its scale if it has one, or double precision
    """

    column: str
    type: str = "numeric"

    def __post_init__(self) -> None:
        possible = (is_exact(self.type) and self.type != "bigint") or self.type == FLOAT
        self._check(possible, "a mean is numeric or double precision")

    def columns(self, name: str) -> tuple[Column | Generated, ...]:
        total, count = f"_{name}_sum", f"_{name}_count"
        value = Generated(name=name, type=self.type, expression=f"{total} / nullif({count}, 0)")
        type_of_sum = FLOAT if self.type == FLOAT else "numeric"
        return (value, *_sum_and_count(total, count, self.column, type_of_sum))


@dataclass(frozen=True)
class Min(CombinerAggregator):
    """Least value of `column` that is not NULL; texts compare by their bytes."""

    column: str
    type: str = "bigint"

    def __post_init__(self) -> None:
        self._check(
            is_ordered_alike(self.type), f"Spark and Postgres order {self.type} differently"
        )

    def columns(self, name: str) -> tuple[Column | Generated, ...]:
        fold = "bool_and" if self.type == "boolean" else "min"
        return (_extreme(name, self.type, f"min({quoted(self.column)})", fold, "least"),)


@dataclass(frozen=True)
class Max(CombinerAggregator):
    """Greatest value of `column` that is not NULL; texts compare by their bytes."""

    column: str
    type: str = "bigint"

    def __post_init__(self) -> None:
        self._check(
            is_ordered_alike(self.type), f"Spark and Postgres order {self.type} differently"
        )

    def columns(self, name: str) -> tuple[Column | Generated, ...]:
        fold = "bool_or" if self.type == "boolean" else "max"
        return (_extreme(name, self.type, f"max({quoted(self.column)})", fold, "greatest"),)


def _sum_and_count(name: str, count: str, column: str, type_: str) -> tuple[Column, Column]:
    added = f"{{target.{name}}} + {{added.{name}}}"
    value = Column(
        name=name,
        type=type_,
        spark=f"sum({quoted(column)})",
        fold=f"sum({{staged.{name}}})",
        combine=f"coalesce({added}, {{target.{name}}}, {{added.{name}}})",
        swap=f"CASE WHEN {exchanged(count, 'bigint')} > 0 THEN {exchanged(name, type_)} END"
        if is_exact(type_)
        else None,
        is_rounded=not is_exact(type_),
        sums=column if is_exact(type_) else "",
    )
    return (value, count_column(count, f"count({quoted(column)})"))


def _extreme(name: str, type_: str, spark: str, fold: str, pick: str) -> Column:
    # Postgres's least and greatest ignore NULL, as min and max do.
    staged, target = in_order(f"{{staged.{name}}}", type_), in_order(f"{{target.{name}}}", type_)
    return Column(
        name=name,
        type=type_,
        spark=spark,
        fold=f"{fold}({staged})",
        combine=f"{pick}({target}, {{added.{name}}})",
        is_compared=True,
    )
