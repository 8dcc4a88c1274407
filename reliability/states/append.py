"""Append: the rows of the target are the contribution, and nothing is kept twice (H6).

Staged rows move into the target when their attempt commits. There they say which txid and which
attempt they belong to, and keep their share of the accounting.
"""

from __future__ import annotations

from psycopg2.sql import SQL, Composed

from reliability.states.compose import names
from reliability.states.tables import StateTables


def move(tables: StateTables) -> Composed:
    """Move an attempt's staged rows into the target."""
    return SQL(
        "WITH moved AS (DELETE FROM {contribution}"
        " WHERE _txid = %(txid)s AND _attempt_id = %(attempt_id)s RETURNING {names})"
        " INSERT INTO {target} ({names}) SELECT {names} FROM moved"
    ).format(
        contribution=tables.contribution,
        target=tables.target,
        names=names(tables.staged_columns()),
    )


def take_out(tables: StateTables) -> Composed:
    """Delete the rows of the attempt that a replay replaces."""
    return SQL("DELETE FROM {} WHERE {}").format(tables.target, replaced_rows())


def replaced_rows() -> SQL:
    """Return the condition for these rows."""
    return SQL("_txid = %(txid)s AND _attempt_id = %(replaced_attempt)s")


def rows_not_older(tables: StateTables) -> Composed:
    """Count the rows of this txid or a later one: a first commit finds none (C3)."""
    return SQL("SELECT count(*) AS rows FROM {} WHERE _txid >= %(txid)s").format(tables.target)
