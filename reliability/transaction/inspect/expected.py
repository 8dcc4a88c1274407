"""The intervals that a schedule says should exist, computed as Airflow's timetables do.

Only the gaps between emissions are computed, so that a long history costs nothing. Cron expressions
are read by croniter, the library that Airflow reads them with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone, tzinfo
from itertools import chain, islice
from typing import Any
from zoneinfo import ZoneInfo

from reliability.core.schedule import Schedule
from reliability.core.spout import Interval

#: A run needs time to be scheduled and to start.
GRACE = timedelta(minutes=10)
#: How many missing intervals of a topology are named.
MOST = 1000

Gap = tuple[datetime | None, datetime | None]
"""A time in which no run has tried to emit; None has no end."""


class ScheduleNotEvaluated(Exception):
    """The intervals of a schedule cannot be computed; the text says why."""


def missing_intervals(schedule: Schedule, gaps: Iterable[Gap], now: datetime) -> list[Interval]:
    """Return the intervals that should have been emitted and that no run has tried to, ascending.

    An interval is expected from its end plus GRACE on. Without catchup, or if the DAG has no
    start date, nothing is expected before the first interval that was ever emitted. At most
    MOST + 1 are returned.

    :raises ScheduleNotEvaluated: see `intervals`
    """
    missing = chain.from_iterable(_in_gap(schedule, gap, now - GRACE) for gap in gaps)
    return list(islice(missing, MOST + 1))


def _in_gap(schedule: Schedule, gap: Gap, due: datetime) -> Iterator[Interval]:
    start, end = gap
    if start is None:
        start = schedule.first_start if schedule.catchup else None
    elif schedule.first_start is not None:
        start = max(start, schedule.first_start)
    if start is None:
        return
    for interval in intervals(schedule, start):
        if interval.end > (due if end is None else min(end, due)):
            return
        if schedule.last_start is not None and interval.start > schedule.last_start:
            return
        yield interval


def intervals(schedule: Schedule, start: datetime) -> Iterator[Interval]:
    """Yield the intervals of the schedule, the first one that starts at `start` or later.

    :raises ScheduleNotEvaluated: the schedule is not one by cron or by a fixed period, or its cron
        expression or time zone cannot be read
    """
    if schedule.not_evaluated is not None:
        raise ScheduleNotEvaluated(schedule.not_evaluated)
    ticks = _CronTicks(schedule) if schedule.cron is not None else _PeriodTicks(schedule)
    tick = ticks.first(start.astimezone(timezone.utc))
    while True:
        following = ticks.after(tick)
        yield Interval(tick, following)
        tick = following


class _PeriodTicks:
    def __init__(self, schedule: Schedule) -> None:
        assert schedule.period is not None
        self._period = schedule.period
        self._anchor = schedule.first_start

    def first(self, moment: datetime) -> datetime:
        # Airflow counts periods from the end of the run before; the first starts at start_date.
        if self._anchor is None:
            return moment
        return moment + (self._anchor - moment) % self._period

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
        self._cron = schedule.cron
        self._croniter: Any = croniter
        try:
            self._zone = _zone(schedule.time_zone)
            self._is_hourly = croniter(self._cron).expanded[1] == ["*"]
        except (ValueError, KeyError) as error:  # croniter's errors are ValueErrors
            raise ScheduleNotEvaluated(
                f"its schedule {self._cron!r} in {schedule.time_zone!r} cannot be read: {error}"
            ) from error

    def first(self, moment: datetime) -> datetime:
        following = self.after(moment)
        return moment if self._step(following, "get_prev") == moment else following

    def after(self, tick: datetime) -> datetime:
        return self._step(tick, "get_next")

    def _step(self, moment: datetime, direction: str) -> datetime:
        naive = moment.astimezone(self._zone).replace(tzinfo=None)
        cron = self._croniter(self._cron, start_time=naive)
        scheduled: datetime = getattr(cron, direction)(datetime)
        if self._is_hourly:
            return moment + (scheduled - naive)
        return self._in_utc(scheduled)

    def _in_utc(self, naive: datetime) -> datetime:
        offsets = [naive.replace(tzinfo=self._zone, fold=fold).utcoffset() for fold in (0, 1)]
        return (naive - min(offset for offset in offsets if offset is not None)).replace(
            tzinfo=timezone.utc
        )


def _zone(name: str) -> tzinfo:
    return timezone.utc if name == "UTC" else ZoneInfo(name)  # a host may lack the zones' data
