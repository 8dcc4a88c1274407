"""`reliability resume-runs`: clear in Airflow exactly what the ledger shows undone."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from reliability.cli.app import (
    FOUND,
    AsJson,
    TopologyName,
    check_known,
    ledger,
    rows_of,
    verb,
)
from reliability.cli.bars import followed
from reliability.cli.output import print_json, print_table
from reliability.cli.reconcile import AirflowUrl, AllowHttp
from reliability.cli.terminal import say
from reliability.core.spout import Interval
from reliability.core.txids import format_txids

if TYPE_CHECKING:
    from reliability.cli.airflow import Airflow
    from reliability.cli.disagreement import DagRun
    from reliability.ledger.connection import LedgerConnection, Row

GROUP = "transaction."
SETTLE = "settle"
EMIT = "emit"
MOST_OF_A_REASON = 80  # characters in the table; --json has all of them
Task = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunToResume:
    """A run of Airflow, and the part of it to clear.

    :param tasks: the tasks to clear, each with its map index or -1; empty for all tasks of the run,
        None for a run that is cleared already and needs a slot
    :param because: why, for a person
    :param next_step: what a person has to do, if nothing can be cleared because Airflow no longer
        has the run
    """

    dag_id: str
    run_id: str
    interval: str
    txids: tuple[int, ...]
    tasks: tuple[Task, ...] | None
    because: str
    next_step: str | None = None

    @property
    def clears(self) -> str:
        if self.tasks is None:
            return "nothing"
        if not self.tasks:
            return "all its tasks"
        return f"the tasks of {format_txids(self.txids)}" if self.txids else SETTLE


@verb(
    "reliability resume-runs shop",
    "reliability resume-runs shop --yes",
)
def resume_runs(
    topology: TopologyName,
    airflow: AirflowUrl = "",
    allow_http: AllowHttp = False,
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Clear it; without, only show what would be cleared."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Clear what ended without being done: failed emissions, and txids that no run works on.

    A run that has ended in Airflow, or has been silent for ten minutes, works on nothing.

    Committed txids are not cleared, so nothing is replayed. A run that is red although all its
    txids have committed since gets its last task cleared, and turns green. Shows what it would
    clear; `--yes` clears it. Exits with 3 if something is left to clear, or to do by hand because
    Airflow no longer has the run.
    """
    from reliability.cli.airflow import Airflow

    api = Airflow.of(airflow, allow_http=allow_http)
    with ledger() as connection:
        check_known(connection, topology)
        found = list(followed(find_runs(connection, api, topology), "look for undone runs"))
        waiting = rows_of(connection, "waiting_runs", topology=topology)
    if yes:
        for one in followed(found, "clear"):
            resume(api, one)
        make_room(api, [one for one in found if one.next_step is None], waiting)
    if as_json:
        print_json(
            {"cleared": yes, "runs": [{**asdict(one), "clears": one.clears} for one in found]}
        )
    else:
        _print(topology, found, cleared=yes)
    if any(one.next_step is not None or not yes for one in found):
        raise typer.Exit(FOUND)


def find_runs(connection: LedgerConnection, api: Airflow, topology: str) -> Iterator[RunToResume]:
    """Yield what is undone, oldest run first; a txid that several runs want only once."""
    from reliability.transaction.correct.undone import undone_of_dag

    asked: set[int] = set()
    lost: dict[int, tuple[str, str]] = {}  # the last run that Airflow no longer has, by txid
    for row in rows_of(connection, "dags_of_topology", topology=topology):
        dag_id = row["dag_id"]
        runs_of_dag = api.runs(dag_id)
        if runs_of_dag is None:  # of the command line's own replays, for one
            continue
        runs = list(runs_of_dag)  # first: a run that ends meanwhile is still at work
        with connection.transaction(reads_only=True) as tx:
            known = {r["run_id"]: r for r in undone_of_dag(tx, topology, dag_id)}
        for run in runs:
            of_run = known.pop(run.run_id, None)
            judged = _judge(api, dag_id, run, of_run, asked)
            if judged is not None:
                asked.update(judged.txids)
                yield judged
            if of_run is not None:
                asked.update(of_run["open"])  # it works on these
        lost |= {txid: (dag_id, run_id) for run_id, r in known.items() for txid in r["undone"]}
    left = sorted(lost.keys() - asked)
    for row in rows_of(connection, "uncommitted_intervals", topology=topology, txids=left):
        yield _to_make_again(row, *lost[row["txid"]])


