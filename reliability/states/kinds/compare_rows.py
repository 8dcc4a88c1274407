"""The difference that a change makes to a state's rows: save them before it, compare after it.

This serves replays, rollbacks and dry runs of both. Only the rows that the change can reach are
saved, by their keys. Append has its own statements, because its rows have no key.
"""

from __future__ import annotations

from psycopg2.sql import SQL, Composable, Composed, Identifier, Literal

from reliability.core.aggregators import Count, Sum
from reliability.core.column import Column
from reliability.states.compose import qualified, same_key
from reliability.states.tables import StateTables

MOST_EXAMPLES = 100  # rows that were changed by hand and are recorded in the ledger
REACHED = Identifier("pg_temp", "reached")
_WAS_THERE = Identifier("was there")


def remember(tables: StateTables, keys: Composable) -> Composed:
    """Save the rows as they are before the change.

    :param keys: a query for the keys that the change can reach
    """
    return SQL(
        "CREATE TEMPORARY TABLE {reached} ON COMMIT DROP AS SELECT {key},"
        " target._txid IS NOT NULL AS {was_there}, {before}"
        " FROM ({keys}) AS touched LEFT JOIN {target} AS target ON {same_key}"
    ).format(
        reached=REACHED,
        key=qualified("touched", tables.key),
        was_there=_WAS_THERE,
        before=SQL(", ").join(
            SQL("{} AS {}").format(Identifier("target", name), _before(name))
            for name in _values(tables)
        ),
        keys=keys,
        target=tables.target,
        same_key=same_key(tables.key, "touched", "target"),
    )


def count(tables: StateTables) -> Composed:
    """Count rows_added, rows_changed, rows_removed, and by how much each sum moved, as texts."""
    return SQL(
        "SELECT count(*) FILTER (WHERE NOT {was_there} AND {is_there}) AS rows_added,"
        " count(*) FILTER (WHERE {was_there} AND {is_there} AND {differs}) AS rows_changed,"
        " count(*) FILTER (WHERE {was_there} AND NOT {is_there}) AS rows_removed,"
        " jsonb_strip_nulls(jsonb_build_object({moved})) AS moved FROM {joined}"
    ).format(
        was_there=_WAS_THERE,
        is_there=_IS_THERE,
        differs=_differs(tables),
        moved=SQL(", ").join(part for column in _sums(tables) for part in _moved(column)),
        joined=_joined(tables),
    )


def rows(tables: StateTables) -> Composed:
    """Read the rows that differ: change, the key, and each value before and after."""
    return SQL(
        "SELECT CASE WHEN NOT {was_there} THEN 'added' WHEN NOT {is_there} THEN 'removed'"
        " ELSE 'changed' END AS change, {key}, {values} FROM {joined}"
        " WHERE {was_there} IS DISTINCT FROM {is_there} OR {differs} ORDER BY {key}"
    ).format(
        was_there=_WAS_THERE,
        is_there=_IS_THERE,
        key=qualified("reached", tables.key),
        values=SQL(", ").join(
            SQL("{} AS {}, {} AS {}").format(
                _before(name),
                Identifier(f"{name}_before"),
                Identifier("target", name),
                Identifier(f"{name}_after"),
            )
            for name in _values(tables)
        ),
        joined=_joined(tables),
        differs=_differs(tables),
    )


def forget() -> Composed:
    """Drop the saved rows, because the next state of the same change saves its own."""
    return SQL("DROP TABLE {}").format(REACHED)


_IS_THERE = SQL("(target._txid IS NOT NULL)")


def _values(tables: StateTables) -> list[str]:
    return list(tables.state.values)


def _sums(tables: StateTables) -> list[Column]:
    sums = [name for name, v in tables.state.values.items() if isinstance(v, Count | Sum)]
    return [column for column in tables.columns if column.name in sums]


def _before(name: str) -> Identifier:
    return Identifier(f"before {name}")


def _moved(column: Column) -> tuple[Composable, Composable]:
    by = SQL("nullif(coalesce(sum({}), 0) - coalesce(sum({}), 0), 0)::text").format(
        _added_up(column, Identifier("target", column.name)),
        _added_up(column, _before(column.name)),
    )
    return Literal(column.name), by


def _added_up(column: Column, value: Composable) -> Composable:
    """Return a value in a type that sums exactly and never overflows.

    The sum of a bigint is a numeric already; a float is summed as its shortest decimal.
    """
    return SQL("{}::text::numeric").format(value) if column.is_rounded else value


def _joined(tables: StateTables) -> Composed:
    return SQL("{} AS reached LEFT JOIN {} AS target ON {}").format(
        REACHED, tables.target, same_key(tables.key, "reached", "target")
    )


def _differs(tables: StateTables) -> Composed:
    return SQL("ROW({}) IS DISTINCT FROM ROW({})").format(
        SQL(", ").join(_before(name) for name in _values(tables)),
        qualified("target", _values(tables)),
    )
