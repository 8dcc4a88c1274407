"""A replay in a ContributionState: the new contribution replaces the old one (H1, H3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from psycopg2.sql import SQL, Composable, Composed, Identifier

from reliability.core.column import ROW_COUNT, Column
from reliability.states.compose import (
    fill,
    fold_by_key,
    names,
    null_patterns,
    qualified,
    same_key,
    same_key_as_record,
    same_key_by,
)
from reliability.states.fold_history import counts, kept
from reliability.states.tables import StateTables

CHANGED = Identifier("pg_temp", "changed")
Pattern = Mapping[str, bool]
"""Maps each column of the key to whether it is NULL."""
_SWAPPED = Identifier("pg_temp", "swapped")


def swap(tables: StateTables, patterns: Sequence[Pattern]) -> list[Composed]:
    """Replace the old contribution by the new one, for the keys that `collect_changed_keys` found.

    If every column has an inverse, it is applied; otherwise the rows are recomputed from the kept
    contributions (H3). The old value is the *stored* one, never what today's code would compute.

    :param patterns: the rows of `patterns_of_changed`
    """
    if is_invertible(tables):
        return replace_rows(tables, _by_inverse(tables))
    return replace_rows(tables, from_contributions(tables, patterns))


def replace_rows(tables: StateTables, new_rows: Composed) -> list[Composed]:
    """Write the complete new rows of the changed keys.

    Keys without rows are deleted. At the end the temporary tables are dropped, because the next
    state of the same change creates its own.

    :param new_rows: the query that computes the rows
    """
    return [
        SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS {}").format(_SWAPPED, new_rows),
        _delete_vanished(tables),
        _write(tables),
        SQL("DROP TABLE {}, {}").format(CHANGED, _SWAPPED),
    ]


def analyze_changed_keys() -> Composed:
    """Give the planner statistics of the collected keys; a new table has none.

    Without them it reads all contributions for each key instead of using an index.
    """
    return SQL("ANALYZE {}").format(CHANGED)


def patterns_of_changed(tables: StateTables) -> Composed:
    """Read which columns are NULL together in the collected keys."""
    return null_patterns(tables.key, CHANGED)


def select_changed_keys(tables: StateTables) -> Composed:
    """Read the collected keys."""
    return SQL("SELECT {} FROM {}").format(names(tables.key), CHANGED)


def contributions_of_changed(tables: StateTables, patterns: Iterable[Pattern]) -> Composed:
    """Read the kept contributions of the collected keys."""
    return SQL("SELECT * FROM ({rows} OFFSET 0) AS own WHERE {counts}").format(
        rows=SQL(" UNION ALL ").join(_rows_of(tables, pattern) for pattern in patterns),
        counts=counts(tables, "own"),
    )


def rows_of_changed(tables: StateTables) -> Composed:
    """Read the target's rows of the collected keys."""
    return SQL("SELECT target.* FROM {} AS changed JOIN {} AS target ON {}").format(
        CHANGED, tables.target, same_key(tables.key, "changed", "target")
    )


def collect(tables: StateTables, keys: Composable) -> Composed:
    """Collect the keys that a query reads."""
    return SQL(
        "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS"
        " SELECT row_number() OVER () AS _number, found.* FROM ({}) AS found"
    ).format(CHANGED, keys)


def is_invertible(tables: StateTables) -> bool:
    """Return whether a replay computes new − old, and so carries a hand-made change along."""
    return all(column.is_exact_sum for column in tables.columns)


