"""A view of appended rows: a header makes an attempt's rows count, and none is moved (H11).

The rows stay where they were staged. A commit inserts the header that names their attempt, a replay
changes it, a rollback deletes it. A sweep deletes what no header names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg2.sql import SQL, Composable, Composed

from reliability.core.plan import ChangeKey
from reliability.states import attempt_table
from reliability.states.headers import check_headers
from reliability.states.kinds.append import NEW_ROWS, NO_ROWS, StoredRows
from reliability.states.kinds.difference import REACHED
from reliability.states.tables import StateTables, header_of

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction, Row


class ViewedRows(StoredRows):
    """A state whose target is a view of the staged rows."""

    def append_staged(self, tx: DatabaseTransaction, key: ChangeKey) -> None:
        """Leave the rows where they are; the header of the commit shows them."""
        if self._sealed.attempt_table is not None:
            attempt_table.keep(tx, self._sealed.attempt_table)

    def replace(self, tx: DatabaseTransaction, key: ChangeKey, header: Row, sealed: int) -> None:
        """Let the header name the new attempt, whose rows are there already."""
        is_same = tx.one("stages_the_same", **key)["is_same"]
        self._new = NO_ROWS if is_same else NEW_ROWS
        replaced = {"txid": key.txid, "attempt_id": key.replaced_attempt}
        found = tx.one(rows_of_attempt(self.tables), **replaced)["rows"]
        self.check_taken_out(self.tables.target_name, key, header, found)
        self._remember_headers(tx, key, NO_ROWS if is_same else SQL("txid = %(txid)s"))
        self.append_staged(tx, key)
        tx.one("move_contribution", **key, **self.header(sealed))

    def take_out_later(self, tx: DatabaseTransaction, key: ChangeKey) -> None:
        """Delete the headers of later txids."""
        check_headers(tx, self.tables, after=key.txid)
        self._new = NO_ROWS
        self._remember_headers(tx, key, SQL("txid > %(txid)s"))
        tx.run("drop_later_contributions", **key)

    def count_changed_rows(self) -> Composed:
        """Without new rows, count those taken out by their headers."""
        if self._new is not NO_ROWS:
            return super().count_changed_rows()
        return SQL(
            "SELECT 0 AS rows_added, 0 AS rows_changed,"
            " coalesce(sum(_rows), 0)::bigint AS rows_removed, '{{}}'::jsonb AS moved FROM {}"
        ).format(REACHED)

    def reached(self) -> Composable:
        return SQL("(SELECT * FROM {} JOIN {} USING (_txid, _attempt_id)) AS reached").format(
            self.tables.contribution, REACHED
        )

    def _remember_headers(
        self, tx: DatabaseTransaction, key: ChangeKey, condition: Composable
    ) -> None:
        """Save the headers whose rows are taken out; the rows themselves stay."""
        statement = SQL(
            "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT txid AS _txid,"
            " attempt_id AS _attempt_id, rows AS _rows FROM reliability.contribution AS header"
            " WHERE {} AND {}"
        )
        tx.run(statement.format(REACHED, header_of(self.tables), condition), **key)


def rows_of_attempt(tables: StateTables) -> Composed:
    """Count an attempt's rows, wherever they were staged."""
    return SQL(
        "SELECT count(*) AS rows FROM {} WHERE _txid = %(txid)s AND _attempt_id = %(attempt_id)s"
    ).format(tables.contribution)
