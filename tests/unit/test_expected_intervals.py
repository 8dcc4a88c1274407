"""How intervals are written and read, and which of them are missing."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

import pytest
import typer

from reliability.cli.options import SomeTxids
from reliability.core.errors import InvalidDefinition, SourceChanged, TxidHeld
from reliability.core.remedy import Remedy
from reliability.core.schedule import Schedule
from reliability.core.spout import Interval
from reliability.transaction.emit.expected import (
    MOST,
    Gap,
    ScheduleNotEvaluated,
    intervals,
    missing_intervals,
)
from reliability.transaction.inspect.select import file_pattern
from reliability.transaction.inspect.txid_state import files_of

UTC = timezone.utc
NOW = datetime(2026, 6, 15, tzinfo=UTC)
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
EVERYTHING = [(None, None)]  # nothing was ever emitted


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("2013", "2013-01-01", "2014-01-01"),
        ("2013-12", "2013-12-01", "2014-01-01"),
        ("2013-02-28", "2013-02-28", "2013-03-01"),
        ("2013-03-01T23", "2013-03-01T23:00", "2013-03-02"),
        ("2013-03-01T06:30", "2013-03-01T06:30", "2013-03-01T06:31"),
        ("2013-03-01T06:30:15/2013-03-01T06:31", "2013-03-01T06:30:15", "2013-03-01T06:31"),
        ("2013-03-01T10+10:00", "2013-03-01", "2013-03-01T01:00"),
        ("2013-01/2013-04", "2013-01-01", "2013-04-01"),
        ("2013-03-04/2013-03-11", "2013-03-04", "2013-03-11"),
        ("2013-03-01T06:30:00+00:00/2013-03-01 07Z", "2013-03-01T06:30", "2013-03-01T07:00"),
    ],
)
def test_an_interval_is_read_and_what_is_written_is_read_again(text, start, end):
    found = Interval.parse(text)
    wanted = [datetime.fromisoformat(moment).replace(tzinfo=UTC) for moment in (start, end)]
    assert [found.start, found.end] == wanted
    assert Interval.parse(str(found)) == found


BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("start", "end", "zone", "text"),
    [
        ("2026-03-28T23", "2026-03-29T22", BERLIN, "2026-03-29 Europe/Berlin"),  # 23 hours
        ("2026-10-24T22", "2026-10-25T23", BERLIN, "2026-10-25 Europe/Berlin"),  # 25 hours
        ("2026-02-28T23", "2026-03-31T22", BERLIN, "2026-03 Europe/Berlin"),
        ("2026-03-29T00", "2026-03-29T01", BERLIN, "2026-03-29T01 Europe/Berlin"),
        # an hour that occurs twice, then both of them
        ("2026-10-25T00", "2026-10-25T01", BERLIN, "2026-10-25T02+02:00 Europe/Berlin"),
        ("2026-10-25T01", "2026-10-25T02", BERLIN, "2026-10-25T02+01:00 Europe/Berlin"),
        (
            "2026-10-25T00:30",
            "2026-10-25T02:30",
            BERLIN,
            "2026-10-25T02:30+02:00/2026-10-25T03:30 Europe/Berlin",
        ),
        # a clock change of 30 minutes, and one at midnight
        ("2026-10-03T13:30", "2026-10-04T13:00", "Australia/Lord_Howe", None),
        ("2026-04-23T22", "2026-04-24T21", "Africa/Cairo", "2026-04-24 Africa/Cairo"),
        # a day that begins twice: Airflow's begins the second time
        ("2026-11-01T05", "2026-11-02T05", "America/Havana", None),
    ],
)
def test_an_interval_of_another_zone_names_it_and_is_read_again(start, end, zone, text):
    first, last = (
        datetime.fromisoformat(f"{moment}:00"[:16]).replace(tzinfo=UTC) for moment in (start, end)
    )
    interval = Interval(first, last, zone)
    assert text is None or str(interval) == text
    assert str(interval).endswith(zone)
    assert Interval.parse(str(interval)) == interval
    assert Interval.parse(str(interval).removesuffix(f" {zone}"), zone) == interval


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("2026-10-25T02", BERLIN),
        ("2026-10-25T02:30", BERLIN),
        ("2026-10-25T01/2026-10-25T02", BERLIN),
        ("2026-03-29T02", BERLIN),
        ("2026-04-05T01", "Australia/Lord_Howe"),  # it lasts 90 minutes
    ],
)
def test_an_hour_that_occurs_twice_was_read_as_both_and_is_refused(text, zone):
    """Two runs with one key read the first hour, and nobody the second."""
    with pytest.raises(ValueError, match="write its offset too, as in 2026-10-25T02"):
        Interval.parse(text, zone)
    assert Interval.parse("2026-10-25T02+01:00", BERLIN).start.hour == 1


@pytest.mark.parametrize(
    "text",
    [
        *("2026-03-29 Europe/Paradise", "2026-03-29+02:00 Europe", "x UTC"),
        *("2026-03-29T00:00:60", "2026-03-29+02:60"),
    ],
)
def test_a_zone_or_a_second_that_there_is_none_of_is_refused(text):
    with pytest.raises(ValueError, match=r"time zone|write an interval"):
        Interval.parse(text)


@pytest.mark.parametrize(
    "text", ["", "13-03", "2013-3", "2013-13", "2013-02-30", "2013-04/2013-03", "2013/", "x/y"]
)
def test_what_is_no_interval_is_refused(text):
    with pytest.raises(ValueError, match=r"2013-03-01T06 or START/END|ends before"):
        Interval.parse(text)


@pytest.mark.parametrize("text", ["0999-01-02", "0001-01-01", "9999-12-01", "9998-12/9999-11"])
def test_an_interval_of_a_year_that_some_zone_cannot_write_is_refused(text):
    """The year 999 was %Y 999, and the last days of 9999 an OverflowError in Tokyo."""
    for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
        with pytest.raises(ValueError, match=r"years 1001 to 9998|date value out of range"):
            Interval.parse(text, zone)
        last = Interval.parse("9998-12-31T20 UTC")
        assert Interval.parse(str(Interval(last.start, last.end, zone))) == last


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(days=31), "2026-01"),
        (timedelta(days=1), "2026-01-01"),
        (timedelta(hours=1), "2026-01-01T00"),
        (timedelta(days=7), "2026-01-01/2026-01-08"),
        (timedelta(minutes=20), "2026-01-01/2026-01-01T00:20"),
        (timedelta(), "2026-01-01/2026-01-01"),
    ],
)
def test_an_interval_is_written_short(length, text):
    interval = Interval(FIRST, FIRST + length)
    assert str(interval) == text
    assert Interval.parse(text) == interval


# --- missing -------------------------------------------------------------------------------------


def monthly(**options):
    return Schedule(cron="0 0 1 * *", time_zone="UTC", first_start=FIRST, **options)


def missing(schedule, gaps=EVERYTHING, now=NOW, wanted=None):
    spans = (Gap(*gap) for gap in gaps)
    return [str(interval) for interval in missing_intervals(schedule, spans, now, wanted)]


def test_the_interval_that_has_not_ended_is_not_missing():
    assert missing(monthly())[-1] == "2026-05"
    assert missing(monthly(), now=datetime(2026, 6, 1, 0, 9, tzinfo=UTC))[-1] == "2026-04"
    assert missing(monthly(), now=datetime(2026, 6, 1, 0, 10, tzinfo=UTC))[-1] == "2026-05"
    may = Interval.parse("2026-05 UTC")  # who asks for it may not take it for complete
    assert missing(monthly(), now=may.end, wanted=may) == ["2026-05"]


def of_month(month, day=1):
    return datetime(2026, month, day, tzinfo=UTC)


GAPS = [(None, of_month(2)), (of_month(3), of_month(4)), (of_month(5), None)]


@pytest.mark.parametrize(
    ("schedule", "gaps", "expected"),
    [
        (monthly(), GAPS, ["2026-01", "2026-03", "2026-05"]),
        (monthly(catchup=False), GAPS, ["2026-03", "2026-05"]),
        (monthly(last_start=of_month(3)), GAPS, ["2026-01", "2026-03"]),
        (monthly(), [(of_month(2, 2), of_month(3, 31))], []),  # it holds no whole interval
        # without a start nothing is expected before the first emission
        (Schedule(cron="@daily", time_zone="UTC"), EVERYTHING, []),
    ],
)
def test_what_lies_between_emissions_is_missing(schedule, gaps, expected):
    assert missing(schedule, gaps) == expected


def test_periods_are_counted_from_the_run_before():
    """Those of a start date that was moved later named another week, and one that overlaps."""
    weekly = Schedule(period=timedelta(weeks=1), first_start=of_month(1, 4))  # it was 5 January
    lost = Gap(of_month(1, 19), of_month(1, 26), run_end=of_month(1, 19))
    assert missing(weekly, [lost]) == ["2026-01-19/2026-01-26"]
    after_a_named_month = Gap(of_month(3), of_month(3, 12), run_end=of_month(1, 26))
    assert missing(weekly, [after_a_named_month]) == ["2026-03-02/2026-03-09"]


def test_a_long_time_without_emissions_is_cut():
    schedule = Schedule(period=timedelta(minutes=1), first_start=FIRST)
    assert len(missing(schedule)) == MOST + 1
    assert len(missing(schedule, wanted=Interval.parse("2026-06-14T23 UTC"))) == 60


def test_a_start_between_two_ticks_begins_with_the_next_one():
    found = [next(intervals(monthly(), datetime(2026, 1, day, tzinfo=UTC))) for day in (1, 15)]
    assert [str(interval) for interval in found] == ["2026-01", "2026-02"]


def test_what_is_not_evaluated_says_why():
    with pytest.raises(ScheduleNotEvaluated, match="an asset"):
        missing(Schedule(not_evaluated="an asset", first_start=FIRST))


# --- by interval and by file ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "path", "expected"),
    [
        ("a.csv", "a.csv", True),
        ("a.csv", "2013/a.csv", True),
        ("a.csv", "2013/ba.csv", False),
        ("a.csv", "2013/a.csv.gz", False),
        ("a.csv", "2013/axcsv", False),
        ("2013/a.csv", "data/2013/a.csv", True),
        ("*.csv", "2013/a.csv", True),
        ("data/*.csv", "data/2013/a.csv", False),
        ("data/**.csv", "data/2013/a.csv", True),
        ("a[12].csv", "a2.csv", True),
        ("a[!12].csv", "a2.csv", False),
        ("a[3-1].csv", "a2.csv", False),
        ("a[!3-1].csv", "a2.csv", True),
        (r"a[\d].csv", "a2.csv", False),
        (r"a[\d].csv", "ad.csv", True),
        ("a[^2].csv", "a2.csv", True),
        ("a[[:digit:].csv", "a[.csv", True),
        ("a?.csv", "a2.csv", True),
        ("a(1) é+.csv", "x/a(1) é+.csv", True),
        ("s3://bucket/a.csv", "s3://bucket/a.csv", True),
    ],
)
def test_a_file_is_found_by_its_path_by_its_end_and_by_a_glob(given, path, expected):
    """The pattern is Postgres's; what it has of these is the same in Python."""
    assert (re.search(file_pattern(given), path) is not None) is expected


