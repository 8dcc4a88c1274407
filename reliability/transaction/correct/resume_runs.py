"""The runs that have asked for what nobody works on any more; clear exactly that in Airflow."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from reliability.core.leases import DEFAULT_LEASES
from reliability.core.names import COMMAND_LINE
from reliability.core.spout import Interval
from reliability.core.texts import as_json
from reliability.core.txids import format_txids
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
from reliability.ledger.read_rows import interval_of
from reliability.transaction.correct.rollback import EMIT, SETTLE, RunToClear, group_of

if TYPE_CHECKING:
    from reliability.deployment.airflow_api import Airflow, DagRun, TaskInstance

TRANSACTION = "transaction."
COMMITTED = "committed"
Task = tuple[str, int]


def undone_runs(tx: DatabaseTransaction, topology: str) -> list[RunToClear]:
    """Return them in the order in which to clear them; a txid that several want once.

    It reads all requests of the topology.
    """
    runs: list[RunToClear] = []
    asked: set[int] = set()
    for dag in tx.all("dags_of_topology", topology=topology):
        group = group_of(tx, topology, dag["dag_id"])
        rows = undone_of_dag(tx, topology, dag["dag_id"])
        for row in sorted(rows, key=lambda row: row["undone"]):
            txids = tuple(txid for txid in row["undone"] if txid not in asked)
            asked.update(txids)
            if txids:
                key = {"dag_id": dag["dag_id"], "run_id": row["run_id"]}
                runs.append(RunToClear(**key, txids=txids, group=group))
    return sorted(runs, key=lambda run: run.txids)


def undone_of_dag(tx: DatabaseTransaction, topology: str, dag_id: str) -> list[Row]:
    lease = DEFAULT_LEASES.request
    return tx.all("undone_of_dag", topology=topology, dag_id=dag_id, request_lease=lease)


# --- with Airflow --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunToResume:
    """A run of Airflow, and the part of it to clear.

    :param tasks: the tasks to clear, each with its map index or -1; empty for all tasks of the run,
        None for a run that is cleared already and needs a slot
    :param because: why, for a person
    :param next_step: what a person has to do, if nothing can be cleared because Airflow no longer
        has the run, or never had its DAG
    :param needs: what it lacks then
    """

    dag_id: str
    run_id: str
    interval: Interval | None
    txids: tuple[int, ...]
    tasks: tuple[Task, ...] | None
    because: str
    next_step: str | None = None
    needs: str = "a new run"

    @property
    def clears(self) -> str:
        if self.tasks is None:
            return "nothing"
        if not self.tasks:
            return "all its tasks"
        if any(task.endswith(f".{EMIT}") for task, _ in self.tasks):
            return "the tasks of its group"
        return f"the tasks of {format_txids(self.txids)}" if self.txids else SETTLE


def runs_to_resume(
    connection: LedgerConnection, api: Airflow, topology: str
) -> Iterator[RunToResume]:
    """Yield what is undone, oldest run first; a txid that several runs want only once."""
    asked: set[int] = set()
    lost: dict[int, tuple[str, str]] = {}  # the last run that Airflow no longer has, by txid
    unknown: list[tuple[str, Row]] = []  # runs of DAGs that this Airflow does not have
    dag_here = ""
    for dag in connection.all("dags_of_topology", topology=topology):
        dag_id = dag["dag_id"]
        if dag_id == COMMAND_LINE:
            with connection.transaction(reads_only=True) as tx:
                own = undone_of_dag(tx, topology, dag_id)
            for row in own:
                lost |= {txid: (dag_id, row["run_id"]) for txid in row["undone"]}
                asked.update({*row["open"]} - {*row["undone"]})  # a later one works on these
            continue
        runs_of_dag = api.runs(dag_id)
        if runs_of_dag is None:
            with connection.transaction(reads_only=True) as tx:
                unknown += [(dag_id, row) for row in undone_of_dag(tx, topology, dag_id)]
            continue
        dag_here = dag_id
        runs = list(runs_of_dag)  # first: a run that ends meanwhile is still at work
        with connection.transaction(reads_only=True) as tx:
            known = {r["run_id"]: r for r in undone_of_dag(tx, topology, dag_id)}
            group = group_of(tx, topology, dag_id)
        for run in runs:
            of_run = known.pop(run.run_id, None)
            has_emitted_since = partial(_has_emitted_since, connection, topology, dag_id, run)
            to_resume = _to_resume(api, dag_id, group, run, of_run, asked, has_emitted_since)
            if to_resume is not None:
                asked.update(to_resume.txids)
                yield to_resume
            if of_run is not None:
                asked.update(of_run["open"])  # it works on these
        lost |= {txid: (dag_id, run_id) for run_id, r in known.items() for txid in r["undone"]}
    for dag_id, row in unknown:
        if dag_here:  # the DAG was renamed: a run of the other one takes its txids up
            lost |= {txid: (dag_here, row["run_id"]) for txid in row["undone"]}
        elif txids := tuple(txid for txid in row["undone"] if txid not in asked):
            asked.update(txids)
            yield RunToResume(
                dag_id=dag_id,
                run_id=row["run_id"],
                interval=None,
                txids=txids,
                tasks=None,
                because=f"{api.url} has no DAG {dag_id}",
                next_step=f"reliability resume-runs {topology} --airflow ADDRESS",
                needs=f"the Airflow that has DAG {dag_id}",
            )
    without_run = sorted(lost.keys() - asked)
    for row in connection.all("emitted_txids", topology=topology, txids=without_run):
        if not row["has_committed"]:
            yield to_make_again(row, topology, *lost[row["txid"]])


def _has_emitted_since(
    connection: LedgerConnection, topology: str, dag_id: str, run: DagRun
) -> bool:
    """Say whether another run has emitted the interval of a run since that has tried to."""
    own = run.interval
    row = connection.one(
        "emitted_since_by_another_run",
        topology=topology,
        dag_id=dag_id,
        run_id=run.run_id,
        start=own and own.start,
        end=own and own.end,
    )
    return bool(row["is_emitted"])


def to_make_again(row: Row, topology: str, dag_id: str, run_id: str) -> RunToResume:
    """Return a txid that blocks and whose run was deleted: a new run of its interval does it.

    Airflow has never had the run of a `reliability run`: another one takes its txids up.
    """
    interval = interval_of(row)
    next_step = f"airflow dags trigger {dag_id} --run-id {shlex.quote(run_id)}"
    if interval is not None and row.get("is_named"):
        conf = shlex.quote(as_json({"interval": str(interval)}))
        next_step = f"airflow dags trigger {dag_id} --conf {conf}"
    elif interval is not None:
        date = f"{interval.start:%Y-%m-%dT%H:%M:%S}+00:00"
        next_step = (
            f"airflow backfill create --dag-id {dag_id} --from-date {date} --to-date {date} "
            "--reprocess-behavior completed"
        )
    because = "Airflow no longer has the run"
    if dag_id == COMMAND_LINE:
        named = f" --interval '{interval}'" if interval is not None else ""
        next_step, because = f"reliability run {topology}{named}", "it was no run of Airflow"
    return RunToResume(
        dag_id=dag_id,
        run_id=run_id,
        interval=interval,
        txids=(row["txid"],),
        tasks=None,
        because=because,
        next_step=next_step,
    )


def _to_resume(
    api: Airflow,
    dag_id: str,
    group: str,
    run: DagRun,
    row: Row | None,
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
            interval=run.interval,
            txids=undone,
            tasks=tasks,
            because=because,
        )

    if run.state != "failed" and not undone:
        return None
    if run.state == "queued":
        waits = "cleared, and waits for a run slot"
        if _is_backfill(run.run_id):
            waits += ", which it never gets if its backfill was cancelled"
        return clearing(None, waits)
    tasks = api.tasks(dag_id, run.run_id)
    states = {task.task_id: task.state for task in tasks if task.map_index < 0}
    whole, ends = _parts(tasks, group)
    if (emit := states.get(group + EMIT)) != "success":
        if run.state != "failed":  # it is emitting again
            return None
        if group and not undone and emit in ("upstream_failed", "skipped"):
            return None
        if group and group + EMIT not in states:  # the run is from before the DAG had the group
            return None
        if not undone and has_emitted_since():  # to emit again would replay what is committed
            return None
        return clearing(whole, "emit did not succeed")
    if not undone:
        if row is not None and row["unsatisfied"]:  # at work, held, or cleared in another run
            return None
        if group and states.get(group + SETTLE) == "success":
            return None
        return clearing(ends, "its txids are done")
    emitted = api.emitted(dag_id, run.run_id, group + EMIT)
    if emitted is None or not set(undone) <= set(emitted):
        return clearing(whole, "Airflow no longer has what emit returned")
    indexes = {emitted.index(txid) for txid in undone}
    own = [(task.task_id, task.map_index) for task in tasks if task.map_index in indexes]
    mapped = sorted(task for task in own if task[0].startswith(group + TRANSACTION))
    reason = row["reason"] if row else None
    if row is not None and not reason and {*undone} & {*row["open"]}:
        reason = "it ended, or is silent, and its request is still open"
    return clearing((*mapped, *ends), reason or "undone")


def _parts(tasks: Sequence[TaskInstance], group: str) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Return all of a topology's tasks, empty for all of the run, and those that end it.

    Both with what has not started behind the group.
    """
    if not group:
        return (), ((SETTLE, -1),)
    everything = [(task.task_id, task.map_index) for task in tasks]
    behind = [
        (task.task_id, task.map_index)
        for task in tasks
        if task.state == "upstream_failed" and not task.task_id.startswith(group)
    ]
    own = [task for task in everything if task[0].startswith(group)]
    ends = [(group + COMMITTED, -1), (group + SETTLE, -1)]
    return (*own, *behind), (*ends, *behind)


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


def resume_run(api: Airflow, run: RunToResume) -> None:
    if run.tasks:
        api.clear_tasks(run.dag_id, run.run_id, run.tasks)
    elif run.tasks is not None:
        api.clear(run.dag_id, run.run_id)


def make_room(api: Airflow, resumed: Sequence[RunToResume], waiting: Sequence[Row]) -> None:
    """Queue as many waiting runs again as were resumed, the latest first.

    Runs that wait behind a blocked txid may hold all run slots of their DAG, or of their backfill;
    the run that they wait for could never start. A queued run goes on when a slot is free.
    """
    rooms = Counter(
        (run.dag_id, _is_backfill(run.run_id)) for run in resumed if run.next_step is None
    )
    for row in waiting:
        kind = row["dag_id"], _is_backfill(row["run_id"])
        if rooms[kind] and api.queue_again(row["dag_id"], row["run_id"]):
            rooms[kind] -= 1


def _is_backfill(run_id: str) -> bool:
    return run_id.startswith("backfill__")  # backfills have run slots of their own