def collect_changed_keys(tables: StateTables) -> Composed:
    """Collect the keys whose values differ between the replaced attempt and the new one."""
    columns = [
        SQL("coalesce(new.{0}, old.{0}) AS {0}").format(Identifier(name)) for name in tables.key
    ]
    if is_invertible(tables):
        columns += [
            SQL("{} AS {}").format(Identifier(row, name), Identifier(f"{row} {name}"))
            for name in tables.value_names()
            for row in ("old", "new")
        ]
    return SQL(
        "CREATE TEMPORARY TABLE {changed} ON COMMIT DROP AS"
        " SELECT row_number() OVER () AS _number, {columns}"
        " FROM ({old}) AS old FULL JOIN ({new}) AS new ON {same_key}"
        " WHERE ({old_values}) IS DISTINCT FROM ({new_values})"
    ).format(
        changed=CHANGED,
        columns=SQL(", ").join(columns),
        old=tables.folded_attempt("replaced_attempt"),
        new=tables.folded_attempt("attempt_id"),
        same_key=same_key_as_record(tables.key, "old", "new"),
        old_values=qualified("old", tables.value_names()),
        new_values=qualified("new", tables.value_names()),
    )


def _by_inverse(tables: StateTables) -> Composed:
    return SQL(
        "SELECT {key}, {values}, {txid} AS _txid"
        " FROM {changed} AS changed LEFT JOIN {target} AS target ON {same_key}"
    ).format(
        key=qualified("changed", tables.key),
        values=SQL(", ").join(
            _inverse(column) + SQL(" AS ") + Identifier(column.name) for column in tables.columns
        ),
        txid=_greatest_txid_left(tables),
        changed=CHANGED,
        target=tables.target,
        same_key=same_key(tables.key, "changed", "target"),
    )


def _inverse(column: Column) -> Composed:
    def or_zero(term: Composable) -> Composed:
        return SQL("coalesce({}, 0)").format(term)

    assert column.swap is not None
    return fill(
        column.swap,
        target=lambda name: or_zero(Identifier("target", name)),
        old=lambda name: or_zero(Identifier("changed", f"old {name}")),
        new=lambda name: or_zero(Identifier("changed", f"new {name}")),
    )


def _greatest_txid_left(tables: StateTables) -> Composed:
    """Return a row's txid, the greatest that it contains; it falls when that one leaves (C3)."""
    return SQL(
        "CASE WHEN coalesce({added}, 0) > 0 THEN greatest(target._txid, %(txid)s)"
        " WHEN target._txid > %(txid)s THEN target._txid"
        " ELSE (SELECT max(kept._txid) FROM ({kept}) AS kept WHERE {same_key}) END"
    ).format(
        added=Identifier("changed", f"new {ROW_COUNT.name}"),
        kept=kept(tables),
        same_key=same_key(tables.key, "changed", "kept"),
    )


def from_contributions(tables: StateTables, patterns: Iterable[Pattern]) -> Composed:
    """Recompute the rows of the changed keys from their kept contributions."""
    source = SQL(
        "{changed} AS changed LEFT JOIN ({kept}) AS kept ON kept._number = changed._number"
    ).format(changed=CHANGED, kept=contributions_of_changed(tables, patterns))
    return fold_by_key(
        tables.columns,
        qualified("changed", tables.key),
        source,
        staged="kept",
        also="max({staged._txid})",
    )


def _rows_of(tables: StateTables, pattern: Pattern) -> Composed:
    return SQL(
        "SELECT changed._number, staged.* FROM {} AS changed JOIN {} AS staged ON {}"
    ).format(CHANGED, tables.contribution, same_key_by(pattern, "changed", "staged"))


def _delete_vanished(tables: StateTables) -> Composed:
    return SQL(
        "DELETE FROM {} AS target USING {} AS swapped WHERE {} AND coalesce(swapped._rows, 0) = 0"
    ).format(tables.target, _SWAPPED, same_key(tables.key, "target", "swapped"))


def _write(tables: StateTables) -> Composed:
    return SQL(
        "INSERT INTO {target} ({names}, _txid)"
        " SELECT {names}, _txid FROM {swapped} WHERE _rows > 0 ORDER BY {key}"
        " ON CONFLICT ({key}) DO UPDATE SET {values}, _txid = excluded._txid"
    ).format(
        target=tables.target,
        swapped=_SWAPPED,
        names=names(tables.column_types()),
        key=names(tables.key),
        values=SQL(", ").join(
            SQL("{0} = excluded.{0}").format(Identifier(name)) for name in tables.value_names()
        ),
    )
