"""A replay in an OpaqueState: the last txid is undone, and the new contribution is applied.

Trident recomputes a key from its previous value when the same txid comes again; a key that the
new batch lacks keeps what the discarded batch gave it. Here every row that the txid touched
goes back first, so that such a key has its previous value again, or is gone.
"""

from __future__ import annotations

from psycopg2.sql import SQL, Composable, Composed, Identifier

from reliability.states.compose import names
from reliability.states.tables import TXID, StateTables, previous


def reached(tables: StateTables, also: Composable | None = None) -> Composed:
    """Read the keys of the rows that a txid touched last, and those of a new contribution."""
    last = SQL("SELECT {} FROM {} WHERE _txid = %(txid)s").format(names(tables.key), tables.target)
    if also is None:
        return last
    return SQL("{} UNION SELECT {} FROM ({}) AS added").format(last, names(tables.key), also)


def undo(tables: StateTables) -> list[Composed]:
    """Take a txid out of every row that it touched last: rows that it made go, others go back.

    A row remembers one step: after it went back, its txid is its previous txid, and it cannot go
    back again.
    """
    made = SQL("DELETE FROM {} WHERE _txid = %(txid)s AND {} IS NULL").format(
        tables.target, Identifier(previous(TXID))
    )
    restored = SQL(
        "UPDATE {target} SET {values} WHERE _txid = %(txid)s AND {previous_txid} < _txid"
    ).format(
        target=tables.target,
        values=SQL(", ").join(
            SQL("{} = {}").format(Identifier(name), Identifier(previous(name)))
            for name in (*tables.value_names(), TXID)
        ),
        previous_txid=Identifier(previous(TXID)),
    )
    return [made, restored]
