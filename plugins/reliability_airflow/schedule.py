"""A DAG's schedule: the timetable that is made of it, and what the ledger records of it.

With what is recorded, the command line needs no Airflow.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from airflow.sdk.definitions.asset import BaseAsset

from reliability.core.errors import InvalidDefinition
from reliability.core.periods import UTC, zone_called
from reliability.core.schedule import Schedule
from reliability.spouts.patterns import is_timed, tells_hours, tells_offsets
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
_EPOCH = datetime.fromtimestamp(0, tz=timezone.utc)
_ONCE, _CONTINUOUS = "@once", "@continuous"

# classes of timetables, by the names that they have in each release
_TRIGGERS = {"CronTriggerTimetable", "DeltaTriggerTimetable", "MultipleCronTriggerTimetable"}
_WITHOUT_INTERVALS = {"OnceTimetable", "ContinuousTimetable", "EventsTimetable"}
_WITHOUT_TICKS = {
    "NoneType",
    "NullTimetable",
    "PartitionedAtRuntime",
    "AssetTriggeredTimetable",
    "PartitionedAssetTimetable",
}
_NOT_PERIODIC = {*_WITHOUT_TICKS, "OnceTimetable", "ContinuousTimetable"}
_ELSE_RED = "a run without one is red, DATA_INTERVAL_MISSING."
_MUST_NAME = (
    "each run must name its interval, in its conf or in the extra of the asset event: "
    f'{{"interval": "2026-01-31"}}; {_ELSE_RED}'
)
_NO_BACKFILL = (
    "Airflow makes no backfills of this schedule. A run whose parameter `replay` names txids "
    "replays them."
)
_INTERVALS = (
    "pass a cron expression or a preset such as @daily, a timedelta, assets, or one of Airflow's "
    "timetables; or None for runs that are triggered."
)


def timetable_of(schedule: object, start_date: datetime | None) -> Any:
    """Return what a DAG takes as its schedule: with data intervals between ticks, if it has ticks.

    :param start_date: the ticks of a cron expression are in its time zone; in Airflow's default
        one if it has none
    :raises InvalidDefinition: there is no such schedule, or its time zone has no name
    """
    if schedule is None or schedule in (_CONTINUOUS, _ONCE) or _is_passed_on(schedule):
        return schedule
    if isinstance(schedule, timedelta) and _advances(schedule):
        return DeltaDataIntervalTimetable(schedule)
    expression = _PRESETS.get(schedule, schedule) if isinstance(schedule, str) else ""
    if not _has_ticks(expression):
        given = repr(schedule) if isinstance(schedule, str) else type(schedule).__name__
        of = part_of(schedule, "expression") or part_of(schedule, "delta")
        raise InvalidDefinition(
            f"a topology cannot have this schedule: {given}{'' if of is None else f' of {of!r}'}",
            remedy=_INTERVALS,
        )
    return CronDataIntervalTimetable(expression, timezone=_zone_of(start_date))


def _is_passed_on(schedule: Any) -> bool:
    """Say whether it is a timetable that works, or assets."""
    if isinstance(schedule, BaseAsset):
        return True
    if isinstance(schedule, (list, tuple, set, frozenset)):
        return bool(schedule) and all(isinstance(each, BaseAsset) for each in schedule)
    expression, delta = part_of(schedule, "expression"), part_of(schedule, "delta")
    if expression is not None and not _has_ticks(_PRESETS.get(expression, expression)):
        return False
    return hasattr(schedule, "can_be_scheduled") and (delta is None or _advances(delta))


def active_runs_limit(timetable: Any) -> int | None:
    """Return how many runs a schedule allows at a time; None if that is for the DAG to say."""
    return 1 if timetable == _CONTINUOUS else getattr(timetable, "active_runs_limit", None)


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
    """Return the name of a date's time zone; of Airflow's default one if it has none."""
    zone: Any = start_date.tzinfo if start_date is not None else None
    if zone is None:
        from airflow.settings import TIMEZONE as zone
    if zone.utcoffset(None) == timedelta(0):
        return UTC
    name = getattr(zone, "key", None) or getattr(zone, "name", None)  # zoneinfo, pendulum
    try:
        return ZoneInfo(name or "").key
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise InvalidDefinition(
            f"the time zone of start_date is {zone}, which has no name",
            remedy='use a zone with a name, such as zoneinfo.ZoneInfo("Europe/Berlin").',
        ) from error


def zone_of_ticks(timetable: Any) -> str:
    """Return the time zone of a timetable's ticks; a period has the same in each."""
    zone = part_of(_triggers(timetable)[0], "timezone")
    return UTC if zone is None else _name_of(zone)


