"""Which schedule goes with which kind of spout, and which interval a run reads."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from reliability import Count, FileSpout, KafkaSpout, MemorySpout, State, Topology
from reliability.core.errors import InvalidDefinition, LogicalDateTaken
from reliability.core.spout import Interval
from tests.support.without_spark import never

DAILY, BERLIN, LOCAL = "d/{data_interval_start:%Y-%m-%d}/*", "Europe/Berlin", "in Europe/Berlin"
MONTH_AND_DAY = "d/{data_interval_start.month}-{data_interval_start.day}/*"
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
DAY = timedelta(days=1)
#: what is said of a DAG of a spout with intervals, and of one without
NAME_IT, NO_BACKFILL, BY_KEY = "must name its interval", "no backfills", "partition key"
UNKNOWN, REFUSED = "is not known", "have none"


def topology(pattern: str = "", zone: str = "") -> Topology:
    spout: Any = MemorySpout(schema={"word": "string"}, partitions=[["a"]], take=1)
    if pattern:
        spout = FileSpout(pattern, time_zone=zone)
    states = [State("words", key={"word": "text"}, values={"n": Count()})]
    return Topology("words", spout=spout, process=never, states=states, module=__name__)


@pytest.fixture
def dag_of(airflow_home):
    from airflow.serialization.serialized_objects import DagSerialization

    from reliability_airflow import topology_dag

    def make(topology: Topology, schedule: Any, start: datetime = START, **arguments: Any) -> Any:
        dag = topology_dag(topology, schedule=schedule, start_date=start, **arguments)
        DagSerialization.from_dict(DagSerialization.to_dict(dag))
        return dag

    return make


def _schedules() -> dict[str, Any]:
    import airflow.sdk as sdk
    import pendulum
    from airflow.timetables.events import EventsTimetable  # that of airflow.sdk has no summary
    from dateutil.relativedelta import relativedelta  # type: ignore[import-untyped]

    asset, other = sdk.Asset("orders"), sdk.Asset("prices")
    cron: dict[str, Any] = {"timezone": "UTC"}
    return {
        "@daily": "@daily",
        "a period": timedelta(hours=6),
        "CronDataInterval": sdk.CronDataIntervalTimetable("0 2 * * *", **cron),
        "DeltaDataInterval": sdk.DeltaDataIntervalTimetable(timedelta(days=7)),
        "a month": sdk.DeltaDataIntervalTimetable(relativedelta(months=1)),
        "None": None,
        "@once": "@once",
        "@continuous": "@continuous",
        "Asset": asset,
        "a list": [asset, other],
        "AssetAll": asset & other,
        "AssetAny": asset | other,
        "AssetOrTime": sdk.AssetOrTimeSchedule(
            assets=asset, timetable=sdk.CronDataIntervalTimetable("@daily", **cron)
        ),
        "AssetOrTrigger": sdk.AssetOrTimeSchedule(
            assets=asset, timetable=sdk.CronTriggerTimetable("@daily", **cron)
        ),
        "CronTrigger": sdk.CronTriggerTimetable("0 2 * * *", **cron),
        "CronTrigger, a day": sdk.CronTriggerTimetable("0 2 * * *", interval=DAY, **cron),
        "DeltaTrigger": sdk.DeltaTriggerTimetable(DAY),
        "MultipleCron": sdk.MultipleCronTriggerTimetable("0 2 * * *", "0 5 * * *", **cron),
        "Events": EventsTimetable([pendulum.instance(START)]),
        "CronPartition": sdk.CronPartitionTimetable("@daily", key_format="%Y-%m-%d", **cron),
        "PartitionedAsset": sdk.PartitionedAssetTimetable(assets=asset),
        "PartitionedAtRuntime": sdk.PartitionedAtRuntime(),
    }


@pytest.mark.parametrize(
    ("name", "timed", "untimed"),
    [
        ("@daily", [], []),
        ("a period", [], []),
        ("CronDataInterval", [], []),
        ("DeltaDataInterval", [], []),
        ("a month", [UNKNOWN], []),
        ("None", [NAME_IT, NO_BACKFILL], [NO_BACKFILL]),
        ("@once", REFUSED, [NO_BACKFILL]),
        ("@continuous", REFUSED, [NO_BACKFILL]),
        *((one, [NAME_IT, NO_BACKFILL], [NO_BACKFILL]) for one in ("Asset", "a list")),
        *((one, [NAME_IT, NO_BACKFILL], [NO_BACKFILL]) for one in ("AssetAll", "AssetAny")),
        ("AssetOrTime", [NAME_IT], []),
        ("AssetOrTrigger", REFUSED, []),
        ("CronTrigger", REFUSED, []),
        ("CronTrigger, a day", [UNKNOWN], []),
        ("DeltaTrigger", REFUSED, []),
        ("MultipleCron", REFUSED, []),
        ("Events", REFUSED, []),
        ("CronPartition", [BY_KEY], []),
        ("PartitionedAsset", [NAME_IT, NO_BACKFILL], [NO_BACKFILL]),
        ("PartitionedAtRuntime", [NAME_IT, NO_BACKFILL], [NO_BACKFILL]),
    ],
)
def test_what_a_schedule_means_for_a_spout_is_said_when_the_dag_is_parsed(
    dag_of, caplog, name, timed, untimed
):
    schedule = _schedules()[name]
    for spout, expected in ((topology(DAILY), timed), (topology(), untimed)):
        caplog.clear()
        if expected == REFUSED:
            with pytest.raises(InvalidDefinition, match=r"reads by interval, and the runs .* none"):
                dag_of(spout, schedule)
            continue
        dag = dag_of(spout, schedule)
        notices = dag.doc_md.partition("contribution is replaced.")[2].strip().split("\n\n")
        assert len([notice for notice in notices if notice]) == len(expected), notices
        assert all(part in notice for part, notice in zip(expected, notices, strict=False))
        warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        assert warned == ([f"DAG words: {n}" for n in notices if n] if spout.spout.timed else [])


@pytest.mark.parametrize(
    ("limit", "wanted", "is_taken"), [(5, 3, True), (5, 1, False), (1, 1, True)]
)
def test_a_timetable_of_ones_own_goes_with_either_spout(airflow_home, limit, wanted, is_taken):
    """Its intervals are not known here, and its limit of runs is its own."""
    from airflow.timetables.interval import CronDataIntervalTimetable

    from reliability_airflow.groups import has_room
    from reliability_airflow.schedule import notices_of, timetable_of

    class Workdays(CronDataIntervalTimetable):
        active_runs_limit = limit

    Workdays.__module__ = "plugins.of_a_team"
    own = timetable_of(Workdays("0 0 * * 1-5", "UTC"), START)
    assert has_room(own, wanted) is is_taken
    dag: Any = SimpleNamespace(timetable=own, timezone=timezone.utc)
    assert notices_of(topology(), dag) == []


def test_continuous_runs_follow_each_other(dag_of):
    """Airflow makes one at a time: a later one takes over what a failed one has left.

    Otherwise a cleared run queues behind a later one that waits for it (E2).
    """
    from reliability_airflow.schedule import active_runs_limit

    dag = dag_of(topology(), "@continuous")
    assert dag.max_active_runs == active_runs_limit(dag.timetable) == 1
    with pytest.raises(ValueError, match="max_active_runs <= 1"):
        dag_of(topology(), "@continuous", max_active_runs=2)
    for own, schedule in ((topology(), "@once"), (topology(DAILY), "@daily")):
        with pytest.raises(InvalidDefinition, match=r"topology words: .*at least 2"):
            dag_of(own, schedule, max_active_runs=1)


# --- time zones ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "zone", "schedule", "is_local", "expected"),
    [
        # whose dates these are must be said, where it makes a difference
        (DAILY, "", "@daily", False, []),
        (DAILY, "", "@daily", True, f"its schedule is {LOCAL}, and its spout does not say in"),
        (DAILY, "", DAY, True, "its spout does not say in which time zone"),
        (DAILY, "UTC", "@daily", True, []),
        (DAILY, BERLIN, "@daily", True, []),
        (DAILY, BERLIN, "@daily", False, []),
        (DAILY, "Asia/Kolkata", DAY, True, []),  # its clocks do not change
        (DAILY, BERLIN, DAY, True, "some have 23 or 25 hours, and its schedule is a period"),
        # hours that occur twice
        ("d/{data_interval_start:%Y-%m-%dT%H}/*", BERLIN, "@hourly", True, ["occur twice"]),
        ("d/{data_interval_start:%Y-%m-%dT%H%z}/*", BERLIN, "@hourly", True, []),
        ("d/{data_interval_start:%Y-%m-%dT%H%z}/*", BERLIN, timedelta(hours=1), True, []),
        (f"{DAILY[:-2]}T{{data_interval_start.hour}}/*", BERLIN, "@hourly", True, ["occur twice"]),
        # days, by attributes, and with minutes
        (MONTH_AND_DAY, BERLIN, DAY, True, "is a period"),
        ("d/{data_interval_start:%d}-{data_interval_end:%M}/*", BERLIN, DAY, True, "is a period"),
    ],
)
def test_the_time_zone_of_dates_is_said_if_it_matters(
    dag_of, pattern, zone, schedule, is_local, expected
):
    start = datetime(2026, 1, 1, tzinfo=ZoneInfo(BERLIN) if is_local else timezone.utc)
    if isinstance(expected, str):
        with pytest.raises(InvalidDefinition, match=expected):
            dag_of(topology(pattern, zone), schedule, start)
        return
    said = dag_of(topology(pattern, zone), schedule, start).doc_md.partition("is replaced.")[2]
    assert all(part in said for part in expected)
    assert bool(said) is bool(expected)


def test_the_clocks_of_a_zone_are_those_since_the_start_of_the_dag(dag_of):
    """Only this year's were looked at: a backfill of older days read an hour of the next one."""
    spout = topology(DAILY, "America/Sao_Paulo")  # the last change was in February 2019
    assert dag_of(spout, DAY, datetime(2019, 6, 1, tzinfo=timezone.utc))
    with pytest.raises(InvalidDefinition, match="some have 23 or 25 hours"):
        dag_of(spout, DAY, datetime(2019, 1, 1, tzinfo=timezone.utc))


