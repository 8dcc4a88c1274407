"""Whether the intervals of a topology are complete, what became of their rows, and what lags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from reliability.core.errors import ReliabilityError
from reliability.core.spout import Interval
from reliability.core.txids import format_txids
from reliability.ledger.connection import LedgerConnection, Row
from reliability.ledger.read_rows import ends_of, interval_of
from reliability.transaction.inspect.intervals import (
    IntervalReport,
    intervals_without_commit,
    name_intervals,
)
from reliability.transaction.inspect.source import (
    Source,
    WithoutTxid,
    changed_intervals,
    committed_batches,
    intervals_to_replay,
    late_report,
)
from reliability.transaction.topology.databases import TopologyDatabases

COMPLETE = "complete"
ASIDE = ("dropped", "quarantined")


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalStatus:
    """An interval, or `count` missing ones that follow each other.

    :param state: COMPLETE, open, or that of its report
    :param txids: how many it has; None if it was never emitted, and so on
    :param emitted: how many rows its batches have
    :param dropped: at most, of a state; `states` has each
    """

    interval: Interval | None
    state: str
    count: int = 1
    txids: int | None = None
    committed: int | None = None
    first_txid: int | None = None
    emitted: int | None = None
    dropped: int | None = None
    quarantined: int | None = None
    states: Sequence[Mapping[str, Any]] = ()
    why: str | None = None
    next_step: str | None = None

    @property
    def name(self) -> str:
        return name_intervals(self.interval, self.count)

    @property
    def length(self) -> timedelta:
        """Return how long one of its intervals is."""
        assert self.interval is not None
        return (self.interval.end - self.interval.start) / self.count


Aside = Mapping[Interval | None, Sequence[Row]]
"""What each state was not given, by interval."""


def statuses(
    rows: Iterable[Row], reports: Iterable[IntervalReport], aside: Aside | None = None
) -> list[IntervalStatus]:
    """Return the intervals that were emitted, and those that lack something, in order.

    :param rows: as `accounts_by_interval` returns them
    :param reports: of those that are not complete; a later one of an interval counts
    """
    by_interval = {report.interval: report for report in reports}
    emitted = {interval_of(row): row for row in rows}
    own = [
        _emitted(interval, row, by_interval.get(interval), (aside or {}).get(interval, ()))
        for interval, row in emitted.items()
    ]
    others = [
        IntervalStatus(
            interval=interval,
            state=report.state.value,
            count=report.count,
            why=report.why,
            next_step=report.next_step,
        )
        for interval, report in by_interval.items()
        if interval not in emitted
    ]
    return sorted([*own, *others], key=_place)


def _emitted(
    interval: Interval | None, row: Row, report: IntervalReport | None, aside: Sequence[Row]
) -> IntervalStatus:
    is_done = row["txids"] == row["committed"]
    return IntervalStatus(
        interval=interval,
        state=report.state.value if report else COMPLETE if is_done else "open",
        **{name: row[name] for name in ("txids", "committed", "first_txid", "emitted")},
        **{name: max((state[name] for state in aside), default=0) for name in ASIDE},
        states=[{name: state[name] for name in ("state", *ASIDE)} for state in aside],
        why=report.why if report else None,
        next_step=report.next_step if report else None,
    )


def _place(status: IntervalStatus) -> tuple[bool, float]:
    return status.interval is None, status.interval.start.timestamp() if status.interval else 0.0


# --- of a topology -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Completeness:
    """The intervals of a topology; each reason says why something of them is unknown.

    :param is_complete: all of them are, there is one, and nothing is unknown that could lack
    """

    topology: str
    is_complete: bool
    intervals: Sequence[IntervalStatus]
    expected_unknown: str | None
    source_error: str | None
    states_error: str | None


def completeness_of(
    connection: LedgerConnection, topology: str, wanted: Interval | None, source: Source
) -> Completeness:
    """Return whether intervals are complete: all, or those that lie in another one."""
    times = ends_of(wanted)
    rows = connection.all(
        "accounts_by_interval", topology=topology, before=None, most=None, **times
    )
    since, unreadable = _since(connection, topology, wanted)
    with connection.transaction() as tx:
        lacking = intervals_without_commit(tx, topology, wanted=wanted)
    late = [late_report(connection, topology, items) for items in source.late]
    reports = [
        report
        for report in (*since, *lacking.reports, *late)
        if wanted is None or (report.interval is not None and report.interval.overlaps(wanted))
    ]
    aside, unknown = _set_aside(connection, topology, times)
    intervals = statuses(rows, reports, aside)
    closed = connection.all("closed_intervals", topology=topology, most=None, **times)
    expected = None if _cover(closed, wanted) else lacking.unknown
    is_unknown = any((source.error, unreadable, unknown, expected, not intervals and not closed))
    return Completeness(
        topology=topology,
        is_complete=not is_unknown and all(status.state == COMPLETE for status in intervals),
        intervals=intervals,
        expected_unknown=lacking.unknown,
        source_error=source.error or unreadable,
        states_error=unknown,
    )


def _cover(closed: Iterable[Row], wanted: Interval | None) -> bool:
    """Say whether runs have emitted all of an interval; then no schedule has to say more."""
    if wanted is None:
        return False
    reached = wanted.start
    for row in sorted(closed, key=lambda row: row["interval_start"]):
        if row["interval_start"] <= reached:
            reached = max(reached, row["interval_end"])
    return reached >= wanted.end


def _since(
    connection: LedgerConnection, topology: str, wanted: Interval | None
) -> tuple[list[IntervalReport], str | None]:
    """Return the intervals whose tables differ from what the source is to give; or the error."""
    try:
        with connection.transaction() as tx:
            batches = committed_batches(tx, topology, wanted)
            rows = tx.all("items_to_replay", topology=topology)
        replays = list(intervals_to_replay(topology, rows, batches))
    except ReliabilityError as error:  # items of a class that is not known here
        return [], str(error)
    try:
        return [*changed_intervals(topology, batches), *replays], None
    except (ReliabilityError, OSError) as error:
        return replays, str(error)


def _set_aside(
    connection: LedgerConnection, topology: str, times: Mapping[str, Any]
) -> tuple[Aside, str | None]:
    """Return what each state was not given; a database may be unavailable."""
    aside: dict[Interval | None, list[Row]] = {}
    unknown: str | None = None
    with TopologyDatabases.of(connection, topology) as databases:
        for database in databases.all:
            try:
                rows = database.all("set_aside_by_interval", topology=topology, **times)
            except ReliabilityError as error:
                unknown = str(error)
                continue
            for row in rows:
                aside.setdefault(interval_of(row), []).append(row)
    return aside, unknown


# --- lag -----------------------------------------------------------------------------------------

_LAGGING = frozenset({"missing", "failed", "emitting", "waiting"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """What of a topology lacks a commit.

    :param txids: the uncommitted ones
    :param without_txid: items of the source; None if it could not be read
    :param source_failed: it could not, although its module can be imported here
    :param looked_from: where the first interval starts that was looked at for items without a
        txid, if earlier ones were not
    :param expected_unknown: why the missing intervals are unknown; None if they are known
    :param is_cut: there are more missing intervals than are named
    """

    topology: str
    uncommitted: int
    txids: str
    oldest_emitted_at: datetime | None
    oldest_age_seconds: float | None
    without_txid: Sequence[WithoutTxid] | None
    source_error: str | None
    source_failed: bool
    looked_from: datetime | None
    intervals: Sequence[IntervalReport]
    expected_unknown: str | None
    is_cut: bool

    def is_over(self, seconds: float) -> bool:
        """Say whether a txid or an interval has lacked a commit for longer, or items may be late.

        What an untimed spout has not emitted is left to the next run.
        """
        ages = [
            report.age.total_seconds()
            for report in self.intervals
            if report.state.value in _LAGGING
        ]
        is_late = any(items.interval for items in self.without_txid or ())
        return is_late or self.source_failed or max([self.oldest_age_seconds or 0, *ages]) > seconds


def lag_of(connection: LedgerConnection, topology: str, source: Source) -> Lag:
    row = connection.one("lag", topology=topology)
    with connection.transaction() as tx:
        lacking = intervals_without_commit(tx, topology)
    late = [late_report(connection, topology, items) for items in source.late]
    return Lag(
        topology=topology,
        uncommitted=row["uncommitted"],
        txids=format_txids(range(row["curr_txid"], row["next_txid"])),
        oldest_emitted_at=row["emitted_at"],
        oldest_age_seconds=row["age"].total_seconds() if row["age"] else None,
        without_txid=source.without_txid,
        source_error=source.error,
        source_failed=source.has_failed,
        looked_from=source.first.start if source.first else None,
        intervals=[*lacking.reports, *late],
        expected_unknown=lacking.unknown,
        is_cut=lacking.is_cut,
    )
