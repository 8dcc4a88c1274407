"""Commit: the one serialised step. A change of the states is one Postgres transaction.

1. lock the topology, in a statement of its own (C1)
2. plan whose turn it is: the first commits from curr_txid on, else the oldest processed replay
3. take the next commit number c, in every state: a second apply of c finds no row (C3)
4. apply the contribution to every state, or swap it for the one it replaces
5. move the pointers: attempt COMMITTED, transaction, curr_txid, commit log, checkpoint
6. satisfy who asked for it, and COMMIT

States in several databases take more than one transaction: see checkpoint.py.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial

from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import CheckpointTakenOver
from reliability.core.plan import PlannedCommit
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import PATIENCE_SECONDS, lock_topology
from reliability.transaction.commit.committer import committer
from reliability.transaction.commit.plan import (
    AppliedPlan,
    Committed,
    DrainLimits,
    RefusedPlan,
    read_plan,
)
from reliability.transaction.commit.saved_checkpoint import read_checkpoint

logger = logging.getLogger(__name__)
PASSING_PATIENCE_SECONDS = 1


def drain(
    connection: LedgerConnection, topology: str, *, own_txid: int | None = None, overdue: int = 0
) -> list[Committed]:
    """Commit everything whose turn it is, in order: first commits, then processed replays (C5).

    First commits share a physical commit. When that is refused, they are tried one by one, so
    that only the guilty one is failed and blocks what comes after it.

    :param own_txid: raise if this txid's commit is refused; what is refused of others is logged
    :param overdue: leave alone what was processed less than so many seconds ago, and go away if
        somebody else is at work; for those who pass by
    :raises CheckpointStuck, CheckpointMismatch: states lie in several databases, and one of them
        cannot follow
    """
    done: list[Committed] = []
    limits = DrainLimits(overdue=overdue)
    patience = PASSING_PATIENCE_SECONDS if overdue > 0 else PATIENCE_SECONDS
    with committer(connection, topology, patience) as change:
        while (outcome := change(partial(read_plan, topology, limits))) is not None:
            if isinstance(outcome, AppliedPlan):
                committed = outcome.committed()
                logger.info("%s committed %s", topology, ", ".join(map(_shown, committed)))
                done += committed
            elif len(outcome.plan) > 1:
                logger.warning("%s is tried one by one: %s", topology, outcome.error)
                limits = replace(limits, most=1, at_once=True)
            else:
                refused = _refuse(connection, topology, outcome)
                if refused is not None and refused.txid == own_txid:
                    raise outcome.error
    return done


def _shown(one: Committed) -> str:
    return f"{one.attempt} as c={one.commit_number}"


def _refuse(
    connection: LedgerConnection, topology: str, refused: RefusedPlan
) -> TransactionAttempt | None:
    """Fail the attempt: left PROCESSED, every later request would adopt it and fail again."""
    planned = refused.plan[0]
    if not isinstance(planned, PlannedCommit):  # a rollback of somebody who died: it is undone
        return None
    logger.warning("%s %s was refused: %s", topology, planned.attempt, refused.error)
    with connection.transaction() as tx:
        lock_topology(tx, topology)
        found = read_checkpoint(tx, topology)
        if not found.state.is_at_rest:  # another driver may have decided to commit it
            raise CheckpointTakenOver(f"{topology}: {found.state} of epoch {found.epoch}")
        tx.run(
            "refuse_attempt",
            topology=topology,
            reason_code=refused.error.code,
            reason=refused.error.what,
            **planned.to_json(),
        )
    return planned.attempt
