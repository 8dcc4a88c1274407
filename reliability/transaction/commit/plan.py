"""Plan one physical commit under the topology's lock; describe its outcome.

A commit, a replay, a rollback and a repair are changes of the states. Each takes the next commit
number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from reliability.core.attempt import TransactionAttempt
from reliability.core.audits import AuditOutcome
from reliability.core.difference import Difference
from reliability.core.errors import (
    AuditFailed,
    LedgerCorruption,
    ReliabilityError,
    RepairNotPossible,
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
from reliability.ledger.connection import DatabaseTransaction

# Errors that the data of an attempt cause, not the availability of a database or a lock.
REFUSALS = (
    AuditFailed,
    UnexpectedAnswer,
    LedgerCorruption,
    ReplayNotPossible,
    RollbackNotPossible,
    RepairNotPossible,
)
_DUE = tuple(field.name for field in fields(Due))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainLimits:
    """Which attempts a drain commits.

    :param overdue: skip what was processed less than this many seconds ago
    :param most: how many first commits may share one physical commit
    :param at_once: do not wait for the checkpoint interval
    """

    overdue: int = 0
    most: int = MAX_TXIDS
    at_once: bool = False


Planner = Callable[[DatabaseTransaction], Plan]
"""Plans a change under the topology's lock."""


def plan_nothing(tx: DatabaseTransaction) -> Plan:
    """Plan nothing, to repair only what a predecessor left."""
    return ()


def read_plan(topology: str, limits: DrainLimits, tx: DatabaseTransaction) -> Plan:
    """Plan what commits next."""
    rows = tx.all(
        "due",
        topology=topology,
        overdue=limits.overdue,
        most=limits.most,
        at_once=limits.at_once,
    )
    if not rows:
        return ()
    return next_plan(
        [Due(**{name: row[name] for name in _DUE}) for row in rows],
        curr_txid=rows[0]["curr_txid"],
        commit_number=rows[0]["commit_number"],
        most=limits.most,
        last_was_first_commit=any(row["last_was_first_commit"] for row in rows),
    )
