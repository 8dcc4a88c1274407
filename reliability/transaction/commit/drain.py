"""Commit: the only serialised step. A change of the states is one Postgres transaction.

1. Lock the topology in a statement of its own (C1).
2. Plan what is next: the first commits from curr_txid on, or the oldest processed replay.
3. Take the next commit number c in every state: a second apply of c finds no row (C3).
4. Apply the contribution to every state; a replay replaces the old contribution.
5. Move the pointers: attempt COMMITTED, transaction, curr_txid, commit log, checkpoint.
6. Satisfy the requests for it, and COMMIT.

States in several databases need more than one transaction: see checkpoint.py.
"""

from __future__ import annotations

import logging
from functools import partial

from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import CheckpointTakenOver
from reliability.core.plan import PlannedCommit
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import PATIENCE_SECONDS, lock_topology
from reliability.states.kinds.stored import DifferenceObserver
from reliability.transaction.commit.audit_tables import record_outcome
from reliability.transaction.commit.committer import committer
from reliability.transaction.commit.next_plan import (
    AppliedPlan,
    Committed,
    RefusedPlan,
    read_plan,
)
from reliability.transaction.commit.saved_checkpoint import read_checkpoint

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
                logger.info("%s committed %s", topology, ", ".join(map(_shown, committed)))
                done += committed
                if not outcome.leaves_processed:
                    break
            elif len(outcome.plan) > 1:
                logger.warning(
                    "%s: a group was refused, trying one by one: %s", topology, outcome.error
                )
                txids = [one.txid for one in outcome.plan if isinstance(one, PlannedCommit)]
                planner = partial(planner, one_by_one=txids[-1])
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
    """Fail the attempt; if it stayed PROCESSED, every later request would adopt it and fail.

    :returns: None if no attempt was refused
    """
    planned = refused.plan[0]
    if not isinstance(planned, PlannedCommit):  # a dead driver's rollback: it was reverted
        return None
    logger.warning("%s %s was refused: %s", topology, planned.attempt, refused.error)
    with connection.transaction() as tx:
        lock_topology(tx, topology)
        found = read_checkpoint(tx, topology)
        if not found.state.is_at_rest:  # another driver may have decided to commit it
            raise CheckpointTakenOver(f"{topology}: {found.state} of epoch {found.epoch}")
        row = tx.first(
            "refuse_attempt",
            topology=topology,
            reason_code=refused.error.code,
            reason=refused.error.what,
            **planned.to_json(),
        )
        if row is not None:
            for outcome in refused.audits:
                record_outcome(tx, topology, [planned.txid], [planned.attempt_id], outcome)
    # no row: it has committed, and only what was asked behind the COMMIT failed
    return None if row is None else planned.attempt
