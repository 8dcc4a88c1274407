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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from reliability.core.errors import CheckpointTakenOver
from reliability.core.plan import Plan
from reliability.ledger.door import Door
from reliability.ledger.locks import PATIENCE_SECONDS, lock_topology
from reliability.transaction.checkpoint import driving
from reliability.transaction.participant import Participants
from reliability.transaction.plan import (
    REFUSALS,
    Committed,
    DrainLimits,
    Refused,
    Saved,
    carry_out,
    committed,
    read_checkpoint,
    read_plan,
    satisfy,
    save_checkpoint,
)

logger = logging.getLogger(__name__)
PASSING_PATIENCE_SECONDS = 1

CommitNext = Callable[[DrainLimits], "list[Committed] | Refused | None"]


def drain(
    door: Door, topology: str, *, own_txid: int | None = None, overdue: int = 0
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
    with _committing(door, topology, passing=overdue > 0) as commit_next:
        while (outcome := commit_next(limits)) is not None:
            if isinstance(outcome, list):
                logger.info("%s committed %s", topology, ", ".join(map(_shown, outcome)))
                done += outcome
            elif len(outcome.plan) > 1:
                logger.warning("%s is tried one by one: %s", topology, outcome.error)
                limits = replace(limits, most=1, at_once=True)
            else:
                _refuse(door, topology, outcome)
                if outcome.plan[0].txid == own_txid:
                    raise outcome.error
    return done


def _shown(one: Committed) -> str:
    return f"{one.attempt} as c={one.commit_number}"


@contextmanager
def _committing(door: Door, topology: str, *, passing: bool) -> Iterator[CommitNext]:
    """Say how this topology commits: in one transaction, or through its checkpoint."""
    patience = PASSING_PATIENCE_SECONDS if passing else PATIENCE_SECONDS
    with Participants.of(door, topology) as participants:
        if not participants.others:
            yield lambda limits: _commit_here(door, topology, limits, patience)
        else:
            with driving(participants, patience) as checkpoint:
                yield checkpoint.commit_next


def _commit_here(
    door: Door, topology: str, limits: DrainLimits, patience: int
) -> list[Committed] | Refused | None:
    """Commit what is next in one transaction; PREPARING and COMMITTING are never durable."""
    plan: Plan = ()
    try:
        with door.transaction() as tx:
            locked = lock_topology(tx, topology, patience)
            old = read_checkpoint(tx, topology)
            plan = read_plan(tx, topology, locked, limits)
            if not plan:
                return None
            carry_out(tx, topology, plan)
            satisfy(tx, topology, plan)
            save_checkpoint(tx, topology, old, _at(old, plan[-1].commit_number))
    except REFUSALS as error:
        if not plan:
            raise
        return Refused(plan=plan, error=error)
    return committed(plan)


def _at(saved: Saved, commit_number: int) -> Saved:
    return replace(saved, state=replace(saved.state, commit_number=commit_number))


def _refuse(door: Door, topology: str, refused: Refused) -> None:
    """Fail the attempt: left PROCESSED, every later request would adopt it and fail again."""
    logger.warning("%s %s was refused: %s", topology, refused.plan[0].attempt, refused.error)
    with door.transaction() as tx:
        lock_topology(tx, topology)
        found = read_checkpoint(tx, topology)
        if not found.state.is_at_rest:  # another driver may have decided to commit it
            raise CheckpointTakenOver(f"{topology}: {found.state} of epoch {found.epoch}")
        tx.run(
            "refuse_attempt",
            topology=topology,
            reason_code=refused.error.code,
            reason=refused.error.what,
            **refused.plan[0].to_json(),
        )
