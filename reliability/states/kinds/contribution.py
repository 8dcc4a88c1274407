"""A ContributionState, the default: each txid's contribution is kept and can be replaced.

A replay replaces the old contribution by the new one for the keys whose values differ (H1, H3). If
every column has an inverse, it is applied; otherwise the rows are recomputed from the kept
contributions, as they are after a rollback. The old value is the *stored* one, never what today's
code would compute.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from psycopg2.sql import SQL, Composable, Composed, Identifier

from reliability.core.column import ROW_COUNT, Column
from reliability.core.difference import ByHand
from reliability.states.compose import (
    alias,
    aliased,
    assigned,
    fill,
    fold_by_key,
    names,
    of_both,
    qualified,
    same_key_as_record,
)
from reliability.states.headers import check_headers
from reliability.states.kept_contributions import (
    COLLECTED,
    LAST_TXIDS,
    Collected,
    collect,
    contributions_to_collected,
    contributions_to_fold,
    find_last_txids,
    kept,
)
from reliability.states.kinds.keyed import KeyedState
from reliability.states.kinds.stored import MOST_EXAMPLES, Change, Effect, Sealed
from reliability.states.verify_table import differing_keys, differing_rows, examples

if TYPE_CHECKING:
    from reliability.ledger.connection import Row

_SWAPPED = Identifier("pg_temp", "swapped")


class StoredContributions(KeyedState):
    """Keeps the staged rows as the contribution; replaces it by inverse, or recomputes rows."""

    keeps_contributions = True

    def index_target(self) -> list[Composed]:
        # a replay reads the other txids of a key there
        return [*super().index_target(), self.sql("CREATE INDEX ON {contribution} ({key})")]

    @property
    def is_invertible(self) -> bool:
        """Return whether a replay computes new − old, and so carries a hand-made change along."""
        return all(column.is_exact_sum for column in self.columns)

    def replace(self, change: Change, header: Row, sealed: Sealed) -> Effect:
        """Rewrite the rows whose part of the contribution differs."""
        key = change.key
        present = change.one(self.staged_accounts(), attempt_id=key.replaced_attempt)["rows"]
        self.check_taken_out(self.contribution_table, key, header, present)
        collected = self._collect(change, self._keys_that_differ())
        by_hand = None
        if not self.is_invertible:
            by_hand = self._find_by_hand(change, collected)
            if by_hand is not None:
                self._recompute(change, collected)
                self._collect(change, self._keys_that_differ())
        change.one("move_contribution", **self.header(sealed.rows))
        self._remember(change, collected)
        if self.is_invertible:
            keys = self._compute(change, self._by_inverse(collected))
            self._write(change, collected, keys)
        else:
            self._recompute(change, collected)
        return Effect(by_hand, same_key=collected.same_key)

    def take_out_later(self, change: Change) -> Effect:
        """Rewrite the rows that later txids have touched."""
        # A key whose contribution rows are missing would silently keep its present value.
        check_headers(change.tx, self, after=change.key.txid)
        later = self.sql("({kept} WHERE _txid > %(txid)s) AS kept", kept=kept(self))
        if self.is_invertible:
            return self._subtract(change, later)
        later_keys = SQL("SELECT DISTINCT {} FROM {}").format(names(self.key), later)
        collected = self._collect(change, later_keys)
        rows_after = self._folded(change, collected, self._earlier())
        keys = self._compute(change, rows_after)
        by_hand = self._find_by_hand(change, collected, later)
        if by_hand is not None:
            change.run(SQL("DROP TABLE {}").format(_SWAPPED))
            self._recompute(change, collected)
            self._collect(change, later_keys)
            self._compute(change, rows_after)
        self._remember(change, collected)
        change.run("drop_later_contributions")
        self._write(change, collected, keys)
        return Effect(by_hand, same_key=collected.same_key)

    def _subtract(self, change: Change, later: Composed) -> Effect:
        """Take the sums of later contributions out of the present rows."""
        # in numeric: what they add up to may exceed the type, though all sums that count fit
        sums_of = [replace(column, type="numeric") for column in self.columns]
        folded = fold_by_key(sums_of, names(self.key), later, staged="kept")
        old = {alias("old", name): Identifier("later", name) for name in self.value_names()}
        sums = SQL("SELECT {key}, {old} FROM ({folded}) AS later").format(
            key=names(self.key), old=aliased(old), folded=folded
        )
        collected = self._collect(change, sums)
        self._remember(change, collected)
        through, last = change.key.txid, change.one("last_contribution")["txid"] or 0
        find_last_txids(change.tx, self, collected, through=through, txids=max(last - through, 1))
        change.run("drop_later_contributions")
        keys = self._compute(change, self._by_inverse_of_later(collected))
        self._write(change, collected, keys)
        change.run(SQL("DROP TABLE {}").format(LAST_TXIDS))
        return Effect(same_key=collected.same_key)

    def rewrite_differing(self, change: Change) -> bool:
        collected = self._collect(change, differing_keys(self))
        self._remember(change, collected)
        is_any = SQL("SELECT EXISTS (SELECT FROM {}) AS is_any").format(COLLECTED)
        is_wrong = bool(change.one(is_any)["is_any"])
        self._recompute(change, collected)
        return is_wrong

    def _find_by_hand(
        self, change: Change, collected: Collected, later: Composed | None = None
    ) -> ByHand | None:
        """Compare the collected rows with their contributions; return None if none differs (H8).

        Who then recomputes rows corrects the others first: otherwise it would repair them silently,
        and count that as its own effect.

        :param later: the contributions that are not folded into the computed rows, if others are
        """
        present = self.sql(
            "SELECT target.* FROM {collected} AS collected JOIN {target} AS target ON {same_key}",
            collected=COLLECTED,
            same_key=collected.same_key(self.key, "collected", "target"),
        )
        # a sum of floats is compared by what all of its parts are
        if later is None or any(column.is_rounded for column in self.columns):
            contributions = contributions_to_collected(self, collected)
        else:
            contributions = self.sql(
                "SELECT {written}, _txid FROM {swapped} WHERE _rows > 0"
                " UNION ALL SELECT {written}, _txid FROM {later}",
                swapped=_SWAPPED,
                later=later,
            )
        statement = differing_rows(self, contributions, present)
        rows = change.tx.all(statement, most=MOST_EXAMPLES, **change.key)
        by_hand = ByHand(
            missing=rows[0]["missing"],
            surplus=rows[0]["surplus"],
            different=rows[0]["different"],
            examples=tuple(row.describe() for row in examples(self, rows)),
        )
        return by_hand if by_hand.examples else None

    # --- the keys that a change reaches ----------------------------------------------------------

    def _collect(self, change: Change, keys: Composed) -> Collected:
        return collect(change.tx, self, keys, **change.key)

    def _remember(self, change: Change, collected: Collected) -> None:
        keys = self.sql("SELECT {key} FROM {collected}", collected=COLLECTED)
        self.remember(change, keys, collected.same_key)

    def _keys_that_differ(self) -> Composed:
        """Read the keys whose values differ between the replaced attempt and the new one."""
        columns: dict[str, Composable] = {
            name: SQL("coalesce(new.{0}, old.{0})").format(Identifier(name)) for name in self.key
        }
        if self.is_invertible:
            columns |= of_both(self.value_names(), "old", "new")
        return SQL(
            "SELECT {columns} FROM ({old}) AS old FULL JOIN ({new}) AS new ON {same_key}"
            " WHERE ({old_values}) IS DISTINCT FROM ({new_values})"
        ).format(
            columns=aliased(columns),
            old=self.folded_attempt("replaced_attempt"),
            new=self.folded_attempt(),
            same_key=same_key_as_record(self.key, "old", "new"),
            old_values=qualified("old", self.value_names()),
            new_values=qualified("new", self.value_names()),
        )

    # --- their new rows --------------------------------------------------------------------------

    def _by_inverse(self, collected: Collected) -> Composed:
        """Compute the rows from the present ones, and the differences of their contributions.

        A row's txid, the greatest that it contains, falls when that one leaves (C3).
        """
        return self.sql(
            "SELECT {collected_key}, {values},"
            " CASE WHEN coalesce({added}, 0) > 0 THEN greatest(target._txid, %(txid)s)"
            " WHEN target._txid > %(txid)s THEN target._txid"
            " ELSE (SELECT max(kept._txid) FROM ({kept}) AS kept WHERE {same_key_kept}) END"
            " AS _txid"
            " FROM {collected} AS collected LEFT JOIN {target} AS target ON {same_key}",
            collected_key=qualified("collected", self.key),
            values=aliased({column.name: _inverse(column) for column in self.columns}),
            added=Identifier("collected", alias("new", ROW_COUNT.name)),
            kept=kept(self),
            same_key_kept=collected.same_key(self.key, "collected", "kept"),
            collected=COLLECTED,
            same_key=collected.same_key(self.key, "collected", "target"),
        )

    def _by_inverse_of_later(self, collected: Collected) -> Composed:
        """Compute the rows from the present ones, when the later contributions do not count more.

        A row's txid is the greatest that it still contains.
        """
        return self.sql(
            "SELECT {collected_key}, {values}, last._txid FROM {collected} AS collected"
            " LEFT JOIN {target} AS target ON {same_key}"
            " LEFT JOIN {last_txids} AS last ON last._number = collected._number",
            collected_key=qualified("collected", self.key),
            values=aliased({c.name: _inverse(c, has_new=False) for c in self.columns}),
            collected=COLLECTED,
            same_key=collected.same_key(self.key, "collected", "target"),
            last_txids=LAST_TXIDS,
        )

    def _recompute(self, change: Change, collected: Collected) -> None:
        """Write the rows of the collected keys as their kept contributions say."""
        keys = self._compute(change, self._folded(change, collected, self.contribution))
        self._write(change, collected, keys)

    def _earlier(self) -> Composed:
        """Read the staged rows that a rollback leaves."""
        return self.sql("(SELECT * FROM {contribution} WHERE _txid <= %(txid)s)")

    def _folded(self, change: Change, collected: Collected, staged: Composable) -> Composed:
        """Compute the rows from these contributions."""
        folded = fold_by_key(
            self.columns,
            names(self.key),
            SQL("({}) AS kept").format(contributions_to_fold(change.tx, self, collected, staged)),
            staged="kept",
            also="max({staged._txid})",
        )
        return self.sql(
            "SELECT {collected_key}, {values}, folded._txid FROM {collected} AS collected"
            " LEFT JOIN ({folded}) AS folded ON {same_key}",
            collected_key=qualified("collected", self.key),
            values=qualified("folded", self.value_names()),
            collected=COLLECTED,
            folded=folded,
            same_key=collected.same_key_without_index(self.key, "collected", "folded"),
        )

    def _compute(self, change: Change, new_rows: Composed) -> int:
        """Keep the complete new rows of the collected keys; NULL for a key without rows.

        :returns: how many keys there are
        """
        statement = "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS {}"
        return change.run(SQL(statement).format(_SWAPPED, new_rows))

    def _write(self, change: Change, collected: Collected, keys: int) -> None:
        """Write the computed rows, and forget them and their keys.

        Keys without rows are deleted, also those with fewer than none: by an inverse, of a row that
        somebody has deleted. Only if fewer rows were reached than there are keys, it is asked which
        had to be: such a key may have no row in the target either.
        """
        parts = {
            "swapped": _SWAPPED,
            "collected": COLLECTED,
            "same_key": collected.same_key(self.key, "target", "swapped"),
            "values": assigned({name: Identifier("excluded", name) for name in self.value_names()}),
        }
        deleted, inserted = (
            change.run(self.sql(statement, **parts))
            for statement in (
                "DELETE FROM {target} AS target USING {swapped} AS swapped"
                " WHERE {same_key} AND coalesce(swapped._rows, 0) <= 0",
                "INSERT INTO {target} AS target ({written}, _txid)"
                " SELECT {written}, _txid FROM {swapped} WHERE _rows > 0 ORDER BY {key}"
                " ON CONFLICT ({key}) DO UPDATE SET {values}, _txid = excluded._txid",
            )
        )
        if deleted + inserted != keys:
            without_rows = self.sql(
                "SELECT count(*) AS keys FROM {swapped} AS swapped WHERE coalesce(_rows, 0) <= 0"
                " AND NOT EXISTS (SELECT FROM {target} AS target WHERE {same_key})",
                **parts,
            )
            self.check_written(inserted, keys - change.one(without_rows)["keys"])
        change.run(self.sql("DROP TABLE {swapped}, {collected}", **parts))


def _inverse(column: Column, *, has_new: bool = True) -> Composed:
    def or_zero(term: Composable) -> Composed:
        return SQL("coalesce({}, 0)").format(term)

    assert column.swap is not None
    return fill(
        column.swap,
        target=lambda name: or_zero(Identifier("target", name)),
        old=lambda name: or_zero(Identifier("collected", alias("old", name))),
        new=lambda name: or_zero(
            Identifier("collected", alias("new", name)) if has_new else SQL("NULL")
        ),
    )
