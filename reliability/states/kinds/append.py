"""Append: the rows of the target are the contribution, and no row is stored twice (H6).

Staged rows move into the target when their attempt commits; many are staged in a table of the
attempt's own (attempt_table.py). Each row keeps its txid, its attempt_id and its part of the
accounting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from psycopg2.sql import SQL, Composable, Composed, Identifier

from reliability.core.difference import ByHand
from reliability.core.errors import LedgerCorruption
from reliability.states import attempt_table
from reliability.states.compose import alias, aliased, names, of_both, qualified
from reliability.states.headers import check_headers
from reliability.states.kinds.stored import (
    MOST_EXAMPLES,
    REACHED,
    Change,
    Effect,
    Sealed,
    StoredState,
)
from reliability.states.tables import BOOKKEEPING, TableColumn
from reliability.states.verify_table import differing_of

if TYPE_CHECKING:
    from reliability.ledger.connection import Row

REPLACED_ROWS = SQL("_txid = %(txid)s AND _attempt_id = %(replaced_attempt)s")
IS_OF_NO_RESTORE = SQL("header.xmin NOT IN (SELECT m.xmin FROM reliability.migration AS m)")
LATER_ROWS = SQL("_txid > %(txid)s")
NO_ROWS = SQL("false")


class StoredRows(StoredState):
    """A state whose rows are only appended: staged rows move into the target."""

    attempt_tables_inherit = False
    rights_on_target = "SELECT, INSERT, DELETE"

    def target_columns(self) -> dict[str, TableColumn]:
        return self.key_and_values() | BOOKKEEPING

    def index_target(self) -> list[Composed]:
        # Rows are appended in the order of their txids. An index of every row would take a third
        # of a large commit, and only replays and rollbacks look rows up by their txid.
        by_txid = self.sql(
            "CREATE INDEX ON {target} USING brin (_txid, _attempt_id)"
            " WITH (pages_per_range = 32, autosummarize = on)"
        )
        return [by_txid, *([self.sql("CREATE INDEX ON {target} ({key})")] if self.key else [])]

    @property
    def shown(self) -> list[str]:
        """Return the columns that a reader sees."""
        return [*self.state.key, *self.state.values]

    # --- the changes -----------------------------------------------------------------------------

    def add(self, change: Change) -> None:
        """Append the staged rows behind those of all earlier txids (C3)."""
        sealed = self.sealed(change)
        last = change.one("last_contribution")["txid"]
        if last is not None and last >= change.key.txid:
            raise LedgerCorruption(
                f"{self.target_name}: txid {change.key.txid} cannot be appended after {last}"
            )
        self.append_staged(change, sealed)
        change.one("insert_contribution", **self.header(sealed.rows))

    def append_staged(self, change: Change, sealed: Sealed) -> None:
        if sealed.own.attempt_table is not None:
            copied = change.tx.run(sealed.own.copy_attempt_table(self.target))
            self.check_written(copied, sealed.rows)
            # left to a sweep if somebody reads it
            change.tx.run("drop_committed_table", table_id=sealed.own.attempt_table)
            return
        moved = change.run(
            self.sql(
                "WITH moved AS (DELETE FROM {contribution} WHERE {of_attempt} RETURNING {columns})"
                " INSERT INTO {target} ({columns}) SELECT {columns} FROM moved",
                columns=names(self.contribution_columns()),
            )
        )
        self.check_written(moved, sealed.rows)

    def sealed(self, change: Change) -> Sealed:
        """Check the size of a table of the attempt's own, or count the rows.

        The table is smaller than it was sealed if somebody's VACUUM took pages that rolled back.
        """
        own, is_smaller = attempt_table.find_sealed_table(change.tx, self, change.key)
        if own.attempt_table is None or is_smaller:
            return self.counted(change, own)
        return Sealed(change.one("staged_rows")["staged_rows"], own)

    def replace(self, change: Change, header: Row, sealed: Sealed) -> Effect:
        """Take out the rows of the replaced attempt and append those of the new one.

        If both have staged the same rows, what differs was changed by hand. If nobody can have
        changed a row either, none is compared.
        """
        is_same = change.one("stages_the_same")["is_same"]
        is_nothing = is_same and self.is_as_written(change)
        there = self.remember(change, NO_ROWS if is_nothing else REPLACED_ROWS)
        taken_out = self.take_out(change)
        if not (is_nothing or self.is_view):
            self.check_written(taken_out, there)
        self.check_taken_out(self.target_name, change.key, header, taken_out)
        self.append_staged(change, sealed)
        change.one("move_contribution", **self.header(sealed.rows))
        if not is_same:
            return Effect()
        return Effect(None if is_nothing else self._take_for_by_hand(change), has_new_rows=False)

    def _take_for_by_hand(self, change: Change) -> ByHand | None:
        """Return the rows that differ, and forget them: they are no effect of this change (H8)."""
        different = change.one(self.count_changed_rows(Effect()))["rows_added"]
        rows = change.tx.all(self._paired(), most=MOST_EXAMPLES, **change.key) if different else []
        change.run(SQL("TRUNCATE {}").format(REACHED))
        if not different:
            return None
        examples = (differing_of(self, row, self.state.values) for row in rows)
        return ByHand(different=different, examples=tuple(row.describe() for row in examples))

    def _paired(self) -> Composed:
        """Read rows that differ beside the row of the same tuple."""
        own = "CASE WHEN expected._x IS NULL THEN found.{0} ELSE expected.{0} END"
        key = {alias("key", name): SQL(own).format(Identifier(name)) for name in self.state.key}
        return self.sql(
            "SELECT expected._x IS NOT NULL AS is_expected, found._x IS NOT NULL AS is_found,"
            " {columns} FROM (SELECT * FROM {target} WHERE {of_attempt}) AS expected"
            " FULL JOIN (SELECT * FROM {reached}) AS found ON found._x = expected._x"
            " WHERE ROW({expected}) IS DISTINCT FROM ROW({found})"
            " ORDER BY coalesce(expected._x, found._x) LIMIT %(most)s",
            columns=aliased({**key, **of_both(self.state.values, "expected", "found")}),
            reached=self.reached(),
            expected=qualified("expected", self.shown),
            found=qualified("found", self.shown),
        )

    def is_as_written(self, change: Change) -> bool:
        """Return whether the replaced attempt's rows are as its commit has written them.

        A row has the number of the transaction that last wrote it, and the header that of the
        commit. A trigger may have made other rows of what the commit wrote, and who has renamed
        columns has changed rows without writing them (not seen if that transaction had begun to
        write before the commit did). A restore in one transaction has written everything, also what
        no commit writes.
        """
        statement = self.sql(
            "SELECT NOT EXISTS (SELECT FROM {target} WHERE {replaced} AND xmin IS DISTINCT FROM"
            " (SELECT header.xmin FROM reliability.contribution AS header"
            " WHERE {header} AND header.txid = %(txid)s AND {is_of_no_restore}))"
            " AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger"
            " WHERE tgrelid = to_regclass(%(table)s) AND NOT tgisinternal)"
            " AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS a, reliability.contribution"
            " AS header WHERE {header} AND header.txid = %(txid)s"
            " AND a.attrelid = to_regclass(%(table)s) AND a.attnum > 0"
            " AND age(a.xmin) < age(header.xmin)) AS is_as_written",
            replaced=REPLACED_ROWS,
            is_of_no_restore=IS_OF_NO_RESTORE,
        )
        return bool(change.one(statement, table=self.target_name)["is_as_written"])

    def take_out_later(self, change: Change) -> Effect:
        check_headers(change.tx, self, after=change.key.txid)
        later = self.remember(change, LATER_ROWS)
        change.run("drop_later_contributions")
        self.delete_later(change, later)
        return Effect(has_new_rows=False)

    def take_out(self, change: Change) -> int:
        return change.run(self.sql("DELETE FROM {target} WHERE {rows}", rows=REPLACED_ROWS))

    def delete_later(self, change: Change, later: int) -> None:
        """Delete the rows of later txids, whose headers are gone."""
        deleted = change.run(self.sql("DELETE FROM {target} WHERE {rows}", rows=LATER_ROWS))
        self.check_written(deleted, later)

    # --- what a change does to the rows ----------------------------------------------------------

    def remember(self, change: Change, rows: Composable) -> int:
        """Save the rows that will be deleted; appended rows have no key to find them by later.

        :param rows: the condition that selects them
        :returns: how many were saved
        """
        return change.run(
            self.sql(
                "CREATE TEMPORARY TABLE {reached} ON COMMIT DROP AS"
                " SELECT {columns} FROM {target} WHERE {rows}",
                reached=REACHED,
                columns=names([*self.shown, "_x"]),
                rows=rows,
            )
        )

    def reached(self) -> Composable:
        """Return the rows that the change takes out, as a table or a subquery."""
        return REACHED

    def changed_rows(self, effect: Effect) -> Composed:
        return self._compared(
            "SELECT 'removed' AS change, * FROM ({removed}) AS r"
            " UNION ALL SELECT 'added' AS change, * FROM ({added}) AS a",
            effect,
        )

    def count_changed_rows(self, effect: Effect) -> Composed:
        return self._compared(
            "SELECT (SELECT count(*) FROM ({added}) AS a) AS rows_added, 0 AS rows_changed,"
            " (SELECT count(*) FROM ({removed}) AS r) AS rows_removed, '{{}}'::jsonb AS moved",
            effect,
        )

    def _compared(self, template: str, effect: Effect) -> Composed:
        # ALL, because equal rows are separate rows.
        new = "SELECT {shown} FROM {target} WHERE {of_attempt}" + (
            "" if effect.has_new_rows else " AND false"
        )
        old = "SELECT {shown} FROM {reached}"
        parts = {"shown": names(self.shown), "reached": self.reached()}
        return SQL(template).format(
            added=self.sql(f"{new} EXCEPT ALL {old}", **parts),
            removed=self.sql(f"{old} EXCEPT ALL {new}", **parts),
        )

    def missing_by_header(self, wrong: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
        """Compare the number of rows of each txid; the rows themselves are the contribution."""
        missing = sum(max(row["rows"] - row["found"], 0) for row in wrong)
        return missing, sum(max(row["found"] - row["rows"], 0) for row in wrong)
