"""An OpaqueState: each row also has the value before its last txid, so that txid can be undone.

When a txid is repeated, Trident recomputes each key of the new batch from its previous value. A key
that the new batch lacks keeps what the discarded batch added. Here every row that the txid touched
is restored first, so such a key has its previous value again or is deleted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from psycopg2.sql import Composable, Composed, Identifier

from reliability.core.column import hidden
from reliability.core.plan import PlannedChange
from reliability.states.compose import assigned
from reliability.states.kinds.stored import Change, Effect, Sealed
from reliability.states.kinds.transactional import StoredTransactional
from reliability.states.tables import TXID, TableColumn

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction, Row


class StoredOpaque(StoredTransactional):
    """Commits as a TransactionalState does, and can take out its last txid."""

    def target_columns(self) -> dict[str, TableColumn]:
        columns = super().target_columns()
        values = {previous(c.name): TableColumn.of(c) for c in self.columns}
        return columns | values | {previous(TXID): TableColumn("bigint")}

    def also_changed(self) -> dict[str, Composable]:
        """As in Trident's OpaqueValue, a newer txid makes the current value the previous one."""
        columns = (*self.value_names(), TXID)
        return {previous(name): Identifier("target", name) for name in columns}

    def replace(self, change: Change, header: Row, sealed: Sealed) -> Effect:
        """Undo the txid in every row that it touched last; apply the new contribution."""
        new = self.sql(" UNION SELECT {key} FROM ({added}) AS added", added=self.folded_attempt())
        self.remember(change, self._last_keys() + new)
        self.check_taken_out(self.target_name, change.key, header, self._undo(change))
        self.add(change)
        return Effect()

    def take_out_later(self, change: Change) -> Effect:
        """Undo the one later txid; a row stores one step and cannot be undone twice."""
        last = Change(change.tx, replace(change.key, txid=change.key.txid + 1))
        touched = self.remember(last, self._last_keys())
        self.check_written(self._undo(last), touched)
        change.run("end_history")
        change.run("drop_later_contributions")
        return Effect()

    def drop_commit_number(self, tx: DatabaseTransaction, key: PlannedChange) -> None:
        """Do so; the databases that undo what this one lacks use their one step."""
        self._advance(tx, key).run("end_history")

    def _last_keys(self) -> Composed:
        """Read the keys of the rows that a txid touched last."""
        return self.sql("SELECT {key} FROM {target} WHERE _txid = %(txid)s")

    def _undo(self, change: Change) -> int:
        """Undo a txid in every row that it touched last: delete rows that it added, restore others.

        A row stores one step: after it is restored, its txid equals its previous txid, and it
        cannot be restored again.

        :returns: the number of these rows
        """
        previous_txid = Identifier(previous(TXID))
        added = change.run(
            self.sql(
                "DELETE FROM {target} WHERE _txid = %(txid)s AND {previous_txid} IS NULL",
                previous_txid=previous_txid,
            )
        )
        return added + change.run(
            self.sql(
                "UPDATE {target} SET {values} WHERE _txid = %(txid)s AND {previous_txid} < _txid",
                values=assigned(
                    {name: Identifier(previous(name)) for name in (*self.value_names(), TXID)}
                ),
                previous_txid=previous_txid,
            )
        )


def previous(column: str) -> str:
    """Return the hidden column with an OpaqueState's value before the row's last txid."""
    return hidden(column, "previous")
