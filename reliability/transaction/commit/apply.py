"""Apply a plan: change every state of one database and move the ledger's pointers.

A participating target database has the same schema as the coordinator's ledger and runs the same
statements. Only the coordinator's ledger decides which plan counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reliability.core.attempt import TransactionAttempt
from reliability.core.audits import AuditOutcome
from reliability.core.difference import Difference
from reliability.core.errors import (
    AuditFailed,
    LedgerCorruption,
    ReliabilityError,
    RepairNotPossible,
    ReplayNotPossible,
    RightMissing,
    RollbackNotPossible,
    TextNotStorable,
    UnexpectedAnswer,
)
from reliability.core.plan import ChangeKind, Plan, PlannedChange, is_group_of_first_commits
from reliability.core.rollback_check import rollback_refusal
from reliability.core.texts import as_json
from reliability.ledger.connection import DatabaseTransaction
from reliability.states.kinds import StoredState
from reliability.transaction.process.audit import audit_tables
from reliability.transaction.process.opaque_batch import freeze_batch
from reliability.transaction.topology.declare import tables_of

if TYPE_CHECKING:
    from reliability.states.kinds.stored import DifferenceObserver

# Errors that the data of an attempt or its tables cause, not an outage or a lock.
REFUSALS = (
    AuditFailed,
    UnexpectedAnswer,
    RightMissing,
    TextNotStorable,
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
    """What applying a plan has done to one database, or to all.

    :param differences: what replays, rollbacks and repairs made; not what a participant committed
        for a dead driver
    :param audits: what the audits of the tables have found. The caller of `apply_plan` must look at
        them: this change may still be refused, unless it is decided (C12)
    :param leaves_processed: whether an attempt may wait for its commit just after this one. One
        that is processed later has its own task
    """

    plan: Plan
    differences: tuple[Difference, ...] = ()
    audits: tuple[AuditOutcome, ...] = ()
    leaves_processed: bool = True

    def committed(self) -> list[Committed]:
        return [
            Committed(
                attempt=change.attempt,
                commit_number=change.commit_number,
                replaced_attempt=change.replaced_attempt,
                differences=self.differences,
            )
            for change in self.plan
            if change.attempt is not None and change.commit_number is not None
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedPlan:
    """A physical commit that Postgres refused, for example by a constraint of the user's.

    :param audits: what the audits of the tables have found, if there is one database
    """

    plan: Plan
    error: ReliabilityError
    audits: Sequence[AuditOutcome] = ()


Folded = Mapping[str, Sequence[int]]
"""State -> the txids whose contributions to it have no key twice."""
Planner = Callable[[DatabaseTransaction], Plan]
"""Plans a change under the topology's lock."""


def plan_nothing(tx: DatabaseTransaction) -> Plan:
    """Plan nothing, to finish only the change that a dead driver left."""
    return ()


def apply_plan(
    tx: DatabaseTransaction,
    topology: str,
    plan: Plan,
    observer: DifferenceObserver | None = None,
) -> AppliedPlan:
    """Change every state of this database in the order of a plan, then audit the tables.

    Consecutive first commits move the pointers together. An opaque batch freezes behind the commit
    of the txid before it: such txids go one by one.
    """
    facts = tx.one("facts_to_apply", topology=topology, **_attempts(plan))
    states = tables_of(topology, facts["definitions"])
    differences: list[Difference] = []
    folded: Folded = facts["folded"]
    if is_group_of_first_commits(plan) and not facts["is_any_unfrozen"]:
        _commit(tx, states, plan, folded)
    else:
        for change in plan:
            differences += _change(tx, states, change, folded, observer)
    audits = audit_tables(tx, topology, facts["audits"])
    return AppliedPlan(plan, tuple(differences), tuple(audits))


def _attempts(plan: Plan) -> dict[str, list[int]]:
    """Return the parameters that name the attempts of a plan."""
    attempts = [change.attempt for change in plan if change.attempt is not None]
    return {
        "txids": [attempt.txid for attempt in attempts],
        "attempt_ids": [attempt.attempt_id for attempt in attempts],
    }


