"""Reduce: what Spark makes of a frame for a state is what Postgres makes of its rows."""

from __future__ import annotations

import random
from datetime import date, timedelta
from decimal import Decimal

import pytest
from psycopg2.sql import SQL

from reliability import Append, Count, First, Latest, Max, State, Sum
from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import SchemaMismatch, TextNotStorable
from reliability.spark.stage.reduce import reduce_frame
from reliability.spark.stage.stage_task import BinaryRows
from reliability.states.digest import DIGEST, format_digest
from reliability.states.kinds import stored_state
from tests.integration.test_states import STATES, expected, found
from tests.support.fix_postgres import rolled_back
from tests.support.one_state import TOPOLOGY, OneState

SCHEMA = (
    "k bigint, word string, price decimal(10,2), point int, grade smallint, weight double,"
    " note string, flag boolean, day date, tags array<string>, _x bigint, _n bigint"
)
NOTES = [None, "", "a", "B", "ä", "Z", 'q"\\,{}']


def source_rows(dice, keys, number):
    return [
        {
            "k": dice.choice(keys),
            "word": dice.choice(["a", None]),
            "price": dice.choice([None, Decimal(dice.randrange(-999, 999)) / 100]),
            "point": dice.choice([None, dice.randrange(-9, 9)]),
            "grade": dice.choice([None, 1, 2]),
            "weight": dice.choice([None, float(dice.randrange(-9, 9))]),
            "note": dice.choice(NOTES),
            "flag": dice.choice([None, True, False]),
            "day": dice.choice([None, date(1997, 1, 1) + timedelta(dice.randrange(9))]),
            "tags": dice.choice([None, [], [dice.choice(NOTES), dice.choice(NOTES)]]),
            "_x": dice.randrange(-(2**63), 2**63),
            "_n": 1,
        }
        for _ in range(number)
    ]


def stage(one, frame, txid, attempt_id=0):
    """Reduce a frame in Spark and COPY what comes out, as the write action's tasks do."""
    staged = reduce_frame(frame, one.tables).toArrow()
    attempt = TransactionAttempt(txid, attempt_id)
    stream = BinaryRows(iter(staged.to_batches()), one.tables.copied_types(), attempt)
    one.tx.copy(one.tables.copy().as_string(one.tx.cursor), stream)
    one.make_attempt(txid, attempt_id, stream.rows)
    return stream.fold


# "recompute" has the values of "inverse", too
@pytest.mark.parametrize("name", sorted(STATES.keys() - {"inverse"}))
def test_spark_and_postgres_aggregate_alike(shared_connection, spark, name):
    """H6: also who wins in `orders`, where few rows have a key, and often all have NULL in `by`."""
    dice = random.Random(name)
    keys, number = (range(200), 300) if name == "orders" else ([1, 2, 3, None], 80)
    batches = {txid: source_rows(dice, keys, number) for txid in (1, 2)}
    corrected = source_rows(dice, keys, number - 20)
    with rolled_back(shared_connection) as tx:
        one = OneState(tx, STATES[name])
        for txid, rows in batches.items():
            assert stage(one, spark.createDataFrame(rows, SCHEMA), txid).count == len(rows)
            one.change(txid, 0, None)
        assert found(one) == expected(one.state, batches)
        stage(one, spark.createDataFrame(corrected, SCHEMA), 1, 1)
        one.change(1, 1, 0)
        assert found(one) == expected(one.state, batches | {1: corrected})


