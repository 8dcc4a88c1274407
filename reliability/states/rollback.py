"""A rollback: what the txids after one have added to a state is taken out of it (H4)."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg2.sql import SQL, Composed

from reliability.states.compose import names
from reliability.states.swap import CHANGED, Pattern, from_contributions, kept, replace_rows
from reliability.states.tables import StateTables


def later_keys(tables: StateTables) -> Composed:
    """Collect the keys that later txids have touched, while headers still name what is kept."""
    return SQL(
        "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS"
        " SELECT row_number() OVER () AS _number, later.* FROM"
        " (SELECT DISTINCT {} FROM ({}) AS kept WHERE _txid > %(txid)s) AS later"
    ).format(CHANGED, names(tables.key), kept(tables))


def recompute(tables: StateTables, patterns: Sequence[Pattern]) -> list[Composed]:
    """Work out the collected keys from the contributions that are left, and write them."""
    return replace_rows(tables, from_contributions(tables, patterns))


def take_out_later(tables: StateTables) -> Composed:
    """Delete the rows that later txids have appended."""
    return SQL("DELETE FROM {} WHERE {}").format(tables.target, later_rows())


def later_rows() -> SQL:
    """Return the condition for these rows."""
    return SQL("_txid > %(txid)s")
