"""A view of appended rows: a header makes an attempt's rows count, and none is moved (H11).

The rows stay where they were staged. A commit inserts the header that names their attempt, a replay
changes it, a rollback deletes it. A sweep deletes what no header names.
"""

from __future__ import annotations

from collections.abc import Collection

from psycopg2.sql import SQL, Composable, Composed, Identifier

from reliability.states.compose import names
from reliability.states.kinds.append import IS_OF_NO_RESTORE, REPLACED_ROWS, StoredRows
from reliability.states.kinds.stored import REACHED, Change, Effect, Sealed
from reliability.states.tables import BOOKKEEPING, TableColumn


class ViewedRows(StoredRows):
    """A state whose target is a view of the staged rows."""

    is_view = True
    attempt_tables_inherit = True
    rights_on_target = ""

    def target_columns(self) -> dict[str, TableColumn]:
        """Return the columns of the view; one that is added comes last."""
        columns = BOOKKEEPING | self.key_and_values()
        return {name: TableColumn(column.type) for name, column in columns.items()}

    def create_target(self) -> Composed:
        by_key = [self.sql("CREATE INDEX ON {contribution} ({key})")] if self.key else []
        return SQL(";").join([self.create_view(), *by_key])

    def index_target(self) -> list[Composed]:
        return []

    def drop(self) -> Composed:
        return self.drop_view() + SQL("; ") + self.drop_contributions()

    def make_ordinary(self, there: Collection[str]) -> list[Composed]:
        """Put a table with its rows in the place of the view, whose grants go with it."""
        left = Identifier(self.state.target[0], " reliability left")
        shown = names(self.shown)
        return [
            self.sql("CREATE TABLE {left} AS SELECT {shown} FROM {target}", left=left, shown=shown),
            self.drop_view(),
            self.sql(
                "ALTER TABLE {left} RENAME TO {name}",
                left=left,
                name=Identifier(self.state.target[1]),
            ),
        ]

    def append_staged(self, change: Change, sealed: Sealed) -> None:
        """Leave the rows where they are; the header of the commit shows them."""
        if sealed.own.attempt_table is not None:  # let VACUUM work on it
            change.tx.run("keep_attempt_table", table_id=sealed.own.attempt_table)

    def is_as_written(self, change: Change) -> bool:
        """Return whether the replaced attempt's rows are as Spark's tasks have written them.

        A task acks in the transaction that writes its rows. No trigger of a user's is on the view.
        """
        statement = self.sql(
            "SELECT NOT EXISTS (SELECT FROM {contribution} WHERE {replaced} AND xmin NOT IN"
            " (SELECT header.xmin FROM reliability.ack AS header"
            " WHERE header.topology = %(topology)s AND header.txid = %(txid)s"
            " AND header.attempt_id = %(replaced_attempt)s"
            " AND header.sink = %(state)s AND {is_of_no_restore})) AS is_as_written",
            replaced=REPLACED_ROWS,
            is_of_no_restore=IS_OF_NO_RESTORE,
        )
        return bool(change.one(statement)["is_as_written"])

    def take_out(self, change: Change) -> int:
        """Count the rows of the replaced attempt; they are shown until the header changes."""
        rows: int = change.one(
            self.sql("SELECT count(*) AS rows FROM {contribution} WHERE {rows}", rows=REPLACED_ROWS)
        )["rows"]
        return rows

    def delete_later(self, change: Change, later: int) -> None:
        """Leave the rows: without headers, they are not shown."""

    def count_changed_rows(self, effect: Effect) -> Composed:
        """Without new rows, count those taken out by their headers."""
        if effect.has_new_rows:
            return super().count_changed_rows(effect)
        return SQL(
            "SELECT 0 AS rows_added, 0 AS rows_changed,"
            " coalesce(sum(_rows), 0)::bigint AS rows_removed, '{{}}'::jsonb AS moved FROM {}"
        ).format(REACHED)

    def reached(self) -> Composable:
        return self.sql(
            "(SELECT * FROM {contribution} JOIN {reached} USING (_txid, _attempt_id)) AS reached",
            reached=REACHED,
        )

    def remember(self, change: Change, rows: Composable) -> int:
        """Save the headers whose rows are taken out; the rows themselves stay."""
        return change.run(
            self.sql(
                "CREATE TEMPORARY TABLE {reached} ON COMMIT DROP AS SELECT * FROM ("
                "SELECT txid AS _txid, attempt_id AS _attempt_id, rows AS _rows"
                " FROM reliability.contribution AS header WHERE {header}) AS headers WHERE {rows}",
                reached=REACHED,
                rows=rows,
            )
        )
