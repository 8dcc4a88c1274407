"""A first commit of a state with a key: add the staged rows of an attempt to the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg2.sql import SQL, Composed, Identifier

from reliability.core.plan import ChangeKey
from reliability.states.compose import fill, names, of
from reliability.states.tables import TXID, StateTables, previous

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction


def add_to_rows(tx: DatabaseTransaction, tables: StateTables, key: ChangeKey) -> None:
    """Add the attempt's contribution key by key, and record it."""
    tx.queue(apply(tables), **key)


def apply(tables: StateTables) -> Composed:
    """Add an attempt's contribution, and record it if it is what was sealed and all was written.

    ON CONFLICT … WHERE silently skips a row whose txid is not smaller, so `record_contribution`
    compares how many keys there are and how many rows were written (C3). Keys are sorted, because
    that is faster and is the lock order.
    """
    return SQL(
        "WITH added AS MATERIALIZED ({added}), applied AS ("
        "{combine} WHERE target._txid < excluded._txid RETURNING 1)"
        " SELECT reliability.record_contribution(%(topology)s, %(state)s, %(txid)s,"
        " %(attempt_id)s, %(replaced_attempt)s, {is_kept},"
        " (SELECT count(*) FROM {staged} WHERE _txid = %(txid)s AND _attempt_id = %(attempt_id)s),"
        " (SELECT count(*) FROM added), (SELECT count(*) FROM applied))"
    ).format(
        added=tables.folded_attempt("attempt_id"),
        combine=combine(tables),
        is_kept=SQL("true" if tables.keeps_contributions else "false"),
        staged=tables.staged,
    )


def combine(tables: StateTables) -> Composed:
    """Write the rows of `added` into the target, each combined with the row of its key."""
    changes = [
        SQL("{} = {}").format(
            Identifier(column.name),
            fill(column.combine, target=of("target"), added=of("excluded")),
        )
        for column in tables.columns
    ]
    if tables.state.keeps_previous:
        # as in Trident's OpaqueValue, a newer txid makes the current value the previous one
        changes += [
            SQL("{} = {}").format(Identifier(previous(name)), Identifier("target", name))
            for name in (*tables.value_names(), TXID)
        ]
    return SQL(
        "INSERT INTO {target} AS target ({names}, _txid)"
        " SELECT {names}, %(txid)s FROM added ORDER BY {key}"
        " ON CONFLICT ({key}) DO UPDATE SET {changes}, _txid = excluded._txid"
    ).format(
        target=tables.target,
        names=names(tables.column_types()),
        key=names(tables.key),
        changes=SQL(", ").join(changes),
    )
