"""What differs between the releases of Airflow that this package runs in: 3.0 to 3.3.

Other modules take these names from here. What a release lacks is left out, and said in
docs/deployment/versions.md.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import airflow

from reliability.deployment.supported import check_airflow, check_python

check_python(sys.version_info[:2])
RELEASE = check_airflow(airflow.__version__)

if TYPE_CHECKING or RELEASE >= (3, 1):
    from airflow.sdk import DagRunState, TriggerRule
    from airflow.sdk.bases.hook import BaseHook
else:
    from airflow.hooks.base import BaseHook
    from airflow.utils.state import DagRunState
    from airflow.utils.trigger_rule import TriggerRule

if TYPE_CHECKING or RELEASE >= (3, 2):
    from airflow.sdk import CronDataIntervalTimetable, DeltaDataIntervalTimetable
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
    )
else:
    from airflow.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
    )
    from airflow.timetables.interval import CronDataIntervalTimetable, DeltaDataIntervalTimetable

__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSkipException",
    "BaseHook",
    "CronDataIntervalTimetable",
    "DagRunState",
    "DeltaDataIntervalTimetable",
    "TriggerRule",
    "is_test_run",
    "latest_version",
    "part_of",
    "stats",
    "texts_stay_texts",
]


def latest_version(given: bool | None, release: tuple[int, ...] = RELEASE) -> dict[str, Any]:
    """Return what lets a cleared run of a DAG have its latest version.

    Before 3.3 a DAG has no such argument: a run that is cleared keeps the code that it began with,
    unless who clears it asks for the latest. The log of a replay names older code.

    :param given: what the DAG's author has said
    """
    return {"rerun_with_latest_version": given is not False} if release >= (3, 3) else {}


def texts_stay_texts(release: tuple[int, ...] = RELEASE) -> dict[str, Any]:
    """Return what lets an operator's texts be texts in a DAG that renders native objects.

    Before 3.2 an operator cannot say so: `1e3` in its templated fields is a number there.
    """
    return {"render_template_as_native_obj": False} if release >= (3, 2) else {}


def part_of(timetable: object, name: str) -> Any:
    """Return the `expression`, `timezone` or `delta` of a timetable; None if it has none.

    The timetables of before 3.2 hide them.
    """
    return getattr(timetable, name, getattr(timetable, f"_{name}", None))


def is_test_run() -> bool:
    """Say whether `airflow dags test` or `tasks test` runs this task, without a scheduler."""
    from airflow.sdk.execution_time import task_runner

    supervisor = getattr(task_runner, "SUPERVISOR_COMMS", None)
    return type(supervisor).__name__ == "InProcessSupervisorComms"


def stats() -> Any:
    """Return what has `incr`, `gauge` and `timing` of Airflow's metrics."""
    if RELEASE >= (3, 3):
        from airflow.sdk.observability import stats as functions

        return functions
    if RELEASE >= (3, 2):
        from airflow.sdk.observability.stats import Stats
    else:
        from airflow.stats import Stats
    return Stats
