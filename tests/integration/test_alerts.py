"""People hear once that something begins and once that it is over; no channel stops a sweep."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from reliability import Count, State
from reliability.core.alert import Alert
from reliability.core.errors import InvalidDefinition, LedgerUnavailable
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.correct.drop import drop_topology
from reliability.transaction.correct.erase import erase
from reliability.transaction.correct.rollback import roll_back
from reliability.transaction.inspect import alerts
from reliability.transaction.inspect.alerts import record_conditions, tell
from reliability.transaction.inspect.verify import record_verified, verify
from reliability.transaction.maintain.sweep import sweep
from tests.replay.shop import Shop, made
from tests.support.command_line import say
from tests.support.fix_page import shop_named
from tests.support.fix_postgres import execute, rows, wait_until_it_waits
from tests.support.fix_shop import shop_with

HOUR = timedelta(hours=1)


class Channel:
    """What a channel was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.alerts: list[Alert] = []
        self.fails = 0

    def __call__(self, alert) -> None:
        if self.fails:
            self.fails -= 1
            raise ConnectionError("no mail server")
        self.alerts.append(alert)
        self.told.append((alert.kind.value, "over" if alert.is_over else "begins"))


origin, shop = shop_with(2, 3)


@pytest.fixture
def channel():
    return Channel()


@pytest.fixture
def look(shop, connection, channel):
    """Look once, as housekeeping does every minute; return what the channel was told."""

    def look(lag_over=None, **channels):
        record_conditions(connection, "shop", lag_over)
        tell(connection, channels or {"channel": channel})
        told, channel.told = channel.told, []
        return told

    return look


EXPIRE = (
    "UPDATE reliability.attempt SET lease_until = now() - interval '1 s'"
    " WHERE status = 'PROCESSING'"
)
END = "UPDATE reliability.request SET status = 'CLOSED', ended_at = now() WHERE status = 'OPEN'"


def end_requests(connection):
    execute(connection, END)


def test_an_alert_fires_once_and_is_over_once(look, channel, shop, connection):
    """K2: what is so every minute is said once; a rollback is blocked until it is released."""
    assert look() == []
    end_requests(connection)
    assert look() == [("BLOCKED", "begins"), ("RUN_UNSATISFIED", "begins")]
    assert look() == look() == []
    shop.clear(3)
    shop.transact(3)
    assert look() == [("BLOCKED", "over"), ("RUN_UNSATISFIED", "over")]
    assert look() == []
    roll_back(connection, "shop", 1, "wrong prices")
    assert ("BLOCKED", "begins") in look()
    assert channel.alerts[-1].command == "reliability release shop"


def test_an_alert_says_what_since_when_and_what_to_do(look, channel, shop, connection):
    """What begins again is said again."""
    end_requests(connection)
    look()
    blocked, unsatisfied = channel.alerts
    assert blocked.topology == "shop"
    assert blocked.what.startswith("txid 3 (run run 3) is blocked")
    assert blocked.advice
    assert blocked.command == unsatisfied.command == "reliability resume-runs shop"
    assert unsatisfied.what == "run run 3 of shop has ended without txid 3"
    assert isinstance(unsatisfied.since, datetime)
    assert str(unsatisfied).endswith("Type: reliability resume-runs shop")
    shop.clear(3)
    shop.runner.contact(3, shop.who(3))
    assert ("BLOCKED", "over") in look()
    end_requests(connection)
    assert ("BLOCKED", "begins") in look()
    blocked = "SELECT count(*) FROM reliability.alert WHERE kind = 'BLOCKED'"
    assert rows(connection, blocked) == [(2,)]


def test_lag_counts_only_what_lags(look, channel, connection):
    assert look(HOUR) == []
    emitted = "UPDATE reliability.transaction SET emitted_at = now() - interval '{}'"
    execute(connection, emitted.format("2 hours"))
    assert look(HOUR) == [("LAG", "begins")]
    [alert] = channel.alerts
    assert alert.what == "for more than 1:00:00: 1 interval lacks a commit: 1 open"
    assert alert.command == "reliability lag shop"
    assert look(3 * HOUR) == [("LAG", "over")]
    end_requests(connection)
    execute(connection, emitted.format("1 day"))
    assert ("LAG", "begins") in look(2 * HOUR)
    assert any(alert.what.endswith(": 1 blocked") for alert in channel.alerts)


