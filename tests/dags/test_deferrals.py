"""When a task that deferred may resume, and what waits before it works."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from reliability.core.coordinator import Wait
from reliability.core.errors import InvalidDefinition
from reliability.core.waits import WaitReason, WaitsFor
from reliability.transaction.process.begin import TransactionTask
from spark_apps import global_count


@pytest.fixture
def heartbeats(airflow_home, monkeypatch):
    """The scheduler's heartbeats, as given, one a reading; the last is repeated."""
    from reliability_airflow import executor_events

    def given(*readings):
        left = list(readings)

        async def read():
            return left.pop(0) if len(left) > 1 else left[0]

        monkeypatch.setattr(executor_events, "END_SECONDS", 0)
        monkeypatch.setattr(executor_events, "READ_SECONDS", 0)
        monkeypatch.setattr(executor_events, "read_heartbeat", read)
        monkeypatch.setattr(executor_events, "heartbeats", executor_events.SchedulerHeartbeats())
        return left

    return given


def fire(*, trigger_id=1, seconds=5.0):
    from reliability_airflow.triggers import PauseTrigger

    trigger = PauseTrigger(0)
    trigger.trigger_id = trigger_id
    return asyncio.run(asyncio.wait_for(trigger.run().__anext__(), seconds))


def test_a_trigger_fires_after_two_new_heartbeats_of_the_scheduler(heartbeats):
    """R5: the first may be of a turn that had processed its events before."""
    left = heartbeats("12:00", "12:00", None, "12:05", "12:05", "12:10", "12:15")
    fire()
    assert left == ["12:15"]
    fire(trigger_id=None)  # a test of a DAG has no scheduler to wait for


@pytest.mark.parametrize("readings", [("12:00",), ("12:00", "12:05"), (None,)])
def test_a_trigger_does_not_fire_beside_a_scheduler_that_stands_still(heartbeats, readings):
    """R5: apache/airflow#72716."""
    heartbeats(*readings)
    with pytest.raises(TimeoutError):
        fire(seconds=0.1)


def test_a_reading_without_an_answer_after_a_long_stall_does_not_fire_a_trigger(
    heartbeats, monkeypatch
):
    """R5: the time in which the scheduler stood still counted as time without an answer."""
    from reliability_airflow import executor_events

    left = heartbeats(*["12:00"] * 100, None, "12:00")
    clock = SimpleNamespace(monotonic=lambda: -len(left))  # each reading takes a second
    monkeypatch.setattr(executor_events, "time", clock)
    with pytest.raises(TimeoutError):
        fire(seconds=0.5)
    assert left == ["12:00"]


def test_one_reading_serves_all_triggers(heartbeats):
    from reliability_airflow import executor_events

    left = heartbeats(*(f"12:{minute}" for minute in range(60)))

    async def hundred():
        own = executor_events.heartbeats
        await asyncio.gather(*(own.events_are_processed() for _ in range(100)))

    asyncio.run(hundred())
    assert len(left) >= 50


def test_the_heartbeat_is_asked_first_of_the_server_that_tasks_ask(airflow_home, monkeypatch):
    from reliability_airflow.executor_events import health_urls

    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://air/")
    assert health_urls() == ["https://air/api/v2/monitor/health"]
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTION_API_SERVER_URL", "http://air:81/base/execution/")
    assert health_urls() == [
        "http://air:81/base/api/v2/monitor/health",
        "https://air/api/v2/monitor/health",
    ]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["12:00", "11:00"], "12:00"),
        ([None, "12:00"], "12:00"),  # its database did not answer
        (["not found", "12:00"], "12:00"),  # it serves tasks only
        ([None, None], None),
        (["not found", "not found"], None),
    ],
)
def test_a_heartbeat_is_what_a_server_tells(airflow_home, monkeypatch, answers, expected):
    """R5: a null that counts as a heartbeat makes one of two."""
    import httpx

    from reliability_airflow import executor_events

    def answer(request):
        found = answers[0 if request.url.host == "air" else 1]
        if found == "not found":
            return httpx.Response(404, json={"detail": found})
        return httpx.Response(200, json={"scheduler": {"latest_scheduler_heartbeat": found}})

    monkeypatch.setattr(
        executor_events, "health_urls", lambda: ["http://air/health", "http://public/health"]
    )
    client, transport = httpx.AsyncClient, httpx.MockTransport(answer)
    monkeypatch.setattr(httpx, "AsyncClient", lambda **_: client(transport=transport))
    assert asyncio.run(executor_events.read_heartbeat()) == expected


