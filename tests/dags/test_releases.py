"""What differs between the releases of Airflow (docs/airflow.md)."""

from __future__ import annotations

import pytest

from reliability.core.errors import AirflowNotSupported, PythonNotSupported
from reliability.deployment import supported
from reliability_airflow import releases


def test_each_airflow_3_and_python_is_taken_and_another_one_refused_in_a_sentence():
    for version in ("3.0.6", "3.3.2", "3.4.0rc1"):
        supported.check_airflow(version)
    for version in ("2.11.0", "4.0.0"):
        with pytest.raises(AirflowNotSupported, match=f"this is Airflow {version}"):
            supported.check_airflow(version)
    for python in ((3, 10), (3, 13)):
        supported.check_python(python)
    for major, minor in ((3, 9), (3, 14), (4, 0)):
        with pytest.raises(PythonNotSupported, match=rf"this is Python {major}\.{minor}"):
            supported.check_python((major, minor))


def test_a_timetable_may_hide_what_it_is_made_of():
    """Those of before Airflow 3.2 do, and every DAG with a schedule was an import error."""
    from airflow.timetables.interval import CronDataIntervalTimetable, DeltaDataIntervalTimetable

    cron = CronDataIntervalTimetable("0 2 * * *", timezone="Europe/Berlin")
    assert releases.part_of(cron, "expression") == "0 2 * * *"
    assert releases.part_of(cron, "timezone").name == "Europe/Berlin"
    assert releases.part_of(cron, "delta") is None
    assert releases.part_of(DeltaDataIntervalTimetable(3), "delta") == 3


def test_what_a_release_lacks_is_not_asked_of_it():
    latest = {"rerun_with_latest_version": True}
    assert releases.latest_version(None, (3, 3)) == latest
    assert releases.latest_version(False, (3, 3)) == {"rerun_with_latest_version": False}
    assert releases.latest_version(None, (3, 2)) == {}
    assert releases.texts_stay_texts((3, 1)) == {}
    # metrics are told to what the release has
    assert all(hasattr(releases.stats(), name) for name in ("incr", "gauge", "timing"))
