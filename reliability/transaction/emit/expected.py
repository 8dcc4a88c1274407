"""The intervals that a schedule says should exist, computed as Airflow's timetables do.

Only the gaps between emissions are computed, so that a long history costs nothing. Cron expressions
are read by croniter, the library that Airflow reads them with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import chain, islice
from typing import Any, NamedTuple

from reliability.core.periods import UTC, zone_called
from reliability.core.schedule import Schedule
from reliability.core.spout import Interval

#: A run needs time to be scheduled and to start.
GRACE = timedelta(minutes=10)
#: How many missing intervals of a topology are named.
MOST = 1000


class Gap(NamedTuple):
    """A time in which no run has tried to emit.

    :param start, end: None has no end
    :param run_end: the end of the last interval before it that the schedule has made, if any
    """

    start: datetime | None
    end: datetime | None
    run_end: datetime | None = None


class ScheduleNotEvaluated(Exception):
    """The intervals of a schedule cannot be computed; the text says why."""


def missing_intervals(
    schedule: Schedule, gaps: Iterable[Gap], now: datetime, wanted: Interval | None = None
) -> list[Interval]:
    """Return the intervals that should have been emitted and that no run has tried to, ascending.

    An interval is expected from its end plus GRACE on. Without catchup, or if the DAG has no
    start date, nothing is expected before the first interval that was ever emitted. At most
    MOST + 1 are returned.

    :param wanted: only those that overlap it; who asks for it asks whether all of it is there, so
        they are expected from their ends on
    :raises ScheduleNotEvaluated: see `intervals`
    """
    due = now - GRACE if wanted is None else now
    missing = chain.from_iterable(_in_gap(schedule, gap, due) for gap in gaps)
    asked = (each for each in missing if wanted is None or each.overlaps(wanted))
    return list(islice(asked, MOST + 1))


def _in_gap(schedule: Schedule, gap: Gap, due: datetime) -> Iterator[Interval]:
    start, end, run_end = gap
    if start is None and not (schedule.catchup and schedule.first_start):
        return
    for interval in intervals(schedule, after=start, run_end=run_end):
        if interval.end > (due if end is None else min(end, due)):
            return
        if schedule.last_start is not None and interval.start > schedule.last_start:
            return
        yield interval


def intervals(
    schedule: Schedule, after: datetime | None = None, run_end: datetime | None = None
) -> Iterator[Interval]:
    """Yield the intervals of the schedule, as Airflow would make runs of them.

    Where a clock change makes a tick of one that is left out, they need not follow each other.

    :param after: the end of an interval, or any other moment; without it from `first_start` on
    :param run_end: the end of a run's interval, from which Airflow counts periods
    :raises ScheduleNotEvaluated: the schedule is not one by cron or by a fixed period, its cron
        expression or time zone cannot be read, or Airflow does not get over a change of the clocks
    """
    if schedule.not_evaluated is not None:
        raise ScheduleNotEvaluated(schedule.not_evaluated)
    zone = schedule.interval_zone or UTC
    ticks = _CronTicks(schedule) if schedule.cron is not None else _PeriodTicks(schedule, run_end)
    first = schedule.first_start and ticks.at_or_after(schedule.first_start)
    tick = max(filter(None, (first, after and ticks.following(after.astimezone(timezone.utc)))))
    while True:
        end = ticks.after(tick)
        yield Interval(tick, end, zone)
        before, tick = tick, max(filter(None, (first, ticks.at_or_before(end))))
        if tick <= before:
            tick = ticks.after(tick)
        if tick <= before:
            raise ScheduleNotEvaluated(
                f"Airflow makes no run after that of {Interval(before, end, zone)}: its timetable "
                "does not get over a change of the clocks"
            )


class _PeriodTicks:
    """Airflow counts periods from the end of the run before; the first starts at start_date.

    Without catchup, it puts its first run, and that after a pause, on multiples of the period since
    1970.
    """

    def __init__(self, schedule: Schedule, run_end: datetime | None) -> None:
        assert schedule.period is not None
        self._period = schedule.period
        self._first_start = schedule.first_start
        self._run_end = run_end

    def at_or_after(self, moment: datetime) -> datetime:
        return self._from(self._first_start, moment)

    def following(self, moment: datetime) -> datetime:
        return self._from(self._run_end or self._first_start, moment)

    def _from(self, start: datetime | None, moment: datetime) -> datetime:
        return moment if start is None else moment + (start - moment) % self._period

    def at_or_before(self, end: datetime) -> datetime:
        return end

    def after(self, tick: datetime) -> datetime:
        return tick + self._period


class _CronTicks:
    """The ticks of a cron expression in the local time of a zone, in UTC.

    Croniter computes in naive local time. A time that a clock change leaves out or repeats becomes
    the later moment, as in Airflow; a schedule of every hour counts real hours.
    """

    def __init__(self, schedule: Schedule) -> None:
        from croniter import croniter

        assert schedule.cron is not None
        assert schedule.time_zone is not None
        try:
            self._zone = zone_called(schedule.time_zone)
            self._croniter: Any = croniter(schedule.cron)
        except ValueError as error:  # croniter's errors are ValueErrors
            raise ScheduleNotEvaluated(
                f"its schedule {schedule.cron!r} in {schedule.time_zone!r} cannot be read: {error}"
            ) from error
        self._is_hourly = self._croniter.expanded[1] == ["*"]

    def at_or_after(self, moment: datetime) -> datetime:
        following = self.after(moment)
        return moment if self._before(following) == moment else following

    def at_or_before(self, moment: datetime) -> datetime:
        """Return the moment if it is a tick, otherwise what Airflow takes for the tick before.

        Beside a tick that a clock change leaves out, that may lie behind the moment.
        """
        before = self._before(moment)
        return moment if self.after(before) == moment else before

    def following(self, end: datetime) -> datetime:
        """Return the tick that follows the end of an interval: this one, if it is a tick."""
        tick = self.at_or_before(end)
        return tick if tick >= end else self.at_or_after(end)

    def after(self, moment: datetime) -> datetime:
        return self._step(moment, self._croniter.get_next)

    def _before(self, moment: datetime) -> datetime:
        return self._step(moment, self._croniter.get_prev)

    def _step(self, moment: datetime, move: Callable[..., datetime]) -> datetime:
        naive = moment.astimezone(self._zone).replace(tzinfo=None)
        scheduled = move(datetime, start_time=naive)
        if self._is_hourly:
            return moment + (scheduled - naive)
        return self._in_utc(scheduled)

    def _in_utc(self, naive: datetime) -> datetime:
        offsets = [naive.replace(tzinfo=self._zone, fold=fold).utcoffset() for fold in (0, 1)]
        return (naive - min(offset for offset in offsets if offset is not None)).replace(
            tzinfo=timezone.utc
        )