def test_what_spark_has_and_postgres_has_not_is_written_as_json(shared_connection, spark):
    """A field that is NULL stays a field, and a time keeps its microseconds."""
    frame = spark.sql(
        "SELECT named_struct('a', 1, 'b', CAST(NULL AS int)) AS s, map('x', array(1, NULL)) AS m,"
        " array(map('t', TIMESTAMP'1893-03-31 23:59:59.123456Z')) AS l, '{\"j\": [1.50]}' AS t,"
        " 1L AS _x, 1L AS _n"
    )
    values = {c: Latest(c, {"_n": "bigint"}, "jsonb") for c in ("m", "l", "t")}
    with rolled_back(shared_connection) as tx:
        one = OneState(tx, State("s", key={"s": "jsonb"}, values=values | {"n": Count()}))
        for txid in (1, 2):
            stage(one, frame.union(frame), txid)
            one.change(txid, 0, None)
        assert one.select("s::text, m::text, l::text, t::text, n") == [
            (
                '{"a": 1, "b": null}',
                '{"x": [1, null]}',
                '[{"t": "1893-03-31T23:59:59.123456Z"}]',
                '{"j": [1.50]}',
                4,
            )
        ]


def test_what_is_not_utf8_in_a_struct_is_refused_as_it_is_elsewhere(shared_connection, spark):
    """V8: as JSON, two such keys became one."""
    frame = spark.sql(
        "SELECT named_struct('a', CAST(b AS string)) AS s, 1L AS _x, 1L AS _n"
        " FROM VALUES (X'FF'), (X'FE') AS v(b)"
    )
    state = State("s", key={"s": "jsonb"}, values={"n": Count()})
    with pytest.raises(TextNotStorable), rolled_back(shared_connection) as tx:
        stage(OneState(tx, state), frame, 1)


