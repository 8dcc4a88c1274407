"""Runs for which Airflow's state and the ledger disagree. The ledger is right (G9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from reliability.core.txids import format_ranges, format_txids

if TYPE_CHECKING:
    from reliability.ledger.connection import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class DagRun:
    """A run in Airflow; the ends of its interval are texts from Airflow's API."""

    run_id: str
    state: str
    interval: tuple[str | None, str | None] = (None, None)

    @property
    def has_ended(self) -> bool:
        return self.state in ("success", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInstance:
    """A task of a run in Airflow; `map_index` is -1 if it is not mapped."""

    task_id: str
    map_index: int
    state: str | None


Emitted = Callable[[str], "list[int] | None"]


class Disagreement(str, Enum):
    """The kind of disagreement; its value describes it to a person."""

    UNKNOWN = "success, but the ledger has no record of it"
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
    interval: str
    txids: str

    @property
    def says(self) -> str:
        return self.what.value


def compare(
    dag_id: str, runs: Iterable[DagRun], known: Mapping[str, Row], emitted: Emitted
) -> list[DisagreeingRun]:
    """Compare the runs of a DAG with the ledger's, oldest first, the order in which to clear them.

    :param known: run_id -> its txids in the ledger
    :param emitted: returns what a run's emit returned; called for runs without a record in the
        ledger, because a run of an empty interval has none
    """
    findings = []
    runs = list(runs)
    for run in runs:
        judged = _judge(run, known.get(run.run_id), emitted)
        if judged is not None:
            findings.append(_finding(dag_id, run, *judged))
    for run_id in sorted(known.keys() - {run.run_id for run in runs}):
        if known[run_id]["open"]:
            run = DagRun(run_id=run_id, state="")
            txids = format_ranges(known[run_id]["unsatisfied"])
            findings.append(_finding(dag_id, run, Disagreement.GONE, txids))
    return findings


def _judge(run: DagRun, row: Row | None, emitted: Emitted) -> tuple[Disagreement, str] | None:
    """Return the disagreement and its txids."""
    if not run.has_ended:
        if run.state != "running" or row is None or not row["silent"]:
            return None
        return Disagreement.SILENT, format_ranges(row["unsatisfied"])
    if row is None:
        return _judge_unknown(run, emitted)
    is_satisfied = row["satisfied"] == row["txids"]
    if run.state == "success" and not is_satisfied:
        what = Disagreement.HELD if row["held"] else Disagreement.UNSATISFIED
        return what, format_ranges(row["unsatisfied"])
    if run.state == "failed" and is_satisfied:
        return Disagreement.SATISFIED, ""
    if run.state == "failed" and row["open"]:
        return Disagreement.OPEN, format_ranges(row["unsatisfied"])
    return None


def _judge_unknown(run: DagRun, emitted: Emitted) -> tuple[Disagreement, str] | None:
    txids = emitted(run.run_id) if run.state == "success" else []
    if txids == []:
        return None
    return Disagreement.UNKNOWN, "?" if txids is None else format_txids(txids)


def _finding(dag_id: str, run: DagRun, what: Disagreement, txids: str) -> DisagreeingRun:
    start, end = run.interval
    interval = f"[{start[:16]}, {end[:16]})" if start and end else ""
    return DisagreeingRun(
        what=what, dag_id=dag_id, run_id=run.run_id, interval=interval, txids=txids
    )
