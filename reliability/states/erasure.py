"""Delete the rows of erased persons from the tables of a state (H12).

What goes from a row's contributions goes from its header too, so that both still agree. Each row of
the target that goes, goes whole: all its contributions are of the same person.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg2.sql import SQL, Composed, Identifier, Literal

from reliability.core.erasure import INTEGERS, ErasedKeys, type_of_person
from reliability.core.statement_key import StateKey
from reliability.states.tables import TXID, StateTables, attempt_table_of

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedRows:
    """How many rows of a state are gone.

    :param rows: of the target
    :param staged: contributions, and what attempts have staged that do not count
    """

    state: str
    rows: int
    staged: int


def erase_rows(
    tx: DatabaseTransaction,
    tables: StateTables,
    columns: Sequence[str],
    attempt_tables: Iterable[int],
) -> ErasedRows:
    """Delete the rows of the persons in pg_temp.persons.

    :param columns: those by which a row is a person's
    :param attempt_tables: the numbers of attempts' own tables
    """
    of_target: list[Row] = []
    staged: list[Row] = []
    for column in columns:
        if not tables.is_view:
            of_target += tx.all(_delete(tables, tables.target, column))
        for table in (tables.contribution, *map(attempt_table_of, attempt_tables)):
            staged += tx.all(_delete(tables, table, column))
    key = StateKey(tables.topology, tables.name)
    counted = _shrink_headers(tx, key, staged if tables.keeps_staged_rows else of_target)
    if txids := [row["txid"] for row in (*of_target, *staged)]:
        tx.run("forget_digests", txids=txids, **key)
    in_staged = sum(row["rows"] for row in staged)
    if tables.is_view:
        return ErasedRows(state=tables.name, rows=counted, staged=in_staged - counted)
    in_target = sum(row["rows"] for row in of_target)
    return ErasedRows(state=tables.name, rows=in_target, staged=in_staged)


def _shrink_headers(tx: DatabaseTransaction, key: StateKey, gone: Iterable[Row]) -> int:
    rows: dict[tuple[int, int | None], int] = {}
    for row in gone:
        attempt = row["txid"], row["attempt_id"]
        rows[attempt] = rows.get(attempt, 0) + row["rows"]
    shrunk = tx.one(
        "shrink_headers",
        txids=[txid for txid, _ in rows],
        attempt_ids=[attempt_id for _, attempt_id in rows],
        rows=[*rows.values()],
        **key,
    )
    return int(shrunk["rows"])


def _delete(tables: StateTables, table: Identifier, column: str) -> Composed:
    """Delete the persons' rows from a table, and count them by attempt.

    The array is there before the rows are looked for, so an index over the column is used.
    """
    has_attempt = table is not tables.target or "_attempt_id" in tables.target_columns()
    type_ = type_of_person(tables.state, column)
    return SQL(
        "WITH gone AS (DELETE FROM {table} AS row WHERE row.{column} = ANY (ARRAY("
        "SELECT CAST(value AS {type}) FROM pg_temp.persons WHERE column_name = {name}))"
        " RETURNING {txid} AS txid, {attempt_id} AS attempt_id)"
        " SELECT txid, attempt_id, count(*) AS rows FROM gone GROUP BY 1, 2"
    ).format(
        table=table,
        column=Identifier(column),
        type=SQL("bigint" if type_ in INTEGERS else type_ or "text"),
        name=Literal(column),
        txid=Identifier(TXID),
        attempt_id=Identifier("_attempt_id") if has_attempt else SQL("NULL::integer"),
    )


def count_shown(tables: StateTables, column: str) -> Composed:
    """Count the rows of the target, and contributions, that show a person as a value."""
    shown = "SELECT FROM {} WHERE lower({}::text) = ANY (ARRAY({}))"
    values = SQL("SELECT lower(value) FROM pg_temp.persons WHERE column_name = {}").format(
        Literal(column)
    )
    each = [
        SQL(shown).format(table, Identifier(column), values)
        for table in (tables.target, tables.contribution)
    ]
    return SQL(
        "SELECT (SELECT count(*) FROM ({}) AS t) + (SELECT count(*) FROM ({}) AS c) AS rows"
    ).format(*each)


def count_erased(tables: StateTables, column: str, known: ErasedKeys) -> Composed:
    """Count the rows of the target whose column has the hash of an erased person."""
    text = SQL("{}::text").format(Identifier(column))
    if column in known.uuids:
        text = SQL("replace({}, '-', '')").format(text)
    hashed = SQL("encode(sha256(convert_to({salt} || {text}, 'UTF8')), 'hex') = ANY ({hashes})")
    terms = [
        hashed.format(salt=Literal(salt), text=text, hashes=Literal(sorted(hashes)))
        for salt, hashes in known.hashes[column].items()
    ]
    return tables.sql(
        "SELECT count(*) AS rows FROM {target} WHERE {known}", known=SQL(" OR ").join(terms)
    )


def values_where(tables: StateTables, column: str, condition: str) -> Composed:
    """Read the values of a column in the rows of the target that meet a user's condition."""
    return SQL("SELECT DISTINCT {}::text AS value FROM {} WHERE ({}\n)").format(
        Identifier(column), tables.target, SQL(condition.replace("%", "%%"))
    )
