"""Which intervals should exist is computed without Airflow, and as Airflow computes it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import islice

import pytest

from reliability.transaction.inspect.expected import intervals

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

    restriction = TimeRestriction(pendulum.instance(start), None, catchup=True)
    last = None
    for _ in range(count):
        info = timetable.next_dagrun_info(
            last_automated_data_interval=last, restriction=restriction
        )
        last = info.data_interval
        yield last.start, last.end


@pytest.mark.parametrize(("cron", "zone"), SCHEDULES)
@pytest.mark.parametrize(
    "start", [datetime(2026, 3, 27, 11, 7, tzinfo=UTC), datetime(2026, 10, 23, tzinfo=UTC)]
)
def test_intervals_of_cron_are_those_of_airflow(schedule_of, cron, zone, start):
    """Also where the clocks change: 2026-03-29, 2026-10-25 and 2026-11-01."""
    from airflow.sdk import CronDataIntervalTimetable
    from airflow.timetables.interval import CronDataIntervalTimetable as OfTheScheduler

    schedule = schedule_of(CronDataIntervalTimetable(cron, timezone=zone), start)
    found = [(one.start, one.end) for one in islice(intervals(schedule, start), 60)]
    assert found == list(of_airflow(OfTheScheduler(cron, zone), start, 60))


def test_intervals_of_a_period_are_those_of_airflow(schedule_of):
    from airflow.sdk import DeltaDataIntervalTimetable
    from airflow.timetables.interval import DeltaDataIntervalTimetable as OfTheScheduler

    start, period = datetime(2026, 3, 27, 11, 7, tzinfo=UTC), timedelta(hours=7)
    schedule = schedule_of(DeltaDataIntervalTimetable(period), start)
    found = [(one.start, one.end) for one in islice(intervals(schedule, start), 9)]
    assert found == list(of_airflow(OfTheScheduler(period), start, 9))
    later = next(intervals(schedule, start + timedelta(hours=8)))
    assert later.start == start + 2 * period


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
