"""Numbers beyond Spark's: sums that overflow on their way, and what only Postgres can hold."""

from __future__ import annotations

import random
from contextlib import closing
from decimal import Decimal, localcontext
from io import BytesIO
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg2.sql import SQL

from reliability import (
    Append,
    Avg,
    FileSpout,
    First,
    Latest,
    Max,
    State,
    Step,
    Sum,
    TableSpout,
    Topology,
)
from reliability.core.errors import InvalidDefinition, SchemaMismatch
from reliability.core.spout import NoItems
from reliability.deployment.lazy import pa, pq
from reliability.spark.stage.encode import encode
from reliability.spark.stage.reduce import reduce_frame
from reliability.states.kinds import stored_state
from reliability.transaction.correct.rollback import roll_back
from tests.integration.test_reduce import stage
from tests.support.fix_postgres import own_session, rolled_back, rows
from tests.support.one_state import TOPOLOGY, OneState

LEAST, GREATEST = -(2**63), 2**63 - 1

# --- sums ----------------------------------------------------------------------------------------

KNOWN: dict[str, list[list[Any]]] = {
    "bigint": [
        [GREATEST, 1, -10],
        [LEAST, -1, None, 10],
        [None],
        [GREATEST, LEAST],
        [-10, -1],
        [LEAST, LEAST, GREATEST, GREATEST],
        [1, -(2**32)],
    ],
    "decimal(38,0)": [
        [Decimal("9" * 38)] * 3,
        [Decimal("9" * 38), Decimal(1), Decimal(-10)],
        [None, None],
        [Decimal(-(10**28)), Decimal(10**28 - 1), Decimal(10**28 - 1)],
    ],
    "decimal(38,38)": [
        [Decimal("1e-38"), Decimal("-0." + "9" * 38)],
        [Decimal("0." + "9" * 38)] * 2,
        [Decimal("-1e-10"), Decimal("-9e-38"), None],
    ],
    "decimal(38,18)": [[Decimal(0)], [Decimal("1.5")], [Decimal(10) ** 19 * 9] * 30],
    "decimal(29,1)": [[Decimal("9" * 28 + ".9"), Decimal("-0.1")], [Decimal(10**28 - 1)] * 9],
}


def random_values(type_):
    """Sums of numbers near the ends of the type, and near those of its lower half."""
    dice = random.Random(type_)
    ends = [1, 0, 5, 10**28, 10**28 - 1, 10**28 + 1, 10**37, 10**38 - 1]
    scale = int(type_.rstrip(")").split(",")[1])

    def value():
        if dice.random() < 0.1:
            return None
        number = dice.choice([*ends, dice.randrange(10**38), dice.randrange(10**29)])
        return Decimal(f"{dice.choice('+-')}{number}E-{scale}")

    return [[value() for _ in range(dice.choice([1, 2, 3, 7]))] for _ in range(40)]


def exact(values):
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def test_what_adds_up_to_a_number_that_fits_is_right(shared_connection, spark):
    """H3: Spark's own sums fail at 2^63 and at 10^38, depending on the order of the rows."""
    groups = {t: known + (random_values(t) if "38" in t else []) for t, known in KNOWN.items()}
    values: dict[str, Any] = {"fits": Sum("v_0", "bigint")}
    for number in range(len(KNOWN)):
        values[f"total_{number}"] = Sum(f"v_{number}", "numeric")
        values[f"mean_{number}"] = Avg(f"v_{number}")
    read = [
        {"type": type_, "k": k, f"v_{number}": value, "_x": k, "_n": 1}
        for number, type_ in enumerate(KNOWN)
        for k, group in enumerate(groups[type_])
        for value in group
    ]
    columns = ", ".join(f"v_{number} {type_}" for number, type_ in enumerate(KNOWN))
    frame = spark.createDataFrame(read, f"type string, k bigint, {columns}, _x bigint, _n bigint")
    with rolled_back(shared_connection) as tx, localcontext() as context:
        context.prec = 200
        one = OneState(tx, State("s", key={"type": "text", "k": "bigint"}, values=values))
        assert stage(one, frame, 1).count == len(read)
        one.change(1, 0, None)
        wanted = {t: [exact(group) for group in groups[t]] for t in KNOWN}
        assert totals(one) == wanted
        assert one.select("count(*) FILTER (WHERE fits IS DISTINCT FROM total_0)") == [(0,)]
        for number in range(len(KNOWN)):
            wrong = f"mean_{number} <> total_{number} / _mean_{number}_count"
            assert one.select(f"count(*) FILTER (WHERE {wrong})") == [(0,)], wrong
        stage(one, frame.where("k = 0"), 1, 1)
        one.change(1, 1, 0)
        assert totals(one) == {type_: sums[:1] for type_, sums in wanted.items()}


