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
    from reliability_airflow.context import interval_of

    def read(logical_date, start, end, run_after=LATER):
        dag_run = SimpleNamespace(
            run_id="a_run",
            logical_date=logical_date,
            data_interval_start=start,
            data_interval_end=end,
            run_after=run_after,
        )
        return interval_of({"dag_run": dag_run})

    return read


@pytest.mark.parametrize(
    ("logical_date", "start", "end", "run_after"),
    [
        pytest.param(FIRST, FIRST, FIRST + DAY, FIRST + DAY, id="scheduled, or by a backfill"),
        pytest.param(FIRST + 1.5 * DAY, FIRST, FIRST + DAY, LATER, id="by hand between two ticks"),
        pytest.param(FIRST, FIRST, FIRST + DAY, LATER, id="by hand, and the interval named"),
        pytest.param(FIRST + DAY / 2, FIRST, LATER + DAY, LATER, id="named, and not over"),
        pytest.param(LATER + DAY, LATER + DAY, LATER + DAY, LATER, id="no schedule, of the future"),
    ],
)
def test_a_run_reads_its_data_interval(interval_of, logical_date, start, end, run_after):
    assert interval_of(logical_date, start, end, run_after) == Interval(start, end)


def test_a_run_without_a_logical_date_has_no_interval(interval_of):
    assert interval_of(None, None, None) is None


@pytest.mark.parametrize(
    ("logical_date", "start", "end", "what"),
    [
        pytest.param(FIRST + DAY, FIRST, FIRST + DAY, "the interval before it", id="on a tick"),
        pytest.param(LATER, LATER, LATER + DAY, "before it is over", id="too early"),
    ],
)
def test_a_run_in_the_place_of_a_scheduled_one_is_refused(
    interval_of, logical_date, start, end, what
):
    with pytest.raises(LogicalDateTaken, match=what):
        interval_of(logical_date, start, end)
