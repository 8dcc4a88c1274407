"""Dry runs: the real commit code runs in every database and is rolled back.

A dry run of a replay is a request of its own kind: Spark runs, the attempt is sealed, and this
module replaces the commit. Only the difference stays, in the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reliability.core.attempt import TransactionAttempt
from reliability.core.audits import AuditOutcome
from reliability.core.checkpoint import COORDINATOR, Phase
from reliability.core.difference import Difference
from reliability.core.errors import (
    AttemptFenced,
    LedgerBusy,
    NothingToReplay,
    ReliabilityError,
    Transient,
)
from reliability.core.plan import ChangeKey, Plan, PlannedCommit, dropped_by
from reliability.core.statement_key import DryRunKey
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.locks import lock_mirror, lock_topology
from reliability.states.kinds.stored import DifferenceObserver
from reliability.transaction.commit.apply import Applied, apply_plan, record_differences
from reliability.transaction.commit.audit_tables import record_outcome
from reliability.transaction.commit.next_plan import Planner
from reliability.transaction.commit.participant import rolled_back
from reliability.transaction.commit.saved_checkpoint import read_checkpoint
from reliability.transaction.topology.databases import TopologyDatabases, naming_database


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunResult:
    """What committing the attempt of a dry run would change, and what audits would find."""

    attempt: TransactionAttempt
    differences: tuple[Difference, ...]
    audits: tuple[AuditOutcome, ...] = ()

    @property
    def violated(self) -> list[AuditOutcome]:
        """Return the audits that the commit would violate."""
        return [outcome for outcome in self.audits if outcome.is_violated]


def try_plan(
    connection: LedgerConnection,
    topology: str,
    planner: Planner,
    observer: DifferenceObserver | None = None,
) -> tuple[Plan, Applied]:
    """Apply what is planned in every database, and roll it back; audits refuse nothing.

    :raises LedgerBusy: another change is in progress that the plan does not drop, or was made
        between two databases: try again
    """
    with TopologyDatabases.of(connection, topology) as participants:
        with rolled_back(connection) as tx:
            locked = lock_topology(tx, topology)
            plan = planner(tx)
            found = read_checkpoint(tx, topology).state
            dropped = dropped_by(plan)
            if not found.is_at_rest and not (dropped and found.phase is Phase.COMMITTING):
                raise LedgerBusy(f"{topology}: a change of its states is in progress")
            applied = apply_plan(tx, topology, plan, observer)
        for participant in participants:
            with naming_database(participant.name), rolled_back(participant.connection) as tx:
                lock_mirror(tx, topology)
                here = read_checkpoint(tx, topology).state.commit_number
                if not 0 <= here - locked["commit_number"] <= dropped:
                    raise LedgerBusy(
                        f"{topology} was changed during the dry run: it is at c={here}"
                    )
                applied = applied.and_also(apply_plan(tx, topology, plan, observer))
    return plan, applied


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
            raise NothingToReplay(f"txid {txid} of {topology} has not committed")
        reached = tx.one("topology_position", topology=topology)["commit_number"]
        return (PlannedCommit(commit_number=reached + 1, txid=txid, **row),)

    try:
        [planned], applied = try_plan(connection, topology, planner, observer)
    except Transient:
        raise
    except ReliabilityError as error:  # no lock keeps a sweep from ending the attempt meanwhile
        with connection.transaction() as tx:
            if tx.first("dry_run_attempt", **dry_run) is None:
                raise _ended(txid) from error
        raise
    assert isinstance(planned, PlannedCommit)
    key = replace(ChangeKey.of(topology, planned), commit_number=None)
    with TopologyDatabases.of(connection, topology) as participants:
        # The coordinator is last and ends the attempt: a try that dies before it is repeated.
        for database in (*participants.others, COORDINATOR):
            with participants.connection_of(database).transaction() as tx:
                _record(tx, key, applied)
                if database == COORDINATOR:
                    _end(tx, dry_run)
    return DryRunResult(
        attempt=planned.attempt,
        differences=tuple(applied.differences),
        audits=tuple(applied.audits),
    )


def _record(tx: DatabaseTransaction, key: ChangeKey, applied: Applied) -> None:
    """Record what concerns the states of one database; replace what an earlier try recorded."""
    own = {row["state"] for row in tx.all("state_definitions", topology=key.topology)}
    tx.run("forget_dry_run", **key)
    record_differences(tx, [one for one in applied.differences if one.state in own], key)
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