def totals(one):
    """Return the sums of each type in the order of its groups."""
    sums = ", ".join(f"total_{number}" for number in range(len(KNOWN)))
    found = one.select(f"type, k, {sums}")
    return {
        type_: [row[2 + number] for row in found if row[0] == type_]
        for number, type_ in enumerate(KNOWN)
    }


# --- what only Postgres can hold -----------------------------------------------------------------

NUMBERS = [
    "1000000000000000000000",  # 1e21
    "0.1234567890123456789",  # 19 digits after the point
    "-12.50",
    "0.000",
    "9" * 300 + "." + "9" * 200,
    "NaN",
    "Infinity",
    "-Infinity",
]
SOURCE = "CREATE TABLE public.numbers (k bigint PRIMARY KEY, v numeric, w numeric(40,2))"
BOTH = "SELECT k, v::text, w::text FROM {} ORDER BY k"


@pytest.fixture
def source(dsn):
    with closing(own_session(dsn)) as session:
        session.autocommit = True
        cursor = session.cursor()
        cursor.execute(SOURCE)
        for number in NUMBERS:
            cursor.execute("INSERT INTO numbers SELECT count(*), %s, 5 FROM numbers", (number,))
        yield cursor


def carried(**values):
    by = {"k": "bigint"}
    return {"v": values.get("v", Latest("v", by, "numeric")), "w": First("w", by, "numeric(40,2)")}


APPENDED = {"k": Append("k", "bigint"), "v": Append("v", "numeric"), "w": Append("w", "numeric")}
TEXTS = {"kept.v": "string", "appended.v": "string", "appended.w": "string"}


def numbers_topology(types, read):
    return Topology(
        "numbers",
        spout=TableSpout("numbers", key="k", types=types),
        states=[
            State("kept", key={"k": "bigint"}, values=carried()),
            State("appended", values=APPENDED),
            State("again", key={"k": "bigint"}, values=carried()),
            State("listed", values=APPENDED),
        ],
        steps=[
            Step("first", lambda batch: dict.fromkeys(("kept", "appended"), batch),
                 feeds=["kept", "appended"]),
            Step("second", lambda kept, appended: {"again": kept, "listed": appended},
                 feeds=["again", "listed"], reads=["kept", "appended"], types=read),
        ],
        module=__name__,
    )  # fmt: skip


def test_every_number_of_postgres_goes_through_spark_as_a_text(source, connection, pipeline):
    """From a table into a state, through a step that reads it; by a replay; and out again.

    What cannot be read so is refused when it is declared, and of a number that fits no decimal is
    told what to write.
    """
    for types, told in (
        ({"x": "string"}, "names x, which is no column"),
        ({"v": "double"}, "column v is numeric, which cannot be read as double"),
        ({"v": "decimal(39,0)"}, "cannot be read as"),
        ({"k": "decimal(38,0)"}, "column k is bigint"),
    ):
        with pytest.raises(InvalidDefinition, match=told):
            TableSpout("numbers", key="k", types=types).plan(None, NoItems())
    with pytest.raises(InvalidDefinition, match=r"step second: types= names again\.v"):
        numbers_topology({}, {"again.v": "string"})
    undeclared = pipeline(numbers_topology({}, {}))
    assert undeclared.emit(None) == [1]
    said = (
        r"column v: 1000000000000000000000 is no decimal.*; types=.'v': 'string'. of the TableSpout"
    )
    with pytest.raises(SchemaMismatch, match=said):
        undeclared.transact(1)
    pipe = pipeline(numbers_topology({"v": "string"}, TEXTS))
    assert pipe.emit(None) == [1]
    pipe.transact(1)
    wanted = [(k, number, "5.00") for k, number in enumerate(NUMBERS)]
    tables = ("kept", "appended", "again", "listed")
    assert {t: rows(connection, BOTH.format(t)) for t in tables} == dict.fromkeys(tables, wanted)
    source.execute("INSERT INTO numbers VALUES (100, '-1e-30', 0.5)")
    assert pipe.again("later").emit(None) == [2]
    again = pipe.again()
    assert again.emit(None) == [1]
    again.transact(1)
    assert {t: rows(connection, BOTH.format(t)) for t in tables} == dict.fromkeys(tables, wanted)
    roll_back(connection, "numbers", 0, "a test")
    assert {t: rows(connection, BOTH.format(t)) for t in tables} == {t: [] for t in tables}


def to_copies(name):
    return lambda totals: {name: totals.select("total", "_x", "_n")}


