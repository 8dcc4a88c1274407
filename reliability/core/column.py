"""The stored columns of an aggregator, and the expressions that compute them.

An aggregator has one expression per place where it is computed:

- `spark`: the SQL expression over the rows of a group, in the processing phase;
- `fold`: how Postgres folds the staged rows of a key, `combine`: how it adds them to a target row;
- `swap`: how Postgres exchanges an old contribution for a new one, exactly (H3). Only counts
  and exact sums have it (`is_exact_sum`). It is None for everything else, and the value is
  recomputed from the kept contributions;
- `adopted`: what a hidden column has in a row of a table that is adopted (H7).

In the last four `{row.column}` is a column of a row: `staged`, `target`, `added`, `old`, `new` or
`row`; `place` writes it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

from reliability.core.errors import InvalidDefinition
from reliability.core.names import fitted

_HIDDEN = re.compile(r"_(.*_)?(by_\d+|tuple)|_.*_(count|sum|previous)|_.*~[0-9a-f]{8}", re.DOTALL)
#: Of so many columns and templates the parts are kept: each statement is composed of them.
MOST_KNOWN = 4_096
_PLACE = re.compile(r"\{(\w+)\.([^{}]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column that is written; a leading underscore marks a hidden column.

    :param fold: empty for Append alone, whose rows are never combined
    :param order: ORDER BY terms over the staged rows of a key; `fold` is of the first row
    :param is_count: an empty row has 0 here, not NULL
    :param is_rounded: a sum of floats, whose last digits depend on the order of addition
    :param is_compared: Spark compares the values to find this one
    :param sums: the column of the frame whose exact sum this is; Spark's own sum may overflow
    :param orders_by: the column of the frame that it keeps, because rows are ordered by it
    """

    name: str
    type: str
    spark: str
    fold: str = ""
    combine: str = ""
    swap: str | None = None
    adopted: str = ""
    order: str = ""
    is_count: bool = False
    is_rounded: bool = False
    is_compared: bool = False
    sums: str = ""
    orders_by: str = ""

    @property
    def is_exact_sum(self) -> bool:
        """Say whether the column is a count or an exact sum, which alone have an inverse."""
        return self.swap is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """A column that Postgres generates from other columns of the row.

    :param expression: a template, in which those are `{row.column}`
    """

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


@lru_cache(MOST_KNOWN)
def place(row: str, name: str) -> str:
    """Return the place of a column in a template, `{row.column}`; braces in a name are encoded.

    >>> place("staged", "total"), place("old", "a {b}")
    ('{staged.total}', '{old.a%20%7Bb%7D}')
    """
    return f"{{{row}.{quote(name, safe='')}}}"


@lru_cache(MOST_KNOWN)
def places(template: str) -> Sequence[tuple[str, str]]:
    """Return the places of a template: row and column."""
    return tuple((row, unquote(name)) for row, name in _PLACE.findall(template))


@lru_cache(MOST_KNOWN)
def between(template: str) -> Sequence[str]:
    """Return what stands before, between and after the places of a template."""
    return tuple(_PLACE.split(template)[::3])


def filled(template: str, of: Callable[[str], str]) -> str:
    """Fill the places of a template; `of` gives the term of a column."""
    return _PLACE.sub(lambda found: of(unquote(found[2])), template)


def hidden(name: str, what: str) -> str:
    """Return the name of a hidden column that belongs to a value.

    >>> hidden("total", "count")
    '_total_count'
    """
    return fitted(f"_{name}_{what}")


def is_hidden(name: str) -> bool:
    """Say whether a column is not shown to people: one of INTERNAL, or one that `hidden` names.

    A value of a user's that is called like these, such as `_n_count`, is not shown either.
    """
    return name in INTERNAL or _HIDDEN.fullmatch(name) is not None


def exchanged(name: str, type_: str) -> str:
    """Return the `swap` of a sum: subtract old, add new.

    In numeric: an intermediate result may exceed the type although the final one fits.
    """
    target, old, new = (place(row, name) for row in ("target", "old", "new"))
    return f"CAST(CAST({target} AS numeric) - {old} + {new} AS {type_})"


def count_column(name: str, spark: str, adopted: str = "") -> Column:
    """Return a column that counts: bigint, never NULL."""
    return Column(
        name=name,
        type="bigint",
        spark=spark,
        fold=f"sum({place('staged', name)})",
        combine=f"{place('target', name)} + {place('added', name)}",
        swap=exchanged(name, "bigint"),
        adopted=adopted,
        is_count=True,
    )


#: Columns of staged rows and of statements, beside those that belong to a value.
INTERNAL = frozenset(
    {
        *("_txid", "_attempt_id", "_x", "_n", "_key", "_rows", "_digest"),
        *("_number", "_place", "_count", "_fit", "_presence"),
        # of every table in Postgres
        *("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"),
    }
)
ROW_COUNT = count_column("_rows", "count(1)", adopted="1")
"""The hidden row count of every combined state: a key is deleted with its last row (H3)."""


def written(columns: Iterable[Column | Generated]) -> tuple[Column, ...]:
    """Return the columns that are written, without the generated ones."""
    return tuple(column for column in columns if isinstance(column, Column))


def literal(text: str) -> str:
    """Return a text as Spark SQL reads it.

    >>> print(literal("it's"))
    'it\\'s'
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def quoted(column: str) -> str:
    """Return the name of a frame's column as Spark SQL reads it.

    >>> quoted("a`b")
    '`a``b`'
    """
    escaped = column.replace("`", "``")
    return f"`{escaped}`"
