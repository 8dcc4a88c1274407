"""CombinerAggregators: combine rows to a value, and add the part of a txid to it.

Count, Sum, Avg, Min and Max combine the values of all rows. First, Latest, Upsert and Append keep
values of one source row.

First, Latest and Upsert keep the first or last row by an explicit order (H6): the columns
`by`, then txid, then tuple id. *Txids follow the order of emission, not of time: without `by`, a
late January file would overwrite March.* A row with NULL in any column of `by` wins only if all
rows have one; these are compared column by column, and NULL loses. The winner's value is kept even
if it is NULL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from reliability.core.column import (
    Column,
    CombinerAggregator,
    Generated,
    count_column,
    exchanged,
    hidden,
    place,
    quoted,
)
from reliability.core.types import in_order, is_exact, is_ordered_alike, is_supported

FLOAT = "double precision"
_TUPLE_ID = "coalesce(_x, 0)"  # NULL after an outer join; such a row fails the accounting


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
        return _sum_and_count(name, hidden(name, "count"), self.column, self.type)


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
        total, count = hidden(name, "sum"), hidden(name, "count")
        mean = f"{place('row', total)} / nullif({place('row', count)}, 0)"
        value = Generated(name=name, type=self.type, expression=mean)
        type_of_sum = FLOAT if self.type == FLOAT else "numeric"
        return (value, *_sum_and_count(total, count, self.column, type_of_sum))


@dataclass(frozen=True)
class _Extreme(CombinerAggregator):
    """Least or greatest value of `column` that is not NULL; texts compare by their bytes."""

    column: str
    type: str = "bigint"
    spark: ClassVar[str]
    of_booleans: ClassVar[str]
    pick: ClassVar[str]  # Postgres's least and greatest ignore NULL, as min and max do

    def __post_init__(self) -> None:
        if is_supported(self.type):  # otherwise the state says what is
            is_alike = is_ordered_alike(self.type)
            self._check(is_alike, f"Spark and Postgres order {self.type} differently")

    def columns(self, name: str) -> tuple[Column | Generated, ...]:
        fold = self.of_booleans if self.type == "boolean" else self.spark
        staged = in_order(place("staged", name), self.type)
        target = in_order(place("target", name), self.type)
        column = Column(
            name=name,
            type=self.type,
            spark=f"{self.spark}({quoted(self.column)})",
            fold=f"{fold}({staged})",
            combine=f"{self.pick}({target}, {place('added', name)})",
            is_compared=True,
        )
        return (column,)


class Min(_Extreme):
    """Least value of `column` that is not NULL; texts compare by their bytes."""

    spark, of_booleans, pick = "min", "bool_and", "least"


class Max(_Extreme):
    """Greatest value of `column` that is not NULL; texts compare by their bytes."""

    spark, of_booleans, pick = "max", "bool_or", "greatest"


def _sum_and_count(name: str, count: str, column: str, type_: str) -> tuple[Column, Column]:
    target, added = place("target", name), place("added", name)
    value = Column(
        name=name,
        type=type_,
        spark=f"sum({quoted(column)})",
        fold=f"sum({place('staged', name)})",
        combine=f"coalesce({target} + {added}, {target}, {added})",
        swap=f"CASE WHEN {exchanged(count, 'bigint')} > 0 THEN {exchanged(name, type_)} END"
        if is_exact(type_)
        else None,
        is_rounded=not is_exact(type_),
        sums=column if is_exact(type_) else "",
    )
    is_known = f"CASE WHEN {place('row', name)} IS NULL THEN 0 ELSE 1 END"
    return (value, count_column(count, f"count({quoted(column)})", adopted=is_known))


# --- of one source row ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _ByOrder(CombinerAggregator):
    """A value of the row that wins by an order.

    :param by: column -> Postgres type, most significant column first
    """

    column: str
    by: Mapping[str, str]
    type: str = "bigint"
    least: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self._check(bool(self.by), "needs an order: by={column: type}")
        object.__setattr__(self, "by", dict(self.by))
        for column, type_ in self.by.items():
            if is_supported(type_):  # otherwise the state says what is
                self._check(is_ordered_alike(type_), f"by {column}: {type_} has no reliable order")

    def columns(self, name: str) -> tuple[Column | Generated, ...]:
        return winning_row({name: self}, of=name, least=self.least)

    def reads(self) -> set[str]:
        return {self.column, *self.by}

    def has_in(self, other: CombinerAggregator, column: str) -> bool:
        """Say whether another value shows a column of `by` as the winning row of this one has it.

        One of the same order does. So does the extreme of a column that is the whole order.

        >>> last, by = Latest("price", by={"at": "date"}), {"at": "date"}
        >>> last.has_in(Latest("at", by), "at"), last.has_in(Max("at"), "at")
        (True, True)
        >>> last.has_in(First("at", by), "at"), last.has_in(Min("at"), "at")
        (False, False)
        """
        if isinstance(other, _ByOrder):
            is_alike = other.least == self.least and [*other.by.items()] == [*self.by.items()]
        elif isinstance(other, _Extreme):
            is_alike = isinstance(other, Min if self.least else Max) and [*self.by] == [column]
        else:
            return False
        return is_alike and other.column == column

    def definition(self) -> dict[str, Any]:
        # jsonb does not keep the order of an object's members; here the order matters
        return {**super().definition(), "by": [[name, type_] for name, type_ in self.by.items()]}


@dataclass(frozen=True)
class First(_ByOrder):
    """The value of `column` in the row with the least `by`."""

    least = True


@dataclass(frozen=True)
class Latest(_ByOrder):
    """The value of `column` in the row with the greatest `by`."""


@dataclass(frozen=True)
class Upsert(_ByOrder):
    """The value of `column` in the row with the greatest `by`; all Upserts keep the same row.

    All Upserts of a state have the same `by`.
    """

    def columns(self, name: str) -> tuple[Column | Generated, ...]:
        return winning_row({name: self}, of="", least=False)


@dataclass(frozen=True)
class Append(CombinerAggregator):
    """The value of `column`, one target row for each row of the frame.

    Either all values of a state are Append, or none is; a key, if there is one, is not unique.
    """

    column: str
    type: str = "bigint"

    def columns(self, name: str) -> tuple[Column | Generated, ...]:
        return (Column(name=name, type=self.type, spark=quoted(self.column)),)


def winning_row(
    values: Mapping[str, _ByOrder], *, of: str, least: bool
) -> tuple[Column | Generated, ...]:
    """Return the columns of values that all come from the winning row.

    The winner's hidden `by` and tuple id follow the values. Its txid needs no column: a target row
    always has a smaller txid than an added row (C3), and staged rows carry theirs.

    :param of: the value to which the hidden columns belong, empty for all of the state
    """
    order = next(iter(values.values())).by
    names = [*(f"by_{n}" for n, _ in enumerate(order, start=1)), "tuple"]
    *by, tuple_id = (hidden(of, name) if of else f"_{name}" for name in names)
    keys = dict(zip(by, order.values(), strict=True))
    types = {name: value.type for name, value in values.items()} | keys | {tuple_id: "bigint"}
    read = [quoted(value.column) for value in values.values()] + [quoted(name) for name in order]
    row = ", ".join(f"'f{n}', {term}" for n, term in enumerate([*read, _TUPLE_ID]))
    ordered = dict(zip(keys, order, strict=True))
    winner = _winner_in_spark(f"named_struct({row})", list(order), least)
    wins = _added_wins(keys, least)
    return tuple(
        Column(
            name=name,
            type=type_,
            spark=f"{winner}.f{n}",
            fold=place("staged", name),
            combine=f"CASE WHEN {wins} THEN {place('added', name)}"
            f" ELSE {place('target', name)} END",
            adopted="0" if name == tuple_id else "",
            order=_order_of_staged(keys, tuple_id, least),
            is_compared=name in keys,
            orders_by=ordered.get(name, ""),
        )
        for n, (name, type_) in enumerate(types.items())
    )


def _winner_in_spark(row: str, order: list[str], least: bool) -> str:
    # Spark sorts NULL as the least value: right for max_by, wrong for min_by.
    terms = [quoted(name) for name in order]
    if least:
        unknown = " or ".join(f"isnull({term})" for term in terms)
        terms = [unknown, *(part for term in terms for part in (f"isnull({term})", term))]
    else:
        terms = [" and ".join(f"isnotnull({term})" for term in terms), *terms]
    return f"{'min_by' if least else 'max_by'}({row}, struct({', '.join([*terms, _TUPLE_ID])}))"


def _order_of_staged(keys: Mapping[str, str], tuple_id: str, least: bool) -> str:
    direction = "ASC" if least else "DESC"
    terms = [
        f"{in_order(place('staged', name), type_)} {direction} NULLS LAST"
        for name, type_ in keys.items()
    ]
    if len(keys) > 1:
        terms.insert(0, f"{_is_complete('staged', keys)} DESC")
    last = [f"{place('staged', name)} {direction}" for name in ("_txid", tuple_id)]
    return ", ".join([*terms, *last])


def _added_wins(keys: Mapping[str, str], least: bool) -> str:
    # The added row has the greater txid: of two equal rows it is the later one.
    wins = "false" if least else "true"
    for name, type_ in reversed(list(keys.items())):
        added, target = place("added", name), place("target", name)
        comes_before = f"{in_order(added, type_)} {'<' if least else '>'} {target}"
        better = f"coalesce({comes_before}, {target} IS NULL AND {added} IS NOT NULL)"
        wins = f"({better} OR ({added} IS NOT DISTINCT FROM {target} AND {wins}))"
    if len(keys) == 1:
        return wins
    added, target = _is_complete("added", keys), _is_complete("target", keys)
    return f"({added} > {target} OR ({added} = {target} AND {wins}))"


def _is_complete(row: str, keys: Mapping[str, str]) -> str:
    """Return whether no column of `by` is NULL: of a record, IS NOT NULL says it of every field."""
    return f"(ROW({', '.join(place(row, name) for name in keys)}) IS NOT NULL)"


# --- by name ---------------------------------------------------------------------------

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
        columns += winning_row(upserts, of="", least=False)
    return tuple(columns)


def ordered_value(
    values: Mapping[str, CombinerAggregator], by: Column
) -> tuple[str, First | Latest | Upsert]:
    """Return the value whose order a hidden column keeps, and its name; of Upserts the first."""
    return next(
        (name, value)
        for name, value in values.items()
        if isinstance(value, First | Latest | Upsert)
        and by.name in {column.name for column in value.columns(name)}
    )
