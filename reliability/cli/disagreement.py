"""Where Airflow's colours and the ledger do not agree. The ledger is right (G9)."""

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
    """A run as Airflow knows it; the ends of its interval are texts of Airflow's."""

    run_id: str
    state: str
    interval: tuple[str | None, str | None] = (None, None)


Emitted = Callable[[str], "list[int] | None"]


class Disagreement(str, Enum):
    """What does not fit; its value says it to a person."""

    UNKNOWN = "success, and the ledger knows nothing of it"
    UNSATISFIED = "success, and the ledger has not done it"
    HELD = "success, and rolled back since: held"
    SATISFIED = "failed, and the ledger has done it"
    GONE = "open in the ledger, and Airflow has no such run"

    @property
    def is_repaired_by_clearing(self) -> bool:
        return self in (Disagreement.UNKNOWN, Disagreement.UNSATISFIED)


NEXT = {
    Disagreement.UNKNOWN: "clear the run: it emits and commits what is lacking",
    Disagreement.UNSATISFIED: "clear the run",
    Disagreement.HELD: "`reliability release`, then clear the run",
    Disagreement.SATISFIED: "nothing; mark the run as success, since a clear would replay it",
    Disagreement.GONE: "nothing; a sweep gives the request up 10 minutes after its last sign",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A run that the two do not agree about."""

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
) -> list[Finding]:
    """Compare the runs of a DAG with the ledger's; from the oldest, as they would be cleared.

    :param known: run_id -> its txids as the ledger has them
    :param emitted: what a run's emit returned, asked of runs that the ledger does not know: an
        interval without files is done with nothing in the ledger
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
    """Return what does not fit, and the txids that it is about."""
    if run.state not in ("success", "failed"):
        return None
    if row is None:
        return _judge_unknown(run, emitted)
    is_satisfied = row["satisfied"] == row["txids"]
    if run.state == "success" and not is_satisfied:
        what = Disagreement.HELD if row["held"] else Disagreement.UNSATISFIED
        return what, format_ranges(row["unsatisfied"])
    if run.state == "failed" and is_satisfied:
        return Disagreement.SATISFIED, ""
    return None


def _judge_unknown(run: DagRun, emitted: Emitted) -> tuple[Disagreement, str] | None:
    txids = emitted(run.run_id) if run.state == "success" else []
    if txids == []:
        return None
    return Disagreement.UNKNOWN, "?" if txids is None else format_txids(txids)


def _finding(dag_id: str, run: DagRun, what: Disagreement, txids: str) -> Finding:
    start, end = run.interval
    interval = f"[{start[:16]}, {end[:16]})" if start and end else ""
    return Finding(what=what, dag_id=dag_id, run_id=run.run_id, interval=interval, txids=txids)
