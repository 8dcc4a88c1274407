"""A view of appended rows: a header makes an attempt's rows count, and none is moved (H11).

The rows stay where they were staged. A commit inserts the header that names their attempt, a replay
changes it, a rollback deletes it. A sweep deletes what no header names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg2.sql import SQL, Composable, Composed

from reliability.core.plan import ChangeKey
from reliability.states import attempt_table
from reliability.states.kinds.append import NO_ROWS, StoredRows, replaced_rows
from reliability.states.kinds.compare_rows import REACHED
from reliability.states.tables import StateTables, header_of

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction


class ViewedRows(StoredRows):
    """A state whose target is a view of the staged rows."""

    def append_staged(self, tx: DatabaseTransaction, key: ChangeKey) -> None:
        """Leave the rows where they are; the header of the commit shows them."""
        if self._sealed.attempt_table is not None:
            attempt_table.keep(tx, self._sealed.attempt_table)

    def is_as_written(self, tx: DatabaseTransaction, key: ChangeKey) -> bool:
        """Return whether the replaced attempt's rows are as Spark's tasks have written them.

        A task acks in the transaction that writes its rows. No trigger of a user's is on the view.
        """
        statement = SQL(
            "SELECT NOT EXISTS (SELECT FROM {contribution} WHERE {replaced} AND xmin NOT IN"
            " (SELECT ack.xmin FROM reliability.ack WHERE ack.topology = %(topology)s"
            " AND ack.txid = %(txid)s AND ack.attempt_id = %(replaced_attempt)s"
            " AND ack.sink = %(state)s)) AS is_as_written"
        ).format(contribution=self.tables.contribution, replaced=replaced_rows())
        return bool(tx.one(statement, **key)["is_as_written"])

    def take_out(self, tx: DatabaseTransaction, key: ChangeKey) -> int:
        """Count the rows of the replaced attempt; they are shown until the header changes."""
        replaced = {"txid": key.txid, "attempt_id": key.replaced_attempt}
        rows: int = tx.one(rows_of_attempt(self.tables), **replaced)["rows"]
        return rows

    def delete_later(self, tx: DatabaseTransaction, key: ChangeKey) -> None:
        """Leave the rows: without headers, they are not shown."""

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

    def remember(self, tx: DatabaseTransaction, key: ChangeKey, rows: Composable) -> None:
        """Save the headers whose rows are taken out; the rows themselves stay."""
        statement = SQL(
            "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT * FROM ("
            "SELECT txid AS _txid, attempt_id AS _attempt_id, rows AS _rows"
            " FROM reliability.contribution AS header WHERE {}) AS headers WHERE {}"
        )
        tx.run(statement.format(REACHED, header_of(self.tables), rows), **key)


def rows_of_attempt(tables: StateTables) -> Composed:
    """Count an attempt's rows, wherever they were staged."""
    return SQL(
        "SELECT count(*) AS rows FROM {} WHERE _txid = %(txid)s AND _attempt_id = %(attempt_id)s"
    ).format(tables.contribution)
