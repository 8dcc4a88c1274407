"""What never came is seen; and txids are found by their interval and by their files."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg2.sql import SQL

from reliability import Count, FileSpout, State
from reliability.core.errors import (
    IntervalOverlap,
    LedgerUnavailable,
    NothingToEmit,
    SourceNotReady,
    SourceUnreadable,
    TableUnreadable,
    TooManyBatches,
    TxidHeld,
)
from reliability.core.request import TaskTry
from reliability.core.schedule import Schedule
from reliability.core.spout import Interval
from reliability.transaction.correct.rollback import roll_back
from reliability.transaction.emit.emission import recorded_emission
from reliability.transaction.emit.requests import Run, TaskContact
from reliability.transaction.inspect import intervals
from reliability.transaction.inspect.intervals import intervals_without_commit
from reliability.transaction.inspect.overview import overviews
from reliability.transaction.inspect.source import look_at
from tests.support.command_line import by_me, read, say
from tests.support.fix_pipeline import month, pipeline_of, shop, write_parquet
from tests.support.fix_postgres import execute, rolled_back, rows

UTC = timezone.utc
FIRST, LAST = month(1997, 1).start, month(1997, 6).start
MONTHLY = Schedule(cron="0 0 1 * *", time_zone="UTC", first_start=FIRST, last_start=LAST)
EMISSIONS = "SELECT run_id, status, reason_code, reason FROM reliability.emission ORDER BY run_id"


@pytest.fixture
def emitter(tmp_path, connection, monkeypatch):
    """A pipeline over months of 1997, with files of January and April; it needs no Spark."""
    monkeypatch.setenv("RELIABILITY_HOME", str(tmp_path))
    for name in ("1997-01/a", "1997-01/b", "1997-04/a"):
        deliver(tmp_path, name)
    return pipeline_of(shop(tmp_path), connection)


def deliver(folder, name):
    write_parquet(folder / f"{name}.parquet", [{"customer": 1}])


def emit(emitter, number, schedule=MONTHLY):
    """Emit a month, as the run that Airflow names after the month's end."""
    own = emitter.again(f"scheduled__1997-{number + 1:02d}-01T00:00:00+00:00")
    return own.runner.emit(month(1997, number), own.who("emit"), max_batches=9, schedule=schedule)


def lacking(connection):
    with connection.transaction() as tx:
        return intervals_without_commit(tx, "shop")


def states(connection):
    return [(str(r.interval), r.state.value, r.count) for r in lacking(connection).reports]


def test_an_interval_without_files_is_not_missing_if_that_is_normal_and_a_late_file_is_told(
    emitter, connection, tmp_path
):
    """`lag` and `completeness` looked only at intervals that have a txid: it was lost."""
    spout = replace(emitter.runner.topology.spout, allow_empty=True)
    emitter.runner.topology = replace(emitter.runner.topology, spout=spout)
    february = replace(MONTHLY, last_start=month(1997, 2).start, catchup=False)
    assert emit(emitter, 2, february) == []
    assert states(connection) == []
    assert look_at(connection, emitter.runner.topology).late == []
    deliver(tmp_path, "1997-02/late")
    [late] = look_at(connection, emitter.runner.topology).late
    assert str(late.interval) == "1997-02"


def test_nothing_is_missing_of_a_spout_that_no_longer_reads_by_interval(
    emitter, connection, tmp_path
):
    """Its schedule stayed: `lag` failed for ever."""
    emit(emitter, 1)
    assert "missing" in {state for _, state, _ in states(connection)}
    untimed = replace(shop(tmp_path), spout=FileSpout(f"{tmp_path}/1997-04/*.parquet"))
    emit(pipeline_of(untimed, connection), 2)
    assert {state for _, state, _ in states(connection)} == {"open"}


BERLIN = Schedule(
    cron="0 0 * * *",
    time_zone="Europe/Berlin",
    first_start=datetime(2026, 3, 27, 23, tzinfo=UTC),
    last_start=datetime(2026, 3, 30, 22, tzinfo=UTC),
)


