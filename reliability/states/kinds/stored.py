"""What all kinds of state share: the steps of a commit, a replay and a rollback.

A first commit adds the attempt's contribution. A replay replaces an older contribution if the
state keeps enough to take it out. A rollback takes out the contributions of all later txids. Sealed
rows and rows to take out are counted first: missing rows never count as zero (H2).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from psycopg2.sql import Composable, Composed

from reliability.core.difference import ByHand, Difference
from reliability.core.errors import LedgerCorruption, RepairNotPossible, ReplayNotPossible
from reliability.core.plan import ChangeKey
from reliability.core.state import replay_refusal
from reliability.states.headers import compacted_through, format_header, wrong_headers
from reliability.states.kinds import compare_rows
from reliability.states.tables import StateTables

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction, Row

DifferenceObserver = Callable[["DatabaseTransaction", "StoredState", ChangeKey], object]
"""Called while the rows before and after the change both exist, so it can read how they differ."""


class StoredState(ABC):
    """The tables of one state, and how a change of the topology changes them.

    :cvar presence: the `presence` in the header of a contribution that has rows
    """

    presence: ClassVar[str] = "present"

    def __init__(self, tables: StateTables) -> None:
        self.tables = tables

    @property
    def name(self) -> str:
        return self.tables.state.name

    # --- the changes -----------------------------------------------------------------------------

    def commit(self, tx: DatabaseTransaction, *keys: ChangeKey) -> None:
        """Take the next commit numbers, and add the attempts' contributions in this order (C3).

        :raises LedgerCorruption: the state is not at the expected commit number or lacks rows; what
            is queued raises it with the transaction's next statement
        """
        self._advance(tx, keys[0], len(keys))
        for key in keys:
            self.add(tx, key.of_state(self.name))

    def replay(
        self, tx: DatabaseTransaction, key: ChangeKey, observer: DifferenceObserver | None = None
    ) -> Difference:
        """Take the next commit number, and replace a contribution.

        :raises LedgerCorruption: the state is not at the expected commit number or lacks rows
        :raises ReplayNotPossible: the state does not keep what the replay would replace (H5)
        """
        key = key.of_state(self.name)
        self._advance(tx, key)
        sealed = self.sealed_rows(tx, key)
        self._check_replayable(tx, key)
        by_hand = self.replace(tx, key, tx.one("contribution", **key), sealed)
        return self._compare(tx, key, observer, by_hand)

    def roll_back(
        self, tx: DatabaseTransaction, key: ChangeKey, observer: DifferenceObserver | None = None
    ) -> Difference:
        """Take the next commit number, and take out the contributions after the key's txid (H4).

        The caller has checked that every state of the topology can be rolled back.
        """
        key = key.of_state(self.name)
        self._advance(tx, key)
        by_hand = self.take_out_later(tx, key)
        return self._compare(tx, key, observer, by_hand)

    def repair(
        self, tx: DatabaseTransaction, key: ChangeKey, observer: DifferenceObserver | None = None
    ) -> Difference | None:
        """Take the next commit number, and bring the rows back to their contributions (H9).

        :returns: None if no row differs, or if the state keeps no contributions to compare with
        :raises RepairNotPossible: it cannot be told what the contributions are
        """
        key = key.of_state(self.name)
        self._advance(tx, key)
        if not self.has_headers:
            return None
        for wrong in wrong_headers(tx, self.tables):
            raise self._not_repairable(format_header(wrong))
        for row in tx.all("txids_without_header", **key):
            txid, attempt_id = row["txid"], row["attempt_id"]
            raise self._not_repairable(f"attempt {txid}:{attempt_id} is not recorded")
        if self.differing_rows() is None:
            return None
        is_wrong = self.rewrite_differing(tx, key)
        found = self._compare(tx, key, observer if is_wrong else None)
        return found if is_wrong else None

    def _not_repairable(self, why: str) -> RepairNotPossible:
        kept = "appended rows" if self.tables.state.is_append else "contributions"
        return RepairNotPossible(
            f"state {self.name}: {why}, so the {kept} themselves are wrong",
            remedy="restore the missing rows from a backup, or delete the surplus ones: "
            "`reliability verify` compares their numbers.",
        )

    def drop_commit_number(self, tx: DatabaseTransaction, key: ChangeKey) -> None:
        """Take the next commit number for a rollback of changes that this database lacks (C6)."""
        self._advance(tx, key)

    def _advance(self, tx: DatabaseTransaction, key: ChangeKey, changes: int = 1) -> None:
        tx.queue("advance_state", changes=changes, **key.of_state(self.name))

    # --- what a kind does ------------------------------------------------------------------------

    @abstractmethod
    def add(self, tx: DatabaseTransaction, key: ChangeKey) -> None:
        """Add the attempt's contribution and record its header, as far as it is what was sealed."""

    @abstractmethod
    def replace(
        self, tx: DatabaseTransaction, key: ChangeKey, header: Row, sealed: int
    ) -> ByHand | None:
        """Replace the contribution that `header` describes; save the rows that this can change.

        :returns: the rows that it has found changed by hand and has overwritten
        """

    @abstractmethod
    def take_out_later(self, tx: DatabaseTransaction, key: ChangeKey) -> ByHand | None:
        """Take out the contributions after the key's txid; save the rows that this can change.

        :returns: as `replace`
        """

    def rewrite_differing(self, tx: DatabaseTransaction, key: ChangeKey) -> bool:
        """Save the rows that differ from their contributions, and correct them; say if any did.

        Called only if `differing_rows` returns a query.
        """
        raise NotImplementedError

    # --- what a change does to the rows ----------------------------------------------------------

    def changed_rows(self) -> Composed:
        """Read the rows that differ: change, the key, and each value before and after."""
        return compare_rows.rows(self.tables)

    def count_changed_rows(self) -> Composed:
        """Count rows_added, rows_changed and rows_removed, and by how much each sum moved."""
        return compare_rows.count(self.tables)

    def remember(self, tx: DatabaseTransaction, key: ChangeKey, rows: Composable) -> None:
        """Save the rows as they are before the change.

        :param rows: a query for the keys that the change can reach
        """
        tx.run(compare_rows.remember(self.tables, rows), **key)

    def _compare(
        self,
        tx: DatabaseTransaction,
        key: ChangeKey,
        observer: DifferenceObserver | None,
        by_hand: ByHand | None = None,
    ) -> Difference:
        row = tx.one(self.count_changed_rows(), **key)
        if observer is not None:
            observer(tx, self, key)
        tx.run(compare_rows.forget())
        return Difference.from_json({"state": self.name, **row, "by_hand": by_hand})

    # --- checks ----------------------------------------------------------------------------------

    def header(self, rows: int) -> dict[str, Any]:
        """Return the part of a contribution's header that describes its rows."""
        return {"presence": self.presence if rows else "empty", "rows": rows}

    def check_taken_out(self, table: str, key: ChangeKey, header: Row, found: int) -> None:
        """Raise unless the rows taken out match the header: missing rows are not zero (H2)."""
        if header["attempt_id"] != key.replaced_attempt or header["rows"] != found:
            raise LedgerCorruption(
                f"{table}: attempt {key.txid}:{header['attempt_id']} is recorded with "
                f"{header['rows']} rows, but {found} rows of attempt "
                f"{key.txid}:{key.replaced_attempt} exist"
            )

    def sealed_rows(self, tx: DatabaseTransaction, key: ChangeKey) -> int:
        """Return how many rows were sealed for the attempt; raise unless they are there."""
        sealed: int = tx.one("staged_rows", **key)["staged_rows"]
        self.check_sealed(tx, key, sealed)
        return sealed

    def check_sealed(self, tx: DatabaseTransaction, key: ChangeKey, sealed: int) -> None:
        """Raise unless the sealed rows are there: missing ones are no empty contribution (H2)."""
        found = tx.one(self.tables.staged_accounts(), **key)["rows"]
        if sealed != found:
            raise LedgerCorruption(
                f"{self.tables.contribution_table}: {sealed} rows were sealed for attempt "
                f"{key.txid}:{key.attempt_id}, but {found} exist"
            )

    def _check_replayable(self, tx: DatabaseTransaction, key: ChangeKey) -> None:
        last = tx.one("last_contribution", **key)["txid"] or 0
        through = compacted_through(tx, key.topology)
        refusal = replay_refusal([self.tables.state], key.txid, last + 1, through)
        if refusal is not None:
            raise ReplayNotPossible(f"txid {key.txid}: {refusal}")

    # --- verification ----------------------------------------------------------------------------

    def differing_rows(self) -> Composed | None:
        """Return a query that compares table and contributions; None if the kind keeps none."""
        return None

    @property
    def has_headers(self) -> bool:
        """Return whether headers describe rows that are kept."""
        return self.presence == "present"

    def missing_by_header(self, wrong: Sequence[Mapping[str, Any]]) -> tuple[int, int] | None:
        """Return the missing and surplus rows by headers; None if `differing_rows` counts them."""
        return None
