"""The intervals that lack a commit: never emitted, failed, uncommitted, held or parked, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from itertools import groupby
from typing import Any

from reliability.core.coordinator import Wait, why_waits
from reliability.core.errors import error_types, remedy_from_ledger
from reliability.core.remedy import Remedy
from reliability.core.schedule import Schedule
from reliability.core.spout import Interval
from reliability.core.standing import Standing
from reliability.core.texts import backfill_command, how_to_run_again, with_code
from reliability.core.txids import format_txids
from reliability.ledger.connection import DatabaseTransaction, Row
from reliability.ledger.read_rows import AnswersOfTopology, ask_of_topologies, interval_of, made_of
from reliability.transaction.emit.expected import (
    MOST,
    Gap,
    ScheduleNotEvaluated,
    missing_intervals,
)
from reliability.transaction.topology.read_standing import find_standing

WAITING = frozenset({"SOURCE_NOT_READY"})  # codes with which the task waits without failing


class IntervalState(str, Enum):
    """What is the matter with an interval that lacks a commit."""

    MISSING = "missing"  # the schedule has it, and no run has tried to emit it
    FAILED = "failed"  # its emission failed
    EMITTING = "emitting"  # its emission began and has not ended
    WAITING = "waiting"  # its emission waits for the source
    LATE = "late"  # items came after its emission
    BLOCKED = "blocked"  # emitted; no run works on it
    OPEN = "open"  # emitted; a run works on it
    HELD = "held"  # rolled back
    PARKED = "parked"  # committed as empty, until a replay
    TO_REPLAY = "to_replay"  # counts an excluded item, or lacks an included one, until a replay
    CHANGED = "changed"  # committed, and a file of it is another one now


#: These do not go on without a person, and nothing else tells a person of them.
NEED_A_PERSON = frozenset({"missing", "failed", "late", "blocked"})


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalReport:
    """An interval that lacks a commit; or several missing ones in a row.

    :param topology: whose interval
    :param interval: None for an untimed spout; of several, from the first start to the last end
    :param count: how many intervals
    :param txids: those of its txids to which this applies
    :param since: since when it could have been committed
    :param why: what is known of it, with the code of an error
    :param next_step: what to do about it; the part after a colon is how
    :param wait: what its txids wait for, if a run works on them
    """

    topology: str
    state: IntervalState
    interval: Interval | None
    count: int = 1
    txids: tuple[int, ...] = ()
    dag_id: str = ""
    run_id: str = ""
    since: datetime | None = None
    age: timedelta = timedelta()
    why: str = ""
    next_step: str = ""
    wait: Wait | None = None

    @property
    def name(self) -> str:
        return name_intervals(self.interval, self.count)

    def to_json(self) -> dict[str, Any]:
        return {
            "topology": self.topology,
            "interval": str(self.interval) if self.interval else None,
            "count": self.count,
            "state": self.state.value,
            "txids": format_txids(self.txids),
            "dag_id": self.dag_id,
            "run_id": self.run_id or None,
            "since": self.since,
            "age_seconds": self.age.total_seconds(),
            "why": self.why,
            "next_step": self.next_step,
        }


def name_intervals(interval: Interval | None, count: int) -> str:
    """Name an interval, or `count` of them that follow each other."""
    several = f" ({count})" if count > 1 else ""
    return (str(interval) if interval else "no interval") + several


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalsReport:
    """The intervals of a topology that lack a commit.

    :param unknown: why the missing intervals are unknown; None if they are known
    :param is_cut: there are more missing intervals than are named
    """

    reports: tuple[IntervalReport, ...]
    unknown: str | None
    is_cut: bool

    @property
    def counts(self) -> dict[str, int]:
        """Return how many intervals lack a commit, by their state."""
        by_state: dict[str, dict[Interval | None, int]] = {}
        for report in self.reports:
            by_state.setdefault(report.state.value, {})[report.interval] = report.count
        return {state: sum(counts.values()) for state, counts in by_state.items()}

    @property
    def named_counts(self) -> list[str]:
        return name_counts(self.counts)


def name_counts(counts: Mapping[str, int]) -> list[str]:
    """Name how many intervals are in each state; those that are missing are counted up to MOST."""
    return [
        f"{count:,} {state}{' or more' if count == MOST else ''}" for state, count in counts.items()
    ]


def format_counts(counts: Mapping[str, int]) -> str:
    """Say how many intervals lack a commit; empty if none does.

    >>> format_counts({"missing": 2, "failed": 1}), format_counts({})
    ('3 intervals lack a commit: 2 missing, 1 failed', '')
    """
    total = sum(counts.values())
    named = ", ".join(name_counts(counts))
    lack = "interval lacks" if total == 1 else "intervals lack"
    return f"{total:,} {lack} a commit: {named}" if total else ""


#: What is read of the intervals of a topology.
ASKED = (
    "gaps_between_emissions",
    "schedule",
    "unfinished_emissions",
    "open_txids",
    "parked_with_intervals",
)


def intervals_without_commit(
    tx: DatabaseTransaction,
    topology: str,
    older_than: timedelta | None = None,
    wanted: Interval | None = None,
) -> IntervalsReport:
    """Return what the ledger knows; it cannot know which items came late.

    :param older_than: only what could have been committed longer ago
    :param wanted: of the missing ones, which are reported together, only what overlaps this
    """
    answers = ask_of_topologies(tx, ASKED, topology)
    standing = find_standing(tx, topology)
    return report_intervals(topology, answers[topology], standing, older_than, wanted)


def report_intervals(
    topology: str,
    answers: AnswersOfTopology,
    standing: Standing | None,
    older_than: timedelta | None = None,
    wanted: Interval | None = None,
) -> IntervalsReport:
    """Report the intervals of a topology.

    :param answers: those that it has in ASKED
    :param standing: None if no txid was ever emitted, or the topology was dropped meanwhile
    """
    missing, unknown, is_cut = _missing(topology, answers, older_than, wanted)
    reports = [
        *(_unfinished(topology, row) for row in answers["unfinished_emissions"] if row["is_owed"]),
        *(_open(topology, answers["open_txids"], standing) if standing else ()),
        *_parked(topology, answers["parked_with_intervals"]),
    ]
    old = [report for report in reports if older_than is None or report.age > older_than]
    return IntervalsReport(
        reports=tuple(sorted((*missing, *old), key=_place)), unknown=unknown, is_cut=is_cut
    )


def _place(report: IntervalReport) -> tuple[bool, float, tuple[int, ...]]:
    start = report.interval.start.timestamp() if report.interval else 0.0
    return report.interval is not None, start, report.txids


# --- missing -------------------------------------------------------------------------------------


def _missing(
    topology: str,
    answers: AnswersOfTopology,
    older_than: timedelta | None,
    wanted: Interval | None,
) -> tuple[list[IntervalReport], str | None, bool]:
    """Report missing intervals, why they are unknown, and whether there are more of them."""
    gaps = answers["gaps_between_emissions"]
    if not answers["schedule"]:
        is_untimed = len(gaps) <= 1  # no emission has an interval
        unknown = "no run of a DAG has recorded its schedule; a `reliability run` has none"
        return [], None if is_untimed else unknown, False
    [row] = answers["schedule"]
    dag_id, now = row["dag_id"], gaps[0]["now"]
    schedule = made_of(Schedule, row)
    if schedule.not_evaluated is not None:
        return [], schedule.not_evaluated, False
    spans = [Gap(gap["gap_start"], gap["gap_end"], gap["run_end"]) for gap in gaps]
    if not schedule.catchup:  # backfills of the past oblige nobody to fill what lies between
        first = row["first_scheduled"]
        spans = [gap for gap in spans if first and gap.start and gap.start >= first]
    try:
        missing = missing_intervals(schedule, spans, now, wanted)
    except ScheduleNotEvaluated as error:
        return [], str(error), False
    rows: list[list[Interval]] = []  # those that follow each other
    for interval in missing[:MOST]:
        if older_than is not None and now - interval.end <= older_than:
            continue
        if rows and rows[-1][-1].end == interval.start:
            rows[-1].append(interval)
        else:
            rows.append([interval])
    return [_missing_report(topology, dag_id, own, now) for own in rows], None, len(missing) > MOST


def _missing_report(
    topology: str, dag_id: str, row: Sequence[Interval], now: datetime
) -> IntervalReport:
    first, last = row[0], row[-1]
    return IntervalReport(
        topology=topology,
        state=IntervalState.MISSING,
        interval=Interval(first.start, last.end, first.zone),
        count=len(row),
        dag_id=dag_id,
        since=first.end,
        age=now - first.end,
        why="no run has emitted it",
        next_step="is the DAG paused, or the scheduler down? If not: "
        + backfill_command(dag_id, first.start, last.start, "failed"),
    )


# --- not emitted ---------------------------------------------------------------------------------


def remedy_then_resume(row: Row, topology: str, txid: int | None = None) -> str:
    """Say how to fix what an error names, and how the run goes on then."""
    remedy = remedy_from_ledger(row["reason_code"], row["remedy"]) or Remedy("fix the cause")
    text = remedy.render(topology=topology, txid=txid).rstrip(".")
    return (
        text if remedy.runs("resume_runs") else f"{text}; then: reliability resume-runs {topology}"
    )


def _unfinished(topology: str, row: Row) -> IntervalReport:
    since = row["failing_since"] or row["began_at"]
    if row["status"] == "EMITTING":
        state, why = IntervalState.EMITTING, "its emission has not ended"
        again = how_to_run_again(topology, row["dag_id"], row["run_id"], interval_of(row))
        step = f"nothing while its task runs; if the task is gone: {again}"
    elif row["reason_code"] in WAITING:
        state, why = IntervalState.WAITING, _why_failed(row)
        step = error_types()[row["reason_code"]].remedy.text
    else:
        state, why = IntervalState.FAILED, _why_failed(row)
        step = remedy_then_resume(row, topology)
    return _report(topology, state, row, since, why, step)


# --- emitted -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenTxid:
    """What is the matter with an uncommitted txid.

    :param wait: what it waits for, as its task's log has it
    """

    state: IntervalState
    why: str
    wait: Wait | None = None


def why_open(row: Row, standing: Standing) -> OpenTxid:
    """Say what an uncommitted txid waits for; `row` is one of open_txids."""
    if row["held_reason"] is not None:
        return OpenTxid(IntervalState.HELD, row["held_reason"])
    status, attempt = row["status"], f"{row['txid']}:{row['attempt_id']}"
    if status in ("PROCESSING", "SEALING") and row["is_requested"]:
        return OpenTxid(IntervalState.OPEN, f"attempt {attempt} is processing")
    if status != "PROCESSED" and not row["is_requested"]:
        return OpenTxid(IntervalState.BLOCKED, _why_failed(row) or "no run works on it")
    wait = why_waits(standing.snapshot(row["txid"]))
    if status == "PROCESSED":
        verdict = row["verdict"] and f"{row['verdict'].lower()} ({row['verdict_reason']})"
        turn = "commits next" if wait is None else f"waits {wait}"
        return OpenTxid(IntervalState.OPEN, f"{verdict or 'processed'}; {turn}", wait)
    failed = _why_failed(row)
    again = f"to begin again after {failed}" if failed else "to begin"
    if wait is None:
        return OpenTxid(IntervalState.OPEN, f"waits {again}")
    return OpenTxid(IntervalState.OPEN, f"waits {wait}{f', {again}' if failed else ''}", wait)


def _why_failed(row: Row) -> str:
    return with_code(row["reason_code"], row["reason"])


def _open(topology: str, rows: Sequence[Row], standing: Standing) -> Iterator[IntervalReport]:
    """Report uncommitted txids, those of one run with the same reason together."""
    judged = [(row, why_open(row, standing)) for row in rows]

    def of_run(open_txid: tuple[Row, OpenTxid]) -> tuple[object, ...]:
        row, judgement = open_txid
        is_open = judgement.state is IntervalState.OPEN
        without_txid = judgement.why.partition(" ")[0] if is_open else judgement.why
        run = (row["dag_id"], row["run_id"], row["interval_start"], row["interval_end"])
        return (*run, judgement.state, without_txid, judgement.wait)

    for _, same in groupby(judged, of_run):
        together = list(same)
        row, judgement = together[0]
        txids = tuple(own["txid"] for own, _ in together)
        steps = {
            IntervalState.HELD: f"when the cause is fixed: reliability release {topology}",
            IntervalState.BLOCKED: remedy_then_resume(row, topology, txids[0]),
        }
        step = steps.get(judgement.state, "nothing")
        since, why, wait = row["emitted_at"], judgement.why, judgement.wait
        yield _report(topology, judgement.state, row, since, why, step, txids=txids, wait=wait)


def _parked(topology: str, rows: Sequence[Row]) -> Iterator[IntervalReport]:
    for row in rows:
        step = f"fix the cause; then: reliability replay {topology} {row['txid']}"
        why, since, txids = row["verdict_reason"], row["emitted_at"], (row["txid"],)
        yield _report(topology, IntervalState.PARKED, row, since, why, step, txids=txids)


def _report(
    topology: str,
    state: IntervalState,
    row: Row,
    since: datetime,
    why: str,
    next_step: str,
    **more: Any,
) -> IntervalReport:
    own = {"topology": topology, "state": state, "since": since, "why": why, "next_step": next_step}
    age = row["now"] - since
    return made_of(IntervalReport, row, interval=interval_of(row), age=age, **own, **more)