def test_where_dates_are_local_a_day_of_23_hours_reads_its_files_and_every_name_says_the_zone(
    connection, tmp_path, monkeypatch
):
    from reliability_airflow.page.reading import find_txid, read_calendar

    monkeypatch.setenv("RELIABILITY_HOME", str(tmp_path))
    days = [f"2026-03-{day}" for day in (28, 29, 30, 31)]
    for day in days:
        deliver(tmp_path, f"{day}/{day}")
    pattern = f"{tmp_path}/{{data_interval_start:%Y-%m-%d}}/*.parquet"
    topology = replace(shop(tmp_path), spout=FileSpout(pattern, time_zone="Europe/Berlin"))
    emitter = pipeline_of(topology, connection)
    for day in (days[0], days[1], days[3]):  # that of the 30th never comes
        own = emitter.again(f"scheduled__{day}")
        interval = Interval.parse(day, "Europe/Berlin")
        in_utc = Interval(interval.start, interval.end)  # as Airflow has it
        own.runner.emit(in_utc, own.who("emit"), max_batches=9, schedule=BERLIN)
    assert rows(
        connection,
        "SELECT item, (interval_end - interval_start)::text FROM reliability.transaction"
        " JOIN reliability.source_item USING (topology, txid) ORDER BY txid",
    ) == [
        ("2026-03-28/2026-03-28.parquet", "1 day"),
        ("2026-03-29/2026-03-29.parquet", "23:00:00"),
        ("2026-03-31/2026-03-31.parquet", "1 day"),
    ]
    found = read("lag", "--fail-after", str(100 * 365 * 86400))[0]
    assert [(one["interval"], one["state"]) for one in found["intervals"]] == [
        (f"{days[0]} Europe/Berlin", "open"),
        (f"{days[1]} Europe/Berlin", "open"),
        (f"{days[2]} Europe/Berlin", "missing"),
        (f"{days[3]} Europe/Berlin", "open"),
    ]
    assert "--from-date 2026-03-29T22:00:00+00:00" in found["intervals"][2]["next_step"]
    # what a person writes is in the topology's zone, too
    selected = [read("txids", "shop", "--interval", i)["txids"] for i in ("2026-03", days[1])]
    assert [[row["txid"] for row in one] for one in selected] == [[1, 2, 3], [2]]
    assert "(2026-03-29 Europe/Berlin)" in say("show", "shop", "2").stdout
    assert find_txid("shop", days[2]) == 2  # in UTC, the day after has begun
    [(month_name, calendar)] = read_calendar("shop", None)["groups"]
    assert (month_name, [day.name for day in calendar]) == (
        "2026-03", [f"{day} Europe/Berlin" for day in days]
    )  # fmt: skip
    complete = read("completeness", "shop", "--interval", f"{days[2]}/2026-04-01 Europe/Berlin")
    assert [one["state"] for one in complete["intervals"]] == ["missing", "open"]
    said = say("txids", "shop", "--interval", "2026-03-29T02", code=2).stderr
    assert "2026-10-25T02+02:00" in said  # Berlin does not have that hour
    execute(connection, "DELETE FROM reliability.schedule")  # nothing but `reliability run` runs it
    assert [row["txid"] for row in read("txids", "shop", "--interval", days[1])["txids"]] == [2]


def test_what_is_read_of_all_topologies_at_once_is_what_is_read_of_each(
    emitter, connection, tmp_path
):
    """All are held, two have failed, one is skipped, of one an item is excluded."""
    topologies = [
        replace(shop(tmp_path), name=name, states=[State(name, values={"n": Count()})])
        for name in ("tea", "shop", "book")
    ]
    pipelines = {topology.name: pipeline_of(topology, connection) for topology in topologies}
    for name, pipeline in pipelines.items():
        emit(pipeline, 1)
        if name != "tea":
            with pytest.raises(NothingToEmit):
                emit(pipeline, 2)
    execute(connection, "UPDATE reliability.transaction SET held_reason = 'a test'")
    say("skip", "book", "1", "--reason", "a test", "--yes")
    say("exclude", "tea", "1997-04/a.parquet", "--reason", "a test", "--yes")
    with connection.transaction(reads_only=True) as tx:
        every = overviews(tx)
        assert [one.topology for one in every] == ["book", "shop", "tea"]
        for one in every:
            [alone] = overviews(tx, one.topology)
            now = [replace(report, age=timedelta()) for report in alone.lacking.reports]
            then = [replace(report, age=timedelta()) for report in one.lacking.reports]
            assert (now, alone.to_json()) == (then, one.to_json())


def test_an_overview_reads_where_a_topology_stands_once(emitter, connection, monkeypatch):
    def find_again(*arguments):
        raise AssertionError("it was read before")

    emit(emitter, 1)
    monkeypatch.setattr(intervals, "find_standing", find_again)
    with connection.transaction() as tx:
        [found] = overviews(tx)
    assert found.lacking.counts["open"] == 1