def _triggers(cron: str, **arguments: Any) -> list[Any]:
    import airflow.sdk as sdk

    kinds = (sdk.CronTriggerTimetable, sdk.MultipleCronTriggerTimetable)
    return [kind(cron, timezone=BERLIN, **arguments) for kind in kinds]


def test_runs_that_trigger_in_a_zone_read_the_day_before_the_one_that_was_meant(dag_of):
    """Their zone was not seen. With one on the spout, none read 29 March, and two the 28th."""
    import airflow.sdk as sdk

    for timetable in _triggers("@daily", interval=DAY):
        for zone in ("", BERLIN, "UTC"):
            with pytest.raises(InvalidDefinition, match=r"overlap, or leave .* CronDataInterval"):
                dag_of(topology(DAILY, zone), timetable)
    key = sdk.CronPartitionTimetable("@daily", key_format="%Y-%m-%d", timezone=BERLIN)
    for timetable in (key, *_triggers("0 * * * *", interval=timedelta(hours=1))):
        with pytest.raises(InvalidDefinition, match="its spout does not say in which time zone"):
            dag_of(topology(DAILY), timetable)
        dag_of(topology(DAILY, BERLIN), timetable)
    with pytest.raises(InvalidDefinition, match="its schedule is a period"):
        dag_of(topology(DAILY, BERLIN), sdk.DeltaTriggerTimetable(DAY, interval=DAY))
    for timetable in _triggers("@daily"):  # without intervals, whatever the zone
        with pytest.raises(InvalidDefinition, match="have none"):
            dag_of(topology(DAILY), timetable)
        dag_of(topology(), timetable)


