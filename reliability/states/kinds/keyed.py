"""A first commit of a state with a key: add the staged rows of an attempt to the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg2.sql import SQL, Composed, Identifier

from reliability.core.errors import LedgerCorruption
from reliability.core.plan import ChangeKey
from reliability.states.compose import fill, names, of
from reliability.states.tables import TXID, StateTables, previous

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction


def add_to_rows(tx: DatabaseTransaction, tables: StateTables, key: ChangeKey) -> int:
    """Add the attempt's contribution, key by key; return how many keys it has."""
    result = tx.one(apply(tables), **key)
    keys: int = result["keys"]
    if keys != result["applied"]:
        raise LedgerCorruption(
            f"{tables.target_name}: txid {key.txid} has {keys} keys, but only "
            f"{result['applied']} rows were older than it"
        )
    return keys


def apply(tables: StateTables) -> Composed:
    """Add an attempt's contribution; return how many keys it has and how many rows were written.

    ON CONFLICT … WHERE silently skips a row whose txid is not smaller, so the caller must compare
    the two counts (C3). Keys are sorted, because that is faster and is the lock order.
    """
    return SQL(
        "WITH added AS MATERIALIZED ({added}), applied AS ("
        "{combine} WHERE target._txid < excluded._txid RETURNING 1)"
        " SELECT (SELECT count(*) FROM added) AS keys, (SELECT count(*) FROM applied) AS applied"
    ).format(added=tables.folded_attempt("attempt_id"), combine=combine(tables))


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