def test_an_absolute_path_is_that_of_the_ledger(monkeypatch, tmp_path):
    monkeypatch.setenv("RELIABILITY_HOME", str(tmp_path))
    assert re.search(file_pattern(f"{tmp_path}/2013/a.csv"), "2013/a.csv")


@pytest.mark.parametrize(
    ("txids", "interval", "file"),
    [("3", "2013", ""), ("3", "", "a"), ("", "", ""), ("x", "", ""), ("", "March", "")],
)
def test_txids_are_selected_in_one_way(txids, interval, file):
    with pytest.raises(typer.BadParameter):
        SomeTxids(interval, file, txids)


def test_the_files_of_a_spout_that_is_not_here_are_shown_as_they_are():
    assert files_of([{"kind": "of another house", "name": "x"}]) == [
        "{'kind': 'of another house', 'name': 'x'}"
    ]


def test_an_error_names_the_txid_and_the_interval_that_it_is_about():
    error = TxidHeld("it is held: txid 50 was wrong", txid=5).about(txid=5, interval="1997-03")
    assert str(error).startswith("[TXID_HELD] txid 5 (1997-03): it is held: txid 50 was wrong")
    changed = SourceChanged("a.csv has another size").about(interval="1997-03")
    assert changed.message == "interval 1997-03: a.csv has another size"
    assert changed.about(txid=5).message == "txid 5 (1997-03): a.csv has another size"


def test_what_is_known_of_an_error_where_it_is_raised_is_not_replaced_on_its_way():
    error = TxidHeld("it is held", topology="shop", txid=5)
    assert error.about(topology="other", txid=6, interval="1997-03").message == "txid 5: it is held"
    assert "release shop" in error.what_to_do


def test_a_remedy_shows_a_text_of_a_user_as_it_is():
    remedy = Remedy("leave it out with {exclude}.", {"file": "{topology}/TXID.csv"})
    assert "exclude shop {topology}/TXID.csv --reason" in remedy.render(topology="shop")
    error = InvalidDefinition("no such field", remedy="write {data_interval_start:%Y}.")
    assert error.what_to_do == "write {data_interval_start:%Y}."