def test_one_alert_is_for_missing_intervals_until_all_came_and_hides_no_later_ones(
    look, channel, connection
):
    """K2: an hour never came; later the DAG stopped, and a backfill comes in two runs."""
    hour = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0) - 12 * HOUR
    emitted = "UPDATE reliability.transaction SET interval_start = %(at)s, interval_end ="
    emitted += " %(at)s::timestamptz + interval '1 h', emitted_at = %(then)s WHERE txid = %(txid)s"
    for txid, at in enumerate((hour, hour + 2 * HOUR, hour + 6 * HOUR), 1):  # the last one is late
        then = at + HOUR if txid < 3 else datetime.now(timezone.utc)
        execute(connection, emitted, at=at, then=then, txid=txid)
    execute(connection, HOURLY, start=hour)
    for step in ["1 begins", "16 begins", "16789", "179", "19", "1 over", " over"]:
        missing, *told = step.split(" ")
        execute(connection, "DELETE FROM reliability.tried_time")
        execute(connection, TRIED, starts=[hour + int(n) * HOUR for n in missing])
        assert look(HOUR) == [("LAG", one) for one in told], step
    assert channel.alerts[0].what.startswith("for more than 1:00:00: 1 interval lacks a commit: 1")
    named = [alert.what.rpartition(" missing ")[2] for alert in channel.alerts]
    assert named[:2] == named[:1:-1] == [f"({hour + n * HOUR:%Y-%m-%dT%H})" for n in (1, 6)]


HOURLY = """
    INSERT INTO reliability.schedule (topology, dag_id, period, first_start, catchup)
    VALUES ('shop', 'shop', '1 hour', %(start)s, true)"""
TRIED = """
    INSERT INTO reliability.tried_time
    SELECT 'shop', '{(,3000-01-01)}' - coalesce(range_agg(tstzrange(start, start + '1 h')), '{}')
      FROM unnest(%(starts)s::timestamptz[]) AS start"""


def test_what_shares_an_alert_gets_none_of_its_own_when_others_are_over(
    look, connection, monkeypatch
):
    """K2: of five intervals two have their own; what fails later may have one."""
    monkeypatch.setattr(alerts, "MOST_OF_A_KIND", 2)
    execute(connection, FAIL, days=[1, 2, 3, 4, 5], ago=2 * HOUR)
    assert look(HOUR) == [("LAG", "begins")] * 3
    fixed = "DELETE FROM reliability.emission WHERE run_id = %(day)s::text"
    for day in (1, 2, 3):
        assert look(HOUR) == []
        execute(connection, fixed, day=day)
        assert look(HOUR) == [("LAG", "over")][: 3 - day]
    execute(connection, "UPDATE reliability.alert SET begun_at = begun_at - interval '9 minutes'")
    execute(connection, FAIL, days=[6], ago=HOUR + timedelta(minutes=1))
    assert look(HOUR) == [("LAG", "begins")]


FAIL = """
    INSERT INTO reliability.emission (topology, dag_id, run_id, interval_start, interval_end,
                                      status, failing_since, ended_at, reason_code, reason)
    SELECT 'shop', 'shop', day, make_date(2013, 1, day), make_date(2013, 1, day + 1), 'FAILED',
           now() - %(ago)s, now(), 'X', 'x' FROM unnest(%(days)s) AS day"""


def test_an_expired_lease_is_told_although_a_sweep_was_faster(look, channel, shop, connection):
    """Even if it is over before anybody looks."""
    shop.begin(3)
    assert look() == []
    execute(connection, EXPIRE)
    assert look() == [("LEASE_EXPIRED", "begins")]
    sweep(connection, "shop")
    assert look() == []
    assert channel.alerts[0].command == "reliability show shop 3"
    shop.transact(3)
    assert look() == [("LEASE_EXPIRED", "over")]
    assert look() == []

    [txid] = shop.deliver(made(4))
    shop.begin(txid)
    execute(connection, EXPIRE)
    sweep(connection, "shop")
    shop.transact(txid)
    channel.fails = 1
    assert look() == []
    assert look() == [("LEASE_EXPIRED", "begins")]
    assert look() == [("LEASE_EXPIRED", "over")]
    assert look() == look() == []

    shop.clear(1)
    shop.begin(1)  # of a replay, which somebody waits for
    execute(connection, EXPIRE)
    assert look() == [("LEASE_EXPIRED", "begins")]
    sweep(connection, "shop")
    assert look() == []