def test_a_heartbeat_that_is_not_told_or_cannot_be_read_lets_no_trigger_hang(
    heartbeats, monkeypatch
):
    """R5: the file of certificates was not on the triggerer's host."""
    from reliability_airflow import executor_events

    async def read():
        raise FileNotFoundError("/etc/ssl/airflow.pem")

    monkeypatch.setattr(executor_events, "BLIND_SECONDS", 0.05)
    heartbeats(None)
    fire()
    heartbeats(None)
    monkeypatch.setattr(executor_events, "read_heartbeat", read)
    fire()


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("CORE__EXECUTOR", "LocalExecutor", 2),
        ("CORE__EXECUTOR", "LocalExecutor,KubernetesExecutor", 15),
        ("LOGGING__REMOTE_LOGGING", "True", 15),
    ],
)
def test_heartbeats_count_once_the_process_has_ended(
    airflow_home, monkeypatch, variable, value, expected
):
    """R5: a pod ends after its task has deferred, as does a process that still stores its log."""
    from reliability_airflow import executor_events

    slept: list[float] = []

    async def sleep(seconds):
        slept.append(seconds)

    async def read():
        return f"12:{len(slept):02}"

    monkeypatch.setenv(f"AIRFLOW__{variable}", value)
    monkeypatch.setattr(executor_events, "read_heartbeat", read)
    monkeypatch.setattr(
        executor_events, "asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": sleep})
    )
    asyncio.run(executor_events.SchedulerHeartbeats().events_are_processed())
    assert slept[0] == expected


def test_a_run_is_renewed_while_its_trigger_counts_heartbeats(heartbeats, monkeypatch):
    """R3: whoever waits is served from the start, however long the scheduler stands still."""
    from reliability_airflow import triggers

    heartbeats("12:00")
    waits: list[bool] = []

    async def wait(_):
        waits.append(True)

    monkeypatch.setattr(triggers.PauseTrigger, "wait", wait)
    with pytest.raises(TimeoutError):
        fire(seconds=0.1)
    assert waits == [True]


# --- close ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "waits"),
    [
        ({"commit_2": "success"}, False),
        ({"commit_2": "failed"}, False),
        ({"commit_2": "upstream_failed"}, False),  # whatever other steps do
        ({"commit_2": "deferred"}, True),
        ({"commit_0": "success", "commit_2": "up_for_retry"}, True),
        ({"commit_0": "running", "commit_2": "success"}, False),
        ({"commit_2": None}, True),
        ({"commit": None}, True),  # Airflow has yet to create all of them
        ({"commit_0": "running"}, True),  # and creates it when that has ended
        ({"commit_0": "upstream_failed", "commit_1": "success"}, False),  # it never comes
        ({}, False),
    ],
)
def test_close_waits_for_the_commit_of_its_txid(airflow_home, monkeypatch, states, waits):
    """R3: Airflow starts the tasks that a clear adds before those upstream of them.

    It adds none if the instances that a task had before end without being ready, as when each
    upstream one fails: close waited for ever, and its run with it.
    """
    from airflow.sdk.exceptions import TaskDeferred
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    from reliability_airflow.tasks import CloseOperator

    def get_task_states(*, map_index, **_):
        found = states.items()
        of_index = {name: state for name, state in found if name.endswith(f"_{map_index}")}
        return {"run": states if map_index is None else of_index}

    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", staticmethod(get_task_states))
    closed = []
    monkeypatch.setattr(CloseOperator, "_close", lambda self, context: closed.append(self.txid))
    close = CloseOperator(
        task_id="close", topology=global_count.topology, txid=7, commit_task="commit"
    )
    context: Any = {"ti": SimpleNamespace(dag_id="dag", run_id="run", map_index=2)}
    if waits:
        with pytest.raises(TaskDeferred) as left:
            close.execute(context)
        assert left.value.trigger.serialize()[1]["awaited"] == "commit"
    else:
        close.execute(context)
    assert closed == ([] if waits else [7])


# --- schedules -----------------------------------------------------------------------------------


def start(zone):
    return datetime(2026, 1, 1, tzinfo=zone)


