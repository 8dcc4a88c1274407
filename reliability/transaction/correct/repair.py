"""Repair: bring the tables back to their contributions, after somebody changed them by hand (H9).

A repair is a change of the states with a commit number, a reason and differences, like a rollback:
one transaction per database, and through the checkpoint if there are several.
"""

from __future__ import annotations

from dataclasses import dataclass

from reliability.core.difference import Difference
from reliability.core.errors import RepairNotPossible
from reliability.core.plan import ChangeKind, Plan, PlannedChange
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.states.kinds.stored import DifferenceObserver
from reliability.transaction.commit.apply import plan_nothing
from reliability.transaction.commit.committer import carry_out, committer
from reliability.transaction.commit.dry_run import try_plan
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.declare import check_tables, declared_tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """The result of a repair or of its dry run.

    :param commit_number: None for a dry run, or if no row differed
    :param differences: of the states whose rows differed
    """

    commit_number: int | None
    differences: tuple[Difference, ...]


def repair(
    connection: LedgerConnection,
    topology: str,
    reason: str,
    *,
    dry_run: bool = False,
    observer: DifferenceObserver | None = None,
) -> Repaired:
    """Write every row that differs as its contributions say: changed, missing and surplus rows.

    Nothing is changed, and no commit number is taken, if no row differs.

    :param observer: for `dry_run`: observes the rows that would differ
    :raises StateDefinitionChanged: somebody has altered a table
    :raises RepairNotPossible: no state keeps contributions, or those of a state are wrong
    :raises CheckpointStuck, CheckpointMismatch: see checkpoint.py
    """

    def planner(tx: DatabaseTransaction) -> Plan:
        reached = tx.one("topology_position", topology=topology)
        return (
            PlannedChange(
                topology=topology,
                kind=ChangeKind.REPAIR,
                commit_number=reached["commit_number"] + 1,
                txid=reached["curr_txid"] - 1,
                reason=reason,
            ),
        )

    _check_states(connection, topology)
    with committer(connection, topology) as commit_change:
        commit_change(plan_nothing)
        tried = try_plan(connection, topology, planner, observer)
        if dry_run or not tried.differences:
            return Repaired(commit_number=None, differences=tried.differences)
        done = carry_out(
            commit_change, topology, planner, lambda change: change.kind is ChangeKind.REPAIR
        )
    return Repaired(commit_number=done.plan[-1].commit_number, differences=done.differences)


def _check_states(connection: LedgerConnection, topology: str) -> None:
    """Raise unless a state keeps contributions, and the tables of all that do take their rows."""
    kept = False
    with TopologyDatabases.of(connection, topology) as databases:
        for database in databases.all:
            with database.transaction(reads_only=True) as tx:
                for tables in declared_tables(tx, topology):
                    if tables.keeps_contributions:
                        kept = True
                        check_tables(tx, tables)
    if not kept:
        raise RepairNotPossible(
            f"no state of {topology} keeps contributions that its table could be compared with",
            remedy="correct the rows by hand, or process the source again under another topology "
            "name.",
        )
