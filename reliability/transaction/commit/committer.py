"""Commit: the only serialised step. A change of the states is one Postgres transaction.

1. Lock the topology in a statement of its own (C1).
2. Plan what is next: the first commits from curr_txid on, or the oldest processed replay.
3. Take the next commit number c in every state: a second apply of c finds no row (C3).
4. Apply the contribution to every state; a replay replaces the old contribution.
5. Move the pointers: attempt COMMITTED, transaction, curr_txid, commit log, checkpoint.
6. Satisfy the requests for it, and COMMIT.

A rollback and a repair are changes like any other. States in several databases need more than one
transaction: see checkpoint.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Protocol

from reliability.core.attempt import TransactionAttempt
from reliability.core.audits import refuse_violations
from reliability.core.errors import CheckpointTakenOver
from reliability.core.plan import MAX_TXIDS, Plan, PlannedChange, next_plan
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.locks import PATIENCE_SECONDS, hold_topology, holding
from reliability.ledger.read_rows import position_of
from reliability.states.audit_sql import log_violations
from reliability.states.kinds.stored import DifferenceObserver
from reliability.transaction.commit.apply import (
    REFUSALS,
    AppliedPlan,
    Committed,
    Planner,
    RefusedPlan,
    apply_plan,
    finish_requests,
)
from reliability.transaction.commit.checkpoint_driver import driving
from reliability.transaction.commit.saved_checkpoint import checkpoint_of
from reliability.transaction.process.audit import record_outcome
from reliability.transaction.topology.databases import TopologyDatabases

logger = logging.getLogger(__name__)
PASSING_PATIENCE_SECONDS = 1


def drain(
    connection: LedgerConnection,
    topology: str,
    *,
    own_txid: int | None = None,
    overdue: int = 0,
    observer: DifferenceObserver | None = None,
) -> list[Committed]:
    """Commit all that is due, in order: first commits and processed replays (C5).

    First commits share a physical commit. If that is refused, they are committed one by one, so
    that only the txid that caused it fails and blocks the later ones.

    :param own_txid: raise if the commit of this txid is refused; refusals of others are logged
    :param overdue: for a caller that has no txid of its own: skip what was processed less than
        this many seconds ago, and do not wait long for another process
    :param observer: called with the rows that replays change; see committer
    :raises CheckpointStuck, CheckpointMismatch: states lie in several databases, and one of them
        cannot commit
    """
    done: list[Committed] = []
    planner = partial(read_plan, topology, overdue=overdue)
    patience = PASSING_PATIENCE_SECONDS if overdue > 0 else PATIENCE_SECONDS
    with committer(connection, topology, patience, observer) as commit_change:
        while (outcome := commit_change(planner)) is not None:
            if isinstance(outcome, AppliedPlan):
                committed = outcome.committed()
                shown = ", ".join(f"{one.attempt} as c={one.commit_number}" for one in committed)
                logger.info("%s committed %s", topology, shown)
                done += committed
                if not outcome.leaves_processed:
                    break
            elif len(outcome.plan) > 1:
                logger.warning(
                    "%s: a group was refused, trying one by one: %s", topology, outcome.error
                )
                planner = partial(planner, one_by_one=outcome.plan[-1].txid)
            else:
                refused = _refuse(connection, topology, outcome)
                if refused is not None and refused.txid == own_txid:
                    raise outcome.error
    return done


def read_plan(
    topology: str, tx: DatabaseTransaction, *, overdue: int = 0, one_by_one: int = 0
) -> Plan:
    """Plan what commits next; the limits are those of `next_plan`."""
    position = position_of(tx.one("position", topology=topology, most=MAX_TXIDS))
    return next_plan(position, overdue=overdue, one_by_one=one_by_one)


def _refuse(
    connection: LedgerConnection, topology: str, refused: RefusedPlan
) -> TransactionAttempt | None:
    """Fail the attempt; if it stayed PROCESSED, every later request would adopt it and fail.

    :returns: None if no attempt was refused
    """
    [change] = refused.plan
    attempt = change.attempt
    if attempt is None:  # a dead driver's rollback: it was reverted
        return None
    logger.warning("%s %s was refused: %s", topology, attempt, refused.error)
    with holding(connection, topology) as (tx, locked):
        checkpoint = checkpoint_of(locked)
        if not checkpoint.state.is_at_rest:  # another driver may have decided to commit it
            raise CheckpointTakenOver(f"{topology}: {checkpoint.state} of epoch {checkpoint.epoch}")
        row = tx.first("refuse_attempt", **{**change, **refused.error.to_ledger()})
        if row is not None:
            for outcome in refused.audits:
                record_outcome(tx, topology, [attempt.txid], [attempt.attempt_id], outcome)
    # no row: it has committed, and only what was asked behind the COMMIT failed
    return None if row is None else attempt


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


def carry_out(
    commit_change: Committer,
    topology: str,
    planner: Planner,
    is_wanted: Callable[[PlannedChange], bool],
    *,
    may_drop: bool = False,
) -> AppliedPlan:
    """Make a person's change; a dead driver's unfinished change is completed first.

    :param is_wanted: tells the person's change from the other one
    :raises ReliabilityError: a database has refused it
    """
    while (outcome := commit_change(planner, may_drop=may_drop)) is not None:
        if not isinstance(outcome, AppliedPlan):
            raise outcome.error
        if is_wanted(outcome.plan[-1]):
            return outcome
    raise CheckpointTakenOver(f"{topology}: another driver has taken over")


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
    applied = AppliedPlan(())
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
            after = tx.commit_and_ask("is_any_processed", topology=topology)
    except REFUSALS as error:
        if not plan:
            raise
        return RefusedPlan(plan=plan, error=error, audits=applied.audits)
    log_violations(f"{topology} c={plan[-1].commit_number}", applied.audits)
    return replace(applied, leaves_processed=after["is_any_processed"])