def test_a_step_reads_a_sum_with_the_digits_that_it_declares(tmp_path, connection, pipeline):
    part = [Decimal("0.45000000000000000002"), Decimal("0.45000000000000000003")]
    pq.write_table(pa.table({"v": pa.array(part, pa.decimal128(30, 20))}), tmp_path / "a.parquet")
    types = {"decimals": "DECIMAL(38, 20)", "texts": "String"}
    copies = {name: {"totals.total": type_} for name, type_ in types.items()} | {"undeclared": {}}
    topology = Topology(
        "sums",
        spout=FileSpout(f"{tmp_path}/*.parquet"),
        states=[
            State("totals", values={"total": Sum("v", "numeric")}),
            *(State(name, values={"total": Append("total", "numeric")}) for name in copies),
        ],
        steps=[
            Step("first", lambda batch: {"totals": batch}, feeds=["totals"]),
            *(
                Step(f"to_{name}", to_copies(name), feeds=[name], reads=["totals"], types=declared)
                for name, declared in copies.items()
            ),
        ],
        module=__name__,
    )
    pipe = pipeline(topology)
    pipe.emit(None)
    said = r"column total: 0.90000000000000000005 is no .* types=.'STATE.total': 'string'. of the"
    with pytest.raises(SchemaMismatch, match=said):
        pipe.transact(1)  # its last step
    staged = "SELECT total FROM reliability_contribution.sums__{}".format
    assert {name: rows(connection, staged(name)) for name in copies} == {
        "decimals": [(sum(part),)],
        "texts": [(sum(part),)],
        "undeclared": [],
    }


def test_texts_are_no_numbers_where_spark_compares_them(spark):
    """It would take 9 for greater than 10, and adds texts up as doubles."""
    frame = spark.sql("SELECT '9' AS v, 1L AS k, 1L AS _x, 1L AS _n")
    by_text = Latest("k", {"v": "numeric"}, "bigint")
    for value in (Max("v", "numeric"), by_text, Sum("v", "numeric"), Append("v", "numeric[]")):
        with pytest.raises(SchemaMismatch):
            reduce_frame(frame, stored_state(TOPOLOGY, State("s", values={"m": value})))


# --- texts of numbers in a binary COPY -----------------------------------------------------------

TEXT = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda value: f"{value:f}"),
    st.integers(-(10**60), 10**60).map(str),
    st.sampled_from([*NUMBERS, "-0", "+1", "-0.0000", "000123.4500", "10000", "0.00010000"]),
)


@pytest.mark.parametrize("type_", ["numeric", "numeric(1000,400)"])
def test_texts_become_the_numbers_that_postgres_reads(shared_connection, type_):
    allowed = TEXT if type_ == "numeric" else TEXT.filter(lambda text: "Inf" not in text)

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.none() | allowed, max_size=8))
    def holds(texts):
        batch = pa.record_batch({"n": pa.array(range(len(texts)), pa.int32()),
                                 "v": pa.array(texts, pa.string())})  # fmt: skip
        tx.run(SQL("TRUNCATE one"))
        batches = [batch.slice(0, 2), batch.slice(2)]
        stream = b"".join(encode(iter(batches), {"n": "integer", "v": type_}))
        tx.copy("COPY one FROM STDIN (FORMAT binary)", BytesIO(stream))
        found = [row["v"] for row in tx.all(SQL("SELECT v::text AS v FROM one ORDER BY n"))]
        cast = (
            f"SELECT CAST(t AS {type_})::text AS v FROM unnest(%(texts)s::text[])"
            " WITH ORDINALITY AS t(t, n) ORDER BY n"
        )
        assert found == [row["v"] for row in tx.all(SQL(cast), texts=texts)]

    with rolled_back(shared_connection) as tx:
        tx.run(SQL(f"CREATE TEMPORARY TABLE one (n integer, v {type_}) ON COMMIT DROP"))
        holds()


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("numeric", "1e3"),
        ("numeric", ".5"),
        ("numeric", ""),
        ("numeric", " 1"),
        ("numeric(3,1)", "1.25"),
        ("numeric(3,1)", "100"),
        ("numeric(3,1)", "Infinity"),
        ("numeric(2,4)", "0.01"),
        ("numeric", "1" * 16_384),  # Postgres's heads of numbers are 16 bits wide
        ("numeric(3,1)", "1." + "0" * 200_000),
    ],
)
def test_a_text_that_is_no_such_number_is_refused_and_never_rounded(type_, text):
    """V8: one with too many digits made its neighbours 0."""
    batch = pa.record_batch({"v": ["0", None, text]})
    with pytest.raises(SchemaMismatch, match=r"column v: .* is not a valid numeric"):
        list(encode(iter([batch]), {"v": type_}))
