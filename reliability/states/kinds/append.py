"""Append: the rows of the target are the contribution, and no row is stored twice (H6).

Staged rows move into the target when their attempt commits; many are staged in a table of the
attempt's own (attempt_table.py). Each row keeps its txid, its attempt_id and its part of the
accounting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from psycopg2.sql import SQL, Composable, Composed, Identifier

from reliability.core.difference import ByHand, Differing
from reliability.core.errors import LedgerCorruption
from reliability.core.plan import ChangeKey
from reliability.states import attempt_table
from reliability.states.compose import names, qualified
from reliability.states.headers import check_headers
from reliability.states.kinds.compare_rows import MOST_EXAMPLES, REACHED
from reliability.states.kinds.stored import StoredState
from reliability.states.tables import StateTables, header_of

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction, Row


class StoredRows(StoredState):
    """A state whose rows are only appended: staged rows move into the target."""

    def __init__(self, tables: StateTables) -> None:
        super().__init__(tables)
        self._new: Composable = NEW_ROWS
        self._sealed = tables  # with the table of the attempt that is committed, if it has one

    def add(self, tx: DatabaseTransaction, key: ChangeKey) -> None:
        """Append the staged rows behind those of all earlier txids (C3)."""
        sealed = self.sealed_rows(tx, key)
        last = tx.one("last_contribution", **key)["txid"]
        if last is not None and last >= key.txid:
            raise LedgerCorruption(
                f"{self.tables.target_name}: txid {key.txid} cannot be appended after {last}"
            )
        self.append_staged(tx, key)
        tx.one("insert_contribution", **key, **self.header(sealed))

    def append_staged(self, tx: DatabaseTransaction, key: ChangeKey) -> None:
        """Move the staged rows into the target."""
        if self._sealed.attempt_table is None:
            tx.run(move(self.tables), **key)
        else:
            tx.run(self._sealed.copy_attempt_table(self.tables.target))
            attempt_table.drop(tx, self._sealed.attempt_table)

    def check_sealed(self, tx: DatabaseTransaction, key: ChangeKey, sealed: int) -> None:
        """Check the size of a table of the attempt's own; count other rows."""
        self._sealed = attempt_table.find_sealed_table(tx, self.tables, key)
        if self._sealed.attempt_table is None:
            super().check_sealed(tx, key, sealed)

    def replace(
        self, tx: DatabaseTransaction, key: ChangeKey, header: Row, sealed: int
    ) -> ByHand | None:
        """Take out the rows of the replaced attempt and append those of the new one.

        If both have staged the same rows, what differs was changed by hand. If nobody can have
        changed a row either, none is compared.
        """
        is_same = tx.one("stages_the_same", **key)["is_same"]
        is_nothing = is_same and self.is_as_written(tx, key)
        self._new = NO_ROWS if is_nothing else NEW_ROWS
        self.remember(tx, key, NO_ROWS if is_nothing else replaced_rows())
        found = self.take_out(tx, key)
        self.check_taken_out(self.tables.target_name, key, header, found)
        self.append_staged(tx, key)
        tx.one("move_contribution", **key, **self.header(sealed))
        return self._take_for_by_hand(tx, key) if is_same and not is_nothing else None

    def _take_for_by_hand(self, tx: DatabaseTransaction, key: ChangeKey) -> ByHand | None:
        """Return the rows that differ, and forget them: they are no effect of this change (H8)."""
        different = tx.one(self.count_changed_rows(), **key)["rows_added"]
        rows = tx.all(self._paired(), most=MOST_EXAMPLES, **key) if different else []
        tx.run(SQL("TRUNCATE {}").format(REACHED))
        self._new = NO_ROWS
        if not different:
            return None
        examples = tuple(self._example(row).describe() for row in rows)
        return ByHand(different=different, examples=examples)

    def _paired(self) -> Composed:
        """Read rows that differ beside the row of the same tuple."""
        shown = _shown(self.tables)
        return SQL(
            "SELECT expected._x IS NOT NULL AS is_expected, found._x IS NOT NULL AS is_found,"
            " {columns} FROM (SELECT * FROM {target} WHERE {new}) AS expected"
            " FULL JOIN (SELECT * FROM {reached}) AS found ON found._x = expected._x"
            " WHERE ROW({expected}) IS DISTINCT FROM ROW({found})"
            " ORDER BY coalesce(expected._x, found._x) LIMIT %(most)s"
        ).format(
            columns=SQL(", ").join(
                SQL("{} AS {}").format(Identifier(row, name), Identifier(f"{row} {name}"))
                for name in shown
                for row in ("expected", "found")
            ),
            target=self.tables.target,
            new=self._new,
            reached=self.reached(),
            expected=qualified("expected", shown),
            found=qualified("found", shown),
        )

    def _example(self, row: Row) -> Differing:
        def values(which: str) -> dict[str, Any] | None:
            found = {name: row[f"{which} {name}"] for name in self.tables.state.values}
            return found if row[f"is_{which}"] else None

        which = "expected" if row["is_expected"] else "found"
        return Differing(
            key={name: row[f"{which} {name}"] for name in self.tables.state.key},
            expected=values("expected"),
            found=values("found"),
        )

    def is_as_written(self, tx: DatabaseTransaction, key: ChangeKey) -> bool:
        """Return whether the replaced attempt's rows are as its commit has written them.

        A row has the number of the transaction that last wrote it, and the header that of the
        commit. A trigger may have made other rows of what the commit wrote.
        """
        statement = SQL(
            "SELECT NOT EXISTS (SELECT FROM {target} WHERE {replaced} AND xmin IS DISTINCT FROM"
            " (SELECT header.xmin FROM reliability.contribution AS header"
            " WHERE {header} AND header.txid = %(txid)s))"
            " AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger"
            " WHERE tgrelid = to_regclass(%(table)s) AND NOT tgisinternal) AS is_as_written"
        ).format(target=self.tables.target, replaced=replaced_rows(), header=header_of(self.tables))
        row = tx.one(statement, table=self.tables.target_name, **key)
        return bool(row["is_as_written"])

    def take_out_later(self, tx: DatabaseTransaction, key: ChangeKey) -> None:
        """Take out the rows of later txids."""
        check_headers(tx, self.tables, after=key.txid)
        self._new = NO_ROWS
        self.remember(tx, key, later_rows())
        tx.run("drop_later_contributions", **key)
        self.delete_later(tx, key)

    def take_out(self, tx: DatabaseTransaction, key: ChangeKey) -> int:
        """Delete the rows of the replaced attempt; return their number."""
        return tx.run(take_out(self.tables), **key)

    def delete_later(self, tx: DatabaseTransaction, key: ChangeKey) -> None:
        """Delete the rows of later txids, whose headers are gone."""
        tx.run(take_out_later(self.tables), **key)

    def remember(self, tx: DatabaseTransaction, key: ChangeKey, rows: Composable) -> None:
        """Save the rows that will be deleted; appended rows have no key to find them by later.

        :param rows: the condition that selects them
        """
        statement = SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WHERE {}")
        columns = names([*_shown(self.tables), "_x"])
        tx.run(statement.format(REACHED, columns, self.tables.target, rows), **key)

    def changed_rows(self) -> Composed:
        return SQL(
            "SELECT 'removed' AS change, * FROM ({}) AS r"
            " UNION ALL SELECT 'added' AS change, * FROM ({}) AS a"
        ).format(self._removed(), self._added())

    def count_changed_rows(self) -> Composed:
        return SQL(
            "SELECT (SELECT count(*) FROM ({added}) AS a) AS rows_added, 0 AS rows_changed,"
            " (SELECT count(*) FROM ({removed}) AS r) AS rows_removed, '{{}}'::jsonb AS moved"
        ).format(added=self._added(), removed=self._removed())

    def reached(self) -> Composable:
        """Return the rows that the change takes out, as a table or a subquery."""
        return REACHED

    def _added(self) -> Composed:
        # ALL, because equal rows are separate rows.
        return SQL("SELECT {0} FROM {1} WHERE {3} EXCEPT ALL SELECT {0} FROM {2}").format(
            names(_shown(self.tables)), self.tables.target, self.reached(), self._new
        )

    def _removed(self) -> Composed:
        return SQL("SELECT {0} FROM {2} EXCEPT ALL SELECT {0} FROM {1} WHERE {3}").format(
            names(_shown(self.tables)), self.tables.target, self.reached(), self._new
        )

    def missing_by_header(self, wrong: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
        """Compare the number of rows of each txid; the rows themselves are the contribution."""
        missing = sum(max(row["rows"] - row["found"], 0) for row in wrong)
        return missing, sum(max(row["found"] - row["rows"], 0) for row in wrong)


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
    """Return the condition for the rows of the replaced attempt."""
    return SQL("_txid = %(txid)s AND _attempt_id = %(replaced_attempt)s")


def take_out_later(tables: StateTables) -> Composed:
    """Delete the rows that later txids have appended."""
    return SQL("DELETE FROM {} WHERE {}").format(tables.target, later_rows())


def later_rows() -> SQL:
    """Return the condition for the rows of later txids."""
    return SQL("_txid > %(txid)s")


def _shown(tables: StateTables) -> list[str]:
    return [*tables.state.key, *tables.state.values]


NEW_ROWS = SQL("_txid = %(txid)s AND _attempt_id = %(attempt_id)s")
NO_ROWS = SQL("false")
