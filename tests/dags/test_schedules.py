"""Which intervals should exist is computed without Airflow, and as Airflow computes it."""

from __future__ import annotations

import itertools
import random
from datetime import datetime, timedelta, timezone
from itertools import islice

import pytest

from reliability.transaction.emit.expected import ScheduleNotEvaluated, intervals

UTC = timezone.utc
SCHEDULES = [
    ("@monthly", "UTC"),
    ("@daily", "Europe/Berlin"),
    ("30 2 * * *", "Europe/Berlin"),
    ("15 * * * *", "Europe/Berlin"),
    ("0 */6 * * 1-5", "America/New_York"),
    ("0 0 1 */3 *", "Asia/Kolkata"),
    ("*/20 * * * *", "UTC"),
]


@pytest.fixture
def schedule_of(airflow_home):
    """Make a DAG, and read its schedule as a task does."""
    from airflow.sdk import DAG

    from reliability_airflow.schedule import schedule_of

    def read(timetable, start, **options):
        return schedule_of(DAG("d", schedule=timetable, start_date=start, **options))

    return read


def of_airflow(timetable, start, count):
    """The first intervals that Airflow's scheduler would make runs for."""
    import pendulum
    from airflow.timetables.base import TimeRestriction

    limits = TimeRestriction(pendulum.instance(start), None, catchup=True)
    last = None
    for _ in range(count):
        info = timetable.next_dagrun_info(last_automated_data_interval=last, restriction=limits)
        last = info.data_interval
        yield tuple(datetime.fromtimestamp(end.timestamp(), tz=UTC) for end in last)


@pytest.mark.parametrize(("cron", "zone"), SCHEDULES)
@pytest.mark.parametrize(
    "start", [datetime(2026, 3, 27, 11, 7, tzinfo=UTC), datetime(2026, 10, 23, tzinfo=UTC)]
)
def test_intervals_of_cron_are_those_of_airflow(schedule_of, cron, zone, start):
    """Also where the clocks change: 2026-03-29, 2026-10-25 and 2026-11-01."""
    from airflow.sdk import CronDataIntervalTimetable
    from airflow.timetables.interval import CronDataIntervalTimetable as OfTheScheduler

    schedule = schedule_of(CronDataIntervalTimetable(cron, timezone=zone), start)
    found = [(one.start, one.end) for one in islice(intervals(schedule), 60)]
    assert found == list(of_airflow(OfTheScheduler(cron, zone), start, 60))


#: where the clocks change in other ways: by 30 minutes, at midnight, in the south, twice a year
ZONES = [
    ("Australia/Lord_Howe", (10, 3)),
    ("Australia/Lord_Howe", (4, 4)),
    ("Australia/Sydney", (10, 3)),
    ("America/Santiago", (9, 5)),
    ("Africa/Cairo", (4, 23)),
    ("America/Havana", (3, 7)),
    ("America/Havana", (10, 31)),
    ("Africa/Casablanca", (3, 21)),
    ("Antarctica/Troll", (3, 28)),
    ("Pacific/Chatham", (9, 26)),
    ("Europe/London", (3, 28)),
]
CRONS = ["0 0 * * *", "30 1 * * *", "30 2 * * *", "0 */2 * * *", "*/10 0-5 * * *", "0 0 * * 0"]


@pytest.mark.parametrize(("zone", "month_and_day"), ZONES)
def test_where_clocks_change_intervals_are_those_of_airflow_from_any_of_them_on(
    schedule_of, zone, month_and_day
):
    """Airflow's intervals leave a time out, or overlap, beside a tick that does not exist."""
    from airflow.sdk import CronDataIntervalTimetable
    from airflow.timetables.interval import CronDataIntervalTimetable as OfTheScheduler

    month, day = month_and_day
    dice = random.Random(f"{zone} {month}-{day}")
    for cron in CRONS:
        before = timedelta(days=7 if cron.endswith("0") else 1)
        start = datetime(2026, month, day, 18, dice.randrange(60), tzinfo=UTC) - before
        schedule = schedule_of(CronDataIntervalTimetable(cron, timezone=zone), start)
        expected = list(of_airflow(OfTheScheduler(cron, zone), start, 14))
        assert [(i.start, i.end) for i in islice(intervals(schedule), 14)] == expected
        place = dice.randrange(13)
        following = next(intervals(schedule, expected[place][1]))
        assert (following.start, following.end) == expected[place + 1]


def test_a_timetable_that_airflow_cannot_get_over_a_clock_change_is_not_evaluated(schedule_of):
    """Airflow 3.3 raises an error there for ever; 3.1 and 3.2 make no more runs either."""
    from airflow.sdk import CronDataIntervalTimetable

    start = datetime(2026, 10, 2, 12, tzinfo=UTC)
    timetable = CronDataIntervalTimetable("15 * * * *", timezone="Australia/Lord_Howe")
    with pytest.raises(ScheduleNotEvaluated, match=r"no run after .*does not get over"):
        list(islice(intervals(schedule_of(timetable, start)), 60))


