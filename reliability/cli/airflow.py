"""`reliability reconcile` and `resume-runs`: Airflow's runs beside the ledger (G9).

After a restore from backup, the ledger may lack what Airflow shows as done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from reliability.cli import options
from reliability.cli.app import FOUND, check_asked, ledger, verb, warn
from reliability.cli.bars import followed
from reliability.cli.output import plain, print_json
from reliability.cli.parts import Table, show
from reliability.cli.terminal import say
from reliability.core.leases import DEFAULT_LEASES
from reliability.core.names import COMMAND_LINE
from reliability.core.txids import format_txids

if TYPE_CHECKING:
    from reliability.deployment.airflow_api import Airflow
    from reliability.transaction.correct.resume_runs import RunToResume
    from reliability.transaction.inspect.disagreement import DisagreeingRun

MOST_OF_A_REASON = 80  # characters in the table; --json has all of them


# --- reconcile -----------------------------------------------------------------------------------


@verb("reliability reconcile --airflow http://localhost:8080", "reliability reconcile --repair")
def reconcile(
    airflow: options.AirflowAddress,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Clear the runs that Airflow shows as success and are not done."
        ),
    ] = False,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
) -> None:
    """Compare Airflow's runs with the ledger, and print where they disagree.

    The token is read from RELIABILITY_AIRFLOW_TOKEN, or from the file named by
    RELIABILITY_AIRFLOW_TOKEN_FILE. Exits with 3 if something was found and not repaired.
    """
    from reliability.transaction.inspect.disagreement import NEXT

    api = airflow.client()
    disagreeing, compared = _compare(api)
    to_clear = [run for run in disagreeing if run.what.is_repaired_by_clearing] if repair else []
    if not as_json and disagreeing:
        columns = ("DAG", "run", "interval", "txids", "Airflow says", "next")
        rows = [
            (run.dag_id, run.run_id, run.interval, run.txids, run.what.value, NEXT[run.what])
            for run in disagreeing
        ]
        show([Table(columns, rows)])
    if to_clear:
        check_asked(f"Clear {len(to_clear)} runs in Airflow?", yes=yes)
        for run in followed(to_clear, "clear"):
            api.clear(run.dag_id, run.run_id)
    if as_json:
        found = [
            {**plain(run), "what": run.what.name, "cleared": run in to_clear} for run in disagreeing
        ]
        print_json({"runs": compared, "findings": found})
    elif to_clear:
        say(f"{len(to_clear)} runs cleared")
    elif not disagreeing:
        say(f"Airflow and the ledger agree about {compared} runs")
    if len(disagreeing) > len(to_clear):
        raise typer.Exit(FOUND)


def _compare(api: Airflow) -> tuple[list[DisagreeingRun], int]:
    from reliability.transaction.correct.resume_runs import emitted_by_run, was_forgotten
    from reliability.transaction.correct.rollback import EMIT
    from reliability.transaction.inspect.disagreement import Disagreement, compare

    disagreeing: list[DisagreeingRun] = []
    compared, lease = 0, DEFAULT_LEASES.request
    with ledger() as connection:
        dags = [row["dag_id"] for row in connection.all("dags_of_topology", topology=None)]
        for dag_id in followed(dags, "ask Airflow for the runs of", "DAGs"):
            if dag_id == COMMAND_LINE:
                continue
            runs = api.runs(dag_id)
            listed = list(runs or ())  # first: a run that ends meanwhile is still at work
            rows = connection.all("runs_of_dag", dag_id=dag_id, request_lease=lease)
            known = {row["run_id"]: row for row in rows}
            emissions = connection.all("emissions_of_dag", dag_id=dag_id)
            has_emitted = {row["run_id"]: row["has_emitted"] for row in emissions}
            if runs is None:
                if known:
                    what = f"the ledger has {len(known)} runs of it, perhaps of another Airflow"
                    warn(f"Airflow has no DAG {dag_id}, or a stale one; {what}")
                continue
            compared += len(listed)
            recorded = connection.all("emit_tasks", topology=None, dag_id=dag_id)
            emits = {row["topology"]: row["task_id"] for row in recorded}
            heard = defaultdict(list)
            for row in connection.all("runs_heard_of", dag_id=dag_id):
                heard[row["run_id"]].append(row)
            emitted = partial(emitted_by_run, api, dag_id, [*emits.values()] or [EMIT])
            is_forgotten = partial(was_forgotten, api, dag_id, emits, heard)
            found = compare(dag_id, listed, known, has_emitted, emitted, is_forgotten)
            # In a DAG with other tasks, these may have failed.
            others = {*emits.values()} - {EMIT}
            disagreeing += [o for o in found if not others or o.what is not Disagreement.SATISFIED]
    return disagreeing, compared


# --- resume-runs ---------------------------------------------------------------------------------


@verb("reliability resume-runs shop", "reliability resume-runs shop --yes")
def resume_runs(
    topology: options.Topology,
    airflow: options.AirflowAddress,
    yes: options.Confirmed = False,
    as_json: options.AsJson = False,
) -> None:
    """Clear what ended without being done: failed emissions, and txids that no run works on.

    A run that has ended in Airflow, or has been silent for ten minutes, works on nothing.

    Committed txids are not cleared, so nothing is replayed. A run that is red although all its
    txids have committed since gets its last task cleared, and turns green. Shows what it would
    clear; `--yes` clears it. Exits with 3 if something is left to clear, or to do by hand because
    Airflow no longer has the run.
    """
    from reliability.transaction.correct.resume_runs import make_room, resume_run, runs_to_resume

    api = airflow.client()
    with ledger(topology) as connection:
        looked_for = runs_to_resume(connection, api, topology)
        runs = list(followed(looked_for, "look for undone runs"))
        waiting = connection.all("waiting_runs", topology=topology)
    if yes:
        for run in followed(runs, "clear"):
            resume_run(api, run)
        make_room(api, runs, waiting)
    if as_json:
        undone = [{**plain(run), "clears": run.clears} for run in runs]
        print_json({"cleared": yes, "runs": undone})
    else:
        _show_undone(topology, runs, cleared=yes)
    if any(run.next_step is not None or not yes for run in runs):
        raise typer.Exit(FOUND)


def _show_undone(topology: str, runs: Sequence[RunToResume], *, cleared: bool) -> None:
    if not runs:
        return say(f"{topology}: no run is left undone")
    rows = [(run.run_id, run.interval, run.clears, _cut(run.because)) for run in runs]
    show([Table(("run", "interval", "clears", "because"), rows)])
    ending = "cleared" if cleared else "to clear; `--yes` clears them"
    if count := sum(run.tasks is not None for run in runs):
        say(f"{count} runs {ending}" if count > 1 else f"1 run {ending}")
    for run in runs:
        if run.next_step is not None:
            of = f"txid {format_txids(run.txids)}" if run.txids else str(run.interval or run.run_id)
            say(f"{of} needs {run.needs}. Next:")
            say(f"  {run.next_step}")


def _cut(reason: str) -> str:
    return reason if len(reason) <= MOST_OF_A_REASON else f"{reason[: MOST_OF_A_REASON - 1]}…"
