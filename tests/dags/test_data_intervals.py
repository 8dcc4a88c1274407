"""Which runs may read the data interval that Airflow gave them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest

from reliability.core.errors import LogicalDateTaken
from reliability.core.spout import Interval

DAY = timedelta(days=1)
FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
LATER = FIRST + 30 * DAY


@pytest.fixture
def interval_of(airflow_home):
    from airflow.sdk import DAG

    from reliability_airflow.context import interval_of
    from reliability_airflow.schedule import timetable_of

    task = SimpleNamespace(dag=DAG("d", schedule=timetable_of("@daily", FIRST), start_date=FIRST))

    def read(logical_date, start, end, run_after=LATER, conf=None):
        dag_run = SimpleNamespace(
            run_id="a_run",
            logical_date=logical_date,
            data_interval_start=start,
            data_interval_end=end,
            run_after=run_after,
            conf=conf,
        )
        return interval_of({"ti": SimpleNamespace(task=task), "dag_run": dag_run, "params": {}})

    return read


@pytest.mark.parametrize(
    ("logical_date", "start", "end", "run_after"),
    [
        pytest.param(FIRST, FIRST, FIRST + DAY, FIRST + DAY, id="scheduled, or by a backfill"),
        pytest.param(FIRST + 1.5 * DAY, FIRST, FIRST + DAY, LATER, id="by hand between two ticks"),
        pytest.param(FIRST, FIRST, FIRST + DAY, LATER, id="by hand, and the interval named"),
        pytest.param(FIRST + DAY / 2, FIRST, LATER + DAY, LATER, id="named, and not over"),
        pytest.param(LATER + DAY, LATER + DAY, LATER + DAY, LATER, id="no schedule, of the future"),
        pytest.param(None, None, None, LATER, id="no logical date"),
    ],
)
def test_a_run_reads_its_data_interval(interval_of, logical_date, start, end, run_after):
    expected = Interval(start, end) if start else None
    assert interval_of(logical_date, start, end, run_after) == expected


def test_a_run_in_the_place_of_a_scheduled_one_is_refused(interval_of):
    with pytest.raises(LogicalDateTaken, match="the interval before it"):
        interval_of(FIRST + DAY, FIRST, FIRST + DAY)
    with pytest.raises(LogicalDateTaken, match="before it is over"):
        interval_of(LATER, LATER, LATER + DAY)


REPLAYS = {"replay": "5..6"}


@pytest.mark.parametrize("logical_date", [FIRST, FIRST + DAY])
def test_a_run_that_only_replays_has_no_place_in_the_schedule(interval_of, logical_date):
    """E9: a scheduled run would be missing, or would emit nothing whenever it is cleared."""
    said = r"only replays txids 5\.\.6\. .*without a logical date.*'{\"replay\": \"\"}'"
    with pytest.raises(LogicalDateTaken, match=said):
        interval_of(logical_date, FIRST, FIRST + DAY, conf=REPLAYS)
    # any other date, or none
    between = FIRST + 1.5 * DAY
    assert interval_of(between, FIRST, FIRST + DAY, conf=REPLAYS) == Interval(FIRST, FIRST + DAY)
    assert interval_of(None, None, None, conf=REPLAYS) is None
    assert interval_of(FIRST, FIRST, FIRST, conf=REPLAYS) == Interval(FIRST, FIRST)  # no schedule
