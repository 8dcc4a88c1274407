"""Plan one physical commit under the topology's lock; describe its outcome.

A commit, a replay, a rollback and a repair are changes of the states. Each takes the next commit
number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reliability.core.attempt import TransactionAttempt
from reliability.core.difference import Difference
from reliability.core.errors import (
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
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row

# Errors that the data of an attempt cause, not the availability of a database or a lock.
REFUSALS = (
    UnexpectedAnswer,
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
    """

    plan: Plan
    differences: tuple[Difference, ...] = ()

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
    """A physical commit that Postgres refused, for example by a constraint of the user's."""

    plan: Plan
    error: ReliabilityError


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


Planner = Callable[[DatabaseTransaction, Row], Plan]
"""Plans a change under the topology's lock; the row is the topology's, as its lock returned it."""


def plan_nothing(tx: DatabaseTransaction, locked: Row) -> Plan:
    """Plan nothing, to repair only what a predecessor left."""
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
    # The last change decides only whether a due replay or the first commits are next.
    is_replay_due = any(row["txid"] < locked["curr_txid"] for row in rows)
    last = tx.first("last_change", topology=topology) if is_replay_due else None
    return next_plan(
        [Due(**row) for row in rows],
        curr_txid=locked["curr_txid"],
        commit_number=locked["commit_number"],
        most=limits.most,
        last_was_first_commit=last is not None and last["was_first_commit"],
    )


def is_any_processed(connection: LedgerConnection, topology: str) -> bool:
    """Say whether an attempt waits for its commit, without the lock: most often none is left.

    What is processed later has its own task, which sees what was committed before.
    """
    with connection.transaction(reads_only=True) as tx:
        return bool(tx.one("is_any_processed", topology=topology)["is_any_processed"])