@pytest.mark.parametrize("schedule", ["@daily", DAY])
def test_a_spout_without_dates_in_a_pattern_goes_with_any_time_zone(dag_of, schedule):
    """A KafkaSpout was told to say a `time_zone`, which it does not have."""
    by_offsets = replace(topology(), spout=KafkaSpout("orders", until="interval"))
    dag = dag_of(by_offsets, schedule, datetime(2026, 1, 1, tzinfo=ZoneInfo(BERLIN)))
    assert "time zone" not in dag.doc_md.partition("is replaced.")[2]


def test_a_start_date_without_a_zone_is_in_airflows_default_one(airflow_home, monkeypatch):
    import pendulum
    from airflow import settings

    from reliability_airflow.schedule import timetable_of, zone_of_ticks

    monkeypatch.setattr(settings, "TIMEZONE", pendulum.timezone(BERLIN))
    timetable = timetable_of("0 2 * * *", datetime(2026, 1, 1))
    assert zone_of_ticks(timetable) == BERLIN


@pytest.mark.parametrize(
    ("cron", "pattern", "expected"),
    [
        # late: the day before, until 6 in the morning; early: the day that is not over yet
        ("0 6 * * *", "{data_interval_start:%Y-%m-%d}", ["2026-03-28", "2026-03-29"]),
        ("0 22 * * *", "{data_interval_end:%Y-%m-%d}", ["2026-03-29", "2026-03-30"]),
        ("0 0 * * *", "{data_interval_start:%Y-%m-%d}", ["2026-03-29", "2026-03-30"]),
        ("0 0 1 * *", "{data_interval_start:%Y-%m}", ["2026-04", "2026-05"]),
    ],
)
def test_a_schedule_with_an_offset_reads_the_local_date(airflow_home, cron, pattern, expected):
    """Over the change of the clocks, by the intervals of Airflow's own timetable."""
    import pendulum
    from airflow.timetables.base import TimeRestriction
    from airflow.timetables.interval import CronDataIntervalTimetable

    from reliability.spouts.patterns import for_interval

    first = pendulum.datetime(2026, 3, 28, 6, tz=BERLIN)
    restriction, found = TimeRestriction(first, None, catchup=True), []
    last: Any = None
    for _ in expected:
        info: Any = CronDataIntervalTimetable(cron, BERLIN).next_dagrun_info(
            last_automated_data_interval=last, restriction=restriction
        )
        last = info.data_interval
        found.append(for_interval(pattern, Interval(last.start, last.end), BERLIN))
    assert found == expected