def _triggers(timetable: Any) -> Any:
    """Return the timetables that trigger as one, with the same zone and interval; or this one."""
    return part_of(timetable, "timetables") or [timetable]


def _name_of(zone: Any) -> str:
    name = getattr(zone, "key", None) or getattr(zone, "name", None)  # zoneinfo, pendulum
    return name or str(zone)


# --- what a spout needs of a schedule ------------------------------------------------------------


def notices_of(topology: Topology, dag: DAG) -> list[str]:
    """Say what a person should know of a topology in a DAG of this schedule, in sentences.

    :raises InvalidDefinition: it reads by interval, and no run of the DAG could have one; or the
        time zone of its dates is not said
    """
    timetable = dag.timetable
    if topology.spout.timed:
        notices = _timed_notices(topology, timetable)
        return [*_zone_notices(topology, timetable, dag), *notices]
    return [_NO_BACKFILL] if _kind_of(timetable) in _NOT_PERIODIC else []


def has_ticks(timetable: Any) -> bool:
    """Say whether Airflow makes runs of it by the clock, for whose dates no other run may stand."""
    return _kind_of(timetable) not in _WITHOUT_TICKS


def may_be_scheduled(dag: DAG, logical_date: datetime) -> bool:
    """Say whether a scheduled run may have this logical date.

    It is asked only of a run by hand that reads up to its own date. Of a cron expression, such a
    run reads up to the last tick; of a period, and of a timetable that triggers, up to its date,
    which need not be a tick. Without catchup Airflow counts periods from 1970, and after another
    start_date from the last run; that is not known here.
    """
    timetable: Any = dag.timetable
    if _kind_of(timetable) == "AssetOrTimeSchedule":
        timetable = timetable.timetable
    period, length = part_of(timetable, "delta"), _length(timetable) or timedelta(0)
    if not isinstance(length, timedelta) or not isinstance(period or length, timedelta):
        return True  # of months, which differ
    tick = _in_utc(logical_date) + length  # where the scheduled run's interval would end
    if isinstance(period, timedelta):
        first = _in_utc(dag.start_date or _EPOCH)
        return any(not (tick - each) % period for each in (first, _EPOCH))
    if period is None and _kind_of(timetable) in _TRIGGERS:
        return any(_is_tick(each, tick) for each in _triggers(timetable))
    return True


def _is_tick(timetable: Any, moment: datetime) -> bool:
    from croniter import croniter

    zone = part_of(timetable, "timezone")
    local = moment.astimezone(zone_called(zone) if isinstance(zone, str) else zone)
    local = local.replace(tzinfo=None)
    before = local - timedelta(microseconds=1)
    return bool(croniter(part_of(timetable, "expression"), before).get_next(datetime) == local)


def _in_utc(moment: datetime) -> datetime:
    """Return a moment without what pendulum adds to it."""
    return datetime.fromtimestamp(moment.timestamp(), tz=timezone.utc)


def _kind_of(timetable: Any) -> str:
    """Return the name of a timetable's class; empty for one that is not Airflow's."""
    kind = type(timetable)
    return kind.__name__ if kind.__module__.startswith("airflow.") else ""


def _timed_notices(topology: Topology, timetable: Any) -> list[str]:
    name, kind = topology.name, _kind_of(timetable)
    if kind == "AssetOrTimeSchedule":
        return [*_timed_notices(topology, timetable.timetable), f"Runs by assets: {_MUST_NAME}"]
    if kind in _WITHOUT_TICKS:
        return [_MUST_NAME[0].upper() + _MUST_NAME[1:], _NO_BACKFILL]
    if kind == "CronPartitionTimetable":
        return [f"The partition key of a run must be its interval, such as 2026-01-31: {_ELSE_RED}"]
    if kind in _WITHOUT_INTERVALS or (kind in _TRIGGERS and not _length(timetable)):
        raise InvalidDefinition(
            f"topology {name} reads by interval, and the runs of a {kind} have none",
            remedy="give the DAG a schedule with data intervals, such as "
            'schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"); or assets or None, '
            "and name the interval of each run.",
        )
    if "not_evaluated" not in _kind(timetable):
        return []
    return ["Which intervals should exist is not known: missing ones are not noticed."]


