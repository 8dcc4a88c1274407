"""Roll back to a txid: all states of a topology return to what they were after it (G7, H4).

1. lock the topology; check in each database that every state can: all of them or none (H5)
2. take the next commit number in every state, and take out what later txids have added
3. fence all later attempts, including PROCESSED ones; committed ones become ROLLED_BACK
4. close all requests for the later txids, and hold these until a person releases them

Without the hold, the next commit would commit them again at once. Each database needs one
transaction; several databases are changed through the checkpoint, as for a commit. A rollback can
also replace a decided commit that one of the databases cannot carry out: databases that have
committed it undo it (C6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from reliability.core.checkpoint import Phase
from reliability.core.difference import Difference
from reliability.core.errors import CheckpointStuck, RollbackNotPossible, Transient
from reliability.core.plan import ChangeKind, Plan, PlannedChange, dropped_by
from reliability.core.rollback_check import AgainstDates, drop_refusal
from reliability.core.spout import Interval
from reliability.core.state import StateKind
from reliability.core.texts import how_to_run_again
from reliability.core.txids import format_intervals, format_txids
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
from reliability.ledger.locks import holding
from reliability.ledger.read_rows import ends_of, interval_of
from reliability.states.kinds.stored import DifferenceObserver
from reliability.transaction.commit.apply import plan_nothing
from reliability.transaction.commit.committer import carry_out, committer
from reliability.transaction.commit.dry_run import try_plan
from reliability.transaction.commit.saved_checkpoint import read_checkpoint
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.declare import declared_tables


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBack:
    """The result of a rollback or of its dry run.

    :param commit_number: None for a dry run
    :param held: the txids that are, or would be, held
    :param dropped: how many decided commits that could not be carried out it takes back
    """

    topology: str
    to_txid: int
    commit_number: int | None
    held: range
    dropped: int
    dates: AgainstDates
    differences: tuple[Difference, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "topology": self.topology,
            "to_txid": self.to_txid,
            "is_dry_run": self.commit_number is None,
            "commit_number": self.commit_number,
            "held": format_txids(self.held),
            "dropped": self.dropped,
            "later_that_stay": _by_interval(self.dates.later_that_stay),
            "earlier_that_go": _by_interval(self.dates.earlier_that_go),
            "differences": self.differences,
        }


def _by_interval(txids: Mapping[Interval, Sequence[int]]) -> list[dict[str, str]]:
    return [
        {"interval": str(interval), "txids": format_txids(own)} for interval, own in txids.items()
    ]


#: The task that emits, and the last one, in the task group of a topology if it has one.
EMIT, SETTLE = "emit", "settle"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunToClear:
    """A run that requests released txids again once it is cleared.

    :param intervals: those of its txids
    :param replays: its committed txids, which a clear of the whole run replays
    :param group: what the ids of the topology's tasks begin with, such as `shop.`; empty in a DAG
        of the topology alone
    """

    topology: str
    dag_id: str
    run_id: str
    txids: tuple[int, ...]
    intervals: tuple[Interval | None, ...] = ()
    replays: tuple[int, ...] = ()
    group: str = ""

    @property
    def next_step(self) -> str:
        """Say how it is cleared."""
        interval = self.intervals[0] if self.intervals else None
        return how_to_run_again(self.topology, self.dag_id, self.run_id, interval)

    def to_json(self) -> dict[str, str | None]:
        """Return it as plain data, with how it is cleared."""
        return {
            "dag_id": self.dag_id,
            "run_id": self.run_id,
            "txids": format_txids(self.txids),
            "replays": format_txids(self.replays),
            "interval": format_intervals(self.intervals) or None,
            "next_step": self.next_step,
        }


def roll_back(
    connection: LedgerConnection,
    topology: str,
    to_txid: int,
    reason: str,
    *,
    interval: Interval | None = None,
    dry_run: bool = False,
    observer: DifferenceObserver | None = None,
) -> RolledBack:
    """Take out of every state what txids after `to_txid` have added; 0 takes out everything.

    :param interval: the one that a person has named; by default that of the txid
    :param observer: observes the rows that differ; without `dry_run` see committer
    :raises RollbackNotPossible: a state does not keep enough history; nothing was changed
    :raises CheckpointStuck, CheckpointMismatch: see checkpoint.py
    """

    def planner(tx: DatabaseTransaction) -> Plan:
        saved = read_checkpoint(tx, topology)
        reached, dropped = tx.one("topology_position", topology=topology)["commit_number"], 0
        if saved.state.phase is Phase.COMMITTING:
            refusal = drop_refusal(saved.plan, to_txid)
            if refusal is not None:
                raise RollbackNotPossible(f"{topology} to txid {to_txid}: {refusal}")
            dropped = saved.state.commit_number - reached
        return (
            PlannedChange(
                topology=topology,
                kind=ChangeKind.ROLLBACK,
                commit_number=reached + dropped + 1,
                txid=to_txid,
                reason=reason,
                dropped=dropped,
            ),
        )

    dates = _against_dates(connection, topology, to_txid, interval)
    with committer(connection, topology, observer=observer) as commit_change:
        if dry_run:
            # Under the driver's lock, so that a commit in progress is not taken for a stuck one. A
            # dead driver's unfinished change is completed first, as before every change.
            with suppress(CheckpointStuck):
                commit_change(plan_nothing)
            done = try_plan(connection, topology, planner, observer)
        else:
            done = carry_out(
                commit_change,
                topology,
                planner,
                lambda change: (change.kind, change.txid) == (ChangeKind.ROLLBACK, to_txid),
                may_drop=True,
            )
            with suppress(Transient):  # the rollback is done
                _tell_coordinator(connection, topology, to_txid)
    last = connection.one("topology_position", topology=topology)["next_txid"] - 1
    return RolledBack(
        topology=topology,
        to_txid=to_txid,
        commit_number=None if dry_run else done.plan[-1].commit_number,
        held=range(to_txid + 1, last + 1),
        dropped=dropped_by(done.plan),
        dates=dates,
        differences=done.differences,
    )


def _tell_coordinator(connection: LedgerConnection, topology: str, to_txid: int) -> None:
    """Let no replay begin that an OpaqueState of another database can no longer do (H5).

    It has used up its one step, and only its own database knows. Without this, such a replay is
    refused at its commit.
    """
    with TopologyDatabases.of(connection, topology) as participants:
        states = [tables.state for one in participants for tables in declared_tables(one, topology)]
    if any(state.kind is StateKind.OPAQUE for state in states):
        with holding(connection, topology) as (tx, _):
            tx.run("decide_compaction", topology=topology, through=to_txid)


def _against_dates(
    connection: LedgerConnection, topology: str, to_txid: int, interval: Interval | None
) -> AgainstDates:
    """Return which later intervals a rollback keeps, and which earlier ones it takes out."""
    key = {"topology": topology, "to_txid": to_txid}
    rows = connection.all("intervals_against_dates", **key, **ends_of(interval))
    by_staying: dict[bool, dict[Interval, list[int]]] = {True: {}, False: {}}
    for row in rows:
        own = interval_of(row)
        assert own is not None
        by_staying[row["stays"]].setdefault(own, []).append(row["txid"])
    return AgainstDates(later_that_stay=by_staying[True], earlier_that_go=by_staying[False])


def release(
    connection: LedgerConnection, topology: str, txids: Sequence[int] | None = None
) -> list[RunToClear]:
    """Let held txids be processed again: all of them, or those that are given.

    Nothing starts by itself. Returns the runs that request the txids again when they are cleared,
    in the order in which to clear them: by their first txid.
    """
    with holding(connection, topology) as (tx, _):
        rows = tx.all(
            "release_txids", topology=topology, txids=list(txids) if txids is not None else None
        )
        return runs_to_clear(tx, topology, rows)


def runs_to_clear(tx: DatabaseTransaction, topology: str, rows: Sequence[Row]) -> list[RunToClear]:
    """Return the runs that emitted these txids, ordered by their first txid."""
    runs: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["txid"]):
        runs.setdefault((row["dag_id"], row["run_id"]), []).append(row)
    return [
        RunToClear(
            topology=topology,
            dag_id=dag_id,
            run_id=run_id,
            group=group_of(tx, topology, dag_id),
            txids=tuple(row["txid"] for row in own),
            intervals=tuple(interval_of(row) for row in own),
            replays=tuple(
                row["txid"]
                for row in tx.all(
                    "committed_txids_of_run", topology=topology, dag_id=dag_id, run_id=run_id
                )
            ),
        )
        for (dag_id, run_id), own in runs.items()
    ]


def group_of(tx: DatabaseTransaction, topology: str, dag_id: str) -> str:
    """Return what the ids of a topology's tasks in a DAG begin with."""
    row = tx.first("emit_tasks", topology=topology, dag_id=dag_id)
    return "" if row is None else str(row["task_id"]).removesuffix(EMIT)
