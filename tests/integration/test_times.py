"""Times that Postgres has and Python has not: somebody writes 20226 for 2026."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from itertools import pairwise

from psycopg2.sql import SQL

from reliability import Append, Count, State
from reliability.transaction.inspect.explain import explain
from reliability.transaction.inspect.verify import verify
from tests.replay.shop import Shop, made
from tests.support.fix_postgres import execute

TIMES = ["0044-03-15 BC", "20226-01-01", "infinity", "-infinity"]


def states(_):
    return [
        State("days", key={"day": "date"}, values={"n": Count()}),
        State("log", values={"day": Append("day", "date")}),
    ]


def test_a_row_with_such_a_time_is_explained_and_verified(connection):
    shop = Shop(connection, kinds=states)
    shop.commit(made(1))
    day, last = date(2026, 1, 2), "reliability_contribution.shop__days"
    for before, time in pairwise([str(day), *TIMES]):
        moved = f"UPDATE {last} SET day = %(to)s WHERE day = %(day)s"
        execute(connection, moved, to=time, day=before)
        [days, _] = verify(connection, "shop")
        assert {str(one.key["day"]) for one in days.examples} == {str(day), time}
        found = explain(connection, "shop", "days", {"day": time})
        assert found.row is None
        assert len(found.contributions) == 1


def test_every_type_of_time_is_read_and_those_of_both_are_pythons(shared_connection):
    asked = SQL(
        "SELECT CAST(%(time)s AS date) AS day, CAST(%(time)s AS timestamp) AS moment,"
        " CAST(%(time)s AS timestamptz) AS instant, ARRAY[CAST(%(time)s AS date)] AS days"
    )
    for time in TIMES:
        found = shared_connection.one(asked, time=time)
        assert found["day"] == time
        assert found["days"] == [time]
        for name in ("moment", "instant"):
            assert str(found[name]).startswith(time.removesuffix(" BC"))
    found = shared_connection.one(
        SQL(
            "SELECT date '2026-01-02' AS day, timestamp '2026-01-02 03:04' AS moment,"
            " timestamptz '2026-01-02 03:04+00' AS instant, interval '90 minutes' AS length,"
            " interval '178000000 years' AS ages, NULL::date AS none,"
            " ARRAY[date '2026-01-02', NULL] AS days"
        )
    )
    assert found["day"] == date(2026, 1, 2)
    assert found["moment"] == datetime(2026, 1, 2, 3, 4)
    assert found["instant"].utcoffset() == timedelta()
    assert found["length"] == timedelta(minutes=90)
    assert found["ages"] == "178000000 years"
    assert found["none"] is None
    assert found["days"] == [date(2026, 1, 2), None]