def test_a_change_by_hand_that_verify_has_found(look, channel, connection):
    """Who may only read verifies all the same."""
    execute(connection, CHANGE)
    assert look() == []  # nobody has verified
    say("verify", "shop", code=3)
    assert look() == [("CHANGED_BY_HAND", "begins")]
    [alert] = channel.alerts
    assert alert.what.endswith("recomputed differs from its contributions: 1 different row")
    assert alert.command == "reliability verify shop"  # which says what can be done
    say("verify", "shop", "--repair", code=3)  # only shows
    assert look() == []
    say("verify", "shop", "--repair", "--yes", "--reason", "by hand")
    assert look() == [("CHANGED_BY_HAND", "over")]
    say("verify", "shop")
    assert look() == []

    # a table that is no state any more is not said to be wrong
    execute(connection, CHANGE)
    say("verify", "shop", code=3)
    assert look() == [("CHANGED_BY_HAND", "begins")]
    execute(connection, "DELETE FROM reliability.contribution WHERE state = 'recomputed'")
    execute(connection, "DELETE FROM reliability.state WHERE state = 'recomputed'")
    say("verify", "shop")
    assert look() == [("CHANGED_BY_HAND", "over")]
    execute(connection, "ALTER TABLE reliability.verified ADD CHECK (false) NOT VALID")
    say("verify", "shop")


CHANGE = "UPDATE public.recomputed SET n = n + 5 WHERE word = 'a'"


# --- channels ------------------------------------------------------------------------------------


def test_each_channel_is_told_for_itself_and_again_after_a_failure(look, channel, connection):
    """K2: one that fails neither stops the others nor is forgotten."""
    broken = Channel()
    broken.fails = 3
    end_requests(connection)
    assert len(look(channel=channel, broken=broken)) == 2
    assert look(channel=channel, broken=broken) == []
    assert broken.told == [("RUN_UNSATISFIED", "begins")]
    look(channel=channel, broken=broken)
    assert sorted(broken.told) == [("BLOCKED", "begins"), ("RUN_UNSATISFIED", "begins")]


def test_who_never_heard_that_it_began_does_not_hear_that_it_is_over(
    look, channel, shop, connection
):
    end_requests(connection)
    look()
    shop.clear(3)
    shop.transact(3)
    late = Channel()
    assert len(look(channel=channel, late=late)) == 2
    assert late.told == []


def test_a_drop_beside_a_look_leaves_no_alert(shop, connection, monkeypatch):
    """K2: it would never be over, as nobody looks at the topology again.

    Nor does a result of a verification. An erasure of another topology takes its turn.
    """
    conditions, dsn, changing = alerts._conditions, connection.dsn, list[Future[Any]]()
    people = [State("people", key={"customer": "bigint"}, values={"n": Count()})]
    Shop(connection, kinds=lambda _: people, name="away").commit([{"customer": 17}])

    def meanwhile(*arguments):
        changing.append(pool.submit(drop_topology, person, "shop"))
        wait_until_it_waits(another, "person")
        ann = [("customer", "17")]
        changing.append(pool.submit(erase, owner, "away", ann, reason="asked"))
        wait_until_it_waits(another, "owner")
        return conditions(*arguments)

    verified = verify(connection, "shop")
    record_verified(connection, "shop", verified)
    end_requests(connection)
    monkeypatch.setattr(alerts, "_conditions", meanwhile)
    with (
        ThreadPoolExecutor() as pool,
        LedgerConnection(dsn, "person") as person,
        LedgerConnection(dsn, "owner") as owner,
        LedgerConnection(dsn) as another,
    ):
        record_conditions(connection, "shop", None)
        for change in changing:
            change.result()
    record_verified(connection, "shop", verified)
    for table in ("alert", "alert_told", "verified"):
        assert rows(connection, f"TABLE reliability.{table}") == []


def test_a_process_that_dies_in_a_call_tells_nobody_twice(look, shop, connection):
    """K2: the claim is written before the call."""

    def die(alert):
        raise SystemExit

    end_requests(connection)
    with pytest.raises(SystemExit):
        look(channel=die)
    again = Channel()
    look(channel=again)
    assert len(again.told) == 1  # the other one


