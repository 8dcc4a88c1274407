"""Delete the rows of erased persons from the tables of a state (H12).

What goes from a row's contributions goes from its header too, so that both still agree. Each row of
the target that goes, goes whole: all its contributions are of the same person.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg2.sql import SQL, Composable, Composed, Identifier, Literal

from reliability.core.erasure import INTEGERS, ErasedKeys, type_of_person
from reliability.core.errors import EraseNotPossible
from reliability.core.statement_key import StateKey
from reliability.states.headers import format_header, wrong_headers
from reliability.states.tables import TXID, StateTables, attempt_table_of

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction, Row
    from reliability.states.kinds.stored import StoredState


#: as `comparable` writes a uuid in whatever notation; of the persons, only uuids differ from it
_DIGITS = """lower(translate(row.{column}::text COLLATE "C", '-{{}}', ''))"""
_UUID = "text <> value"
_IS_UUID = f"{_DIGITS} = ANY (ARRAY(SELECT text FROM {{persons}} AND {_UUID}))"


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
    tables: StoredState,
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
            for delete in _deletions(tables, tables.target, column):
                of_target += tx.all(delete)
        for table in (tables.contribution, *map(attempt_table_of, attempt_tables)):
            for delete in _deletions(tables, table, column):
                staged += tx.all(delete)
        _check_gone(tx, tables, column)
    key = StateKey(tables.topology, tables.name)
    gone = staged if tables.keeps_staged_rows else of_target
    counted = _shrink_headers(tx, key, gone)
    if gone and tables.has_headers:
        _check_counted(tx, tables, [row["txid"] for row in gone])
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


def _check_counted(tx: DatabaseTransaction, tables: StateTables, txids: Sequence[int]) -> None:
    """Raise if a header counts fewer rows than there are: it had not counted what is gone."""
    for header in wrong_headers(tx, tables, after=min(txids) - 1, through=max(txids)):
        if header["found"] > header["rows"]:
            raise EraseNotPossible(
                f"state {tables.name}: {format_header(header)}; it had not counted what is gone",
                remedy="delete what is surplus by hand, such as the person's rows that a backup of "
                "this table alone has brought back. Then erase again.",
            )


def _check_gone(tx: DatabaseTransaction, tables: StateTables, column: str) -> None:
    """Raise if rows have stayed: a trigger that returns NULL keeps them back without a word."""
    for table in (tables.contribution, *([] if tables.is_view else [tables.target])):
        for condition in _conditions(tables, column):
            query = SQL(f"SELECT count(*) AS rows FROM {{table}} AS row WHERE {condition}")
            left = tx.one(query.format(table=table, **_parts(tables, column)))["rows"]
            if left:
                raise EraseNotPossible(
                    f"{'.'.join(table.strings)}: {left:,} rows of the persons are still there; a "
                    "trigger or a rule of the table keeps rows back",
                    remedy="let it take them; for a trigger, ALTER TABLE … DISABLE TRIGGER …. "
                    "Then erase again.",
                )


def _conditions(tables: StateTables, column: str) -> list[str]:
    """Return the conditions for the rows of persons; a text may have a uuid in other notations."""
    conditions = ["row.{column} = ANY (ARRAY(SELECT CAST(value AS {cast}) FROM {persons}))"]
    if type_of_person(tables.state, column) not in (*INTEGERS, "uuid"):
        conditions.append(f"EXISTS (SELECT FROM {{persons}} AND {_UUID}) AND {_IS_UUID}")
    return conditions


def _parts(tables: StateTables, column: str) -> dict[str, Composable]:
    type_ = type_of_person(tables.state, column)
    cast = SQL("bigint" if type_ in INTEGERS else type_ or "text")
    return {"column": Identifier(column), "cast": cast, "persons": _persons(column)}


def _deletions(tables: StateTables, table: Identifier, column: str) -> Iterator[Composed]:
    """Delete the persons' rows from a table, and count them by attempt.

    The array is there before the rows are looked for, so an index over the column is used. Where a
    text may have a uuid in another notation, all rows are read.
    """
    has_attempt = table is not tables.target or "_attempt_id" in tables.target_columns()
    for condition in _conditions(tables, column):
        yield SQL(
            f"WITH gone AS (DELETE FROM {{table}} AS row WHERE {condition}"
            " RETURNING {txid} AS txid, {attempt_id} AS attempt_id)"
            " SELECT txid, attempt_id, count(*) AS rows FROM gone GROUP BY 1, 2"
        ).format(
            table=table,
            **_parts(tables, column),
            txid=Identifier(TXID),
            attempt_id=Identifier("_attempt_id") if has_attempt else SQL("NULL::integer"),
        )


def _persons(column: str) -> Composed:
    return SQL("pg_temp.persons WHERE column_name = {}").format(Literal(column))


def count_shown(tables: StateTables, column: str, shown: Iterable[str]) -> Composed:
    """Count the rows of the target, and contributions, that show a person in these columns."""
    has_person = {
        name: SQL(
            "lower(row.{column}::text) = ANY (ARRAY(SELECT lower(value) FROM {persons}))"
            f" OR {_IS_UUID}"
        ).format(column=Identifier(name), persons=_persons(column))
        for name in shown
    }
    staged = [name for name in has_person if name in tables.contribution_columns()]
    return SQL(
        "SELECT (SELECT count(*) FROM {target} AS row WHERE {in_target})"
        " + (SELECT count(*) FROM {contribution} AS row WHERE {in_staged}) AS rows"
    ).format(
        target=tables.target,
        contribution=tables.contribution,
        in_target=SQL(" OR ").join(has_person.values()),
        in_staged=SQL(" OR ").join(has_person[name] for name in staged),
    )


def count_erased(tables: StateTables, column: str, known: ErasedKeys) -> Composed:
    """Count the rows of the target whose column has the hash of an erased person."""
    text = SQL(
        "CASE WHEN {digits} ~ '^[0-9a-f]{{32}}$' THEN {digits} ELSE row.{column}::text END"
    ).format(digits=SQL(_DIGITS).format(column=Identifier(column)), column=Identifier(column))
    hashed = SQL("encode(sha256(convert_to({salt} || {text}, 'UTF8')), 'hex') = ANY ({hashes})")
    terms = [
        hashed.format(salt=Literal(salt), text=text, hashes=Literal(sorted(hashes)))
        for salt, hashes in known.hashes[column].items()
    ]
    return tables.sql(
        "SELECT count(*) AS rows FROM {target} AS row WHERE {known}", known=SQL(" OR ").join(terms)
    )


def values_where(tables: StateTables, column: str, condition: str) -> Composed:
    """Read the values of a column in the rows of the target that meet a user's condition."""
    return SQL("SELECT DISTINCT {}::text AS value FROM {} WHERE ({}\n)").format(
        Identifier(column), tables.target, SQL(condition.replace("%", "%%"))
    )
