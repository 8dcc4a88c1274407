"""Verify a table: recompute every row from the kept contributions, and compare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from psycopg2.sql import SQL, Composable, Composed, Identifier

from reliability.core.column import Column, place
from reliability.core.difference import Differing
from reliability.core.types import in_order
from reliability.states.compose import (
    alias,
    aliased,
    fold_by_key,
    names,
    of_both,
    same_key_as_record,
)
from reliability.states.kept_contributions import kept
from reliability.states.tables import TXID, StateTables

# For a sum of floats, relative to the sum of absolute values: if the values cancel out, the digits
# of the sum itself mean nothing.
_TOLERANCE = SQL("1e-9")
_IS_THERE = Identifier(" is there")


def differing_rows(
    tables: StateTables, contributions: Composable | None = None, target: Composable | None = None
) -> Composed:
    """Count the rows that are missing, surplus or different, and read a few of them.

    Each row has `is_expected`, `is_found`, the key, and each column as `expected …` and `found …`.
    If no row differs, one row with only the counts is returned.

    :param contributions: a query for the contributions that are compared; the default is all
    :param target: a query for the rows of the target that are compared; the default is all
    """
    return SQL(
        "WITH differing AS MATERIALIZED ({differing}) SELECT counted.*, shown.* FROM (SELECT"
        " count(*) FILTER (WHERE NOT is_found) AS missing,"
        " count(*) FILTER (WHERE NOT is_expected) AS surplus,"
        " count(*) FILTER (WHERE is_expected AND is_found) AS different"
        " FROM differing) AS counted LEFT JOIN"
        " (SELECT * FROM differing ORDER BY {format_key} LIMIT %(most)s) AS shown ON true"
    ).format(
        differing=_differing(tables, contributions, target),
        format_key=names(alias("key", name) for name in tables.key),
    )


def differing_keys(tables: StateTables) -> Composed:
    """Read the keys of all rows that are missing, surplus or different."""
    key = aliased({name: Identifier(alias("key", name)) for name in tables.key})
    return SQL("SELECT {} FROM ({}) AS differing").format(key, _differing(tables, None, None))


def _differing(
    tables: StateTables, contributions: Composable | None, target: Composable | None
) -> Composed:
    return tables.sql(
        "SELECT expected.{is_there} IS NOT NULL AS is_expected,"
        " found.{is_there} IS NOT NULL AS is_found, {shown_key}, {columns}"
        " FROM (SELECT *, true AS {is_there} FROM ({expected}) AS folded) AS expected"
        " FULL JOIN (SELECT *, true AS {is_there} FROM {rows}) AS found ON {same_key}"
        " WHERE expected.{is_there} IS NULL OR found.{is_there} IS NULL OR {differs}",
        is_there=_IS_THERE,
        shown_key=SQL(", ").join(
            SQL("coalesce(expected.{0}, found.{0}) AS {1}").format(
                Identifier(name), Identifier(alias("key", name))
            )
            for name in tables.key
        ),
        columns=aliased(of_both(_compared(tables), "expected", "found")),
        expected=_expected(tables, kept(tables) if contributions is None else contributions),
        rows=tables.target if target is None else SQL("({}) AS target").format(target),
        same_key=same_key_as_record(tables.key, "expected", "found"),
        differs=_differs(tables),
    )


def differing_of(tables: StateTables, row: Mapping[str, Any], columns: Iterable[str]) -> Differing:
    """Convert a row that differs: it has these columns of both rows, `expected` and `found`."""
    # sums are computed in numeric
    integers = {column.name for column in tables.columns if column.type == "bigint"}

    def values(which: str) -> dict[str, Any] | None:
        found = {name: row[alias(which, name)] for name in columns}
        whole = {n: int(v) for n, v in found.items() if n in integers and v is not None}
        return found | whole if row[f"is_{which}"] else None

    return Differing(
        key={name: row[alias("key", name)] for name in tables.state.key},
        expected=values("expected"),
        found=values("found"),
    )


def examples(tables: StateTables, rows: Sequence[Mapping[str, Any]]) -> Iterator[Differing]:
    """Convert what `differing_rows` has read."""
    for row in rows:
        if row["is_found"] is not None:  # there are some
            yield differing_of(tables, row, _compared(tables))


def _compared(tables: StateTables) -> list[str]:
    """Return the compared columns, including the hidden ones that a replay uses."""
    return [*tables.value_names(), TXID]


def _expected(tables: StateTables, contributions: Composable) -> Composed:
    # In numeric: contributions that somebody has changed may exceed the type of their sum.
    folded = [replace(c, type="numeric") if c.is_exact_sum else c for c in tables.columns]
    scales = [
        Column(
            name=_scale(column.name),
            type="numeric",
            spark="",
            fold=f"sum(abs(CAST({place('staged', column.name)} AS numeric)))",
        )
        for column in tables.columns
        if column.is_rounded
    ]
    return fold_by_key(
        (*folded, *scales),
        names(tables.key),
        SQL("({}) AS kept").format(contributions),
        staged="kept",
        also="max({staged._txid})",
    )


def _scale(column: str) -> str:
    return alias("scale of", column)


def _differs(tables: StateTables) -> Composed:
    rounded = [column.name for column in tables.columns if column.is_rounded]
    exact = [name for name in _compared(tables) if name not in rounded]
    return SQL(" OR ").join(
        [
            SQL("ROW({}) IS DISTINCT FROM ROW({})").format(
                _by_bytes(tables, "expected", exact), _by_bytes(tables, "found", exact)
            ),
            *map(_differs_by_more_than_digits, rounded),
        ]
    )


def _by_bytes(tables: StateTables, row: str, columns: Sequence[str]) -> Composed:
    # a column of the user's table may have a collation of its own, which Postgres does not mix
    types = tables.column_types()
    return SQL(", ").join(
        SQL(in_order("{}", types.get(name, "bigint"))).format(Identifier(row, name))
        for name in columns
    )


def _differs_by_more_than_digits(column: str) -> Composed:
    # `<`, not `<=`, so that infinity is never within the tolerance; numeric, because the difference
    # of two floats may not be a float
    return SQL(
        "({expected} IS DISTINCT FROM {found}"
        " AND NOT coalesce(abs({expected}::numeric - {found}::numeric) < {tolerance} * {scale},"
        " false))"
    ).format(
        expected=Identifier("expected", column),
        found=Identifier("found", column),
        tolerance=_TOLERANCE,
        scale=Identifier("expected", _scale(column)),
    )