def _to_make_again(row: Row, dag_id: str, run_id: str) -> RunToResume:
    """Return a txid that blocks and whose run was deleted: a new run of its interval does it."""
    start, end = row["interval_start"], row["interval_end"]
    next_step = f"airflow dags trigger {dag_id} --run-id {shlex.quote(run_id)}"
    if start is not None:
        date = f"{start:%Y-%m-%dT%H:%M:%S}"
        next_step = (
            f"airflow backfill create --dag-id {dag_id} --from-date {date} --to-date {date} "
            "--reprocess-behavior completed"
        )
    return RunToResume(
        dag_id=dag_id,
        run_id=run_id,
        interval="" if start is None else str(Interval(start, end)),
        txids=(row["txid"],),
        tasks=None,
        because="Airflow no longer has the run",
        next_step=next_step,
    )


def _judge(
    api: Airflow, dag_id: str, run: DagRun, row: Row | None, asked: set[int]
) -> RunToResume | None:
    """Return what to clear of a run, None if nothing."""
    left = set[int]() if row is None else {*row["undone"]}
    if row is not None and run.has_ended:
        left |= {*row["open"]}
    undone = sorted(left - asked)
    if run.state != "failed" and not undone:
        return None
    if run.state == "queued":
        return _to_resume(dag_id, run, undone, None, "cleared, and waits for a run slot")
    tasks = api.tasks(dag_id, run.run_id)
    emit = next((task.state for task in tasks if task.task_id == EMIT), None)
    if emit != "success":
        if run.state != "failed":  # it is emitting again
            return None
        return _to_resume(dag_id, run, undone, (), "emit did not succeed")
    if not undone:
        if row is not None and row["unsatisfied"]:  # at work, held, or cleared in another run
            return None
        return _to_resume(dag_id, run, (), ((SETTLE, -1),), "its txids are done")
    indexes = _indexes(api.emitted(dag_id, run.run_id), undone)
    if indexes is None:
        return _to_resume(dag_id, run, undone, (), "Airflow no longer has what emit returned")
    own = [(task.task_id, task.map_index) for task in tasks if task.map_index in indexes]
    mapped = sorted(task for task in own if task[0].startswith(GROUP))
    reason = row["reason"] if row else None
    if row is not None and not reason and {*undone} & {*row["open"]}:
        reason = "it ended, or is silent, and its request is still open"
    return _to_resume(dag_id, run, undone, (*mapped, (SETTLE, -1)), reason or "undone")


def _indexes(emitted: Sequence[int] | None, txids: Sequence[int]) -> set[int] | None:
    """Return the map indexes of txids; None if Airflow does not know one of them."""
    if emitted is None or not set(txids) <= set(emitted):
        return None
    return {emitted.index(txid) for txid in txids}


def _to_resume(
    dag_id: str, run: DagRun, txids: Sequence[int], tasks: tuple[Task, ...] | None, because: str
) -> RunToResume:
    start, end = run.interval
    return RunToResume(
        dag_id=dag_id,
        run_id=run.run_id,
        interval=_interval(start, end),
        txids=tuple(txids),
        tasks=tasks,
        because=because,
    )


def _cut(reason: str) -> str:
    return reason if len(reason) <= MOST_OF_A_REASON else f"{reason[: MOST_OF_A_REASON - 1]}…"


def _interval(start: str | None, end: str | None) -> str:
    if not start or not end:
        return ""
    return str(Interval(datetime.fromisoformat(start), datetime.fromisoformat(end)))


def resume(api: Airflow, run: RunToResume) -> None:
    """Clear what `run` names."""
    if run.tasks is None:
        return
    if run.tasks:
        api.clear_tasks(run.dag_id, run.run_id, run.tasks)
    else:
        api.clear(run.dag_id, run.run_id)


def make_room(api: Airflow, resumed: Sequence[RunToResume], waiting: Sequence[Row]) -> None:
    """Queue as many waiting runs again as were resumed, the latest first.

    Runs that wait behind a blocked txid may hold all run slots of their DAG, or of their backfill;
    the run that they wait for could never start. A queued run goes on when a slot is free.
    """
    rooms = Counter((one.dag_id, _is_backfill(one.run_id)) for one in resumed)
    for row in waiting:
        kind = row["dag_id"], _is_backfill(row["run_id"])
        if rooms[kind]:
            rooms[kind] -= 1
            api.queue_again(row["dag_id"], row["run_id"])


def _is_backfill(run_id: str) -> bool:
    return run_id.startswith("backfill__")  # backfills have run slots of their own


def _print(topology: str, found: Sequence[RunToResume], *, cleared: bool) -> None:
    if not found:
        return say(f"{topology}: no run is left undone")
    print_table(
        "",
        dict.fromkeys(("run", "interval", "clears", "because"), "left"),
        [(one.run_id, one.interval, one.clears, _cut(one.because)) for one in found],
    )
    ending = "cleared" if cleared else "to clear; `--yes` clears them"
    if count := sum(one.next_step is None for one in found):
        say(f"{count} runs {ending}" if count > 1 else f"1 run {ending}")
    for one in found:
        if one.next_step is not None:
            say(f"txid {format_txids(one.txids)} needs a new run. Next:")
            say(f"  {one.next_step}")
