"""Storm's non-transactional map state, for comparison: nothing tells it what it has applied."""

from __future__ import annotations

from psycopg2.sql import SQL

from reliability.states.kinds.keyed import KeyedState
from tests.support.one_state import OneState


class NonTransactional(OneState):
    """The same tables and the same SQL, without the check of a row's txid and without history."""

    def change(self, txid: int, attempt_id: int, replaced: int | None) -> None:
        assert isinstance(self.tables, KeyedState)
        added = self.tables.folded_attempt()
        statement = SQL("WITH added AS MATERIALIZED ({}) {}").format(added, self.tables.combine())
        place = {"txid": txid, "attempt_id": attempt_id}
        self.tx.run(statement, **place)
        self.tx.run(self.tables.clean(), **place)
        self.attempts[txid] = attempt_id
