"""What all kinds of state share: the steps of a commit, a replay, a rollback and a repair.

A first commit adds the attempt's contribution. A replay replaces an older contribution if the
state keeps enough to take it out. A rollback takes out the contributions of all later txids. Sealed
rows and rows to take out are counted first: missing rows never count as zero (H2).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from psycopg2.sql import SQL, Composable, Composed, Identifier

from reliability.core.difference import ByHand, Difference
from reliability.core.errors import (
    LedgerCorruption,
    RepairNotPossible,
    ReplayNotPossible,
    UnexpectedAnswer,
)
from reliability.core.plan import PlannedChange
from reliability.core.state import replay_refusal
from reliability.states.compose import same_key
from reliability.states.headers import RESTORE_ROWS, compacted_through, format_header, wrong_headers
from reliability.states.tables import StateTables

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction, Row

DifferenceObserver = Callable[["DatabaseTransaction", PlannedChange, Composed], object]
"""Called with a query for the rows that differ, while those before and after both exist."""
REACHED = Identifier("pg_temp", "reached")
MOST_EXAMPLES = 100  # rows that were changed by hand and are recorded in the ledger


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one state, in a transaction: its statements get the key as parameters.

    :param is_folded: the attempt has staged no key twice
    """

    tx: DatabaseTransaction
    key: PlannedChange
    is_folded: bool = False

    def queue(self, statement: str | Composable) -> None:
        self.tx.queue(statement, **self.key)

    def run(self, statement: str | Composable) -> int:
        return self.tx.run(statement, **self.key)

    def one(self, statement: str | Composable, **more: Any) -> Row:
        return self.tx.one(statement, **{**self.key, **more})


class Sealed(NamedTuple):
    """What was sealed for the attempt, and is there.

    :param own: the tables, with that of the attempt if it has one
    """

    rows: int
    own: StateTables


class Effect(NamedTuple):
    """What a kind has to say of its change, beside the rows that it wrote.

    :param by_hand: the rows that it has found changed by hand and has overwritten
    :param has_new_rows: False if no row that counts is of the attempt, or none differs
    :param same_key: compares the keys of two rows, one of which the change can reach
    """

    by_hand: ByHand | None = None
    has_new_rows: bool = True
    same_key: Callable[[Iterable[str], str, str], Composed] = same_key


