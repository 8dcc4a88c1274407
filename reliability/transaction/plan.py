"""One physical commit in one database: planned under the topology's lock, then carried out.

A target database that only takes part in a topology runs the very same statements on the same
schema as the coordinator's ledger; which plan counts is decided by the latter alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from reliability.core.attempt import TransactionAttempt
from reliability.core.checkpoint import CheckpointState, Phase
from reliability.core.errors import (
    CheckpointTakenOver,
    LedgerCorruption,
    ReliabilityError,
    ReplayNotPossible,
    UnexpectedAnswer,
)
from reliability.core.plan import MOST_TXIDS, Due, Plan, PlannedCommit, next_plan
from reliability.ledger.door import Row, Transaction
from reliability.transaction.apply import change_state
from reliability.transaction.declare import declared_tables
from reliability.transaction.opaque import freeze_batch

# What the data of an attempt do to its commit, in contrast to what a database or a lock does.
REFUSALS = (UnexpectedAnswer, LedgerCorruption, ReplayNotPossible)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """One change of the states; `replaced_attempt` is None for a first commit."""

    attempt: TransactionAttempt
    commit_number: int
    replaced_attempt: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A physical commit that Postgres refused: a number too large, a constraint of the user's."""

    plan: Plan
    error: ReliabilityError


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainLimits:
    """What a drain takes along.

    :param overdue: leave alone what was processed less than so many seconds ago
    :param most: how many first commits may share one physical commit
    :param at_once: do not wait for the checkpoint interval
    """

    overdue: int = 0
    most: int = MOST_TXIDS
    at_once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A row of the table checkpoint."""

    state: CheckpointState
    epoch: int
    plan: Plan = ()


def read_plan(tx: Transaction, topology: str, locked: Row, limits: DrainLimits) -> Plan:
    """Plan what commits next; `locked` is the topology's row, as its lock returned it."""
    rows = tx.all(
        "due",
        topology=topology,
        overdue=limits.overdue,
        most=limits.most,
        at_once=limits.at_once,
    )
    return next_plan(
        [Due(**row) for row in rows],
        curr_txid=locked["curr_txid"],
        commit_number=locked["commit_number"],
        most=limits.most,
    )


def carry_out(tx: Transaction, topology: str, plan: Plan) -> None:
    """Change every state of this database and move the pointers, one txid after the other."""
    tables = declared_tables(tx, topology)
    for planned in plan:
        place = {"topology": topology, **planned.to_json()}
        if planned.replaced_attempt is None:
            freeze_batch(tx, place)
        for table in tables:
            change_state(tx, table, place)
        _move_pointers(tx, place)


def _move_pointers(tx: Transaction, place: Mapping[str, Any]) -> None:
    if place["replaced_attempt"] is not None:
        tx.one("replace_attempt", **place)
    tx.one("commit_attempt", **place)
    tx.one("commit_transaction", **place)
    tx.one("advance_topology", **place)
    tx.one("log_commit", **place)


def satisfy(tx: Transaction, topology: str, plan: Plan) -> None:
    """Satisfy who asked for what the plan committed."""
    for planned in plan:
        tx.all("satisfy_requests", topology=topology, **planned.to_json())


def committed(plan: Iterable[PlannedCommit]) -> list[Committed]:
    """Say what a plan committed."""
    return [
        Committed(
            attempt=planned.attempt,
            commit_number=planned.commit_number,
            replaced_attempt=planned.replaced_attempt,
        )
        for planned in plan
    ]


def read_checkpoint(tx: Transaction, topology: str) -> Saved:
    """Read where the topology's states are on their way to."""
    row = tx.one("checkpoint", topology=topology)
    plan = tuple(PlannedCommit.from_json(item) for item in row["plan"])
    state = CheckpointState(Phase(row["phase"]), row["commit_number"], max(len(plan), 1))
    return Saved(state=state, epoch=row["epoch"], plan=plan)


def save_checkpoint(tx: Transaction, topology: str, old: Saved, new: Saved) -> None:
    """Put `new` in the place of `old`; raise CheckpointTakenOver if that is not there any more."""
    row = tx.first(
        "save_checkpoint",
        topology=topology,
        old_phase=old.state.phase.value,
        old_commit_number=old.state.commit_number,
        old_epoch=old.epoch,
        phase=new.state.phase.value,
        commit_number=new.state.commit_number,
        epoch=new.epoch,
        plan=json.dumps([planned.to_json() for planned in new.plan]),
    )
    if row is None:
        raise CheckpointTakenOver(f"the checkpoint of {topology} is not {old.state} any more")