def _change(
    tx: DatabaseTransaction,
    states: Sequence[StoredState],
    change: PlannedChange,
    folded: Folded,
    observer: DifferenceObserver | None,
) -> list[Difference]:
    match change.kind:
        case ChangeKind.COMMIT:
            freeze_batch(tx, change)
            _commit(tx, states, (change,), folded)
            return []
        case ChangeKind.REPLAY:
            differences = [state.replay(tx, change, observer) for state in states]
            tx.one("replace_attempt", **change)
            _move_pointers(tx, (change,))
        case ChangeKind.ROLLBACK:
            differences = _roll_back(tx, states, change, observer)
        case ChangeKind.REPAIR:
            repaired = [state.repair(tx, change, observer) for state in states]
            differences = [difference for difference in repaired if difference is not None]
            tx.one("advance_topology", **change)
            tx.one("log_change_of_rows", **change)
    record_differences(tx, differences, change)
    return differences


def _commit(
    tx: DatabaseTransaction, states: Sequence[StoredState], plan: Plan, folded: Folded
) -> None:
    """Add the contributions of consecutive txids to each state, and move the pointers to them."""
    for state in states:
        state.commit(tx, *plan, folded=folded.get(state.name, ()))
    _move_pointers(tx, plan)


def _move_pointers(tx: DatabaseTransaction, plan: Plan) -> None:
    nonces = [change.nonce for change in plan]
    tx.queue("move_pointers", nonces=nonces, **plan[0], **_attempts(plan))


def _roll_back(
    tx: DatabaseTransaction,
    states: Sequence[StoredState],
    change: PlannedChange,
    observer: DifferenceObserver | None,
) -> list[Difference]:
    differences: list[Difference] = []
    if change.dropped:  # a database that lacks these changes skips their commit numbers
        tx.run("drop_commit_numbers", **change)
    if change.dropped and tx.first("is_rolled_back", **change):
        for state in states:
            state.drop_commit_number(tx, change)
    else:
        _check_rollback(tx, states, change)
        differences = [state.roll_back(tx, change, observer) for state in states]
    tx.queue("lock_later_requests", **change)
    tx.run("take_back_attempts", **change)
    tx.run("take_back_transactions", **change)
    tx.one("take_back_topology", **change)
    tx.one("log_change_of_rows", **change)
    return differences


def _check_rollback(
    tx: DatabaseTransaction, states: Sequence[StoredState], change: PlannedChange
) -> None:
    rows = tx.all("history_of_states", **change)
    curr_txid = max((row["curr_txid"] for row in rows), default=1)
    refusal = rollback_refusal(
        [state.state for state in states],
        change.txid,
        curr_txid,
        {row["state"]: row["compacted_through"] for row in rows},
    )
    if refusal is not None:
        done = "do nothing: no later txid counts. `reliability status` says what a rollback holds."
        raise RollbackNotPossible(
            f"{change.topology} to txid {change.txid}: {refusal}",
            remedy=done if change.txid == curr_txid - 1 else None,
        )


def record_differences(
    tx: DatabaseTransaction, differences: Iterable[Difference], change: PlannedChange
) -> None:
    """Record the differences that a change has made, or, of a dry run, would make."""
    for difference in differences:
        values = difference.to_json()
        values["by_hand"] = values["by_hand"] and as_json(values["by_hand"])
        tx.one("record_difference", **{**change, **values, "moved": as_json(values["moved"])})


def finish_requests(tx: DatabaseTransaction, topology: str, plan: Plan) -> None:
    """Satisfy or close the requests that the plan concerns, in the coordinator's ledger.

    Source items that a refrozen batch no longer contains may be emitted again from here on.
    """
    for change in plan:
        if change.kind is ChangeKind.ROLLBACK:
            tx.run("close_later_requests", **change)
            tx.run("hold_later_txids", **change)
    tx.queue("finish_requests", topology=topology, **_attempts(plan))
