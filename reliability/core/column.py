"""The stored columns of an aggregator, and the expressions that compute them.

An aggregator has one expression per place where it is computed:

- `spark`: the SQL expression over the rows of a group, in the processing phase;
- `fold`: how Postgres folds the staged rows of a key, `combine`: how it adds them to a target row;
- `swap`: how Postgres exchanges an old contribution for a new one, exactly (H3). Only counts
  and exact sums have it (`is_exact_sum`). It is None for everything else, and the value is
  recomputed from the kept contributions.

In the last three `{row.column}` is a column of a row: `staged`, `target`, `added`, `old` or `new`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from reliability.core.errors import InvalidDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column that is written; a leading underscore marks a hidden column.

    :param fold: empty for Append alone, whose rows are never combined
    :param order: ORDER BY terms over the staged rows of a key; `fold` takes the first row
    :param is_count: an empty row has 0 here, not NULL
    :param is_rounded: a sum of floats, whose last digits depend on the order of addition
    :param is_compared: Spark compares the values to find this one
    :param sums: the column of the frame whose exact sum this is; Spark's own sum may overflow
    """

    name: str
    type: str
    spark: str
    fold: str = ""
    combine: str = ""
    swap: str | None = None
    order: str = ""
    is_count: bool = False
    is_rounded: bool = False
    is_compared: bool = False
    sums: str = ""

    @property
    def is_exact_sum(self) -> bool:
        """Say whether the column is a count or an exact sum, which alone have an inverse."""
        return self.swap is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """A column that Postgres generates from other columns of the row."""

    name: str
    type: str
    expression: str


@dataclass(frozen=True)
class CombinerAggregator(ABC):
    """Base of all aggregators, after Trident's CombinerAggregator."""

    @abstractmethod
    def columns(self, name: str) -> tuple[Column | Generated, ...]:
        """Return the stored columns of the value called `name`; the first is the value."""

    def reads(self) -> set[str]:
        return {getattr(self, "column", None) or ""} - {""}

    def definition(self) -> dict[str, Any]:
        """Return its parameters as plain data, for the digest of a state."""
        return {
            "aggregator": type(self).__name__,
            **{field.name: getattr(self, field.name) for field in fields(self)},
        }

    def _check(self, is_possible: bool, why: str) -> None:
        if not is_possible:
            raise InvalidDefinition(f"{self}: {why}")


def exchanged(name: str, type_: str) -> str:
    """Return the `swap` of a sum: subtract old, add new.

    In numeric: an intermediate result may exceed the type although the final one fits.
    """
    return f"CAST(CAST({{target.{name}}} AS numeric) - {{old.{name}}} + {{new.{name}}} AS {type_})"


def count_column(name: str, spark: str) -> Column:
    """Return a column that counts: bigint, never NULL."""
    return Column(
        name=name,
        type="bigint",
        spark=spark,
        fold=f"sum({{staged.{name}}})",
        combine=f"{{target.{name}}} + {{added.{name}}}",
        swap=exchanged(name, "bigint"),
        is_count=True,
    )


ROW_COUNT = count_column("_rows", "count(1)")
"""The hidden row count of every combined state: a key is deleted with its last row (H3)."""


def written(columns: Iterable[Column | Generated]) -> tuple[Column, ...]:
    """Return the columns that are written, without the generated ones."""
    return tuple(column for column in columns if isinstance(column, Column))


def quoted(column: str) -> str:
    """Return the name of a frame's column as Spark SQL reads it.

    >>> quoted("a`b")
    '`a``b`'
    """
    escaped = column.replace("`", "``")
    return f"`{escaped}`"
