"""A ContributionState, the default: each txid's contribution is kept and can be replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from psycopg2.sql import SQL, Composed

from reliability.core.difference import ByHand
from reliability.core.plan import ChangeKey
from reliability.states.compose import names
from reliability.states.fold_history import kept
from reliability.states.headers import check_headers
from reliability.states.kinds.compare_rows import MOST_EXAMPLES
from reliability.states.kinds.first_commit import add_to_rows
from reliability.states.kinds.stored import StoredState
from reliability.states.kinds.swap import (
    CHANGED,
    Pattern,
    analyze_changed_keys,
    collect,
    collect_changed_keys,
    contributions_of_changed,
    from_contributions,
    is_invertible,
    patterns_of_changed,
    replace_rows,
    rows_of_changed,
    select_changed_keys,
    swap,
)
from reliability.states.tables import StateTables
from reliability.states.verify_table import count_rows, differing_keys, differing_rows, examples

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction, Row


class StoredContributions(StoredState):
    """Keeps the staged rows as the contribution; replaces it by inverse, or recomputes rows."""

    def add(self, tx: DatabaseTransaction, key: ChangeKey) -> None:
        """Add the contribution to the rows; the staged rows stay."""
        add_to_rows(tx, self.tables, key)

    def replace(
        self, tx: DatabaseTransaction, key: ChangeKey, header: Row, sealed: int
    ) -> ByHand | None:
        """Rewrite the rows whose part of the contribution differs."""
        tables = self.tables
        replaced = {"txid": key.txid, "attempt_id": key.replaced_attempt}
        found = tx.one(tables.staged_accounts(), **replaced)["rows"]
        self.check_taken_out(tables.contribution_table, key, header, found)
        tx.run(collect_changed_keys(tables), **key)
        patterns = self._look_at_changed(tx)
        by_hand = None
        if not is_invertible(tables):
            by_hand = self._overwrite_by_hand(tx, key, patterns, collect_changed_keys(tables))
        tx.one("move_contribution", **key, **self.header(sealed))
        self.remember(tx, key, select_changed_keys(tables))
        for statement in swap(tables, patterns):
            tx.run(statement, **key)
        return by_hand

    def take_out_later(self, tx: DatabaseTransaction, key: ChangeKey) -> ByHand | None:
        """Recompute the rows that later txids have touched from the remaining contributions."""
        tables = self.tables
        # A key whose contribution rows are missing would silently keep its present value.
        check_headers(tx, tables, after=key.txid)
        tx.run(later_keys(tables), **key)
        patterns = self._look_at_changed(tx)
        by_hand = self._overwrite_by_hand(tx, key, patterns, later_keys(tables))
        self.remember(tx, key, select_changed_keys(tables))
        tx.run("drop_later_contributions", **key)
        for statement in recompute(tables, patterns):
            tx.run(statement, **key)
        return by_hand

    def rewrite_differing(self, tx: DatabaseTransaction, key: ChangeKey) -> bool:
        """Recompute all rows that differ from their contributions."""
        tables = self.tables
        tx.run(collect(tables, differing_keys(tables)))
        patterns = self._look_at_changed(tx)
        self.remember(tx, key, select_changed_keys(tables))
        is_wrong = bool(tx.one(count_rows(tables, CHANGED))["rows"])
        for statement in recompute(tables, patterns):
            tx.run(statement, **key)
        return is_wrong

    def _overwrite_by_hand(
        self,
        tx: DatabaseTransaction,
        key: ChangeKey,
        patterns: Sequence[Pattern],
        collect_again: Composed,
    ) -> ByHand | None:
        """Recompute the collected rows if any of them differs from its contributions (H8).

        Otherwise a change that recomputes rows would repair them silently, and count that as its
        own effect.
        """
        tables = self.tables
        contributions = contributions_of_changed(tables, patterns)
        statement = differing_rows(tables, contributions, rows_of_changed(tables))
        rows = tx.all(statement, most=MOST_EXAMPLES, **key)
        found = ByHand(
            missing=rows[0]["missing"],
            surplus=rows[0]["surplus"],
            different=rows[0]["different"],
            examples=tuple(one.describe() for one in examples(tables, rows)),
        )
        if not found.examples:
            return None
        for statement in recompute(tables, patterns):
            tx.run(statement, **key)
        tx.run(collect_again, **key)
        tx.run(analyze_changed_keys())
        return found

    def differing_rows(self) -> Composed:
        """Compare each row with its contributions."""
        return differing_rows(self.tables)

    def _look_at_changed(self, tx: DatabaseTransaction) -> Sequence[Pattern]:
        """Give the planner the number of keys; return which of their columns are NULL."""
        tx.run(analyze_changed_keys())
        found = tx.all(patterns_of_changed(self.tables))
        return found or [dict.fromkeys(self.tables.key, False)]


def later_keys(tables: StateTables) -> Composed:
    """Collect the keys that later txids have touched; call it before their headers are deleted."""
    return SQL(
        "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS"
        " SELECT row_number() OVER () AS _number, later.* FROM"
        " (SELECT DISTINCT {} FROM ({}) AS kept WHERE _txid > %(txid)s) AS later"
    ).format(CHANGED, names(tables.key), kept(tables))


def recompute(tables: StateTables, patterns: Sequence[Pattern]) -> list[Composed]:
    """Recompute the collected keys from the remaining contributions, and write them."""
    return replace_rows(tables, from_contributions(tables, patterns))