def _length(timetable: Any) -> Any:
    """Return the length of the data intervals of a timetable that triggers; falsy if it is 0."""
    return part_of(_triggers(timetable)[0], "interval")


def _zone_notices(topology: Topology, timetable: Any, dag: DAG) -> list[str]:
    spout = topology.spout
    pattern = getattr(spout, "pattern", "")
    if _kind_of(timetable) == "AssetOrTimeSchedule":
        return _zone_notices(topology, timetable.timetable, dag)
    is_period = part_of(timetable, "delta") is not None
    zone = _name_of(dag.timezone) if is_period else zone_of_ticks(timetable)
    if _kind_of(timetable) in _TRIGGERS and not is_period and _jumps(timetable, zone, dag):
        raise InvalidDefinition(
            f"topology {topology.name}: each run reads a fixed time before its tick, and where the "
            f"clocks of {zone} change, ticks are an hour nearer or farther: intervals would "
            "overlap, or leave an hour out",
            remedy=f'use CronDataIntervalTimetable(…, timezone="{zone}"), or timezone="UTC".',
        )
    if pattern and not spout.time_zone and not _is_utc(zone):
        raise InvalidDefinition(
            f"topology {topology.name}: its schedule is in {zone}, and its spout does not say in "
            "which time zone its dates are",
            remedy=f'say FileSpout(…, time_zone="{zone}") if its dates are local ones, or '
            'time_zone="UTC".',
        )
    if not spout.time_zone or not _changes_clocks(spout.time_zone, dag):
        return []
    if is_period and is_timed(pattern) and not tells_hours(pattern):
        raise InvalidDefinition(
            f"topology {topology.name}: its days are those of {spout.time_zone}, where some have "
            "23 or 25 hours, and its schedule is a period",
            remedy='use a cron expression, such as "0 0 * * *", or time_zone="UTC".',
        )
    if tells_hours(pattern) and not tells_offsets(pattern):
        return [
            f"When the clocks of {spout.time_zone} go back, hours that occur twice have one name: "
            "the later run reads what the earlier one has left. %z tells them apart."
        ]
    return []


def _is_utc(zone: str) -> bool:
    try:
        return zone_called(zone).utcoffset(None) == timedelta(0)
    except ValueError:  # an offset
        return False


def _jumps(timetable: Any, zone: str, dag: DAG) -> bool:
    """Say whether ticks follow the clocks where these change; those of every hour do not."""
    from croniter import croniter

    crons = (croniter(part_of(each, "expression")) for each in _triggers(timetable))
    return _changes_clocks(zone, dag) and any(cron.expanded[1] != ["*"] for cron in crons)


def _changes_clocks(zone: str, dag: DAG) -> bool:
    """Say whether a zone's offset changes between the DAG's start and the end of next year."""
    try:
        within = zone_called(zone)
    except ValueError:  # an offset
        return False
    now = datetime.now(timezone.utc)
    start = datetime.fromtimestamp(min(dag.start_date or now, now).timestamp(), within)
    months = (
        datetime(year, month, 1, tzinfo=within)
        for year in range(start.year, now.year + 2)
        for month in range(1, 13)
    )
    return len({max(start, month).utcoffset() for month in months}) > 1


# --- what the ledger records ---------------------------------------------------------------------


def schedule_of(dag: DAG) -> Schedule:
    """Return the schedule of a DAG; of a timetable that is not known here, only its name."""
    first_start, last_start = (
        moment and _in_utc(moment)
        for moment in (dag.start_date, dag.end_date or dag.default_args.get("end_date"))
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
    kind = type(timetable).__name__
    if kind == "AssetOrTimeSchedule":
        return _kind(timetable.timetable)
    if kind in _WITHOUT_TICKS:
        return {"not_evaluated": f"its schedule, a {kind}, has no ticks: runs name their intervals"}
    return {"not_evaluated": f"its schedule is a {kind}"}
