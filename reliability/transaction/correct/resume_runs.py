"""The runs that have asked for what nobody works on any more; clear exactly that in Airflow."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from reliability.core.errors import SourceNotReady
from reliability.core.leases import DEFAULT_LEASES
from reliability.core.names import COMMAND_LINE
from reliability.core.schedule import Schedule
from reliability.core.spout import Interval
from reliability.core.texts import as_json, backfill_command, how_to_run_again
from reliability.core.txids import format_txids
from reliability.ledger.connection import DatabaseTransaction, Ledger, LedgerConnection, Row
from reliability.ledger.read_rows import ends_of, interval_of, made_of
from reliability.transaction.correct.rollback import EMIT, SETTLE, RunToClear, group_of
from reliability.transaction.correct.tasks_to_clear import (
    COMMITTED,
    TRANSACTION,
    Task,
    ends_of_topology,
    tasks_of_topology,
    tasks_of_txids,
)
from reliability.transaction.emit.expected import ScheduleNotEvaluated, intervals

if TYPE_CHECKING:
    from reliability.deployment.airflow_api import Airflow, Backfill, DagRun

#: Prefixes of run ids that Airflow refuses for a run triggered by hand.
RESERVED = (
    *("scheduled__", "backfill__", "operator_triggered__"),
    *("asset_triggered__", "asset_materialization__"),
)
RunKey = tuple[str, str]  # dag_id and run_id


def undone_runs(tx: DatabaseTransaction, topology: str) -> list[RunToClear]:
    """Return them in the order in which to clear them; a txid that several want once.

    The run that emitted it comes first, and the command line's last, which Airflow does not have:
    what it replays has committed, and is no part of any run. It reads all requests of the topology.
    """
    wanted_by: dict[int, list[RunKey]] = defaultdict(list)
    groups: dict[str, str] = {}
    for dag in tx.all("dags_of_topology", topology=topology):
        dag_id = dag["dag_id"]
        groups[dag_id] = group_of(tx, topology, dag_id)
        rows = undone_of_dag(tx, topology, dag_id)
        for row in sorted(rows, key=lambda row: row["undone"]):
            for txid in row["undone"]:
                wanted_by[txid].append((dag_id, row["run_id"]))
    clears: dict[RunKey, list[int]] = defaultdict(list)
    for emitted in tx.all("emitted_txids", topology=topology, txids=[*wanted_by]):
        txid, emitter = emitted["txid"], (emitted["dag_id"], emitted["run_id"])
        run = min(wanted_by[txid], key=lambda run: (run != emitter, run[0] == COMMAND_LINE))
        if run[0] != COMMAND_LINE or not emitted["has_committed"]:
            clears[run].append(txid)
    return [
        RunToClear(
            topology=topology,
            dag_id=dag_id,
            run_id=run_id,
            txids=tuple(own),
            group=groups[dag_id],
        )
        for (dag_id, run_id), own in clears.items()
    ]


def undone_of_dag(ledger: Ledger, topology: str, dag_id: str) -> list[Row]:
    lease = DEFAULT_LEASES.request
    return ledger.all("undone_of_dag", topology=topology, dag_id=dag_id, request_lease=lease)


# --- with Airflow --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunToResume:
    """A run of Airflow, and the part of it to clear.

    :param tasks: the tasks to clear, each with its map index or -1; empty for all tasks of the run,
        None for a run that is cleared already and needs a slot, or if there is a next step
    :param because: why, for a person
    :param next_step: what a person has to do, if Airflow no longer has the run, never had its DAG,
        or all tasks of the run would have to be cleared, those of others, too
    :param needs: what it lacks then
    """

    dag_id: str
    run_id: str
    is_backfill: bool = False
    interval: Interval | None = None
    txids: tuple[int, ...]
    tasks: tuple[Task, ...] | None = None
    because: str
    next_step: str | None = None
    needs: str = "a new run"

    @property
    def clears(self) -> str:
        if self.tasks is None:
            return "nothing"
        if not self.tasks:
            return "all its tasks"
        groups = [task.removesuffix(EMIT) for task, _ in self.tasks if task.endswith(f".{EMIT}")]
        if any(self.tasks[0][0].startswith(group) for group in groups):  # its own, none behind it
            return "the tasks of its group"
        return f"the tasks of {format_txids(self.txids)}" if self.txids else SETTLE


def runs_to_resume(
    connection: LedgerConnection, api: Airflow, topology: str
) -> Iterator[RunToResume]:
    """Yield what is undone, oldest run first; a txid that several runs want only once.

    What Airflow has no run of comes last, each with what makes a new one.
    """
    # first: a run that begins to emit meanwhile is none of these
    rows = connection.all("unfinished_emissions", topology=topology)
    look = _Look(connection, api, topology, {(row["dag_id"], row["run_id"]): row for row in rows})
    for dag in connection.all("dags_of_topology", topology=topology):
        dag_id = dag["dag_id"]
        if dag_id == COMMAND_LINE:
            look.at_command_line()
        elif (runs := api.runs(dag_id)) is None:
            look.at_elsewhere(dag_id)
        else:
            yield from look.at_runs(dag_id, list(runs))
    yield from look.at_what_has_no_run()


@dataclass(slots=True)
class _Look:
    """A look at what the ledger and Airflow have of the runs of a topology.

    :param unfinished: emissions that have not ended, or have failed, by their run
    :param dags_here: the DAGs of the topology that this Airflow has
    :param stale: those of which it keeps the runs, and starts none
    :param asked: the txids that a run works on, or is to be cleared for
    :param lost: the last run that Airflow no longer has, by txid
    :param elsewhere: the txids of runs of DAGs that this Airflow does not have
    """

    connection: LedgerConnection
    api: Airflow
    topology: str
    unfinished: dict[RunKey, Row]
    dags_here: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    asked: set[int] = field(default_factory=set)
    lost: dict[int, RunKey] = field(default_factory=dict)
    elsewhere: dict[RunKey, Sequence[int]] = field(default_factory=dict)

    @property
    def without_run(self) -> _WithoutRun:
        return _WithoutRun(self.connection, self.api, self.topology, self.dags_here, self.stale)

    def at_command_line(self) -> None:
        for row in undone_of_dag(self.connection, self.topology, COMMAND_LINE):
            self.lost |= {txid: (COMMAND_LINE, row["run_id"]) for txid in row["undone"]}
            self.asked.update({*row["open"]} - {*row["undone"]})  # a later one works on these

    def at_elsewhere(self, dag_id: str) -> None:
        rows = undone_of_dag(self.connection, self.topology, dag_id)
        self.elsewhere |= {(dag_id, row["run_id"]): row["undone"] for row in rows}
        if self.api.dag(dag_id) is not None:
            self.stale.append(dag_id)

    def at_runs(self, dag_id: str, runs: Sequence[DagRun]) -> Iterator[RunToResume]:
        """Yield those of a DAG's runs that are undone.

        :param runs: as they were before the ledger is asked: one that ends meanwhile is at work
        """
        self.dags_here.append(dag_id)
        with self.connection.transaction(reads_only=True) as tx:
            known = {row["run_id"]: row for row in undone_of_dag(tx, self.topology, dag_id)}
            group = group_of(tx, self.topology, dag_id)
        backfills = cache(partial(self.api.backfills, dag_id))
        for run in runs:
            tried = self.unfinished.pop((dag_id, run.run_id), None)
            row = known.pop(run.run_id, None)
            if row is None and tried is not None and not tried["is_owed"]:
                continue
            has_emitted_since = partial(self._has_emitted_since, dag_id, run)
            to_resume = _to_resume(
                self.api, dag_id, group, run, row, tried, self.asked, has_emitted_since
            )
            is_to_start = to_resume is not None or run.state == "queued"
            if is_to_start and run.is_backfill and _is_cancelled(backfills(), run):
                to_resume = self.without_run.cancelled(dag_id, run, to_resume)
            is_dry_run = run.is_dry_run and run.is_backfill and run.has_ended
            if to_resume is not None and to_resume.txids and run.date and is_dry_run:
                again = backfill_command(dag_id, run.date, run.date, "completed")
                to_resume = _without_dry_run(to_resume, again, self.topology if group else "")
            if to_resume is not None:
                if to_resume.next_step is None:
                    self.asked.update(to_resume.txids)
                yield to_resume
            if row is not None:
                self.asked.update(row["open"])  # it works on these
        for run_id, row in known.items():
            self.lost |= {txid: (dag_id, run_id) for txid in row["undone"]}

    def at_what_has_no_run(self) -> Iterator[RunToResume]:
        """Yield the runs to make again, after all DAGs were looked at."""
        for key, undone in self.elsewhere.items():
            if self.dags_here:  # the DAG was renamed: a run of the other one takes its txids up
                self.lost |= dict.fromkeys(undone, key)
            elif txids := tuple(txid for txid in undone if txid not in self.asked):
                self.asked.update(txids)
                yield self.without_run.elsewhere(key, txids)
        lost = {txid: key for txid, key in self.lost.items() if txid not in self.asked}
        yield from self.without_run.runs(lost, self.unfinished)

    def _has_emitted_since(self, dag_id: str, run: DagRun) -> bool:
        """Say whether another run has emitted the interval of a run since that has tried to."""
        key = {"topology": self.topology, "dag_id": dag_id, "run_id": run.run_id}
        query = "emitted_since_by_another_run"
        return bool(self.connection.one(query, **key, **ends_of(run.interval))["is_emitted"])


@dataclass(frozen=True, slots=True)
class _WithoutRun:
    """Says how what Airflow has no run of gets a new one.

    :param dags_here: the DAGs of the topology that this Airflow has
    :param stale: those of which it keeps the runs, and starts none
    """

    connection: LedgerConnection
    api: Airflow
    topology: str
    dags_here: Sequence[str]
    stale: Sequence[str]

    def runs(
        self, lost: Mapping[int, RunKey], unfinished: Mapping[RunKey, Row]
    ) -> Iterator[RunToResume]:
        """Yield the runs to make again.

        :param lost: the run that has emitted a txid, by txid
        :param unfinished: emissions that have not ended, or have failed, by their run
        """
        seen = set[Interval]()
        for row in self.connection.all("emitted_txids", topology=self.topology, txids=sorted(lost)):
            if not row["has_committed"]:
                resumed = self.to_make_again(lost[row["txid"]], row, (row["txid"],))
                yield resumed
                if resumed.interval is not None:
                    seen.add(resumed.interval)
        for (dag_id, run_id), row in unfinished.items():
            # another Airflow, or a command line, may work on it
            is_at_work = dag_id not in self.dags_here and _may_be_at_work(row)
            if interval_of(row) in seen or is_at_work or not row["is_owed"]:
                continue
            yield self.to_make_again((dag_id, run_id), row, ())

    def elsewhere(self, key: RunKey, txids: tuple[int, ...]) -> RunToResume:
        """Return what another Airflow, or a DAG that is gone, may still have a run of."""
        dag_id, run_id = key
        if dag_id in self.stale:
            return RunToResume(
                dag_id=dag_id,
                run_id=run_id,
                txids=txids,
                because=f"DAG {dag_id} is stale: Airflow starts no run of it",
                next_step=f"put DAG {dag_id} back, or deploy the DAG that replaces it; then: "
                f"reliability resume-runs {self.topology}",
                needs="a DAG that Airflow finds",
            )
        return RunToResume(
            dag_id=dag_id,
            run_id=run_id,
            txids=txids,
            because=f"{self.api.url} has no DAG {dag_id}",
            next_step=f"reliability resume-runs {self.topology} --airflow ADDRESS",
            needs=f"the Airflow that has DAG {dag_id}",
        )

    def to_make_again(self, key: RunKey, row: Row, txids: tuple[int, ...]) -> RunToResume:
        """Return a run that was deleted, by what makes a new one of its interval.

        Airflow has never had the run of a `reliability run`: another one takes its txids up.

        :param row: with the interval
        :param txids: what it has emitted; none if it has emitted nothing
        """
        dag_id, run_id = key
        own = dag_id == COMMAND_LINE
        if not own and not self.dags_here:
            return self.elsewhere(key, txids)
        if not own and dag_id not in self.dags_here:  # it was renamed
            dag_id = self.dags_here[-1]
        interval = interval_of(row)
        return RunToResume(
            dag_id=dag_id,
            run_id=run_id,
            interval=interval,
            txids=txids,
            because="it was no run of Airflow" if own else "Airflow no longer has the run",
            next_step=self._command(dag_id, run_id, interval, txids),
        )

    def _command(
        self, dag_id: str, run_id: str, interval: Interval | None, txids: tuple[int, ...]
    ) -> str:
        if dag_id == COMMAND_LINE:
            return how_to_run_again(self.topology, dag_id, run_id, interval)
        trigger = f"airflow dags trigger {dag_id}"
        if interval is None:
            if not txids:
                return trigger
            if not run_id.startswith(RESERVED):
                return f"{trigger} --run-id {shlex.quote(run_id)}"
            return f"reliability run {self.topology}"
        if self._is_of_schedule(dag_id, interval):
            reprocessing = "completed" if txids else "failed"
            return backfill_command(dag_id, interval.start, interval.start, reprocessing)
        conf: dict[str, Any] = {"interval": str(interval)}
        with self.connection.transaction(reads_only=True) as tx:
            if group_of(tx, self.topology, dag_id):
                conf = {self.topology: conf}
        return f"{trigger} --conf {shlex.quote(as_json(conf))}"

    def cancelled(
        self, dag_id: str, run: DagRun, to_resume: RunToResume | None
    ) -> RunToResume | None:
        """Return what makes a run of a cancelled backfill start, which a clear does not.

        :param to_resume: what would be cleared; None if nothing is, and the run is queued
        """
        if run.date is None or (to_resume is not None and to_resume.clears == SETTLE):
            return None  # all is done: reconcile says that it can be marked
        again = backfill_command(dag_id, run.date, run.date, "failed")
        return RunToResume(
            dag_id=dag_id,
            run_id=run.run_id,
            interval=run.interval,
            txids=to_resume.txids if to_resume is not None else (),
            because=f"it is {run.state}, and Airflow starts no run of a cancelled backfill",
            next_step=again
            if run.state == "failed"
            else f"if it stays queued, delete run {run.run_id}; {again}",
            needs="a backfill that is not cancelled",
        )

    def _is_of_schedule(self, dag_id: str, interval: Interval) -> bool:
        """Say whether a backfill of a DAG makes a run of an interval: one may have named any."""
        row = self.connection.first("schedule", topology=self.topology)
        if row is None or row["dag_id"] != dag_id:
            return False
        schedule, start = made_of(Schedule, row), interval.start
        with suppress(ScheduleNotEvaluated):
            return next(intervals(schedule, start, run_end=start)) == interval
        return False


def _is_cancelled(backfills: Sequence[Backfill], run: DagRun) -> bool:
    """Say whether the backfill of a run was cancelled: the one that made it, or took it over last.

    Airflow tells no run's backfill, so it is found by the run's date, and when it was queued.
    """
    date, queued_at = run.date, run.queued_at
    if date is None or queued_at is None:
        return False
    own: Backfill | None = None
    for each in sorted(backfills, key=attrgetter("created_at")):
        is_over = each.first <= date <= each.last and each.created_at <= queued_at
        if is_over and (own is None or each.reprocesses):
            own = each
    return own is not None and own.is_cancelled


def _without_dry_run(run: RunToResume, again: str, scope: str) -> RunToResume:
    """Return what processes the txids of a run whose conf makes it a dry run, if cleared, too.

    :param again: the command of a backfill that takes it over
    :param scope: the key of its conf for the topology; empty if the DAG has no groups
    """
    conf: object = {scope: {"dry_run": False}} if scope else {"dry_run": False}
    return replace(
        run,
        tasks=None,
        because="its conf makes it a dry run, also if it is cleared",
        next_step=f"{again} --dag-run-conf {shlex.quote(as_json(conf))}",
        needs="a backfill that is no dry run",
    )


def _may_be_at_work(row: Row) -> bool:
    """Say whether a run that Airflow does not list may still emit; one that waits asks often."""
    lease = timedelta(seconds=DEFAULT_LEASES.request)
    emits = row["status"] == "EMITTING" or row["reason_code"] == SourceNotReady.code
    return emits and bool(row["now"] - row["began_at"] < lease)


def _to_resume(
    api: Airflow,
    dag_id: str,
    group: str,
    run: DagRun,
    row: Row | None,
    tried: Row | None,
    asked: set[int],
    has_emitted_since: Callable[[], bool],
) -> RunToResume | None:
    """Return what to clear of a run, None if nothing.

    In a DAG with other tasks a run may be red because of these: that is not looked after here.
    """
    wanted = set[int]() if row is None else {*row["undone"]}
    if row is not None and run.has_ended:
        wanted |= {*row["open"]}
    undone = tuple(sorted(wanted - asked))

    def clearing(tasks: tuple[Task, ...] | None, because: str) -> RunToResume:
        return RunToResume(
            dag_id=dag_id,
            run_id=run.run_id,
            is_backfill=run.is_backfill,
            interval=run.interval,
            txids=undone,
            tasks=tasks,
            because=because,
        )

    if run.state != "failed" and not undone:
        return None
    if run.state == "queued":
        waits = "cleared, and waits for a run slot"
        if run.is_backfill:
            waits += ", which it never gets if its backfill was cancelled"
        return clearing(None, waits)
    tasks = api.tasks(dag_id, run.run_id)
    states = {task.task_id: task.state for task in tasks if task.map_index < 0}
    whole = tasks_of_topology(tasks, group)
    if group + EMIT not in states:  # a clear of the whole run makes the tasks of today
        if not run.has_ended or not (undone or tried):
            return None
        why = f"it began before its DAG had the task {group}{EMIT}"
        if not group:
            return clearing((), why)
        again = how_to_run_again("", dag_id, run.run_id)
        needs = "a clear of the whole run, with the tasks of others"
        return replace(clearing(None, why), next_step=again, needs=needs)
    if (emit := states[group + EMIT]) != "success":
        if run.state != "failed":  # it is emitting again
            return None
        if group and not undone and emit in ("upstream_failed", "skipped"):
            return None
        if not undone and has_emitted_since():  # to emit again would replay what is committed
            return None
        wrong = "; if the interval in its conf is wrong, delete it instead"
        return clearing(whole, f"emit did not succeed{wrong if run.names_interval else ''}")
    if not undone:
        if row is not None and row["unsatisfied"]:  # at work, held, or cleared in another run
            return None
        was_skipped = row is not None and states.get(group + COMMITTED) == "skipped"
        if group and states.get(group + SETTLE) == "success" and not was_skipped:
            return None
        return clearing(ends_of_topology(tasks, group), "its txids are done")
    own = tasks_of_txids(tasks, group, undone, api.emitted(dag_id, run.run_id, group + EMIT))
    if own is None:
        return clearing(whole, "Airflow no longer has what emit returned")
    reason = row["reason"] if row else None
    if row is not None and not reason and {*undone} & {*row["open"]}:
        reason = "it ended, or is silent, and its request is still open"
    return clearing(own, reason or "undone")


def emitted_by_run(
    api: Airflow, dag_id: str, emit_tasks: Sequence[str], run_id: str
) -> list[int] | None:
    """Return the txids that a run has emitted of all topologies; None if Airflow has them no more.

    A group that is skipped has emitted nothing; nor has one that the DAG did not have yet.
    """
    found: list[int] = []
    for task_id in emit_tasks:
        txids = api.emitted(dag_id, run_id, task_id)
        if txids is None and task_id != EMIT:
            states = {task.task_id: task.state for task in api.tasks(dag_id, run_id)}
            if states and states.get(task_id, "skipped") == "skipped":
                txids = []
        if txids is None:
            return None
        found += txids
    return sorted(found)


def was_forgotten(
    api: Airflow,
    dag_id: str,
    emits: Mapping[str, str],
    heard: Mapping[str, Sequence[Row]],
    run: DagRun,
) -> bool:
    """Say whether a run has worked since its last clear, and the ledger has not heard of it.

    The last task of a topology alone does not count: it may be cleared so that a run turns green.

    :param emits: topology -> the task that emits it
    :param heard: run_id -> when the ledger has last heard of the run's work for each topology
    """
    cleared_at = run.queued_at
    if cleared_at is None:
        return False
    unheard = [
        emits.get(row["topology"], EMIT)
        for row in heard.get(run.run_id, ())
        if row["heard_at"] < cleared_at
    ]
    works = tuple(emit.removesuffix(EMIT) + TRANSACTION for emit in unheard)
    return bool(unheard) and any(
        task.started_at is not None
        and task.started_at > cleared_at
        and task.state != "skipped"
        and (task.task_id in unheard or task.task_id.startswith(works))
        for task in api.tasks(dag_id, run.run_id)
    )


def resume_run(api: Airflow, run: RunToResume) -> None:
    if run.tasks:
        api.clear_tasks(run.dag_id, run.run_id, run.tasks)
    elif run.tasks is not None:
        api.clear(run.dag_id, run.run_id)


def make_room(api: Airflow, resumed: Sequence[RunToResume], waiting: Sequence[Row]) -> None:
    """Queue as many waiting runs again as were resumed, the latest first.

    Runs that wait behind a blocked txid may hold all run slots of their DAG, or of their backfill,
    which has its own; the run that they wait for could never start. A queued run goes on when a
    slot is free.
    """
    rooms = Counter((run.dag_id, run.is_backfill) for run in resumed if run.next_step is None)
    for row in waiting:
        dag_id, run_id = row["dag_id"], row["run_id"]
        run = api.run(dag_id, run_id) if rooms.total() else None
        if run is not None and run.state == "running" and rooms[dag_id, run.is_backfill]:
            api.queue_again(dag_id, run_id)
            rooms[dag_id, run.is_backfill] -= 1
