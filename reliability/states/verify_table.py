"""Verify a table: recompute every row from the kept contributions, and compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from psycopg2.sql import SQL, Composable, Composed, Identifier

from reliability.core.column import Column
from reliability.core.difference import Differing
from reliability.core.types import in_order
from reliability.states.compose import fold_by_key, names, same_key_as_record
from reliability.states.fold_history import kept
from reliability.states.tables import TXID, StateTables

# For a sum of floats, relative to the sum of absolute values: if the values cancel out, the digits
# of the sum itself mean nothing.
_TOLERANCE = SQL("1e-9")
_IS_THERE = Identifier("is there")


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
        format_key=names(f"key {name}" for name in tables.key),
    )


def differing_keys(tables: StateTables) -> Composed:
    """Read the keys of all rows that are missing, surplus or different."""
    return SQL("SELECT {} FROM ({}) AS differing").format(
        SQL(", ").join(
            SQL("{} AS {}").format(Identifier(f"key {name}"), Identifier(name))
            for name in tables.key
        ),
        _differing(tables, None, None),
    )


def _differing(
    tables: StateTables, contributions: Composable | None, target: Composable | None
) -> Composed:
    return SQL(
        "SELECT expected.{is_there} IS NOT NULL AS is_expected,"
        " found.{is_there} IS NOT NULL AS is_found, {key}, {columns}"
        " FROM (SELECT *, true AS {is_there} FROM ({expected}) AS folded) AS expected"
        " FULL JOIN (SELECT *, true AS {is_there} FROM {target}) AS found ON {same_key}"
        " WHERE expected.{is_there} IS NULL OR found.{is_there} IS NULL OR {differs}"
    ).format(
        is_there=_IS_THERE,
        key=SQL(", ").join(
            SQL("coalesce(expected.{0}, found.{0}) AS {1}").format(
                Identifier(name), Identifier(f"key {name}")
            )
            for name in tables.key
        ),
        columns=SQL(", ").join(
            SQL("{} AS {}").format(Identifier(row, name), Identifier(f"{row} {name}"))
            for name in compared(tables)
            for row in ("expected", "found")
        ),
        expected=_expected(tables, kept(tables) if contributions is None else contributions),
        target=tables.target if target is None else SQL("({}) AS target").format(target),
        same_key=same_key_as_record(tables.key, "expected", "found"),
        differs=_differs(tables),
    )


def examples(tables: StateTables, rows: Sequence[Mapping[str, Any]]) -> Iterator[Differing]:
    """Convert what `differing_rows` has read."""
    columns = compared(tables)
    for row in rows:
        if row["is_found"] is None:  # there are none
            continue
        yield Differing(
            key={name: row[f"key {name}"] for name in tables.state.key},
            expected=_expected_values(tables, row) if row["is_expected"] else None,
            found={c: row[f"found {c}"] for c in columns} if row["is_found"] else None,
        )


def _expected_values(tables: StateTables, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the expected row; sums are computed in numeric."""
    integers = {column.name for column in tables.columns if column.type == "bigint"}
    found = {name: row[f"expected {name}"] for name in compared(tables)}
    return {
        name: int(value) if name in integers and value is not None else value
        for name, value in found.items()
    }


def compared(tables: StateTables) -> list[str]:
    """Return the compared columns, including the hidden ones that a replay uses."""
    return [*tables.value_names(), TXID]


def count_rows(tables: StateTables, table: Composable | None = None) -> Composed:
    """Count the rows of the target, or of another table."""
    return SQL("SELECT count(*) AS rows FROM {}").format(tables.target if table is None else table)


def _expected(tables: StateTables, contributions: Composable) -> Composed:
    # In numeric: contributions that somebody has changed may exceed the type of their sum.
    folded = [replace(c, type="numeric") if c.is_exact_sum else c for c in tables.columns]
    scales = [
        Column(
            name=_scale(column.name),
            type="numeric",
            spark="",
            fold=f"sum(abs(CAST({{staged.{column.name}}} AS numeric)))",
        )
        for column in tables.columns
        if column.is_rounded
    ]
    source = SQL("({}) AS kept").format(contributions)
    return fold_by_key(
        (*folded, *scales),
        names(tables.key),
        source,
        staged="kept",
        also="max({staged._txid})",
    )


def _scale(column: str) -> str:
    return f"scale of {column}"


def _differs(tables: StateTables) -> Composed:
    rounded = [column.name for column in tables.columns if column.is_rounded]
    exact = [name for name in compared(tables) if name not in rounded]
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
