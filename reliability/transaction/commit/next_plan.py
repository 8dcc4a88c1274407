"""Plan one physical commit under the topology's lock; describe its outcome.

A commit, a replay, a rollback and a repair are changes of the states. Each takes the next commit
number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reliability.core.attempt import TransactionAttempt
from reliability.core.audits import AuditOutcome
from reliability.core.difference import Difference
from reliability.core.errors import (
    AuditFailed,
    LedgerCorruption,
    ReliabilityError,
    RepairNotPossible,
    ReplayNotPossible,
    RightMissing,
    RollbackNotPossible,
    TextNotStorable,
    UnexpectedAnswer,
)
from reliability.core.plan import Plan, PlannedCommit, next_plan
from reliability.ledger.connection import DatabaseTransaction
from reliability.ledger.read_rows import position_of

# Errors that the data of an attempt or its tables cause, not an outage or a lock.
REFUSALS = (
    AuditFailed,
    UnexpectedAnswer,
    RightMissing,
    TextNotStorable,
    LedgerCorruption,
    ReplayNotPossible,
    RollbackNotPossible,
    RepairNotPossible,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """One commit; `replaced_attempt` is None for a first commit, which has no differences."""

    attempt: TransactionAttempt
    commit_number: int
    replaced_attempt: int | None
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class AppliedPlan:
    """What one physical commit has changed; first commits have no differences.

    Differences that a participant committed for a dead driver are not repeated here.

    :param leaves_processed: whether an attempt may wait for its commit just after this one. One
        that is processed later has its own task
    """

    plan: Plan
    differences: tuple[Difference, ...] = ()
    leaves_processed: bool = True

    def committed(self) -> list[Committed]:
        """Return the commits of the plan."""
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
    """A physical commit that Postgres refused, for example by a constraint of the user's.

    :param audits: what the audits of the tables have found, if there is one database
    """

    plan: Plan
    error: ReliabilityError
    audits: Sequence[AuditOutcome] = ()


Planner = Callable[[DatabaseTransaction], Plan]
"""Plans a change under the topology's lock."""


def plan_nothing(tx: DatabaseTransaction) -> Plan:
    """Plan nothing, to repair only what a predecessor left."""
    return ()


def read_plan(
    topology: str, tx: DatabaseTransaction, *, overdue: int = 0, one_by_one: int = 0
) -> Plan:
    """Plan what commits next; the limits are those of `next_plan`."""
    position = position_of(tx.one("position", topology=topology))
    return next_plan(position, overdue=overdue, one_by_one=one_by_one)