class StoredState(StateTables):
    """The tables of one state, and how a change of the topology changes them.

    :cvar presence: the `presence` in the header of a contribution that has rows
    """

    presence: ClassVar[str] = "present"

    # --- the changes -----------------------------------------------------------------------------

    def commit(
        self, tx: DatabaseTransaction, *keys: PlannedChange, folded: Container[int] = ()
    ) -> None:
        """Take the next commit numbers, and add the attempts' contributions in this order (C3).

        :param folded: the txids whose contributions have no key twice
        :raises LedgerCorruption: the state is not at the expected commit number or lacks rows; what
            is queued raises it with the transaction's next statement
        """
        self._advance(tx, keys[0], len(keys))
        for key in keys:
            self.add(Change(tx, key.of_state(self.name), is_folded=key.txid in folded))

    def replay(
        self,
        tx: DatabaseTransaction,
        key: PlannedChange,
        observer: DifferenceObserver | None = None,
    ) -> Difference:
        """Take the next commit number, and replace a contribution.

        :raises LedgerCorruption: the state is not at the expected commit number or lacks rows
        :raises ReplayNotPossible: the state does not keep what the replay would replace (H5)
        """
        change = self._advance(tx, key)
        sealed = self.sealed(change)
        self._check_replayable(change)
        effect = self.replace(change, change.one("contribution"), sealed)
        return self._compare(change, observer, effect)

    def roll_back(
        self,
        tx: DatabaseTransaction,
        key: PlannedChange,
        observer: DifferenceObserver | None = None,
    ) -> Difference:
        """Take the next commit number, and take out the contributions after the key's txid (H4).

        The caller has checked that every state of the topology can be rolled back.
        """
        change = self._advance(tx, key)
        return self._compare(change, observer, self.take_out_later(change))

    def repair(
        self,
        tx: DatabaseTransaction,
        key: PlannedChange,
        observer: DifferenceObserver | None = None,
    ) -> Difference | None:
        """Take the next commit number, and bring the rows back to their contributions (H9).

        :returns: None if no row differs, or if the state keeps no contributions to compare with:
            of appended rows, `verify` tells a wrong number
        :raises RepairNotPossible: it cannot be told what the contributions are
        """
        change = self._advance(tx, key)
        if not self.keeps_contributions:
            return None
        for wrong in wrong_headers(tx, self):
            raise self._not_repairable(format_header(wrong))
        for row in tx.all("txids_without_header", **change.key):
            txid, attempt_id = row["txid"], row["attempt_id"]
            raise self._not_repairable(f"attempt {txid}:{attempt_id} is not recorded")
        is_wrong = self.rewrite_differing(change)
        difference = self._compare(change, observer if is_wrong else None, Effect())
        return difference if is_wrong else None

    def _not_repairable(self, why: str) -> RepairNotPossible:
        return RepairNotPossible(
            f"state {self.name}: {why}, so the contributions themselves are wrong",
            remedy=f"{RESTORE_ROWS}: `reliability verify` compares their numbers.",
        )

    def drop_commit_number(self, tx: DatabaseTransaction, key: PlannedChange) -> None:
        """Take the next commit number for a rollback of changes that this database lacks (C6)."""
        self._advance(tx, key)

    def _advance(self, tx: DatabaseTransaction, key: PlannedChange, changes: int = 1) -> Change:
        change = Change(tx, key.of_state(self.name))
        tx.queue("advance_state", changes=changes, **change.key)
        return change

    # --- what a kind does ------------------------------------------------------------------------

    @abstractmethod
    def add(self, change: Change) -> None:
        """Add the attempt's contribution and record its header, as far as it is what was sealed."""

    @abstractmethod
    def replace(self, change: Change, header: Row, sealed: Sealed) -> Effect:
        """Replace the contribution that `header` describes; save the rows that this can change."""

    @abstractmethod
    def take_out_later(self, change: Change) -> Effect:
        """Take out the contributions after the key's txid; save the rows that this can change."""

    def rewrite_differing(self, change: Change) -> bool:
        """Save the rows that differ from their contributions, and correct them; say if any did.

        Called only if contributions are kept.
        """
        raise NotImplementedError

    @abstractmethod
    def changed_rows(self, effect: Effect) -> Composed:
        """Read the rows that differ: change, the key, and each value before and after."""

    @abstractmethod
    def count_changed_rows(self, effect: Effect) -> Composed:
        """Count rows_added, rows_changed and rows_removed, and by how much each sum moved."""

    def _compare(
        self, change: Change, observer: DifferenceObserver | None, effect: Effect
    ) -> Difference:
        row = change.one(self.count_changed_rows(effect))
        if observer is not None:
            observer(change.tx, change.key, self.changed_rows(effect))
        # the next state of the same change saves its own
        change.run(SQL("DROP TABLE {}").format(REACHED))
        return Difference.from_json({"state": self.name, **row, "by_hand": effect.by_hand})

    # --- checks ----------------------------------------------------------------------------------

    def header(self, rows: int) -> dict[str, Any]:
        """Return the part of a contribution's header that describes its rows."""
        return {"presence": self.presence if rows else "empty", "rows": rows}

    def check_taken_out(self, table: str, key: PlannedChange, header: Row, taken_out: int) -> None:
        """Raise unless the rows taken out match the header: missing rows are not zero (H2)."""
        if header["attempt_id"] != key.replaced_attempt or header["rows"] != taken_out:
            raise LedgerCorruption(
                f"{table}: attempt {key.txid}:{header['attempt_id']} is recorded with "
                f"{header['rows']} rows, but {taken_out} rows of attempt "
                f"{key.txid}:{key.replaced_attempt} exist"
            )

    def check_written(self, written: int, expected: int) -> None:
        """Raise unless a write has reached all of its rows in the target.

        A trigger of a user's that returns NULL keeps its row back without a word.
        """
        if written != expected:
            raise UnexpectedAnswer(
                f"{self.target_name}: {written} rows were written instead of {expected}; a trigger "
                "or a rule of the table keeps rows back"
            )

    def sealed(self, change: Change) -> Sealed:
        """Return what was sealed for the attempt; raise unless it is there.

        Missing rows are no empty contribution (H2).
        """
        return self.counted(change, self)

    def counted(self, change: Change, own: StateTables) -> Sealed:
        """Count what was sealed, in the attempt's own table or in all attempts'."""
        rows = change.one("staged_rows")["staged_rows"]
        present = change.one(own.staged_accounts())["rows"]
        if rows != present:
            raise LedgerCorruption(
                f"{'.'.join(own.staged.strings)}: {rows} rows were sealed for attempt "
                f"{change.key.txid}:{change.key.attempt_id}, but {present} exist"
            )
        return Sealed(rows, own)

    def _check_replayable(self, change: Change) -> None:
        last = change.one("last_contribution")["txid"] or 0
        through = compacted_through(change.tx, self.topology)
        refusal = replay_refusal([self.state], change.key.txid, last + 1, through)
        if refusal is not None:
            raise ReplayNotPossible(refusal, topology=change.key.topology, txid=change.key.txid)

    @property
    def has_headers(self) -> bool:
        """Return whether headers describe rows that are kept."""
        return self.presence == "present"

    def missing_by_header(self, wrong: Sequence[Mapping[str, Any]]) -> tuple[int, int] | None:
        """Return the missing and surplus rows by headers; None if rows are compared."""
        return None