def test_a_time_is_the_same_moment_in_every_session(shared_connection, spark):
    """Before 1893 Vienna was 1:05:21 ahead: an offset in minutes would move a time by 21 s."""
    state = State(
        "s",
        key={"t": "timestamptz", "ts": "timestamptz[]"},
        values={"n": Count(), "local": First("local", {"_n": "bigint"}, "timestamp")},
    )
    spark.conf.set("spark.sql.session.timeZone", "Europe/Vienna")
    try:
        frame = spark.sql(
            "SELECT TIMESTAMP'1800-01-01 00:00:00.000001Z' AS t, array(t, NULL) AS ts,"
            " TIMESTAMP_NTZ'1800-01-01 00:00:00.000001' AS local, 1L AS _x, 1L AS _n"
        )
        with rolled_back(shared_connection) as tx:
            one = OneState(tx, state)
            stage(one, frame, 1)
            one.change(1, 0, None)
            tx.run(SQL("SET LOCAL TIME ZONE 'UTC'"))
            assert one.select("t::text, ts::text, local::text") == [
                (
                    "1800-01-01 00:00:00.000001+00",
                    '{"1800-01-01 00:00:00.000001+00",NULL}',
                    "1800-01-01 00:00:00.000001",
                )
            ]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_spark_groups_keys_as_postgres_does(shared_connection, spark):
    """Both signs of zero and every NaN are one key; bytes, arrays and NULL are keys."""
    frame = spark.sql(
        "SELECT *, 1L AS _x, 1L AS _n FROM VALUES"
        " (0D, X'00FF', array('a', NULL)), (-0D, X'00FF', array('a', NULL)),"
        " (double('NaN'), NULL, array()), (-double('NaN'), NULL, array()) AS v(d, b, l)"
    )
    key = {"d": "double precision", "b": "bytea", "l": "text[]"}
    with rolled_back(shared_connection) as tx:
        one = OneState(tx, State("s", key=key, values={"n": Count()}))
        for txid in (1, 2):
            stage(one, frame, txid)
            one.change(txid, 0, None)
        assert one.select("d::text, b::text, l::text, n") == [
            ("0", "\\x00ff", "{a,NULL}", 4),
            ("NaN", None, "{}", 4),
        ]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"v": Latest("a", {"day": "date"})}, r"needs columns \['day'\]"),
        ({"v": Latest("a", {"s": "date"})}, "_v_by_1 is date in Postgres, and string"),
        ({"v": Sum("d")}, r"v is bigint in Postgres, and decimal\(20,2\)"),
        ({"v": Append("l", "text[]")}, r"v is text\[\] in Postgres, and array<int>"),
        ({"v": Append("l", "bytea")}, "v is bytea"),
        (
            {"v": Sum("f", "numeric(14,2)")},
            r"v is numeric\(14,2\) .* and double in Spark does not",
        ),
        ({"v": Max("s", "numeric")}, "v is numeric"),
        ({"v": Sum("w", "numeric(14,2)")}, r"v is numeric\(14,2\) in Postgres, and decimal\(33,8"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_before_spark_runs(spark, values, said):
    frame = spark.sql(
        "SELECT 1L AS a, 's' AS s, 1.10BD AS d, array(1) AS l, 1L AS _x, 1L AS _n"
    ).selectExpr("*", "CAST(d AS decimal(10,2)) AS e", "CAST(d AS decimal(33,8)) AS w", "1D AS f")
    frame = frame.drop("d").withColumnRenamed("e", "d")
    with pytest.raises(SchemaMismatch, match=said):
        reduce_frame(frame, stored_state(TOPOLOGY, State("s", values=values)))


def test_a_key_that_spark_cannot_group_by_is_refused(spark):
    """It was tried again and again: ATTEMPT_INCOMPLETE."""
    frame = spark.sql("SELECT parse_json('1') AS k, 1L AS _x, 1L AS _n")
    tables = stored_state(TOPOLOGY, State("s", key={"k": "jsonb"}, values={"n": Count()}))
    with pytest.raises(SchemaMismatch, match="column k is jsonb in Postgres, and variant in Spark"):
        reduce_frame(frame, tables)


# --- the digest of a contribution ----------------------------------------------------------------

DIGESTED = State(
    "digested",
    key={"k": "text"},
    values={"v": Append("v", "bigint"), "w": Append("w", "bigint"), "l": Append("l", "text[]")},
)
DIGESTED_ROWS = [
    ("a", 1, None, ["x"]),
    ("b", 1, None, ["x"]),
    ("a", 2, None, ["x"]),
    ("a", None, 1, ["x"]),
    ("a", 1, None, ["x", None]),
    ("a", 1, None, ["x,"]),
    ("a", 1, None, None),
]


def digests_of(spark, rows, partitions=1):
    """Return the digest of each row as Spark's tasks stage it, in some order."""
    columns = "k string, v long, w long, l array<string>, _x long, _n long"
    frame = spark.createDataFrame([(*row, 0, 1) for row in rows], columns)
    staged = reduce_frame(frame, stored_state(TOPOLOGY, DIGESTED)).repartition(partitions)
    return sorted(row[DIGEST] for row in staged.select(DIGEST).collect())


def test_a_digest_differs_if_one_value_does_and_not_by_order_and_partitions(spark):
    """H10: a row that is appended twice is digested twice."""
    twice = [*DIGESTED_ROWS, DIGESTED_ROWS[0]]
    found = digests_of(spark, twice)
    assert len({*found}) == len(DIGESTED_ROWS)
    assert digests_of(spark, twice[::-1], partitions=3) == found
    [one] = [digest for digest in {*found} if found.count(digest) == 2]
    assert len({format_digest(1, [one]), format_digest(2, [one, one]), "0:0"}) == 3
    assert format_digest(0, []) == "0:0"
    price = stored_state(TOPOLOGY, State("s", values={"v": Append("v", "numeric(14,2)")}))
    alike = [f"SELECT {v} AS v, 0L AS _x, 1L AS _n" for v in ("12345L", "12345BD", "123.45BD")]
    assert len({reduce_frame(spark.sql(v), price).collect()[0][DIGEST] for v in alike}) == 3


def test_digests_are_added_as_signed_numbers_of_64_bits():
    assert format_digest(2, [2**63 - 1, 1]) == f"2:{-(2**63)}"
    assert format_digest(2, [1, 2**63 - 1]) == f"2:{-(2**63)}"