def emissions():
    """Return runs that tried intervals of a few hours, some that touch, overlap or are empty."""
    hours = st.integers(0, 12)
    return st.lists(st.tuples(st.integers(1, 8), st.none() | st.tuples(hours, st.integers(0, 4))))


NOT_EVALUATED = """
    INSERT INTO reliability.schedule (topology, dag_id, not_evaluated, catchup)
    VALUES ('shop', 'shop', 'a test', true)"""
GAPS = """
    WITH tried AS (
           SELECT interval_start, interval_end FROM reliability.emission
            WHERE topology = 'shop' AND interval_start < interval_end),
         in_order AS (
           SELECT interval_start,
                  max(interval_end) OVER (
                      ORDER BY interval_start, interval_end
                      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached
             FROM tried)
    SELECT reached AS gap_start, interval_start AS gap_end FROM in_order
     WHERE reached IS NULL OR reached < interval_start
     UNION ALL
    SELECT max(interval_end), NULL FROM tried ORDER BY gap_end NULLS LAST"""


@given(emissions())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_gaps_are_those_between_all_emissions(shared_connection, tries):
    """E7: the time that was tried is kept; also after a run has got another interval."""
    at_0 = datetime(2026, 1, 1, tzinfo=UTC)
    with rolled_back(shared_connection) as tx:
        for number, interval in tries:
            start = interval and at_0 + timedelta(hours=interval[0])
            end = interval and start + timedelta(hours=interval[1])
            key = {"topology": "shop", "dag_id": "shop", "run_id": f"run {number}"}
            ends = {"interval_start": start, "interval_end": end, "interval_zone": None}
            tx.run("begin_emission", **key, **ends, task_id="emit")
        tx.run(SQL(NOT_EVALUATED))
        asked, wanted = tx.all("gaps_between_emissions", topology="shop"), tx.all(SQL(GAPS))
        assert [[row["gap_start"], row["gap_end"]] for row in asked] == [
            [row["gap_start"], row["gap_end"]] for row in wanted
        ]


def test_what_never_came_is_seen(emitter, connection, tmp_path):
    """E7: a month whose emission failed, and one for which no run ever came, were nowhere."""
    emit(emitter, 1)
    with pytest.raises(NothingToEmit):
        emit(emitter, 2)
    emit(emitter, 4)
    found = read("lag", "--fail-after", str(100 * 365 * 86400))[0]
    assert [(one["interval"], one["state"], one["count"]) for one in found["intervals"]] == [
        ("1997-01", "open", 1),
        ("1997-02", "failed", 1),
        ("1997-03", "missing", 1),
        ("1997-04", "open", 1),
        ("1997-05-01/1997-07-01", "missing", 2),
    ]
    january, february, march, _, last = found["intervals"]
    assert (january["txids"], january["why"]) == ("1..2", "waits to begin")
    assert february["run_id"] == "scheduled__1997-03-01T00:00:00+00:00"
    assert february["why"].startswith("[NOTHING_TO_EMIT] ")
    assert february["next_step"].endswith("then: reliability resume-runs shop")
    dates = "--from-date 1997-0{}-01T00:00:00+00:00 --to-date 1997-0{}-01T00:00:00+00:00"
    assert dates.format(3, 3) in march["next_step"]
    assert dates.format(5, 6) in last["next_step"]
    assert found["expected_unknown"] is None

    said = " ".join(say("lag").stdout.split())
    assert re.search(r"shop 1997-02 failed [^[]* why \[NOTHING_TO_EMIT\]", said)
    assert re.search(r"shop 1997-05-01/1997-07-01 \(2\) missing .* why no run has emitted it", said)
    assert "6 intervals lack a commit: 2 open, 1 failed, 3 missing" in say("status").stdout
    assert read("status")[0]["without_commit"] == {"open": 2, "failed": 1, "missing": 3}
    (told,) = [one for one in read("doctor", code=None) if one["check"] == "topology shop"]
    assert (told["verdict"], "3 missing" in told["what"]) == ("warning", True)

    deliver(tmp_path, "1997-02/a")
    emit(emitter, 2)
    assert ("1997-02", "open", 1) in states(connection)
    assert "failed" not in read("status")[0]["without_commit"]


