"""Compaction: for all txids beyond the horizon together, keep one row per key.

The row of a key has the last of these txids that contributed to the key. So the txid of a target
row can still be computed from the kept rows. A key that does not occur again is not written again:
a compaction costs as much as the txids that it folds contributed, independent of the state's size.
Their rows are all in the contributions' own table: those of attempts' tables were moved there.
Ties keep their winner, because every later txid is greater than all folded ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from psycopg2.sql import SQL, Composed, Identifier

from reliability.core.column import Column
from reliability.core.types import greatest_of
from reliability.states.compose import fold_by_key, names, null_patterns, same_key_by
from reliability.states.tables import StateTables, header_of

_TOUCHED = Identifier("pg_temp", "touched")
_CROWDED = Identifier("pg_temp", "crowded")
_FOLDED_TOO = (
    Column(name="_txid", type="bigint", spark="", fold="max({staged._txid})"),
    Column(name="_x", type="bigint", spark="", fold="bit_xor({staged._x})"),
    Column(name="_n", type="bigint", spark="", fold="sum({staged._n})"),
)


def touched_keys(tables: StateTables) -> Composed:
    """Collect the keys of the txids after %(after)s up to %(through)s."""
    return SQL(
        "CREATE TEMPORARY TABLE {touched} ON COMMIT DROP AS"
        " SELECT row_number() OVER () AS _number, {key} FROM"
        " (SELECT DISTINCT {key} FROM ONLY {contribution} AS staged"
        " WHERE _txid > %(after)s AND _txid <= %(through)s AND {counts}) AS touched"
    ).format(
        touched=_TOUCHED,
        key=names(tables.key),
        contribution=tables.contribution,
        counts=counts(tables, "staged"),
    )


def patterns_of_touched(tables: StateTables) -> Composed:
    """Read which columns are NULL together in the collected keys."""
    return null_patterns(tables.key, _TOUCHED)


def crowded_rows(tables: StateTables, patterns: Iterable[Mapping[str, bool]]) -> Composed:
    """Collect all rows up to %(through)s of the keys that have more than one.

    Leave out keys whose sums do not fit into one row: after a replay a sum may exceed its type, and
    fit again only together with the contributions of later txids.

    The keys of each pattern are joined separately, so that a column is either compared or NULL.
    With one comparison for both cases, every key would be compared with all rows that have NULL.

    :param patterns: the rows of `patterns_of_touched`
    """
    fit = [
        SQL("coalesce(abs(sum({}) OVER same_key) <= {}, true)").format(_summed(name), SQL(most))
        for name, most in _limited_sums(tables).items()
    ]
    return SQL(
        "CREATE TEMPORARY TABLE {crowded} ON COMMIT DROP AS SELECT place FROM"
        " (SELECT place, count(*) OVER same_key AS rows, {fit} AS fit"
        " FROM ({rows} OFFSET 0) AS own WHERE {counts}"
        " WINDOW same_key AS (PARTITION BY _number)) AS of_key WHERE rows > 1 AND fit"
    ).format(
        crowded=_CROWDED,
        fit=SQL(" AND ").join(fit or [SQL("true")]),
        rows=SQL(" UNION ALL ").join(_rows_of(tables, pattern) for pattern in patterns),
        counts=counts(tables, "own"),
    )


def _limited_sums(tables: StateTables) -> dict[str, str]:
    """Return the columns whose sum may exceed their type, with the greatest value of the type."""
    sums = [c for c in tables.columns if c.is_exact_sum and not c.is_count]
    return {c.name: most for c in sums if (most := greatest_of(c.type))}


def _summed(column: str) -> Identifier:
    return Identifier(f"sum of {column}")


def _rows_of(tables: StateTables, pattern: Mapping[str, bool]) -> Composed:
    return SQL(
        "SELECT _number, staged.ctid AS place, _txid, _attempt_id{sums}"
        " FROM {touched} AS touched JOIN ONLY {contribution} AS staged ON {same_key}"
        " WHERE _txid <= %(through)s"
    ).format(
        sums=Composed(
            SQL(", {} AS {}").format(Identifier("staged", name), _summed(name))
            for name in _limited_sums(tables)
        ),
        touched=_TOUCHED,
        contribution=tables.contribution,
        same_key=same_key_by(pattern, "touched", "staged"),
    )


def fold_crowded(tables: StateTables) -> Composed:
    """Fold each key's collected rows to one, and update the number of rows in the headers.

    Returns how many rows were removed, and how many replace them.
    """
    stored = (*tables.column_types(), *(column.name for column in _FOLDED_TOO))
    return SQL(
        "WITH taken AS (DELETE FROM ONLY {contribution} AS staged USING {crowded} AS crowded"
        " WHERE staged.ctid = crowded.place RETURNING staged.*),"
        " folded AS ({folded}),"
        " stored AS (INSERT INTO {contribution} ({stored}, _attempt_id)"
        " SELECT {stored}, (SELECT header.attempt_id FROM reliability.contribution AS header"
        " WHERE {header} AND header.txid = folded._txid) FROM folded RETURNING _txid),"
        " moved AS (SELECT _txid, sum(row)::bigint AS rows FROM"
        " (SELECT _txid, -1 AS row FROM taken UNION ALL SELECT _txid, 1 FROM stored) AS each"
        " GROUP BY _txid),"
        " counted AS (UPDATE reliability.contribution AS header SET rows = header.rows + moved.rows"
        " FROM moved WHERE {header} AND header.txid = moved._txid)"
        " SELECT (SELECT count(*) FROM taken) AS taken, (SELECT count(*) FROM stored) AS stored"
    ).format(
        contribution=tables.contribution,
        crowded=_CROWDED,
        header=header_of(tables),
        folded=fold_by_key(
            (*tables.columns, *_FOLDED_TOO), names(tables.key), SQL("taken"), staged="taken"
        ),
        stored=names(stored),
    )


def forget() -> Composed:
    """Drop the temporary tables, because the next state of the transaction creates its own."""
    return SQL("DROP TABLE {}, {}").format(_TOUCHED, _CROWDED)


def wrong_rows(tables: StateTables) -> Composed:
    """Compare headers with the rows that exist, for txids after %(after)s up to %(through)s.

    Every appended row belongs to a header. A contributions' table also has staged rows without one.
    """
    return SQL(
        "SELECT coalesce(header.txid, found._txid) AS txid,"
        " coalesce(header.attempt_id, found._attempt_id) AS attempt_id,"
        " coalesce(header.rows, 0) AS rows, coalesce(found.rows, 0) AS found"
        " FROM (SELECT * FROM reliability.contribution AS header WHERE {header}"
        " AND txid > %(after)s AND txid <= %(through)s) AS header"
        " {kind} JOIN (SELECT _txid, _attempt_id, count(*) AS rows FROM {table}"
        " WHERE _txid > %(after)s AND _txid <= %(through)s GROUP BY 1, 2) AS found"
        " ON found._txid = header.txid AND found._attempt_id = header.attempt_id"
        " WHERE header.rows IS DISTINCT FROM coalesce(found.rows, 0) ORDER BY 1, 2"
    ).format(
        header=header_of(tables),
        kind=SQL("FULL" if tables.state.is_append else "LEFT"),
        table=tables.target if tables.state.is_append else tables.contribution,
    )


def counts(tables: StateTables, row: str) -> Composed:
    """Return the condition that a row counts as a contribution: its header names its attempt.

    OFFSET 0 makes Postgres check each row separately. Without statistics of the headers, a join
    might start with them and compare every key with every row.
    """
    return SQL(
        "EXISTS (SELECT FROM reliability.contribution AS header WHERE {header}"
        " AND header.txid = {txid} AND header.attempt_id = {attempt_id} OFFSET 0)"
    ).format(
        header=header_of(tables),
        txid=Identifier(row, "_txid"),
        attempt_id=Identifier(row, "_attempt_id"),
    )


def kept(tables: StateTables) -> Composed:
    """Read every committed contribution of this state, as named by the ledger's headers."""
    return SQL(
        "SELECT staged.* FROM {contribution} AS staged"
        " JOIN reliability.contribution AS header ON {header}"
        " AND header.txid = staged._txid AND header.attempt_id = staged._attempt_id"
    ).format(contribution=tables.contribution, header=header_of(tables))
