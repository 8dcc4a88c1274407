"""Explain a row: what each txid has contributed to it, and its present values."""

from __future__ import annotations

from collections.abc import Iterable

from psycopg2.sql import SQL, Composable, Composed, Identifier, Placeholder

from reliability.core.column import Generated
from reliability.states.compose import computed, fold_by_key, names
from reliability.states.kept_contributions import counts
from reliability.states.tables import StateTables


def contributions_to(
    tables: StateTables, nulls: Iterable[str], *, newest: bool = False, is_among: bool = False
) -> Composed:
    """Read what each txid has contributed to one key: one folded row each, with its presence.

    :param nulls: the key's columns that are NULL; the others are parameters, as text
    :param newest: only the last %(most)s txids; of appended rows the last instead of the first
    :param is_among: only those of %(txids)s
    """
    is_key = _is_key(tables, nulls)
    if is_among:
        is_key += SQL(" AND _txid = ANY(%(txids)s)")
    if tables.state.is_append:
        return _appended(tables, is_key, newest)
    source = tables.sql(
        "{contribution} AS staged WHERE {is_key} AND {counts}",
        is_key=is_key,
        counts=counts(tables, "staged"),
    )
    if newest:  # found without folding the older ones
        source += tables.sql(
            " AND staged._txid >= (SELECT min(_txid) FROM (SELECT DISTINCT _txid"
            " FROM {contribution} WHERE {is_key} ORDER BY _txid DESC LIMIT %(most)s) AS last)",
            is_key=is_key,
        )
    by_txid = names(("_txid", "_attempt_id"))
    return tables.sql(
        "SELECT folded.*, {generated}header.presence AS _presence FROM ({folded}) AS folded"
        " JOIN reliability.contribution AS header ON {header} AND header.txid = folded._txid"
        " ORDER BY folded._txid",
        generated=SQL("").join(
            computed(column) + SQL(", ")
            for column in tables.state.all_columns()
            if isinstance(column, Generated)
        ),
        folded=fold_by_key(tables.columns, by_txid, source, staged="staged"),
    )


def _appended(tables: StateTables, is_key: Composable, newest: bool) -> Composed:
    # below a view, because the view uses no index for a key whose comparison is not leakproof
    return tables.sql(
        "SELECT * FROM (SELECT *, 'present' AS _presence FROM {rows} AS target"
        " WHERE {counts} AND {is_key} ORDER BY _txid {order} LIMIT %(most)s) AS limited"
        " ORDER BY _txid",
        rows=tables.contribution if tables.is_view else tables.target,
        counts=counts(tables, "target") if tables.is_view else SQL("true"),
        is_key=is_key,
        order=SQL("DESC" if newest else "ASC"),
    )


def row_now(tables: StateTables, nulls: Iterable[str]) -> Composed:
    return tables.sql("SELECT * FROM {target} WHERE {is_key}", is_key=_is_key(tables, nulls))


def parameter(number: int) -> str:
    """Return the parameter with the value of a column of the key, by its place there."""
    return f"key {number}"


def _is_key(tables: StateTables, nulls: Iterable[str]) -> Composed:
    # Postgres parses each value from its text, as it parses a literal.
    null_columns = set(nulls)
    conditions = [
        SQL("{} IS NULL").format(Identifier(name))
        if name in null_columns
        else SQL("{} = CAST({} AS {})").format(
            Identifier(name), Placeholder(parameter(number)), SQL(type_)
        )
        for number, (name, type_) in enumerate(tables.state.key.items())
    ]
    return SQL(" AND ").join(conditions or [SQL("true")])
