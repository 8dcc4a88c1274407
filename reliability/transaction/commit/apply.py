"""Apply a plan: change every state of one database and move the ledger's pointers.

A participating target database has the same schema as the coordinator's ledger and runs the same
statements. Only the coordinator's ledger decides which plan counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reliability.core.audits import AuditOutcome
from reliability.core.difference import Difference
from reliability.core.errors import RollbackNotPossible
from reliability.core.plan import (
    ChangeKey,
    Plan,
    PlannedCommit,
    PlannedRepair,
    PlannedRollback,
    is_group_of_first_commits,
)
from reliability.core.rollback_check import rollback_refusal
from reliability.core.texts import as_json
from reliability.ledger.connection import DatabaseTransaction, Row
from reliability.states.kinds import StoredState, stored_state
from reliability.transaction.commit.audit_tables import audit_tables
from reliability.transaction.process.opaque_batch import freeze_batch
from reliability.transaction.topology.declare import tables_of

if TYPE_CHECKING:
    from reliability.states.kinds.stored import DifferenceObserver


@dataclass(frozen=True, slots=True)
class Applied:
    """What applying a plan has done to one database, where it is recorded.

    :param differences: what replays, rollbacks and repairs made
    :param audits: what the audits of the tables have found. The caller must look at them: this
        change may still be refused, unless it is decided (C12)
    """

    differences: Sequence[Difference]
    audits: Sequence[AuditOutcome] = ()

    def and_also(self, other: Applied) -> Applied:
        """Return what both have done."""
        return Applied([*self.differences, *other.differences], [*self.audits, *other.audits])


def apply_plan(
    tx: DatabaseTransaction,
    topology: str,
    plan: Plan,
    observer: DifferenceObserver | None = None,
) -> Applied:
    """Apply a plan: change every state of this database, move the pointers, audit the tables."""
    done = [planned for planned in plan if isinstance(planned, PlannedCommit)]
    found = tx.one(
        "facts_to_apply",
        topology=topology,
        txids=[planned.txid for planned in done],
        attempt_ids=[planned.attempt_id for planned in done],
    )
    differences = _change_states(tx, topology, plan, found, observer)
    audits = audit_tables(tx, topology, found["audits"])
    return Applied(differences, audits)


def _change_states(
    tx: DatabaseTransaction,
    topology: str,
    plan: Plan,
    found: Row,
    observer: DifferenceObserver | None,
) -> list[Difference]:
    """Make the changes of a plan in order."""
    states = [stored_state(tables) for tables in tables_of(topology, found["definitions"])]
    if is_group_of_first_commits(plan):
        keys = [ChangeKey.of(topology, planned) for planned in plan]
        _commit(tx, states, keys, is_any_unfrozen=found["is_any_unfrozen"])
        return []
    differences: list[Difference] = []
    for planned in plan:
        key = ChangeKey.of(topology, planned)
        match planned:
            case PlannedCommit():
                differences += _replay(tx, states, key, observer)
            case PlannedRollback():
                differences += _roll_back(tx, states, key, observer)
            case PlannedRepair():
                differences += _repair(tx, states, key, observer)
    return differences


def _commit(
    tx: DatabaseTransaction,
    states: Sequence[StoredState],
    keys: Sequence[ChangeKey],
    *,
    is_any_unfrozen: bool,
) -> None:
    """Add the contributions of consecutive txids to each state, and move the pointers to them.

    An opaque batch freezes behind the commit of the txid before it: such txids go one by one.
    """
    if not is_any_unfrozen:
        _commit_frozen(tx, states, keys)
        return
    for key in keys:
        freeze_batch(tx, key)
        _commit_frozen(tx, states, [key])


def _commit_frozen(
    tx: DatabaseTransaction, states: Sequence[StoredState], keys: Sequence[ChangeKey]
) -> None:
    for state in states:
        state.commit(tx, *keys)
    _move_pointers(tx, keys)


def _replay(
    tx: DatabaseTransaction,
    states: Sequence[StoredState],
    key: ChangeKey,
    observer: DifferenceObserver | None,
) -> list[Difference]:
    differences = [state.replay(tx, key, observer) for state in states]
    tx.one("replace_attempt", **key)
    _move_pointers(tx, [key])
    record_differences(tx, differences, key)
    return differences


def _move_pointers(tx: DatabaseTransaction, keys: Sequence[ChangeKey]) -> None:
    tx.queue(
        "move_pointers",
        topology=keys[0].topology,
        commit_number=keys[0].commit_number,
        txids=[key.txid for key in keys],
        attempt_ids=[key.attempt_id for key in keys],
        nonces=[key.nonce for key in keys],
        replaced_attempt=keys[0].replaced_attempt,
    )


def _roll_back(
    tx: DatabaseTransaction,
    states: Sequence[StoredState],
    key: ChangeKey,
    observer: DifferenceObserver | None,
) -> list[Difference]:
    differences: list[Difference] = []
    if key.dropped:  # a database that lacks these changes skips their commit numbers
        tx.run("drop_commit_numbers", **key)
        tx.run("drop_commit_numbers_of_states", **key)
    if key.dropped and tx.first("is_rolled_back", **key):
        for state in states:
            state.drop_commit_number(tx, key)
    else:
        _check_rollback(tx, states, key)
        differences = [state.roll_back(tx, key, observer) for state in states]
    tx.run("take_back_attempts", **key)
    tx.run("take_back_transactions", **key)
    tx.one("take_back_topology", **key)
    tx.one("log_change_of_rows", kind="ROLLBACK", **key)
    record_differences(tx, differences, key)
    return differences


def _repair(
    tx: DatabaseTransaction,
    states: Sequence[StoredState],
    key: ChangeKey,
    observer: DifferenceObserver | None,
) -> list[Difference]:
    repaired = [state.repair(tx, key, observer) for state in states]
    differences = [difference for difference in repaired if difference is not None]
    tx.one("advance_topology", **key)
    tx.one("log_change_of_rows", kind="REPAIR", **key)
    record_differences(tx, differences, key)
    return differences


def _check_rollback(tx: DatabaseTransaction, states: Sequence[StoredState], key: ChangeKey) -> None:
    rows = tx.all("history_of_states", **key)
    refusal = rollback_refusal(
        [state.tables.state for state in states],
        key.txid,
        max((row["curr_txid"] for row in rows), default=1),
        {row["state"]: row["compacted_through"] for row in rows},
    )
    if refusal is not None:
        raise RollbackNotPossible(f"{key.topology} to txid {key.txid}: {refusal}")


def record_differences(
    tx: DatabaseTransaction, differences: Iterable[Difference], key: ChangeKey
) -> None:
    """Record the differences; the key of a dry run has no commit number."""
    for difference in differences:
        values = difference.to_json()
        by_hand = values["by_hand"]
        values["by_hand"] = None if by_hand is None else as_json(by_hand)
        tx.one("record_difference", **{**key, **values, "moved": as_json(values["moved"])})


def finish_requests(tx: DatabaseTransaction, topology: str, plan: Plan) -> None:
    """Satisfy or close the requests that the plan concerns, in the coordinator's ledger.

    Source items that a refrozen batch no longer contains may be emitted again from here on.
    """
    for planned in plan:
        if isinstance(planned, PlannedRollback):
            key = ChangeKey.of(topology, planned)
            tx.run("close_later_requests", **key)
            tx.run("hold_later_txids", **key)
    if done := [planned for planned in plan if isinstance(planned, PlannedCommit)]:
        tx.queue(
            "finish_requests",
            topology=topology,
            txids=[planned.txid for planned in done],
            attempt_ids=[planned.attempt_id for planned in done],
        )
