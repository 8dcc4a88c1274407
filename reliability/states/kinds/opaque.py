"""An OpaqueState: each row also has the value before its last txid, so that txid can be undone.

When a txid is repeated, Trident recomputes each key of the new batch from its previous value. A key
that the new batch lacks keeps what the discarded batch added. Here every row that the txid touched
is restored first, so such a key has its previous value again or is deleted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from psycopg2.sql import SQL, Composable, Composed, Identifier

from reliability.core.plan import ChangeKey
from reliability.states.compose import names
from reliability.states.kinds.transactional import StoredTransactional
from reliability.states.tables import TXID, StateTables, previous

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction, Row


class StoredOpaque(StoredTransactional):
    """Commits as a TransactionalState does, and can take out its last txid."""

    def replace(self, tx: DatabaseTransaction, key: ChangeKey, header: Row, sealed: int) -> None:
        """Undo the txid in every row that it touched last; apply the new contribution."""
        tables = self.tables
        self.remember(tx, key, reached(tables, also=tables.folded_attempt("attempt_id")))
        undone = sum(tx.run(statement, **key) for statement in undo(tables))
        self.check_taken_out(tables.target_name, key, header, undone)
        self.add(tx, key)

    def take_out_later(self, tx: DatabaseTransaction, key: ChangeKey) -> None:
        """Undo the one later txid; a row stores one step and cannot be undone twice."""
        last = replace(key, txid=key.txid + 1)
        self.remember(tx, last, reached(self.tables))
        for statement in undo(self.tables):
            tx.run(statement, **last)
        tx.run("end_history", **key)
        tx.run("drop_later_contributions", **key)

    def drop_commit_number(self, tx: DatabaseTransaction, key: ChangeKey) -> None:
        super().drop_commit_number(tx, key)
        tx.run(
            "end_history", **key.of_state(self.name)
        )  # the databases that undo it use their one step


def reached(tables: StateTables, also: Composable | None = None) -> Composed:
    """Read the keys of the rows that a txid touched last, and those of a new contribution."""
    last = SQL("SELECT {} FROM {} WHERE _txid = %(txid)s").format(names(tables.key), tables.target)
    if also is None:
        return last
    return SQL("{} UNION SELECT {} FROM ({}) AS added").format(last, names(tables.key), also)


def undo(tables: StateTables) -> list[Composed]:
    """Undo a txid in every row that it touched last: delete rows that it added, restore others.

    A row stores one step: after it is restored, its txid equals its previous txid, and it cannot be
    restored again.
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
