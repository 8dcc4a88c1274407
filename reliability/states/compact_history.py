"""Compaction: for all txids beyond the horizon together, keep one row per key.

The row of a key has the last of these txids that contributed to the key. So the txid of a target
row can still be computed from the kept rows. A key that does not occur again is not written again:
a compaction costs as much as the txids that it folds contributed, independent of the state's size.
Their rows are all in the contributions' own table: those of attempts' tables were moved there.
Ties keep their winner, because every later txid is greater than all folded ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg2.sql import SQL, Composable, Composed, Identifier

from reliability.core.column import Column
from reliability.core.types import greatest_of
from reliability.states.compose import fold_by_key, names
from reliability.states.kept_contributions import (
    COLLECTED,
    Collected,
    collect,
    contributions_to_collected,
    counts,
)
from reliability.states.tables import StateTables

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction, Row

_CROWDED = Identifier("pg_temp", "crowded")
_FOLDED_TOO = (
    Column(name="_txid", type="bigint", spark="", fold="max({staged._txid})"),
    Column(name="_x", type="bigint", spark="", fold="bit_xor({staged._x})"),
    Column(name="_n", type="bigint", spark="", fold="sum({staged._n})"),
)


def compact_history(tx: DatabaseTransaction, tables: StateTables, after: int, through: int) -> Row:
    """Fold the txids after `after` up to `through`.

    :returns: how many rows were `taken`, and how many are `stored` instead
    """
    span = {"after": after, "through": through}
    touched = tables.sql(
        "SELECT DISTINCT {key} FROM ONLY {contribution} AS staged"
        " WHERE _txid > %(after)s AND _txid <= %(through)s AND {counts}",
        counts=counts(tables, "staged"),
    )
    collected = collect(tx, tables, touched, **span)
    tx.run(_crowded_rows(tables, collected), **span)
    folded = tx.one(_fold_crowded(tables))
    tx.run(SQL("DROP TABLE {}, {}").format(COLLECTED, _CROWDED))
    return folded


def _crowded_rows(tables: StateTables, collected: Collected) -> Composed:
    """Collect all rows up to %(through)s of the keys that have more than one.

    Leave out keys whose sums do not fit into one row: after a replay a sum may exceed its type, and
    fit again only together with the contributions of later txids.
    """
    sums = {
        column.name: greatest
        for column in tables.columns
        if column.is_exact_sum and not column.is_count and (greatest := greatest_of(column.type))
    }
    fit: list[Composable] = [
        SQL("coalesce(abs(sum({}) OVER same_key) <= {}, true)").format(Identifier(name), SQL(most))
        for name, most in sums.items()
    ]
    staged = tables.sql(
        "(SELECT ctid AS _place, _txid, _attempt_id, {columns} FROM ONLY {contribution}"
        " WHERE _txid <= %(through)s)",
        columns=names([*tables.key, *sums]),
    )
    return SQL(
        "CREATE TEMPORARY TABLE {crowded} ON COMMIT DROP AS SELECT _place FROM"
        " (SELECT _place, count(*) OVER same_key AS _count, {fit} AS _fit FROM ({rows}) AS counting"
        " WINDOW same_key AS (PARTITION BY _number)) AS of_key WHERE _count > 1 AND _fit"
    ).format(
        crowded=_CROWDED,
        fit=SQL(" AND ").join(fit or [SQL("true")]),
        rows=contributions_to_collected(tables, collected, staged),
    )


def _fold_crowded(tables: StateTables) -> Composed:
    """Fold each key's collected rows to one, and update the number of rows in the headers."""
    return tables.sql(
        "WITH taken AS (DELETE FROM ONLY {contribution} AS staged USING {crowded} AS crowded"
        " WHERE staged.ctid = crowded._place RETURNING staged.*),"
        " folded AS ({folded}),"
        " stored AS (INSERT INTO {contribution} ({stored}, _attempt_id)"
        " SELECT {stored}, (SELECT header.attempt_id FROM reliability.contribution AS header"
        " WHERE {header} AND header.txid = folded._txid) FROM folded RETURNING _txid),"
        " moved AS (SELECT _txid, sum(row)::bigint AS rows FROM"
        " (SELECT _txid, -1 AS row FROM taken UNION ALL SELECT _txid, 1 FROM stored) AS each"
        " GROUP BY _txid),"
        " counted AS (UPDATE reliability.contribution AS header SET rows = header.rows + moved.rows"
        " FROM moved WHERE {header} AND header.txid = moved._txid)"
        " SELECT (SELECT count(*) FROM taken) AS taken, (SELECT count(*) FROM stored) AS stored",
        crowded=_CROWDED,
        folded=fold_by_key(
            (*tables.columns, *_FOLDED_TOO), names(tables.key), SQL("taken"), staged="taken"
        ),
        stored=names([*tables.column_types(), *(column.name for column in _FOLDED_TOO)]),
    )
