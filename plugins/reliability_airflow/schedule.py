"""A DAG's schedule: the timetable that is made of it, and what the ledger records of it.

With what is recorded, the command line needs no Airflow.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from reliability.core.errors import InvalidDefinition
from reliability.core.schedule import Schedule
from reliability_airflow.releases import (
    CronDataIntervalTimetable,
    DeltaDataIntervalTimetable,
    part_of,
)

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from reliability.core.definitions import Topology

#: presets of Airflow that croniter does not know
_PRESETS = {"@quarterly": "0 0 1 */3 *"}
#: What croniter draws anew whenever it reads the expression.
_RANDOM = re.compile(r"(?<!\w)R(?!\w)", re.IGNORECASE)
_EARLIER = datetime(2000, 1, 1)
_INTERVALS = (
    "pass a schedule that has data intervals: a cron expression or preset such as @daily, a "
    "timedelta, a CronDataIntervalTimetable or a DeltaDataIntervalTimetable; or None for runs by "
    "hand."
)


def timetable_of(schedule: object, start_date: datetime | None) -> Any:
    """Return the timetable that gives every run the data interval between two ticks.

    :param start_date: the ticks of a cron expression are in its time zone
    :raises InvalidDefinition: such a schedule has no data intervals, or its time zone has no name
    """
    if schedule is None:
        return None
    if isinstance(schedule, timedelta) and _advances(schedule):
        return DeltaDataIntervalTimetable(schedule)
    if isinstance(schedule, DeltaDataIntervalTimetable) and _advances(part_of(schedule, "delta")):
        return schedule
    if isinstance(schedule, CronDataIntervalTimetable) and _has_ticks(
        part_of(schedule, "expression")
    ):
        return schedule
    expression = _PRESETS.get(schedule, schedule) if isinstance(schedule, str) else ""
    if not _has_ticks(expression):
        given = repr(schedule) if isinstance(schedule, str) else type(schedule).__name__
        of = part_of(schedule, "expression") or part_of(schedule, "delta")
        raise InvalidDefinition(
            f"a topology cannot have this schedule: {given}{'' if of is None else f' of {of!r}'}",
            remedy=_INTERVALS,
        )
    return CronDataIntervalTimetable(expression, timezone=_zone_of(start_date))


def _advances(period: Any) -> bool:
    """Say whether a period, a timedelta or a relativedelta, is longer than nothing."""
    try:
        return bool(_EARLIER + period > _EARLIER)
    except OverflowError:
        return False


def _has_ticks(expression: str) -> bool:
    """Say whether a cron expression has ticks, and the same ones whenever it is read."""
    from croniter import CroniterError, croniter

    if _RANDOM.search(expression):
        return False
    try:
        croniter(expression, _EARLIER).get_next()
    except CroniterError:  # such as the 30th of February
        return False
    return True


def _zone_of(start_date: datetime | None) -> str:
    """Return the name of a date's time zone; UTC if it has none."""
    zone = start_date.tzinfo if start_date is not None else None
    if zone is None or zone.utcoffset(None) == timedelta(0):
        return "UTC"
    name = getattr(zone, "key", None) or getattr(zone, "name", None)  # zoneinfo, pendulum
    try:
        return ZoneInfo(name or "").key
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise InvalidDefinition(
            f"the time zone of start_date is {zone}, which has no name",
            remedy='use a zone with a name, such as zoneinfo.ZoneInfo("Europe/Berlin").',
        ) from error


def check_data_intervals(topology: Topology, timetable: Any) -> None:
    """Check that a DAG's timetable gives its runs what the topology's spout reads by.

    :raises InvalidDefinition: it reads by data interval, and they have none, or not in UTC
    """
    if not topology.spout.timed:
        return
    name = topology.name
    if type(timetable).__name__ in ("NoneType", "NullTimetable"):
        raise InvalidDefinition(f"topology {name} reads by interval: it needs a schedule")
    kind = type(timetable)
    if kind.__module__.startswith("airflow.") and "DataInterval" not in kind.__name__:
        raise InvalidDefinition(
            f"topology {name} reads by interval, and the runs of a {kind.__name__} have none",
            remedy="give the DAG a timetable with data intervals, such as "
            'schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC").',
        )
    if (zone := zone_of_ticks(timetable)) != "UTC":
        raise InvalidDefinition(
            f"topology {name}: its schedule is in {zone}, and the dates in its pattern "
            "are in UTC, where a day has another start",
            remedy="give start_date in UTC, and a cron expression with the hours of UTC.",
        )


def zone_of_ticks(timetable: Any) -> str:
    """Return the time zone of a timetable's ticks; a period has the same in each."""
    if not isinstance(timetable, CronDataIntervalTimetable):
        return "UTC"
    zone = part_of(timetable, "timezone")
    return zone if isinstance(zone, str) else zone.name


def schedule_of(dag: DAG) -> Schedule:
    """Return the schedule of a DAG; of a timetable that is not known here, only its name."""
    first_start, last_start = (
        moment and datetime.fromtimestamp(moment.timestamp(), tz=timezone.utc)
        for moment in (dag.start_date, dag.end_date)  # pendulum's
    )
    kind = _kind(dag.timetable)
    return Schedule(**kind, first_start=first_start, last_start=last_start, catchup=dag.catchup)


def _kind(timetable: Any) -> dict[str, Any]:
    if isinstance(timetable, CronDataIntervalTimetable):
        return {"cron": part_of(timetable, "expression"), "time_zone": zone_of_ticks(timetable)}
    if isinstance(timetable, DeltaDataIntervalTimetable) and isinstance(
        period := part_of(timetable, "delta"), timedelta
    ):
        return {"period": period}
    return {"not_evaluated": f"its schedule is a {type(timetable).__name__}"}