# --- which interval a run reads ------------------------------------------------------------------

CLOCKS_CHANGE = Interval.parse("2026-03-29 Europe/Berlin")
SCHEDULED = Interval.parse("2026-03-30 Europe/Berlin")


@pytest.fixture
def read(airflow_home):
    """Return the interval that a run reads whose spout has dates in Berlin."""
    from reliability_airflow.context import interval_to_read

    def of_run(
        own: Interval | None = None,
        logical_date: datetime | None = None,
        conf: dict[str, Any] | None = None,
        events: tuple[object, ...] = (),
        key: str | None = None,
        schedule: object = "@daily",
    ) -> Interval | None:
        run = SimpleNamespace(
            dag_id="words",
            run_id="a_run",
            conf=conf,
            logical_date=logical_date,
            data_interval_start=own and own.start,
            data_interval_end=own and own.end,
            run_after=datetime(2026, 5, 1, tzinfo=timezone.utc),
            partition_key=key,
        )
        extras = [SimpleNamespace(extra=extra) for extra in events]
        return interval_to_read(
            {
                "dag_run": run,
                "params": {"interval": ""},
                "ti": SimpleNamespace(task=SimpleNamespace(scope="", dag=_dag(schedule))),
                "triggering_asset_events": {"an asset": extras},
            },
            topology(DAILY, BERLIN).spout,
        )

    return of_run


def _dag(schedule: Any) -> Any:
    from airflow.sdk import DAG

    from reliability_airflow.schedule import timetable_of

    return DAG("words", schedule=timetable_of(schedule, START), start_date=START)


NAMED: dict[str, Any] = {"conf": {"interval": "2026-03-29"}}
#: a moment between two ticks, as TriggerDagRunOperator gives it
BETWEEN = SCHEDULED.end + timedelta(hours=7)


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(NAMED, id="without a logical date"),
        pytest.param({**NAMED, "own": SCHEDULED, "logical_date": BETWEEN}, id="between two ticks"),
        pytest.param({**NAMED, "own": Interval(BETWEEN, BETWEEN)}, id="no schedule"),
        pytest.param(
            {**NAMED, "own": CLOCKS_CHANGE, "logical_date": CLOCKS_CHANGE.start}, id="its own"
        ),
        pytest.param({"conf": {"interval": str(CLOCKS_CHANGE)}}, id="with its zone"),
        pytest.param(
            {"conf": {"interval": "2026-03-28T23/2026-03-29T22 UTC"}}, id="with another zone"
        ),
        pytest.param({"events": ({"interval": "2026-03-29"},)}, id="by an asset event"),
        pytest.param({"events": ({}, *[{"interval": "2026-03-29"}] * 2)}, id="by several"),
        pytest.param({**NAMED, "events": ({"interval": "2026-04-01"},)}, id="conf before events"),
        pytest.param({"key": "2026-03-29"}, id="by a partition key"),
        pytest.param(
            {"own": CLOCKS_CHANGE, "logical_date": CLOCKS_CHANGE.start}, id="scheduled, not named"
        ),
    ],
)
def test_a_run_reads_the_interval_that_it_names_otherwise_its_own(read, run):
    assert read(**run) == CLOCKS_CHANGE


@pytest.mark.parametrize(
    "run",
    [
        {},
        {"own": Interval(BETWEEN, BETWEEN), "logical_date": BETWEEN},  # a moment is no interval
        {"events": ({"rows": 3},)},
        {"key": "eu-central"},
        {"key": "2026-03-29T00:00:00"},  # as CronPartitionTimetable writes it by default
    ],
)
def test_a_run_that_names_no_interval_has_none(read, run):
    assert read(**run) is None


