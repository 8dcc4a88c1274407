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
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import PATIENCE_SECONDS, lock_topology
from reliability.transaction.commit.apply import apply_plan, settle_requests
from reliability.transaction.commit.checkpoint import driving
from reliability.transaction.commit.plan import REFUSALS, AppliedPlan, Planner, RefusedPlan
from reliability.transaction.commit.saved_checkpoint import (
    SavedCheckpoint,
    read_checkpoint,
    save_checkpoint,
)
from reliability.transaction.topology.databases import TopologyDatabases


class Committer(Protocol):
    """Carries out what is planned; None if nothing was.

    With `may_drop` the plan is a rollback, which may take the place of a change that is decided
    and that a database cannot commit.
    """

    def __call__(
        self, planner: Planner, *, may_drop: bool = False
    ) -> AppliedPlan | RefusedPlan | None: ...


@contextmanager
def committer(
    connection: LedgerConnection, topology: str, patience: int = PATIENCE_SECONDS
) -> Iterator[Committer]:
    """Say how this topology's states are changed.

    What a driver left behind that died in the middle is finished first; a change may then be told
    that is not the planner's.

    :raises LedgerBusy: somebody else is at work for longer than `patience` seconds
    """
    with TopologyDatabases.of(connection, topology) as participants:
        if not participants.others:
            # one transaction is decided and carried out at once: nothing is ever to be dropped
            yield lambda planner, may_drop=False: _change_here(
                connection, topology, planner, patience
            )
        else:
            with driving(participants, patience) as checkpoint:
                yield checkpoint.change


def _change_here(
    connection: LedgerConnection, topology: str, planner: Planner, patience: int
) -> AppliedPlan | RefusedPlan | None:
    """Change the states in one transaction; PREPARING and COMMITTING are never durable."""
    plan: Plan = ()
    try:
        with connection.transaction() as tx:
            locked = lock_topology(tx, topology, patience)
            old = read_checkpoint(tx, topology)
            plan = planner(tx, locked)
            if not plan:
                return None
            differences = apply_plan(tx, topology, plan)
            settle_requests(tx, topology, plan)
            save_checkpoint(tx, topology, old, _at(old, plan[-1].commit_number))
    except REFUSALS as error:
        if not plan:
            raise
        return RefusedPlan(plan=plan, error=error)
    return AppliedPlan(plan, tuple(differences))


def _at(saved: SavedCheckpoint, commit_number: int) -> SavedCheckpoint:
    return replace(saved, state=replace(saved.state, commit_number=commit_number))
