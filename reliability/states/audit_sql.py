"""The SQL of audits, and how it is run.

An audit becomes a query that returns the rows which violate it. One of a contribution reads
`_contribution`, which is put before it when it runs: the staged rows of one attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from psycopg2.sql import SQL, Composable, Composed, Identifier, Literal

from reliability.core.attempt import TransactionAttempt
from reliability.core.audits import (
    CONTRIBUTION_PLACE,
    TABLE_PLACE,
    Audit,
    AuditOutcome,
    InRange,
    NotNull,
    Of,
    Query,
    References,
    Unique,
)
from reliability.core.sqlstate import QUALIFY, lacks_schema
from reliability.core.types import base_type
from reliability.states.compose import computed, fold_by_key, names
from reliability.states.tables import StateTables

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction

logger = logging.getLogger(__name__)

# One of a table holds the topology's lock, for which others wait as long.
MAX_SECONDS = 300
_CONTRIBUTION = Identifier("_contribution")


def query_of(audit: Audit, tables: StateTables) -> Composed:
    """Return the query whose rows are the violations."""
    rows = tables.target if audit.of is Of.TABLE else _CONTRIBUTION
    match audit:
        case NotNull(columns=columns):
            return _rows_where(
                SQL(" OR ").join(SQL("{} IS NULL").format(Identifier(c)) for c in columns),
                columns,
                rows,
                tables,
            )
        case InRange(columns=(column,), least=least, most=most):
            sides = [("<", least), (">", most)]
            outside = [
                SQL("{} {} {}").format(Identifier(column), SQL(side), Literal(bound))
                for side, bound in sides
                if bound is not None
            ]
            return _rows_where(SQL(" OR ").join(outside), [column], rows, tables)
        case Unique(columns=columns):
            return SQL(
                "SELECT {columns}, count(*) AS times FROM {rows} WHERE {known}"
                " GROUP BY {columns} HAVING count(*) > 1"
            ).format(
                columns=names(columns),
                rows=rows,
                known=SQL(" AND ").join(
                    SQL("{} IS NOT NULL").format(Identifier(column)) for column in columns
                ),
            )
        case References(columns=(column,), to=(schema, table, referenced)):
            missing = SQL(
                "{column} IS NOT NULL AND NOT EXISTS"
                " (SELECT FROM {table} AS _referenced WHERE _referenced.{referenced} = {column})"
            ).format(
                column=Composed([rows, SQL("."), Identifier(column)]),
                table=Identifier(schema, table),
                referenced=Identifier(referenced),
            )
            return _rows_where(missing, [column], rows, tables)
        case Query(sql=sql):
            first, *others = sql.split(CONTRIBUTION_PLACE if rows is _CONTRIBUTION else TABLE_PLACE)
            parts = (part for other in others for part in (rows, SQL(other)))
            return Composed([SQL(first), *parts])
    raise TypeError(f"{audit!r} is of no known kind")


def _rows_where(
    condition: Composable, columns: Iterable[str], rows: Identifier, tables: StateTables
) -> Composed:
    """Read the key and the columns of the audit of the rows that violate it."""
    shown = dict.fromkeys([*tables.state.key, *columns])
    return SQL("SELECT {} FROM {} WHERE {}").format(names(shown), rows, condition)


def audits_contribution(query: str, tables: StateTables, attempt: TransactionAttempt) -> Composed:
    """Put the staged rows of an attempt before the query of an audit.

    :param tables: with the attempt's own table, if it has had one before it was sealed
    """
    rows = SQL("{staged} AS staged WHERE _txid = {txid} AND _attempt_id = {attempt_id}").format(
        # The seal may have moved the rows to where the others are; who reads those reads both.
        staged=tables.contribution if tables.attempt_tables_inherit else tables.staged,
        txid=Literal(attempt.txid),
        attempt_id=Literal(attempt.attempt_id),
    )
    # Texts that differ in Spark may be one key in Postgres: `AB…` and `ab…`, `1.0` and `1.00`.
    bases = {base_type(type_)[0] for type_ in tables.state.key.values()}
    if not tables.state.is_append and not bases.isdisjoint(("uuid", "jsonb", "numeric")):
        folded = fold_by_key(tables.columns, names(tables.key), rows, staged="staged")
        rows = SQL("({}) AS folded").format(folded)
    values = [column for column in tables.state.all_columns() if column.name in tables.state.values]
    return SQL(
        "WITH {contribution} AS NOT MATERIALIZED (SELECT {columns} FROM {rows})"
        " SELECT * FROM ({query}\n) AS violation"
    ).format(
        contribution=_CONTRIBUTION,
        columns=SQL(", ").join([*map(Identifier, tables.state.key), *map(computed, values)]),
        rows=rows,
        query=SQL(query),
    )


def run_audit(tx: DatabaseTransaction, query: str, seconds: float = MAX_SECONDS) -> dict[str, Any]:
    """Run the query of an audit, which can change nothing; return that part of its outcome.

    :param seconds: how long it and the next statements may take
    """
    tx.queue("limit_statements", seconds=min(seconds, MAX_SECONDS))
    row = tx.one("find_violations", query=query)
    problem = row["problem"]
    if problem and lacks_schema(row["error_code"], problem):
        problem = f"{problem}; {QUALIFY}"
    examples = tuple(row["examples"] or ())
    return {**tx.storable({**row, "examples": examples, "problem": problem})}


def log_violations(subject: str, outcomes: Iterable[AuditOutcome]) -> None:
    """Log each audit that is violated, in one line; `subject` says by what."""
    for outcome in outcomes:
        if outcome.is_violated:
            logger.warning("%s: %s", subject, outcome)
