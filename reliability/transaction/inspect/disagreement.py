"""Runs for which Airflow's state and the ledger disagree. The ledger is right (G9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from reliability.core.spout import Interval
from reliability.core.txids import format_ranges, format_txids
from reliability.ledger.connection import Row

if TYPE_CHECKING:
    from reliability.deployment.airflow_api import DagRun

Emitted = Callable[[str], "list[int] | None"]
IsForgotten = Callable[["DagRun"], bool]


class Disagreement(str, Enum):
    """The kind of disagreement; its value describes it to a person."""

    UNKNOWN = "success, but the ledger has no record of it, or of its last clear"
    UNSATISFIED = "success, but not done in the ledger"
    HELD = "success, but rolled back since and held"
    SATISFIED = "failed, but done in the ledger"
    OPEN = "failed, but still open in the ledger"
    SILENT = "running, but silent in the ledger for 10 minutes"
    GONE = "open in the ledger, but Airflow has no such run"

    @property
    def is_repaired_by_clearing(self) -> bool:
        return self in (Disagreement.UNKNOWN, Disagreement.UNSATISFIED)


NEXT = {
    Disagreement.UNKNOWN: (
        "`reliability reconcile --repair`: it clears the run, which then emits and commits"
    ),
    Disagreement.UNSATISFIED: (
        "`reliability resume-runs`; or `reliability reconcile --repair`, which clears the whole "
        "run and so replays its committed txids"
    ),
    Disagreement.HELD: "`reliability release`, then `reliability resume-runs`",
    Disagreement.SATISFIED: "mark the run as success; a clear would replay it",
    Disagreement.OPEN: "`reliability resume-runs`: it clears what is not done",
    Disagreement.SILENT: "look at its tasks in Airflow, then `reliability resume-runs`",
    Disagreement.GONE: "do nothing; a sweep gives the request up after 10 minutes without activity",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DisagreeingRun:
    """A run about which the two disagree."""

    what: Disagreement
    dag_id: str
    run_id: str
    interval: Interval | None = None
    txids: str


def compare(
    dag_id: str,
    runs: Iterable[DagRun],
    known: Mapping[str, Row],
    has_emitted: Mapping[str, bool],
    emitted: Emitted,
    is_forgotten: IsForgotten,
) -> Iterator[DisagreeingRun]:
    """Compare the runs of a DAG with the ledger's, oldest first, the order in which to clear them.

    :param known: run_id -> its txids in the ledger
    :param has_emitted: run_id -> whether it has emitted all that it should; a run of an empty
        interval has no txids
    :param emitted: returns what a run's emit returned; called for runs of which the ledger has no
        record, or not of their last clear
    :param is_forgotten: says whether a task has worked for a run since its last clear, of which the
        ledger does not know
    """
    gone = dict(known)
    for run in runs:
        row, has = gone.pop(run.run_id, None), has_emitted.get(run.run_id)
        judged = _judge(run, row, emitted, is_forgotten, has_emitted=has)
        if judged is not None:
            what, txids = judged
            yield DisagreeingRun(
                what=what, dag_id=dag_id, run_id=run.run_id, interval=run.interval, txids=txids
            )
    for run_id, row in sorted(gone.items()):
        if row["open"]:
            txids = format_ranges(row["unsatisfied"])
            yield DisagreeingRun(what=Disagreement.GONE, dag_id=dag_id, run_id=run_id, txids=txids)


def _judge(
    run: DagRun,
    row: Row | None,
    emitted: Emitted,
    is_forgotten: IsForgotten,
    *,
    has_emitted: bool | None,
) -> tuple[Disagreement, str] | None:
    """Return the disagreement and its txids.

    :param has_emitted: None if the ledger knows of no emission
    """
    if not run.has_ended:
        if run.state != "running" or row is None or not row["silent"]:
            return None
        return Disagreement.SILENT, format_ranges(row["unsatisfied"])
    if run.state == "success" and ((row is None and not has_emitted) or is_forgotten(run)):
        txids = emitted(run.run_id)
        if txids != []:
            return Disagreement.UNKNOWN, "?" if txids is None else format_txids(txids)
    if row is None:
        return None
    is_satisfied = row["satisfied"] == row["txids"]
    if run.state == "success" and not is_satisfied:
        what = Disagreement.HELD if row["held"] else Disagreement.UNSATISFIED
        return what, format_ranges(row["unsatisfied"])
    if run.state == "failed" and is_satisfied:
        if has_emitted is False:  # it was cleared, and did not emit what it should
            return None
        return Disagreement.SATISFIED, ""
    if run.state == "failed" and row["open"]:
        return Disagreement.OPEN, format_ranges(row["unsatisfied"])
    return None
