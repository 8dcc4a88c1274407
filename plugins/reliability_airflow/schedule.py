"""What the ledger records of a DAG's schedule, so that the command line needs no Airflow."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from airflow.sdk import CronDataIntervalTimetable, DeltaDataIntervalTimetable

from reliability.core.schedule import Schedule

if TYPE_CHECKING:
    from airflow.sdk import DAG


def schedule_of(dag: DAG) -> Schedule:
    """Return the schedule of a DAG; of a timetable that is not known here, only its name."""
    return Schedule(
        **_kind(dag.timetable),
        first_start=_plain(dag.start_date),
        last_start=_plain(dag.end_date),
        catchup=dag.catchup,
    )


def _plain(moment: datetime | None) -> datetime | None:
    """Airflow's moments are pendulum's."""
    return moment and datetime.fromtimestamp(moment.timestamp(), tz=timezone.utc)


def _kind(timetable: Any) -> dict[str, Any]:
    if isinstance(timetable, CronDataIntervalTimetable):
        zone = timetable.timezone
        return {
            "cron": timetable.expression,
            "time_zone": zone if isinstance(zone, str) else zone.name,
        }
    if isinstance(timetable, DeltaDataIntervalTimetable) and isinstance(timetable.delta, timedelta):
        return {"period": timetable.delta}
    return {"not_evaluated": f"its schedule is a {type(timetable).__name__}"}
