"""Change the states of a topology: in one transaction, or through its checkpoint.

A change, which is a group of first commits, a replay or a rollback, is planned under the topology's
lock and applied. With one database this is one transaction. For several see checkpoint.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from reliability.core.audits import refuse_violations
from reliability.core.plan import Plan
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import PATIENCE_SECONDS, hold_topology
from reliability.states.audit_sql import log_violations
from reliability.states.kinds.stored import DifferenceObserver
from reliability.transaction.commit.apply import Applied, apply_plan, finish_requests
from reliability.transaction.commit.checkpoint_driver import driving
from reliability.transaction.commit.next_plan import (
    REFUSALS,
    AppliedPlan,
    Planner,
    RefusedPlan,
    plan_nothing,
)
from reliability.transaction.topology.databases import TopologyDatabases


class Committer(Protocol):
    """Applies what the planner plans; returns None if it plans nothing.

    With `may_drop` the plan is a rollback, which may replace a decided change that a database
    cannot commit.
    """

    def __call__(
        self, planner: Planner, *, may_drop: bool = False
    ) -> AppliedPlan | RefusedPlan | None: ...


@contextmanager
def committer(
    connection: LedgerConnection,
    topology: str,
    patience: int = PATIENCE_SECONDS,
    observer: DifferenceObserver | None = None,
) -> Iterator[Committer]:
    """Return the committer for this topology's databases.

    It first finishes what a dead driver left, and may then return that change instead of the
    planner's.

    :param observer: called with the rows that replays and rollbacks change, inside the transaction
        that changes them; ignored if states lie in several databases
    :raises LedgerBusy: another process holds the lock for longer than `patience` seconds
    """
    with TopologyDatabases.of(connection, topology) as participants:
        if not participants.others:
            # one transaction decides and applies the change: there is never a change to drop
            yield partial(_change_here, connection, topology, patience, observer)
        else:
            with driving(participants, patience) as checkpoint:
                yield checkpoint.change


def finish_unfinished_change(commit_change: Committer) -> None:
    """Finish the change that a dead driver left, and make no other."""
    commit_change(plan_nothing)


def _change_here(
    connection: LedgerConnection,
    topology: str,
    patience: int,
    observer: DifferenceObserver | None,
    planner: Planner,
    *,
    may_drop: bool = False,
) -> AppliedPlan | RefusedPlan | None:
    """Change the states in one transaction; PREPARING and COMMITTING are never durable."""
    plan: Plan = ()
    applied = Applied(())
    try:
        with connection.transaction() as tx:
            hold_topology(tx, topology, patience)
            plan = planner(tx)
            if not plan:
                return None
            applied = apply_plan(tx, topology, plan, observer)
            refuse_violations(applied.audits)
            finish_requests(tx, topology, plan)
            tx.queue(
                "advance_checkpoint",
                topology=topology,
                commit_number=plan[0].commit_number,
                changes=len(plan),
            )
            found = tx.commit_and_ask("is_any_processed", topology=topology)
    except REFUSALS as error:
        if not plan:
            raise
        return RefusedPlan(plan=plan, error=error, audits=applied.audits)
    log_violations(f"{topology} c={plan[-1].commit_number}", applied.audits)
    return AppliedPlan(plan, tuple(applied.differences), leaves_processed=found["is_any_processed"])
