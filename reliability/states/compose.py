"""Parts of SQL over the user's columns: names, filled templates, folds and key comparisons.

Only this package composes SQL, because the columns are the user's. Every name goes through
psycopg2.sql. Every type and template was checked when its State was created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from psycopg2.sql import SQL, Composable, Composed, Identifier

from reliability.core.column import Column, Generated, between, places
from reliability.core.names import fitted

ColumnOfRow = Callable[[str], Composable]


def names(columns: Iterable[str]) -> Composed:
    """Return a list of column names: "a", "b"."""
    return SQL(", ").join(Identifier(name) for name in columns)


def qualified(table: str, columns: Iterable[str]) -> Composed:
    """Return a list of column names of one table: "t"."a", "t"."b"."""
    return SQL(", ").join(Identifier(table, name) for name in columns)


def aliased(columns: Mapping[str, Composable]) -> Composed:
    """Return what a query selects: x AS "a", y AS "b"."""
    return SQL(", ").join(
        SQL("{} AS {}").format(value, Identifier(name)) for name, value in columns.items()
    )


def alias(row: str, name: str) -> str:
    """Return what a column of a row is called in a result; no column of a user's is called so.

    >>> alias("old", "total")
    ' old total'
    """
    return fitted(f" {row} {name}")


def of_both(columns: Iterable[str], one: str, other: str) -> dict[str, Composable]:
    """Return each column of two rows by its alias: " one a", " other a", " one b", " other b"."""
    return {alias(row, name): Identifier(row, name) for name in columns for row in (one, other)}


def assigned(columns: Mapping[str, Composable]) -> Composed:
    """Return what an UPDATE sets: "a" = x, "b" = y."""
    return SQL(", ").join(
        SQL("{} = {}").format(Identifier(name), value) for name, value in columns.items()
    )


def of(table: str) -> ColumnOfRow:
    """Return a function that qualifies a column name with `table`."""
    return lambda name: Identifier(table, name)


def fill(template: str, **rows: ColumnOfRow) -> Composed:
    """Fill an aggregator's template: `{row.column}` becomes the result of `row` for the column."""
    first, *others = map(SQL, between(template))
    terms = (rows[row](name) for row, name in places(template))
    return Composed([first, *chain.from_iterable(zip(terms, others, strict=True))])


def fold_by_key(
    columns: Sequence[Column], key: Composable, source: Composable, *, staged: str, also: str = ""
) -> Composed:
    """Fold staged rows to one row per key.

    Without columns that take the first row of an order, the rows are grouped. Otherwise they are
    sorted, and the first row of each key has the columns of one order. All others are window
    functions, which cost more. Their window has the same order, so the rows are sorted once. Both
    accept any type, NULL and arrays included, and hold one row of a key in memory, not all.

    :param key: the key's columns, as named in `source`
    :param staged: the table in `source` that has the rows
    :param also: a template for one more aggregate over that table, returned as `_txid`
    """
    order = next((column.order for column in columns if column.order), "")
    folds = [_fold(column, staged, order) for column in columns]
    if also:
        over = SQL(" OVER all_of_key" if order else "")
        folds.append(fill(also, staged=of(staged)) + over + SQL(" AS _txid"))
    shape = (
        "SELECT DISTINCT ON ({key}) {key}, {folds} FROM {source}"
        " WINDOW same_key AS (PARTITION BY {key}), all_of_key AS (same_key ORDER BY {order}"
        " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) ORDER BY {key}, {order}"
        if order
        else "SELECT {key}, {folds} FROM {source} GROUP BY {key}"
    )
    return SQL(shape).format(
        key=key,
        folds=SQL(", ").join(folds),
        source=source,
        order=fill(order, staged=of(staged)) if order else SQL(""),
    )


def _fold(column: Column, staged: str, order: str) -> Composed:
    """Fold a column of rows that are sorted by `order`; empty if they are grouped."""
    folded = column.fold
    if column.order and column.order != order:
        folded = f"first_value({folded}) OVER (same_key ORDER BY {column.order})"
    elif order and not column.order:
        folded += " OVER all_of_key"
    return fill(f"CAST({folded} AS {column.type}) AS ", staged=of(staged)) + Identifier(column.name)


def computed(column: Column | Generated) -> Composable:
    """Return a column of staged rows; what the target generates is computed here."""
    if isinstance(column, Column):
        return Identifier(column.name)
    return SQL("CAST({} AS {}) AS {}").format(
        fill(column.expression, row=Identifier), SQL(column.type), Identifier(column.name)
    )


def same_key(key: Iterable[str], one: str, other: str) -> Composed:
    """Compare the keys of two rows; NULL equals NULL.

    This form lets Postgres find each key by the index. With IS NOT DISTINCT FROM it would read the
    whole table for each key.
    """
    return SQL(" AND ").join(
        SQL("({0} = {1} OR ({0} IS NULL AND {1} IS NULL))").format(
            Identifier(one, name), Identifier(other, name)
        )
        for name in key
    )


def same_key_by(pattern: Mapping[str, bool], one: str, other: str) -> Composed:
    """Compare the keys of two rows that have NULL in the columns that the pattern gives.

    A column is either compared or NULL. With one comparison for both cases, Postgres finds few keys
    by the index, but compares each of many keys with all rows that have NULL.
    """
    return SQL(" AND ").join(
        SQL("({0} IS NULL AND {1} IS NULL)" if is_null else "{0} = {1}").format(
            Identifier(one, name), Identifier(other, name)
        )
        for name, is_null in pattern.items()
    )


def same_key_as_record(key: Iterable[str], one: str, other: str) -> Composed:
    """Compare the keys of two rows for a FULL JOIN, which needs one sortable comparison.

    Records compare NULL fields as equal. The cast prevents a comparison field by field.
    """
    columns = list(key)
    return SQL("ROW({})::record = ROW({})::record").format(
        qualified(one, columns), qualified(other, columns)
    )