def test_two_processes_tell_once(look, shop, connection):
    """K2: both have seen what is to be told. Nobody is told of a topology that is gone."""
    end_requests(connection)
    record_conditions(connection, "shop", None)
    channel = Channel()

    def meanwhile(alert):
        tell(connection, {"channel": channel})
        channel(alert)

    tell(connection, {"channel": meanwhile})
    assert len(channel.told) == 2
    assert tell(connection, {"late": lambda alert: drop_topology(connection, "shop")}) == 1


# --- the task ------------------------------------------------------------------------------------


@pytest.fixture
def notifier(airflow_home):
    """A notifier as a provider has them: with templates, and one that fails at first."""
    from airflow.sdk import BaseNotifier

    class Mail(BaseNotifier):
        template_fields = ("subject",)

        def __init__(self, subject):
            super().__init__()
            self.subject = subject
            self.sent: list[str] = []
            self.fails: list[bool] = []

        def notify(self, context):
            if self.fails:
                self.fails.pop()
                raise ConnectionError("no mail server")
            self.sent.append(f"{self.subject} | {context['alert'].command}")

    return Mail("{{ alert.topology }}: {{ alert.kind.value }}{{ ' is over' if alert.is_over }}")


def task(*alerts, **options):
    from reliability_airflow import housekeeping_dag

    return housekeeping_dag(alerts=alerts, **options).task_dict["alert"]


def test_a_notifier_is_rendered_for_each_alert(shop, notifier, channel, connection):
    """K2: the same notifier, many times; its errors are seen, though calling it hides them."""
    notifier.fails.append(True)
    end_requests(connection)
    alert = task(notifier, channel)
    alert.execute({})
    assert channel.told == [("BLOCKED", "begins"), ("RUN_UNSATISFIED", "begins")]
    assert notifier.sent == ["shop: RUN_UNSATISFIED | reliability resume-runs shop"]
    alert.execute({})
    assert notifier.sent[1:] == ["shop: BLOCKED | reliability resume-runs shop"]
    shop.clear(3)
    shop.transact(3)
    alert.execute({})
    assert notifier.sent[2] == "shop: BLOCKED is over | reliability resume-runs shop"
    assert notifier.subject.startswith("{{")


def test_a_topology_that_cannot_be_verified_or_looked_at_stops_no_other(
    shop, channel, connection, monkeypatch
):
    """A database of one topology is unavailable; the task is red after all others.

    What the verification finds is told.
    """
    from reliability_airflow import verification_dag

    dag: Any = verification_dag(6 * HOUR)
    assert dag.schedule == 6 * HOUR
    execute(connection, "DELETE FROM public.recomputed WHERE word = 'a'")

    def failing(function):
        def fails(connection, topology, **options):
            if topology == "away":
                raise LedgerUnavailable("no warehouse")
            return function(connection, topology, **options)

        return fails

    shop_named(connection, "away").deliver(made(1))
    inspect = "reliability.transaction.inspect"
    monkeypatch.setattr(f"{inspect}.verify.verify", failing(verify))
    monkeypatch.setattr(f"{inspect}.alerts.record_conditions", failing(record_conditions))
    with pytest.raises(LedgerUnavailable, match="no warehouse"):
        dag.task_dict["verify"].execute({})
    assert rows(connection, "SELECT DISTINCT topology FROM reliability.verified") == [("shop",)]
    end_requests(connection)
    with pytest.raises(LedgerUnavailable, match="no warehouse"):
        task(channel).execute({})
    assert len(channel.told) == 3
    assert ("CHANGED_BY_HAND", "begins") in channel.told


def test_without_alerts_there_is_no_task_and_with_them_the_dag_is_the_same_at_each_parse(
    notifier, channel
):
    """What cannot be called is refused."""
    from airflow.serialization.serialized_objects import DagSerialization

    from reliability_airflow import housekeeping_dag

    assert set(housekeeping_dag().task_dict) == {"sweep", "reconcile"}
    with pytest.raises(InvalidDefinition, match="neither a notifier nor a function"):
        task("ops@example.com")
    made = [DagSerialization.to_dict(housekeeping_dag(alerts=[notifier, channel])) for _ in "12"]
    assert made[0] == made[1]
    assert "0x" not in str(made[0])
