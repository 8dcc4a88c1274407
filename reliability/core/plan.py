"""The plan of one physical commit: which changes of the states it applies, in which order.

Many small txids may share one physical commit (group commit, C5). Each keeps its own commit number
and contribution, and they are applied one after another, so a reader always sees the state after
some txid. Replays and rollbacks are never grouped.

First commits and replays alternate where both are due: a long backfill delays today's run by one
replay at most, and the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import LedgerCorruption
from reliability.core.statement_key import StatementKey

# A group saves the cost of a commit, which matters only for small txids. All its work is done under
# the topology's lock, and repeated one by one if the group is refused.
MAX_TXIDS = 100
MAX_ROWS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A PROCESSED attempt, which commits in its turn: a first commit or a replay.

    :param committed_attempt: the attempt that it would replace, None for a first commit
    :param staged_rows: how many rows are staged for it, in all sinks of this database
    :param age: seconds since it was processed
    """

    txid: int
    attempt_id: int
    nonce: str
    committed_attempt: int | None
    staged_rows: int
    age: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The position of a topology: all that decides what commits next.

    :param commit_number: the last c that was used
    :param groups_commits: several first commits may share one physical commit
    :param is_gathering: the checkpoint interval since the last first commit has not passed
    :param last_was_first_commit: so was the last change of the states: a replay goes next
    :param processed: in the order of their txids; a dry run never commits and is not among them
    """

    topology: str = ""
    curr_txid: int
    commit_number: int = 0
    groups_commits: bool = True
    is_gathering: bool = False
    last_was_first_commit: bool = False
    processed: tuple[Due, ...] = ()

    def may_commit(self, txid: int) -> bool:
        """Say whether a plan that is due begins with the txid's PROCESSED attempt.

        Its task then carries out the plan. The others of a group wait: if the commit of the first
        one is refused, its own task has to fail, not theirs.
        """
        return any(due.txid == txid for due in (*self.first_commits()[:1], *self.replays()))

    def replays(self) -> list[Due]:
        """Return the replays; they do not wait for the checkpoint interval."""
        return [due for due in self.processed if due.txid < self.curr_txid]

    def first_commits(self, one_by_one: int = 0) -> list[Due]:
        """Return the first commits that share the next physical commit.

        :param one_by_one: each up to this txid alone and at once: their group was refused
        """
        is_alone = self.curr_txid <= one_by_one
        if self.is_gathering and not is_alone:
            return []
        most = 1 if is_alone or not self.groups_commits else MAX_TXIDS
        group: list[Due] = []
        rows = 0
        for due in self.processed:
            if due.txid < self.curr_txid:
                continue
            rows += due.staged_rows
            is_next = due.txid == self.curr_txid + len(group)
            if not is_next or len(group) == most or (group and rows > MAX_ROWS):
                break
            group.append(due)
        return group


class ChangeKind(str, Enum):
    """What changes the states."""

    COMMIT = "COMMIT"  # the first commit of a txid
    REPLAY = "REPLAY"
    ROLLBACK = "ROLLBACK"  # to a txid; 0 is the empty topology
    REPAIR = "REPAIR"  # rows that differ from their contributions become what these say (H9)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedChange(StatementKey):
    """One change of the states, as its statements name it.

    :param txid: committed, replayed, or rolled back to; for a repair the last one that committed
    :param attempt_id: None for a rollback or a repair, as is `nonce`
    :param commit_number: None for a dry run
    :param replaced_attempt: of a replay
    :param reason: of a rollback or a repair
    :param dropped: how many commit numbers before its own were decided and could not be committed
        everywhere: a rollback undoes them in databases that have them, and drops them in the others
    :param state: set while one state is changed
    """

    topology: str
    kind: ChangeKind = ChangeKind.COMMIT
    txid: int
    commit_number: int | None
    attempt_id: int | None = None
    nonce: str | None = None
    replaced_attempt: int | None = None
    reason: str | None = None
    dropped: int = 0
    state: str | None = None

    @property
    def attempt(self) -> TransactionAttempt | None:
        """Return the attempt that it commits; None for a rollback or a repair."""
        return None if self.attempt_id is None else TransactionAttempt(self.txid, self.attempt_id)

    def of_state(self, state: str) -> PlannedChange:
        return replace(self, state=state)


Plan = tuple[PlannedChange, ...]


def is_group_of_first_commits(plan: Plan) -> bool:
    """Return whether the plan consists of first commits; it never has them beside others."""
    return all(change.kind is ChangeKind.COMMIT for change in plan)


def dropped_by(plan: Plan) -> int:
    """Return how many commit numbers a database that carries out the plan may lack."""
    return sum(change.dropped for change in plan)


def planned_from_json(data: Mapping[str, Any]) -> PlannedChange:
    """Read a change from its fields; unreadable data is corruption, never an empty plan."""
    try:
        return PlannedChange(**{**data, "kind": ChangeKind(data["kind"])})
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerCorruption(f"unreadable plan of a commit: {data!r}") from error


def next_plan(position: Position, *, overdue: int = 0, one_by_one: int = 0) -> Plan:
    """Plan the first commits that are due from `curr_txid` without a gap, or one replay.

    :param overdue: skip what was processed less than this many seconds ago
    :param one_by_one: see `Position.first_commits`

    >>> a, b, d = (Due(txid=t, attempt_id=0, nonce="n", committed_attempt=None, staged_rows=1)
    ...            for t in (7, 8, 10))
    >>> position = Position(curr_txid=7, commit_number=6, processed=(a, b, d))
    >>> [(p.commit_number, str(p.attempt)) for p in next_plan(position)]
    [(7, '7:0'), (8, '8:0')]
    """
    found = (one for one in position.processed if not overdue or one.age > overdue)
    due = replace(position, processed=tuple(found))
    first_commits, replay = due.first_commits(one_by_one), due.replays()[:1]
    group = (replay or first_commits) if due.last_was_first_commit else (first_commits or replay)
    return tuple(
        PlannedChange(
            topology=position.topology,
            kind=ChangeKind.COMMIT if one.committed_attempt is None else ChangeKind.REPLAY,
            commit_number=position.commit_number + place,
            txid=one.txid,
            attempt_id=one.attempt_id,
            nonce=one.nonce,
            replaced_attempt=one.committed_attempt,
        )
        for place, one in enumerate(group, start=1)
    )