def test_lag_fails_for_what_is_missing_or_has_failed_for_too_long(emitter, connection, tmp_path):
    def lag_fails(is_so):
        say("lag", "--fail-after", "3600", code=3 if is_so else 0)

    until_april = replace(MONTHLY, last_start=month(1997, 4).start, catchup=False)
    emit(emitter, 4, replace(MONTHLY, first_start=month(1997, 4).start, last_start=None))
    # no month is missing until next year
    execute(connection, "UPDATE reliability.schedule SET last_start = '1997-04-01'")
    lag_fails(False)
    with pytest.raises(NothingToEmit):
        emit(emitter, 3, until_april)
    lag_fails(False)
    execute(connection, "UPDATE reliability.emission SET failing_since = now() - interval '2 h'")
    lag_fails(True)
    deliver(tmp_path, "1997-03/a")
    emit(emitter, 3, until_april)
    lag_fails(False)
    execute(connection, "UPDATE reliability.schedule SET last_start = '1997-05-01'")
    lag_fails(True)


def test_an_interval_is_expected_when_it_has_ended_and_a_run_had_time_to_start(emitter, connection):
    """By the clock of the database; the last hour has ended when its end is 10 minutes ago."""
    ((now,),) = rows(connection, "SELECT clock_timestamp()")
    hour = now.replace(minute=0, second=0, microsecond=0)
    emit(emitter, 1, Schedule(period=timedelta(hours=1), first_start=hour - timedelta(hours=2)))
    first = "UPDATE reliability.schedule SET first_start = clock_timestamp() - %(ago)s"
    for minutes, ended in ((9, 1), (11, 2)):
        execute(connection, first, ago=timedelta(hours=2, minutes=minutes))
        ((_, state, count),) = [one for one in states(connection) if one[1] != "open"]
        assert (state, count) == ("missing", ended)


def test_a_schedule_that_cannot_be_evaluated_is_said_in_words(emitter, connection):
    """Nothing is guessed to be missing; also if the DAG does not catch up, as one without ticks."""
    emit(emitter, 4, None)
    for schedule, why in (
        (None, "no run of a DAG has recorded its schedule; a `reliability run` has none"),
        (Schedule(not_evaluated="it has no ticks", catchup=False), "it has no ticks"),
        (Schedule(cron="0 0 32 * *", time_zone="UTC"), "0 0 32"),
        (Schedule(cron="@daily", time_zone="Mars/North"), "Mars/North"),
    ):
        emit(emitter, 1, schedule)
        assert why in read("lag")[0]["expected_unknown"]
        assert states(connection) == [("1997-01", "open", 1), ("1997-04", "open", 1)]
    assert "Mars/North" in say("completeness", "shop").stdout
    for verb in ("lag", "status", "doctor"):
        assert "expected intervals unknown: " in say(verb, code=None).stdout


RUN = Run(dag_id="shop", run_id="r")
EMIT = TaskContact(run=RUN, task="emit", this_try=TaskTry(max_tries=0))


def test_an_emission_is_recorded_as_it_ended(emitter, connection):
    """E7: also if an earlier try of the task fails after a later one has emitted."""
    january = month(1997, 1)

    def fail_with(error):
        recorded = recorded_emission(connection, "shop", EMIT, january, None)
        with pytest.raises(type(error)), recorded:
            raise error

    fail_with(SourceNotReady("not yet"))
    assert rows(connection, EMISSIONS) == [("r", "FAILED", "SOURCE_NOT_READY", "not yet")]
    assert states(connection) == [("1997-01", "waiting", 1)]
    fail_with(ValueError("of a spout"))
    assert rows(connection, EMISSIONS) == [("r", "FAILED", "ValueError", "of a spout")]
    fail_with(SourceUnreadable("it is locked", remedy="ask {whoever} has it."))
    [report] = lacking(connection).reports
    assert report.next_step == "ask {whoever} has it; then: reliability resume-runs shop"
    fail_with(LedgerUnavailable("for a moment"))  # the task waits: nothing has failed
    assert rows(connection, EMISSIONS) == [("r", "EMITTING", None, None)]
    assert states(connection) == [("1997-01", "emitting", 1)]

    emitter.again("r").emit(january)
    assert rows(connection, EMISSIONS) == [("r", "EMITTED", None, None)]
    # an earlier try of the task, which was thought dead
    late = SourceNotReady("too late").to_ledger()
    connection.run("fail_emission", topology="shop", **late, **RUN)
    assert rows(connection, EMISSIONS) == [("r", "EMITTED", None, None)]