def test_a_cron_expression_is_in_the_time_zone_of_its_start_date(airflow_home):
    from reliability_airflow.schedule import timetable_of

    for zone, expected in (
        (timezone.utc, "UTC"),
        (None, "UTC"),
        (ZoneInfo("UTC"), "UTC"),
        (ZoneInfo("Europe/Berlin"), "Europe/Berlin"),
    ):
        timetable = timetable_of("0 2 * * *", start(zone))
        assert str(getattr(timetable.timezone, "name", timetable.timezone)) == expected
    with pytest.raises(InvalidDefinition, match="ZoneInfo"):  # it has no name
        timetable_of("@daily", start(timezone(timedelta(hours=1))))


def test_a_schedule_is_a_period_or_a_cron_expression_that_has_ticks(airflow_home):
    from reliability_airflow.schedule import timetable_of

    assert timetable_of(timedelta(hours=6), start(timezone.utc)).delta == timedelta(hours=6)
    assert timetable_of("@quarterly", None).expression == "0 0 1 */3 *"
    assert timetable_of(None, None) is None
    for cron in ("0 0 * MAR fri", "0 0 L * *", "0 0 29 2 *", "@annually"):
        assert timetable_of(cron, None).expression == cron
    for schedule in (
        *("@continuously", "hello", "", timedelta(0), timedelta(-1), [], object()),
        "0 0 30 2 *",  # never
        "R R * * *",  # another time whenever it is read
        "R(0-5) 2 * * *",
        timedelta.max,
    ):
        with pytest.raises(InvalidDefinition, match="cannot have this schedule"):
            timetable_of(schedule, start(timezone.utc))


def test_a_timetable_whose_intervals_do_not_advance_is_refused(airflow_home):
    """The dag processor said it, of the serialized DAG, and not of the file."""
    from airflow.sdk import CronDataIntervalTimetable, DeltaDataIntervalTimetable
    from dateutil.relativedelta import relativedelta  # type: ignore[import-untyped]

    from reliability_airflow.schedule import timetable_of

    for timetable in (
        DeltaDataIntervalTimetable(timedelta(0)),
        DeltaDataIntervalTimetable(relativedelta(months=-1)),
        CronDataIntervalTimetable("0 0 31 4 *", timezone="UTC"),
        CronDataIntervalTimetable("hello", timezone="UTC"),
    ):
        with pytest.raises(InvalidDefinition, match="DataIntervalTimetable of "):
            timetable_of(timetable, None)
    monthly = DeltaDataIntervalTimetable(relativedelta(months=1))
    assert timetable_of(monthly, None) is monthly


def test_a_topology_dag_inside_a_dag_is_a_dag_of_its_own_and_refused_in_a_group(airflow_home):
    from airflow.sdk import DAG, TaskGroup

    from reliability_airflow import topology_dag

    arguments = {"schedule": None, "start_date": start(timezone.utc)}
    with DAG("outer") as outer:
        dag = topology_dag(global_count.topology, **arguments)
        with TaskGroup("group"), pytest.raises(InvalidDefinition, match="task group"):
            topology_dag(global_count.topology, **arguments)
    assert dag.dag_id == "global_count"
    assert not outer.tasks
    assert dag.has_task("settle")


# --- next in line --------------------------------------------------------------------------------


@pytest.fixture
def stays(airflow_home, monkeypatch):
    """Say how often a task with a txid looks again in its worker slot before it leaves it."""
    from airflow.sdk.exceptions import TaskDeferred

    from reliability_airflow import operators

    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: now.append(now.pop() + s))
    monkeypatch.setattr(operators, "time", clock)

    def looks(txid, reason):
        topology = global_count.topology
        operator = operators.TransactionOperator(
            task_id="t", topology=topology, txid=txid, step=None
        )
        task = TransactionTask(
            topology=topology, txid=txid, request_id=1, work=topology.work("t", None)
        )
        for look in range(100):
            try:
                operator.wait(Wait(reason), task)
            except TaskDeferred:
                return look
        raise AssertionError("it never leaves")

    return looks


TURN = WaitReason(what=WaitsFor.TURN, behind=(6,))
PLACE = WaitReason(what=WaitsFor.PLACE, behind=range(4, 7), most=3)


@pytest.mark.parametrize("reason", [TURN, PLACE])
def test_a_task_stays_a_moment_only_while_one_txid_is_ahead_of_it(stays, reason):
    """R5: once it has left, it comes back some seconds later at the earliest."""
    assert stays(7, reason) == 10
    assert stays(8, reason) == 0
    # a replay, and a task of a paused topology, leave at once
    assert stays(7, WaitReason(what=WaitsFor.REPLAY_PLACE, behind=(2, 6), most=2)) == 0
    assert stays(7, WaitReason(what=WaitsFor.RESUME, detail="at night")) == 0