def test_hours_of_some_days_went_on_after_a_start_before_a_clock_change(schedule_of):
    """`lag` said that Airflow makes no more runs: it never goes back behind the start date."""
    from airflow.sdk import CronDataIntervalTimetable
    from airflow.timetables.interval import CronDataIntervalTimetable as OfTheScheduler

    start = datetime(2024, 10, 25, 21, 37, tzinfo=UTC)
    schedule = schedule_of(CronDataIntervalTimetable("0 * 1 * *", timezone="Europe/Berlin"), start)
    found = [(one.start, one.end) for one in islice(intervals(schedule), 9)]
    assert found == list(of_airflow(OfTheScheduler("0 * 1 * *", "Europe/Berlin"), start, 9))


def test_intervals_of_a_period_are_those_of_airflow(schedule_of):
    from airflow.sdk import DeltaDataIntervalTimetable
    from airflow.timetables.interval import DeltaDataIntervalTimetable as OfTheScheduler

    start, period = datetime(2026, 3, 27, 11, 7, tzinfo=UTC), timedelta(hours=7)
    schedule = schedule_of(DeltaDataIntervalTimetable(period), start, catchup=True)
    found = [(one.start, one.end) for one in islice(intervals(schedule), 9)]
    assert found == list(of_airflow(OfTheScheduler(period), start, 9))
    later = next(intervals(schedule, start + timedelta(hours=8)))
    assert later.start == start + 2 * period


@pytest.mark.parametrize(
    ("start", "period"),
    [
        (datetime(2026, 1, 5, tzinfo=UTC), timedelta(weeks=1)),  # Airflow's weeks begin on Thursday
        (datetime(2026, 1, 5, 6, 30, tzinfo=UTC), timedelta(days=1)),
        (datetime(2026, 3, 3, 6, 30, tzinfo=UTC), timedelta(days=1)),  # the first one is this day
    ],
)
def test_intervals_of_a_period_without_catchup_follow_the_run_before(
    schedule_of, monkeypatch, start, period
):
    """They were counted from the start date: `lag` missed some, and named some that overlap."""
    import pendulum
    from airflow.sdk import DeltaDataIntervalTimetable
    from airflow.timetables import interval
    from airflow.timetables.base import DataInterval, TimeRestriction

    schedule = schedule_of(DeltaDataIntervalTimetable(period), start, catchup=False)
    limits = TimeRestriction(pendulum.instance(start), None, catchup=False)
    timetable = interval.DeltaDataIntervalTimetable(period)
    now = datetime(2026, 3, 3, 11, 7, tzinfo=UTC)
    found: list[DataInterval] = []
    for _ in range(4):
        monkeypatch.setattr(interval, "utcnow", lambda now=now: pendulum.instance(now))
        last = found[-1] if found else None
        info = timetable.next_dagrun_info(last_automated_data_interval=last, restriction=limits)
        assert info is not None
        assert info.data_interval is not None
        found.append(info.data_interval)
        now = max(now, info.data_interval.end)
    for before, following in itertools.pairwise(found):
        end = datetime.fromtimestamp(before.end.timestamp(), UTC)
        expected = next(intervals(schedule, end, run_end=end))
        assert (expected.start, expected.end) == (following.start, following.end)


def test_the_last_run_is_that_of_airflow_where_the_end_is_a_default_of_its_tasks(schedule_of):
    """Airflow stops there; later intervals were missing for ever."""
    from airflow.sdk import CronDataIntervalTimetable

    start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
    monthly = CronDataIntervalTimetable("0 0 1 * *", timezone="UTC")
    assert schedule_of(monthly, start, default_args={"end_date": end}).last_start == end
    assert schedule_of(monthly, start, end_date=end).last_start == end
    assert schedule_of(monthly, start).last_start is None


def test_another_timetable_is_named_and_not_evaluated(schedule_of):
    from airflow.sdk import Asset, CronTriggerTimetable

    start = datetime(2026, 1, 1, tzinfo=UTC)
    for schedule, name in [
        (CronTriggerTimetable("@daily", timezone="UTC"), "CronTriggerTimetable"),
        ([Asset("orders")], "AssetTriggeredTimetable"),
        (None, "NullTimetable"),
    ]:
        found = schedule_of(schedule, start)
        assert name in found.not_evaluated
        assert found.cron is found.period is None


def test_the_rest_of_the_dag_is_read_too(schedule_of):
    start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)
    found = schedule_of(None, start, end_date=end, catchup=False)
    assert (found.first_start, found.last_start, found.catchup) == (start, end, False)