def test_without_catchup_nothing_is_expected_before_the_first_emission(emitter, connection):
    """E7: nor behind a backfill: the first by hand made every month since then missing for ever."""
    own = emitter.again("backfill__1997-02-01T00:00:00+00:00")
    schedule = replace(MONTHLY, catchup=False)
    own.runner.emit(month(1997, 1), own.who("emit"), max_batches=9, schedule=schedule)
    assert {state for _, state, _ in states(connection)} == {"open"}
    emit(emitter, 4, schedule)
    missing = ("1997-05-01/1997-07-01", "missing", 2)
    assert states(connection)[-2:] == [("1997-04", "open", 1), missing]


def test_the_advice_is_about_what_could_not_be_read(emitter, connection):
    """That of a truncated file was to check a table's database."""
    emit(emitter, 1)
    for error, advice in (
        (SourceUnreadable("a.parquet is cut off"), "deliver the complete file again"),
        (TableUnreadable("table orders"), "check the table and its database"),
    ):
        recorded = recorded_emission(connection, "shop", EMIT, month(1997, 2), None)
        with pytest.raises(type(error)), recorded:
            raise error
        [failed] = [one for one in read("lag")[0]["intervals"] if one["state"] == "failed"]
        assert failed["next_step"].startswith(advice)
        assert ("database" in failed["next_step"]) is isinstance(error, TableUnreadable)


def test_each_open_txid_says_why(emitter, connection):
    def lagging(txids):
        return next(one for one in read("lag")[0]["intervals"] if one["txids"] == txids)

    emit(emitter, 1)
    emit(emitter, 4)
    emitter = emitter.again("scheduled__1997-02-01T00:00:00+00:00")
    emitter.runner.close(1, emitter.run, "its tasks ended without it")
    say("park", "shop", "2", "--reason", "a broken file", "--yes")
    execute(connection, "UPDATE reliability.schedule SET last_start = '1996-01-01'")
    blocked = lagging("1")
    assert (blocked["state"], blocked["next_step"][:19]) == ("blocked", "fix the cause; then")
    why = f"parked ({by_me('a broken file')}); waits behind 1: txids commit in order; 1 is blocked"
    assert lagging("2")["why"] == why
    chosen = ("--interval", "1997-01-01/1997-02-01", "--file", "a.parquet")
    say("skip", "shop", *chosen, "--reason", "a test", "--yes")
    parked, step = lagging("2"), "fix the cause; then: reliability replay shop 2"
    assert (parked["state"], parked["next_step"]) == ("parked", step)
    states = [(one["txid"], one["state"], one["why"]) for one in read("txids", "shop")["txids"]]
    assert states == [
        (1, "skipped", "a test"),
        (2, "parked", by_me("a broken file")),
        (3, "open", "waits to begin"),
    ]


# --- by interval and by file ---------------------------------------------------------------------


def test_txids_are_listed_and_found_by_interval_and_by_file(emitter, connection, tmp_path):
    """And what is not there is told with what is nearest."""
    emit(emitter, 1)
    with pytest.raises(NothingToEmit):
        emit(emitter, 2)
    emit(emitter, 4)

    def of(*options):
        return [one["txid"] for one in read("txids", "shop", *options)["txids"]]

    assert of() == [1, 2, 3]
    assert of("--interval", "1997-01") == of("--interval", "1997-01/1997-04") == [1, 2]
    assert of("--interval", "1997") == [1, 2, 3]
    assert of("--file", "1997-01/b.parquet") == [2]
    assert of("--file", str(tmp_path / "1997-01" / "b.parquet")) == [2]
    assert of("--file", "a.parquet") == of("--file", "[a]*") == [1, 3]
    assert of("--file", "1997-0?/a.parquet", "--interval", "1997-04") == [3]
    found = read("txids", "shop", "--last", "1")
    assert (found["earlier"], [one["txid"] for one in found["txids"]]) == (2, [3])
    (third,) = found["txids"]
    assert (third["interval"], third["files"]) == ("1997-04", ["1997-04/a.parquet"])
    assert (third["rows"], third["run_id"]) == (1, "scheduled__1997-05-01T00:00:00+00:00")
    said = say("txids", "shop", "--last", "2").stdout
    assert "1 earlier txids are not shown" in said
    assert "scheduled__1997-05-01" in said

    said = say("show", "shop", "--interval", "1997-02", code=1).stderr
    assert "[NOTHING_SELECTED] no txid of shop lies in 1997-02; run scheduled__1997-03-01" in said
    assert "did not emit it: [NOTHING_TO_EMIT]" in said
    assert "the nearest are 1997-01 (txid 1) and 1997-04 (txid 3)" in said
    assert "no run has emitted it" in say("show", "shop", "--interval", "1997-03", code=1).stderr
    said = say("release", "shop", "--file", "c.parquet", code=1).stderr
    assert "no txid of shop reads c.parquet; it has read, for example, 1997-04/a.parquet" in said

    complete = read("completeness", "shop")["intervals"]
    assert [(row["interval"], row["state"]) for row in complete] == [
        ("1997-01", "open"),
        ("1997-02", "failed"),
        ("1997-03", "missing"),
        ("1997-04", "open"),
        ("1997-05-01/1997-07-01", "missing"),
    ]
    january = complete[0]
    assert (january["txids"], january["committed"], january["emitted"]) == (2, 0, 2)
    assert "0 of 6 intervals are complete" in say("completeness", "shop").stdout
    say("completeness", "shop", "--check", code=3)
    chosen = read("completeness", "shop", "--interval", "1997-04")["intervals"]
    assert [row["interval"] for row in chosen] == ["1997-04"]
    chosen = ("--interval", "1997-05")
    assert "0 of 1 intervals are complete" in say("completeness", "shop", *chosen).stdout


