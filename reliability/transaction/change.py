"""Change the states of a topology: in one transaction, or through its checkpoint.

A change is planned under the topology's lock and carried out: commits, a replay, a rollback. With
one database it is one transaction. States in several take more: see checkpoint.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from reliability.core.plan import Plan
from reliability.ledger.door import Door
from reliability.ledger.locks import PATIENCE_SECONDS, lock_topology
from reliability.transaction.checkpoint import driving
from reliability.transaction.participant import Participants
from reliability.transaction.plan import (
    REFUSALS,
    Changed,
    Planner,
    Refused,
    Saved,
    carry_out,
    read_checkpoint,
    save_checkpoint,
    settle,
)


class Change(Protocol):
    """Carries out what is planned; None if nothing was.

    With `may_drop` the plan is a rollback, which may take the place of a change that is decided
    and that a database cannot commit.
    """

    def __call__(self, planner: Planner, *, may_drop: bool = False) -> Changed | Refused | None: ...


@contextmanager
def changing(door: Door, topology: str, patience: int = PATIENCE_SECONDS) -> Iterator[Change]:
    """Say how this topology's states are changed.

    What a driver left behind that died in the middle is finished first; a change may then be told
    that is not the planner's.

    :raises LedgerBusy: somebody else is at work for longer than `patience` seconds
    """
    with Participants.of(door, topology) as participants:
        if not participants.others:
            # one transaction is decided and carried out at once: nothing is ever to be dropped
            yield lambda planner, may_drop=False: _change_here(door, topology, planner, patience)
        else:
            with driving(participants, patience) as checkpoint:
                yield checkpoint.change


def _change_here(
    door: Door, topology: str, planner: Planner, patience: int
) -> Changed | Refused | None:
    """Change the states in one transaction; PREPARING and COMMITTING are never durable."""
    plan: Plan = ()
    try:
        with door.transaction() as tx:
            locked = lock_topology(tx, topology, patience)
            old = read_checkpoint(tx, topology)
            plan = planner(tx, locked)
            if not plan:
                return None
            differences = carry_out(tx, topology, plan)
            settle(tx, topology, plan)
            save_checkpoint(tx, topology, old, _at(old, plan[-1].commit_number))
    except REFUSALS as error:
        if not plan:
            raise
        return Refused(plan=plan, error=error)
    return Changed(plan, tuple(differences))


def _at(saved: Saved, commit_number: int) -> Saved:
    return replace(saved, state=replace(saved.state, commit_number=commit_number))
