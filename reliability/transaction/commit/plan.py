"""One physical commit in one database: planned under the topology's lock, then carried out.

A commit, a replay and a rollback are changes of the states: each takes the next commit number.

A target database that only takes part in a topology runs the very same statements on the same
schema as the coordinator's ledger; which plan counts is decided by the latter alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reliability.core.attempt import TransactionAttempt
from reliability.core.difference import Difference
from reliability.core.errors import (
    LedgerCorruption,
    ReliabilityError,
    ReplayNotPossible,
    RollbackNotPossible,
    UnexpectedAnswer,
)
from reliability.core.plan import (
    MAX_TXIDS,
    Due,
    Plan,
    PlannedCommit,
    next_plan,
)
from reliability.ledger.connection import DatabaseTransaction, Row

# What the data of an attempt do to its commit, in contrast to what a database or a lock does.
REFUSALS = (UnexpectedAnswer, LedgerCorruption, ReplayNotPossible, RollbackNotPossible)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """One commit; `replaced_attempt` is None for a first one, and else there are differences."""

    attempt: TransactionAttempt
    commit_number: int
    replaced_attempt: int | None
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class AppliedPlan:
    """What one physical commit has changed; of first commits there are no differences.

    What a participant had committed before its driver died is not told again here.
    """

    plan: Plan
    differences: tuple[Difference, ...] = ()

    def committed(self) -> list[Committed]:
        """Say what was committed."""
        return [
            Committed(
                attempt=planned.attempt,
                commit_number=planned.commit_number,
                replaced_attempt=planned.replaced_attempt,
                differences=self.differences,
            )
            for planned in self.plan
            if isinstance(planned, PlannedCommit)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedPlan:
    """A physical commit that Postgres refused: a number too large, a constraint of the user's."""

    plan: Plan
    error: ReliabilityError


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainLimits:
    """What a drain takes along.

    :param overdue: leave alone what was processed less than so many seconds ago
    :param most: how many first commits may share one physical commit
    :param at_once: do not wait for the checkpoint interval
    """

    overdue: int = 0
    most: int = MAX_TXIDS
    at_once: bool = False


Planner = Callable[[DatabaseTransaction, Row], Plan]
"""Plans a change under the topology's lock; the row is the topology's, as its lock returned it."""


def nothing(tx: DatabaseTransaction, locked: Row) -> Plan:
    """Plan nothing: to repair what a predecessor left is all that is wanted."""
    return ()


def read_plan(topology: str, limits: DrainLimits, tx: DatabaseTransaction, locked: Row) -> Plan:
    """Plan what commits next."""
    rows = tx.all(
        "due",
        topology=topology,
        overdue=limits.overdue,
        most=limits.most,
        at_once=limits.at_once,
    )
    # Only where a replay is due does it matter whose turn it is.
    is_replay_due = any(row["txid"] < locked["curr_txid"] for row in rows)
    last = tx.first("last_change", topology=topology) if is_replay_due else None
    return next_plan(
        [Due(**row) for row in rows],
        curr_txid=locked["curr_txid"],
        commit_number=locked["commit_number"],
        most=limits.most,
        last_was_first_commit=last is not None and last["was_first_commit"],
    )