@pytest.mark.parametrize(
    ("run", "why"),
    [
        ({"conf": {"interval": "March"}}, "interval is 'March'"),
        ({"conf": {"interval": "2026-03-29 Europe/Paradise"}}, "no time zone 'Europe/Paradise'"),
        ({"conf": {"interval": "2026-03-29T00:00:00"}}, "must be an interval"),
        ({"conf": {"interval": 5}}, "interval is 5"),
        ({"events": ({"interval": None},)}, "interval is None"),
        (
            {"events": ({"interval": "2026-03-30"}, {"interval": "2026-03-29"})},
            "several intervals: 2026-03-29 Europe/Berlin, 2026-03-30 Europe/Berlin",
        ),
        ({**NAMED, "own": SCHEDULED, "logical_date": SCHEDULED.start}, "has another one"),
    ],
)
def test_a_run_whose_interval_is_not_clear_is_refused(read, run, why):
    with pytest.raises(InvalidDefinition) as raised:
        read(**run)
    assert why in str(raised.value)


def test_a_partition_key_of_an_hour_that_occurs_twice_is_refused(read):
    """Both runs read the first of the two hours."""
    with pytest.raises(InvalidDefinition, match=r"occurs twice .*timezone=\"UTC\" and key_format="):
        read(key="2026-10-25T02")
    assert str(read(key="2026-10-25T01Z")) == "2026-10-25T02+01:00 Europe/Berlin"


@pytest.mark.parametrize("own", [CLOCKS_CHANGE, Interval(SCHEDULED.start, BETWEEN)])
def test_where_no_schedule_makes_runs_any_logical_date_is_free(read, own):
    """By REST, with `data_interval_start` and `data_interval_end`."""
    for logical_date in (own.start, own.end):
        assert read(own=own, logical_date=logical_date, schedule=None) == own
    with pytest.raises(LogicalDateTaken):
        read(own=own, logical_date=own.end)


def test_a_run_that_reads_up_to_its_own_date_is_refused_only_at_a_tick(read):
    """E9: every run by hand was, with a reason that was not true."""
    import airflow.sdk as sdk

    daily: dict[str, Any] = {"timezone": "UTC", "interval": DAY}
    mondays = sdk.CronTriggerTimetable("0 0 * * 1", **daily)  # each reads the day before
    two = sdk.MultipleCronTriggerTimetable("0 2 * * *", "0 5 * * *", **daily)
    period = sdk.DeltaTriggerTimetable(DAY, interval=DAY)
    assets = sdk.AssetOrTimeSchedule(assets=sdk.Asset("orders"), timetable=period)
    for schedule, date, is_free in (
        *((timedelta(days=5), date, True) for date in ("01-08", "01-06T01")),
        *((timedelta(days=5), date, False) for date in ("01-06", "01-07")),  # from START, from 1970
        *((_schedules()["a month"], date, False) for date in ("03-01", "03-02")),  # not computed
        *((mondays, date, date != "01-04") for date in ("01-04", "01-04T01", "01-05")),
        *((two, f"01-05T{hour}", hour not in ("02", "05")) for hour in ("02", "03", "04:59", "05")),
        *((assets, date, date != "01-05") for date in ("01-05", "01-05T01")),
    ):
        tick = Interval.parse(f"2026-{date}Z", "UTC").start
        run: Any = {"own": Interval(tick - DAY, tick), "logical_date": tick, "schedule": schedule}
        with nullcontext() if is_free else pytest.raises(LogicalDateTaken):
            assert read(**run) == run["own"]
            assert read(**run, **NAMED) == CLOCKS_CHANGE
            assert read(**run, conf={"replay": "5"}) == run["own"]


def test_a_dry_run_of_a_named_interval_tells_how_to_make_it_real(airflow_home):
    """A backfill would read the interval of a date."""
    from reliability_airflow.context import dry_run_notice

    conf = {**NAMED["conf"], "dry_run": True, "refreeze": True}
    run = SimpleNamespace(dag_id="words", run_id="a", conf=conf)
    task = SimpleNamespace(task=SimpleNamespace(scope=""))
    said = dry_run_notice({"dag_run": run, "params": {}, "ti": task})
    assert said.endswith(""" words --conf '{"interval": "2026-03-29", "refreeze": true}'""")