def test_every_verb_names_the_interval(emitter, connection):
    emit(emitter, 1)
    emit(emitter, 4)
    asked = say("park", "shop", "--interval", "1997-01", "--reason", "x", code=1).stderr
    assert "txids 1..2 (1997-01) of shop will commit as empty" in asked
    for txid in ("1", "2", "3"):
        say("park", "shop", txid, "--reason", "a broken file", "--yes")
    assert roll_back(connection, "shop", 2, "x", dry_run=True).held == range(3, 4)
    asked = say("rollback", "shop", "2", "--reason", "x", code=1).stderr
    question = "shop will be rolled back to txid 2 (1997-01). The txid after it, txid 3 (1997-04)"
    assert question in asked
    said = say("rollback", "shop", "--interval", "1997-01", "--reason", "x", "--yes").stdout
    assert "was rolled back to txid 2 (1997-01)" in said
    assert "txid 3 (1997-04) is held" in said
    assert read("lag")[0]["intervals"][-2]["state"] == "held"
    with pytest.raises(TxidHeld, match=r"txid 3 \(1997-04\): it is held"):
        emitter.again("scheduled__1997-05-01T00:00:00+00:00").transact(3)  # the run of April
    result = say("release", "shop", "--interval", "1997-04")
    assert result.stderr == "shop: txid 3 (1997-04)\n"
    assert "txid 3 (1997-04) released" in result.stdout
    assert result.stdout.endswith("+00:00 of DAG shop in Airflow: txid 3 (1997-04)\n")
    result = say("skip", "shop", "--file", "1997-04/*", "--reason", "x", "--yes")
    assert "txid 3 (1997-04) of shop is skipped for good" in result.stdout
    said = say("show", "shop", "--interval", "1997-04").stdout
    assert "txid       3 (1997-04) of shop" in said
    assert "1997-04/a.parquet" in said
    assert [one["txid"] for one in read("show", "shop", "--file", "1997-01/*")] == [1, 2]
    assert read("show", "shop", "3:1")["interval"] == "1997-04"


def test_an_interval_that_was_emitted_by_another_schedule_is_not_missing(emitter, connection):
    """It could not be emitted: it would overlap."""
    emit(emitter, 1, replace(MONTHLY, last_start=month(1997, 1).start))
    execute(connection, "UPDATE reliability.schedule SET cron = '0 0 1 1 *'")
    assert [state for _, state, _ in states(connection)] == ["open"]
    assert Interval.parse("1997").contains(month(1997, 1))


def test_an_interval_that_overlapped_others_is_done_when_they_cover_it(
    emitter, connection, tmp_path
):
    emit(emitter, 1, replace(MONTHLY, last_start=month(1997, 1).start))
    with pytest.raises(TooManyBatches, match="interval 1997-04: shop: 1 batches"):
        emitter.again("manual__2").emit(month(1997, 4), max_batches=0)
    both = Interval(month(1997, 1).start, month(1997, 2).end)
    named = "1997-01-01/1997-03-01 overlaps 1997-01 of run scheduled__1997-02-01"
    with pytest.raises(IntervalOverlap, match=named):
        emitter.again("manual__1").emit(both)
    assert ("1997-01-01/1997-03-01", "failed", 1) in states(connection)
    deliver(tmp_path, "1997-02/a")
    emit(emitter, 2, replace(MONTHLY, last_start=month(1997, 1).start))
    emitter.again("manual__2").emit(month(1997, 4))
    assert {state for _, state, _ in states(connection)} == {"open"}
