"""A first commit of a state with a key: what an attempt staged is added to the target."""

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
            f"{tables.target_name}: {keys} keys of txid {key.txid}, and only "
            f"{result['applied']} rows were older than it"
        )
    return keys


def apply(tables: StateTables) -> Composed:
    """Add an attempt's contribution; tell how many keys it has and how many rows were written.

    ON CONFLICT … WHERE passes over a row with a txid that is not smaller without a word, so
    the two counts have to be compared (C3). Keys are sorted: it is faster, and the lock order.
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
        # Trident's OpaqueValue: a newer txid makes the value the previous one
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
