"""Dry runs: the real commit code runs in every database and is rolled back.

A dry run of a replay is a request of its own kind: Spark runs, the attempt is sealed, and this
module replaces the commit. Only the difference stays, in the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reliability.core.attempt import TransactionAttempt
from reliability.core.audits import AuditOutcome
from reliability.core.checkpoint import Phase
from reliability.core.difference import Difference
from reliability.core.errors import (
    AttemptFenced,
    LedgerBusy,
    NothingToReplay,
    ReliabilityError,
    Transient,
)
from reliability.core.plan import ChangeKind, Plan, PlannedChange, dropped_by
from reliability.core.statement_key import DryRunKey
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.locks import check_at_rest, lock_mirror, lock_topology
from reliability.states.kinds.stored import DifferenceObserver
from reliability.transaction.commit.apply import (
    AppliedPlan,
    Planner,
    apply_plan,
    record_differences,
)
from reliability.transaction.commit.participant import rolled_back
from reliability.transaction.commit.saved_checkpoint import check_reached, checkpoint_of
from reliability.transaction.process.audit import record_outcome
from reliability.transaction.topology.databases import TopologyDatabases


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunResult:
    """What committing the attempt of a dry run would change, and what audits would find."""

    attempt: TransactionAttempt
    differences: tuple[Difference, ...]
    audits: tuple[AuditOutcome, ...] = ()

    @property
    def violated(self) -> list[AuditOutcome]:
        return [outcome for outcome in self.audits if outcome.is_violated]


def try_plan(
    connection: LedgerConnection,
    topology: str,
    planner: Planner,
    observer: DifferenceObserver | None = None,
) -> AppliedPlan:
    """Apply what is planned in every database, and roll it back; audits refuse nothing.

    :raises LedgerBusy: another change is in progress that the plan does not drop, or was made
        between two databases: try again
    """
    with TopologyDatabases.of(connection, topology) as participants:
        with rolled_back(connection) as tx:
            locked = lock_topology(tx, topology)
            plan = planner(tx)
            checkpoint = checkpoint_of(locked).state
            dropped = dropped_by(plan)
            if not (dropped and checkpoint.phase is Phase.COMMITTING):
                check_at_rest(locked, topology)
            applied = apply_plan(tx, topology, plan, observer)
        for participant in participants:
            with rolled_back(participant) as tx:
                reached = checkpoint_of(lock_mirror(tx, topology)).state.commit_number
                check_reached(reached, locked["commit_number"])
                if reached > locked["commit_number"] + dropped:
                    raise LedgerBusy(
                        f"{topology} was changed during the dry run: it is at c={reached}"
                    )
                here = apply_plan(tx, topology, plan, observer)
            applied = replace(
                applied,
                differences=applied.differences + here.differences,
                audits=applied.audits + here.audits,
            )
    return applied


def dry_run_replay(
    connection: LedgerConnection,
    topology: str,
    txid: int,
    request_id: int,
    observer: DifferenceObserver | None = None,
) -> DryRunResult:
    """Record what committing the dry run's PROCESSED attempt would change, and end the attempt.

    :raises AttemptFenced: a sweep or another request has ended the dry run's attempt
    """
    dry_run = DryRunKey(topology, txid, request_id)

    def planner(tx: DatabaseTransaction) -> Plan:
        row = tx.first("dry_run_attempt", **dry_run)
        if row is None:
            raise _ended(txid)
        if row["replaced_attempt"] is None:
            raise NothingToReplay("it has not committed", topology=topology, txid=txid)
        reached = tx.one("topology_position", topology=topology)["commit_number"]
        return (
            PlannedChange(
                topology=topology,
                kind=ChangeKind.REPLAY,
                commit_number=reached + 1,
                txid=txid,
                **row,
            ),
        )

    try:
        applied = try_plan(connection, topology, planner, observer)
    except Transient:
        raise
    except ReliabilityError as error:  # no lock keeps a sweep from ending the attempt meanwhile
        if connection.first("dry_run_attempt", **dry_run) is None:
            raise _ended(txid) from error
        raise
    [planned] = applied.plan
    assert planned.attempt is not None
    key = replace(planned, commit_number=None)
    with TopologyDatabases.of(connection, topology) as participants:
        # The ledger is last and ends the attempt: a try that dies before it is repeated.
        for participant in participants:
            with participant.transaction() as tx:
                _record(tx, key, applied)
        with connection.transaction() as tx:
            _record(tx, key, applied)
            _end(tx, dry_run)
    return DryRunResult(
        attempt=planned.attempt, differences=applied.differences, audits=applied.audits
    )


def _record(tx: DatabaseTransaction, key: PlannedChange, applied: AppliedPlan) -> None:
    """Record what concerns the states of one database; replace what an earlier try recorded."""
    own = {row["state"] for row in tx.all("states", topology=key.topology)}
    tx.run("forget_dry_run", **key)
    record_differences(tx, [d for d in applied.differences if d.state in own], key)
    assert key.attempt_id is not None
    for outcome in applied.audits:
        if outcome.state in own:
            record_outcome(tx, key.topology, [key.txid], [key.attempt_id], outcome)


def _end(tx: DatabaseTransaction, key: DryRunKey) -> None:
    # the request first, as who closes it does
    for statement in ("satisfy_dry_run", "end_dry_run"):
        if tx.first(statement, **key) is None:
            raise _ended(key.txid)


def _ended(txid: int) -> AttemptFenced:
    return AttemptFenced(f"the dry run of txid {txid} was ended meanwhile")
