"""One physical commit in one database: planned under the topology's lock, then carried out.

A commit, a replay and a rollback are changes of the states: each takes the next commit number.

A target database that only takes part in a topology runs the very same statements on the same
schema as the coordinator's ledger; which plan counts is decided by the latter alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reliability.core.attempt import TransactionAttempt
from reliability.core.checkpoint import CheckpointState, Phase
from reliability.core.difference import Difference
from reliability.core.errors import (
    CheckpointTakenOver,
    LedgerCorruption,
    ReliabilityError,
    ReplayNotPossible,
    RollbackNotPossible,
    UnexpectedAnswer,
)
from reliability.core.plan import (
    MAX_TXIDS,
    Due,
    Plan,
    PlannedCommit,
    PlannedRollback,
    dropped_by,
    next_plan,
    planned_from_json,
)
from reliability.core.rollback import rollback_refusal
from reliability.core.state import StateKind
from reliability.core.texts import as_json
from reliability.ledger.connection import DatabaseTransaction, Row
from reliability.states.tables import StateTables
from reliability.transaction.commit.apply import (
    DifferenceObserver,
    commit_state,
    replay_state,
    roll_back_state,
)
from reliability.transaction.process.opaque import freeze_batch
from reliability.transaction.topology.declare import declared_tables

# What the data of an attempt do to its commit, in contrast to what a database or a lock does.
REFUSALS = (UnexpectedAnswer, LedgerCorruption, ReplayNotPossible, RollbackNotPossible)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """One commit; `replaced_attempt` is None for a first one, and else there are differences."""

    attempt: TransactionAttempt
    commit_number: int
    replaced_attempt: int | None
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class AppliedPlan:
    """What one physical commit has changed; of first commits there are no differences.

    What a participant had committed before its driver died is not told again here.
    """

    plan: Plan
    differences: tuple[Difference, ...] = ()

    def committed(self) -> list[Committed]:
        """Say what was committed."""
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
    most: int = MAX_TXIDS
    at_once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheckpoint:
    """A row of the table checkpoint."""

    state: CheckpointState
    epoch: int
    plan: Plan = ()


Planner = Callable[[DatabaseTransaction, Row], Plan]
"""Plans a change under the topology's lock; the row is the topology's, as its lock returned it."""


def nothing(tx: DatabaseTransaction, locked: Row) -> Plan:
    """Plan nothing: to repair what a predecessor left is all that is wanted."""
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
    # Only where a replay is due does it matter whose turn it is.
    is_replay_due = any(row["txid"] < locked["curr_txid"] for row in rows)
    last = tx.first("last_change", topology=topology) if is_replay_due else None
    return next_plan(
        [Due(**row) for row in rows],
        curr_txid=locked["curr_txid"],
        commit_number=locked["commit_number"],
        most=limits.most,
        last_was_first_commit=last is not None and last["was_first_commit"],
    )


def carry_out(
    tx: DatabaseTransaction, topology: str, plan: Plan, observer: DifferenceObserver | None = None
) -> list[Difference]:
    """Change every state of this database and move the pointers, one change after the other.

    Returns what a replay or a rollback changed, as it is recorded here with it.
    """
    tables = declared_tables(tx, topology)
    differences: list[Difference] = []
    for planned in plan:
        place = {"topology": topology, **planned.to_json()}
        match planned:
            case PlannedCommit(replaced_attempt=None):
                _commit(tx, tables, place)
            case PlannedCommit():
                differences += _replay(tx, tables, place, observer)
            case PlannedRollback():
                differences += _roll_back(tx, tables, place, observer)
    return differences


def _commit(
    tx: DatabaseTransaction, tables: Sequence[StateTables], place: Mapping[str, Any]
) -> None:
    freeze_batch(tx, place)
    for table in tables:
        commit_state(tx, table, place)
    _move_pointers(tx, place)


def _replay(
    tx: DatabaseTransaction,
    tables: Sequence[StateTables],
    place: Mapping[str, Any],
    observer: DifferenceObserver | None,
) -> list[Difference]:
    differences = [replay_state(tx, table, place, observer) for table in tables]
    tx.one("replace_attempt", **place)
    _move_pointers(tx, place)
    record_differences(tx, differences, place)
    return differences


def _move_pointers(tx: DatabaseTransaction, place: Mapping[str, Any]) -> None:
    tx.one("commit_attempt", **place)
    tx.one("commit_transaction", **place)
    tx.one("advance_topology", **place)
    tx.one("log_commit", **place)


def _roll_back(
    tx: DatabaseTransaction,
    tables: Sequence[StateTables],
    place: Mapping[str, Any],
    observer: DifferenceObserver | None,
) -> list[Difference]:
    at = {**place, "txid": place["to_txid"]}
    if place["dropped"]:  # where these were not taken, their numbers pass unused
        tx.run("drop_commit_numbers", **at)
        tx.run("drop_commit_numbers_of_states", **at)
    if place["dropped"] and tx.first("is_rolled_back", **at):
        differences = []
        for table in tables:
            state = {**at, "state": table.state.name}
            tx.one("advance_state", **state)
            if table.state.kind is StateKind.OPAQUE:  # where it is undone its one step is used up
                tx.run("end_history", **state)
    else:
        _check_rollback(tx, tables, at)
        differences = [roll_back_state(tx, table, at, observer) for table in tables]
    tx.run("take_back_attempts", **at)
    tx.run("take_back_transactions", **at)
    tx.one("take_back_topology", **at)
    tx.one("log_rollback", **at)
    record_differences(tx, differences, {**at, "attempt_id": None})
    return differences


def _check_rollback(
    tx: DatabaseTransaction, tables: Sequence[StateTables], place: Mapping[str, Any]
) -> None:
    rows = tx.all("history_of_states", **place)
    refusal = rollback_refusal(
        [table.state for table in tables],
        place["txid"],
        max((row["curr_txid"] for row in rows), default=1),
        {row["state"]: row["compacted_through"] for row in rows},
    )
    if refusal is not None:
        raise RollbackNotPossible(f"{place['topology']} to txid {place['txid']}: {refusal}")


def record_differences(
    tx: DatabaseTransaction, differences: Iterable[Difference], place: Mapping[str, Any]
) -> None:
    """Keep what was changed; of a dry run `place` has no commit number."""
    for one in differences:
        values = one.to_json()
        tx.one("record_difference", **{**place, **values, "moved": as_json(values["moved"])})


def settle(tx: DatabaseTransaction, topology: str, plan: Plan) -> None:
    """In the coordinator's ledger: who asked for what was changed has it, or has to ask anew.

    What a batch has no more that was frozen anew is free from here on.
    """
    for planned in plan:
        place = {"topology": topology, **planned.to_json()}
        if isinstance(planned, PlannedRollback):
            tx.run("close_later_requests", **place)
            tx.run("hold_later_txids", **place)
        else:
            tx.run("settle_refrozen_parts", **place)
            tx.all("satisfy_requests", **place)
            tx.run("close_requests_of_parked", **place)


def read_checkpoint(tx: DatabaseTransaction, topology: str) -> SavedCheckpoint:
    """Read where the topology's states are on their way to."""
    row = tx.one("checkpoint", topology=topology)
    plan = tuple(planned_from_json(item) for item in row["plan"])
    state = CheckpointState(
        Phase(row["phase"]), row["commit_number"], max(len(plan), 1), dropped_by(plan)
    )
    return SavedCheckpoint(state=state, epoch=row["epoch"], plan=plan)


def save_checkpoint(
    tx: DatabaseTransaction, topology: str, old: SavedCheckpoint, new: SavedCheckpoint
) -> None:
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
        plan=as_json([planned.to_json() for planned in new.plan]),
    )
    if row is None:
        raise CheckpointTakenOver(f"the checkpoint of {topology} is not {old.state} any more")
