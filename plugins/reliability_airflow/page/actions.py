"""What a person does on the page: the same calls, fences and records as the command line's.

A replay is not here: the page asks Airflow's own API for a run with `replay` in its conf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Form, HTTPException, Request
from fastapi.responses import JSONResponse, Response

from reliability.core.texts import signed
from reliability.core.txids import format_txids
from reliability.deployment.airflow_api import TaskInstance, task_ids
from reliability.transaction.correct.park import park as park_txid
from reliability.transaction.correct.park import skip as skip_txid
from reliability.transaction.correct.resume_runs import undone_runs
from reliability.transaction.correct.rollback import RunToClear, roll_back
from reliability.transaction.correct.rollback import release as release_txids
from reliability.transaction.correct.tasks_to_clear import tasks_of_topology, tasks_of_txids
from reliability.transaction.topology.lifecycle import pause as pause_topology
from reliability.transaction.topology.lifecycle import resume as resume_topology
from reliability_airflow.page.access import UserName
from reliability_airflow.page.reading import ledger
from reliability_airflow.page.rendering import page_of, render


def _reason(reason: Annotated[str, Form(max_length=500)]) -> str:
    if not reason.strip():
        raise HTTPException(422, "reason: say why, for those who read the history")
    return reason.strip()


Reason = Annotated[str, Depends(_reason)]
Txid = Annotated[int, Form(ge=0)]


def pause(request: Request, user: UserName, topology: str, reason: Reason) -> Response:
    """Begin no more attempts."""
    with ledger() as connection:
        pause_topology(connection, topology, _by(user, reason))
    return _done(request, f"{topology} is paused: what is being processed goes on.")


def resume(request: Request, topology: str) -> Response:
    """Let attempts begin again."""
    with ledger() as connection:
        resume_topology(connection, topology)
    return _done(request, f"{topology} is resumed.")


def rollback(
    request: Request,
    user: UserName,
    topology: str,
    txid: Txid,
    reason: Reason,
    dry_run: Annotated[str, Form()] = "",
) -> Response:
    """Roll back to a txid; or show what that would change, and offer to do it."""
    with ledger(topology) as connection:
        done = roll_back(connection, topology, txid, _by(user, reason), dry_run=bool(dry_run))
    held = format_txids(done.held) or "no txid"
    differences = [one for one in done.differences if not one.is_nothing]
    if not dry_run:
        return _done(
            request,
            f"{topology} was rolled back to txid {txid}, as change {done.commit_number}.",
            differences=differences,
            heading="What changed",
            then=[f"Held until you release them: {held}."],
        )
    again = {
        "path": f"{page_of(request, topology)}/actions/rollback",
        "fields": {"txid": txid, "reason": reason},
        "label": f"Roll back to txid {txid}",
    }
    return _done(
        request,
        "A dry run: nothing has changed.",
        tone="past",
        differences=differences,
        heading="What would change",
        then=[f"Would be held: {held}.", *done.dates.lines()],
        again=again,
    )


def release(request: Request, topology: str) -> Response:
    """Let all held txids be processed again, and offer to clear their runs."""
    with ledger(topology) as connection:
        runs = release_txids(connection, topology)
    released = _txids_of(runs)
    what = f"Released: {released}." if released else "No txid was held."
    return _done(request, what, runs=runs)


def undone(request: Request, topology: str) -> Response:
    """Show the txids on which nobody works any more, and offer to clear their tasks."""
    with ledger(topology) as connection, connection.transaction() as tx:
        runs = undone_runs(tx, topology)
    txids = _txids_of(runs)
    what = f"No run works on {txids}." if txids else "A run works on each txid that has to commit."
    return _done(request, what, tone="past" if txids else "good", runs=runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the browser has asked Airflow, with the user's own session, of a run to clear.

    :param tasks: all of its tasks
    :param emitted: what its `emit` returned, None if Airflow no longer has it
    :param txids: those to work on again
    :param group: what the ids of the topology's tasks begin with, or empty
    """

    tasks: list[TaskInstance]
    emitted: list[int] | None
    txids: list[int]
    group: str


def to_clear(run: Run) -> Response:
    """Return which of a run's tasks to clear in Airflow, none for all of them."""
    own = tasks_of_txids(run.tasks, run.group, run.txids, run.emitted)
    chosen = tasks_of_topology(run.tasks, run.group) if own is None else own
    return JSONResponse({"task_ids": task_ids(chosen), "is_known": own is not None})


def park(request: Request, user: UserName, topology: str, txid: Txid, reason: Reason) -> Response:
    """Commit a txid as empty for now."""
    with ledger(topology) as connection:
        committed = park_txid(connection, topology, txid, _by(user, reason))
    return _done(request, f"Txid {txid} is parked. {_when(committed, txid)}")


def skip(request: Request, user: UserName, topology: str, txid: Txid, reason: Reason) -> Response:
    """Commit a txid as empty for good."""
    with ledger(topology) as connection:
        committed = skip_txid(connection, topology, txid, reason, by=user)
    return _done(request, f"Txid {txid} is skipped for good. {_when(committed, txid)}")


CHANGES: dict[str, Any] = {
    f"/dags/{{topology}}/actions/{function.__name__}": function
    for function in (pause, resume, rollback, release, undone, to_clear, park, skip)
}


def _by(user: str, reason: str) -> str:
    return signed(reason, f"{user}, on the page")


def _when(committed: Sequence[Any], txid: int) -> str:
    numbers = [done.commit_number for done in committed if done.attempt.txid == txid]
    if numbers:
        return f"It has committed as empty, as change {numbers[0]}."
    return "It commits as empty when its turn comes."


def _txids_of(runs: Sequence[RunToClear]) -> str:
    return format_txids(txid for run in runs for txid in run.txids)


def _done(request: Request, what: str, runs: Sequence[RunToClear] = (), **others: Any) -> Response:
    """Say what was done.

    :param runs: those that a form clears
    :param others: differences with their heading, lines that stand below, a form to do it again
    """
    shown = {"tone": "good", "differences": None, "then": (), "again": None} | others
    names = ("dag_id", "run_id", "txids", "group")
    offered = [{name: getattr(run, name) for name in names} for run in runs]
    actions = f"{page_of(request, request.path_params['topology'])}/actions"
    return render(request, "part_done.html", what=what, runs=offered, actions=actions, **shown)
