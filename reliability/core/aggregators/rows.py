"""Aggregators that keep what a source row said: First, Latest, Upsert, Append.

First, Latest and Upsert take the row that comes first or last by an explicit order (rule H6):
the columns `by`, then txid, then tuple id. *Txids follow the order of emission, not of time:
without `by`, a late January file would overwrite March.* A NULL in `by` is the worst of all:
such a row wins only where no other is left. The winner's value counts, be it NULL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reliability.core.aggregators.column import Column, CombinerAggregator, Generated, quoted
from reliability.core.types import in_order, is_ordered_alike

_TUPLE_ID = "coalesce(_x, 0)"  # NULL in a row that an outer join made, which will not balance


@dataclass(frozen=True)
class _ByOrder(CombinerAggregator):
    """A value of the row that wins by an order.

    :param by: column -> Postgres type, the most significant first
    """

    column: str
    by: Mapping[str, str]
    type: str = "bigint"

    def __post_init__(self) -> None:
        self._check(bool(self.by), "needs an order: by={column: type}")
        object.__setattr__(self, "by", dict(self.by))
        for column, type_ in self.by.items():
            self._check(is_ordered_alike(type_), f"by {column}: {type_} has no order to rely on")

    def reads(self) -> set[str]:
        return {self.column, *self.by}

    def definition(self) -> dict[str, Any]:
        # jsonb forgets the order of an object's members, and this is one
        return {**super().definition(), "by": [[name, type_] for name, type_ in self.by.items()]}


@dataclass(frozen=True)
class First(_ByOrder):
    """The value of `column` in the row with the least `by`."""

    def columns(self, name: str) -> tuple[Column | Generated, ...]:
        return winning_row({name: self}, prefix=f"_{name}_", least=True)


@dataclass(frozen=True)
class Latest(_ByOrder):
    """The value of `column` in the row with the greatest `by`."""

    def columns(self, name: str) -> tuple[Column | Generated, ...]:
        return winning_row({name: self}, prefix=f"_{name}_", least=False)


@dataclass(frozen=True)
class Upsert(_ByOrder):
    """The value of `column` in the row with the greatest `by`: one row for the whole state.

    All Upserts of a state have the same `by`, and their values come from one source row.
    """

    def columns(self, name: str) -> tuple[Column | Generated, ...]:
        return winning_row({name: self}, prefix="_", least=False)


@dataclass(frozen=True)
class Append(CombinerAggregator):
    """The value of `column`, in a row of its own for each row of the frame.

    A state has only Appends or none; its key, if it has one, is not unique.
    """

    column: str
    type: str = "bigint"

    def columns(self, name: str) -> tuple[Column | Generated, ...]:
        return (Column(name=name, type=self.type, spark=quoted(self.column)),)


def winning_row(
    values: Mapping[str, _ByOrder], *, prefix: str, least: bool
) -> tuple[Column | Generated, ...]:
    """Return the columns of values that all come from the one row that wins.

    After the values come the hidden `by` and tuple id of the winner. Its txid needs no column: in
    a target row it is smaller than that of whatever is added (C3), and staged rows have it.
    """
    order = next(iter(values.values())).by
    keys = {f"{prefix}by_{n}": type_ for n, type_ in enumerate(order.values(), start=1)}
    tuple_id = f"{prefix}tuple"
    types = {name: value.type for name, value in values.items()} | keys | {tuple_id: "bigint"}
    read = [quoted(value.column) for value in values.values()] + [quoted(name) for name in order]
    row = ", ".join(
        f"'{name}', {term}" for name, term in zip(types, [*read, _TUPLE_ID], strict=True)
    )
    winner = _winner_in_spark(f"named_struct({row})", list(order), least)
    wins = _added_wins(keys, least)
    return tuple(
        Column(
            name=name,
            type=type_,
            spark=f"{winner}.`{name}`",
            fold=f"first_value({{staged.{name}}})",
            combine=f"CASE WHEN {wins} THEN {{added.{name}}} ELSE {{target.{name}}} END",
            order=_order_of_staged(keys, tuple_id, least),
        )
        for name, type_ in types.items()
    )


def _winner_in_spark(row: str, order: list[str], least: bool) -> str:
    # Spark takes NULL for the least of all: right for max_by, the wrong way round for min_by.
    terms = [quoted(name) for name in order]
    if least:
        terms = [part for term in terms for part in (f"isnull({term})", term)]
    return f"{'min_by' if least else 'max_by'}({row}, struct({', '.join([*terms, _TUPLE_ID])}))"


def _order_of_staged(keys: Mapping[str, str], tuple_id: str, least: bool) -> str:
    direction = "ASC" if least else "DESC"
    terms = [
        f"{in_order(f'{{staged.{name}}}', type_)} {direction} NULLS LAST"
        for name, type_ in keys.items()
    ]
    return ", ".join(
        [*terms, f"{{staged._txid}} {direction}", f"{{staged.{tuple_id}}} {direction}"]
    )


def _added_wins(keys: Mapping[str, str], least: bool) -> str:
    # What is added has the greater txid: of two that are equal it is the later one.
    wins = "false" if least else "true"
    for name, type_ in reversed(list(keys.items())):
        added, target = f"{{added.{name}}}", f"{{target.{name}}}"
        comes_before = f"{in_order(added, type_)} {'<' if least else '>'} {target}"
        better = f"coalesce({comes_before}, {target} IS NULL AND {added} IS NOT NULL)"
        wins = f"({better} OR ({added} IS NOT DISTINCT FROM {target} AND {wins}))"
    return wins
