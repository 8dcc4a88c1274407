"""Keys and values of every type, from Arrow through COPY into both tables and through a replay."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from hashlib import md5
from math import inf, nan
from typing import Any
from uuid import UUID

import pytest
from psycopg2.extras import register_uuid
from psycopg2.sql import SQL

from reliability import Count, Latest, Max, State
from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import SchemaMismatch, TextNotStorable, UnexpectedAnswer
from reliability.deployment.lazy import pa
from reliability.spark.stage.stage_task import BinaryRows
from reliability.states.digest import DIGEST
from tests.support.fix_postgres import rolled_back
from tests.support.one_state import OneState
from tests.support.texts import TEXTS

UTC = timezone.utc
IDS = ["5f0c8f2e-2a0b-4b7a-9d55-1f6c2b1d0001", "ffffffff-ffff-ffff-ffff-ffffffffffff"]


def shapes() -> dict[str, tuple[Any, list[Any]]]:
    """Postgres type -> (Arrow type, values); the first two differ, all of them are unlike."""
    stamps = [datetime(1997, 1, 2, 3, 4, 5, 678901), datetime(1, 1, 1), datetime(9999, 12, 31)]
    scalars: dict[str, tuple[Any, list[Any]]] = {
        "smallint": (pa.int16(), [-(2**15), 2**15 - 1]),
        "integer": (pa.int32(), [-(2**31), 2**31 - 1]),
        "bigint": (pa.int64(), [-(2**63), 2**63 - 1]),
        "numeric": (pa.decimal128(38, 9), [Decimal("-1E-9"), Decimal("12345678901234567890")]),
        "numeric(14,2)": (pa.decimal128(14, 2), [Decimal("-0.01"), Decimal("999999999999.99")]),
        "real": (pa.float32(), [1.5, inf, -inf, nan]),
        "double precision": (pa.float64(), [0.1, 5e-324, 1.7976931348623157e308, inf, -inf, nan]),
        "text": (pa.string(), TEXTS),
        "varchar": (pa.string(), TEXTS),
        "date": (pa.date32(), [date(1, 1, 1), date(1996, 2, 29), date(9999, 12, 31)]),
        "timestamp": (pa.timestamp("us"), stamps),
        "timestamptz": (
            pa.timestamp("us", "Europe/Vienna"),
            [s.replace(tzinfo=UTC) for s in stamps],
        ),
        "boolean": (pa.bool_(), [True, False]),
        "uuid": (pa.string(), IDS),
    }
    arrays = {
        f"{type_}[]": (pa.list_(arrow), [values, values[:1], [None, *values], []])
        for type_, (arrow, values) in scalars.items()
    }
    return scalars | arrays | {
        "bytea": (pa.binary(), [b"\x00\xff\\x", b"", "ü".encode()]),
        "jsonb": (pa.string(), ['{"a": [1, null, "ü\\"\\\\"]}', "[]", "null", '"x"', "1.50"]),
    }  # fmt: skip


def shown(value):
    """Return a value as text by which it can be compared, whatever the driver made of it."""
    if isinstance(value, list):
        return repr([shown(element) for element in value])
    if isinstance(value, memoryview):
        value = bytes(value)
    if isinstance(value, datetime) and value.tzinfo:
        value = value.astimezone(UTC)
    return repr(str(value) if isinstance(value, UUID) else value)


def copy_in(one, txid, attempt_id, columns):
    """Stage columns of Arrow as a Spark task does."""
    number = len(next(iter(columns.values())))
    rest = {c: [1] * number for c in one.tables.reduced_columns() if c not in columns}
    data = {**columns, **rest, DIGEST: [0] * number}
    names = (*one.tables.reduced_columns(), DIGEST)
    batch = pa.RecordBatch.from_pydict({name: data[name] for name in names})
    one.make_attempt(txid, attempt_id, number)
    parts = iter([batch.slice(0, 1), batch.slice(1)])
    attempt = TransactionAttempt(txid, attempt_id)
    stream = BinaryRows(parts, one.tables.copied_types(), attempt)
    one.tx.copy(one.tables.copy().as_string(one.tx.cursor), stream)
    assert stream.rows == number


@pytest.mark.parametrize("type_", shapes())
def test_a_value_survives_as_key_and_as_value(shared_connection, type_):
    arrow, values = shapes()[type_]
    column = pa.array([*values, None], arrow)
    with rolled_back(shared_connection) as tx:
        register_uuid(conn_or_curs=tx.cursor)
        value = Latest("v", {"d": "bigint"}, type_)
        one = OneState(tx, State("s", key={"k": type_}, values={"n": Count(), "v": value}))
        for txid in (1, 2):
            copy_in(one, txid, 0, {"k": column, "v": column})
            one.change(txid, 0, None)
        read = "k, v" if type_ != "jsonb" else "k::text, v::text"
        select = SQL(f"SELECT n, {read} FROM public.s")
        found = [(row["n"], shown(row["k"]), shown(row["v"])) for row in tx.all(select)]
        # every key found its row again, NULL and NaN too
        assert sorted(found) == sorted((2, shown(v), shown(v)) for v in column.to_pylist())

        copy_in(one, 2, 1, {"k": column[:1], "v": column[-1:]})
        one.change(2, 1, 0)
        assert one.select("n") == [*[(1,)] * (len(column) - 1), (2,)]
        assert tx.one(SQL("SELECT count(*) AS c FROM public.s WHERE n = 2 AND v IS NULL"))["c"] == 1


def test_zeros_are_one_key_and_so_are_nans(shared_connection):
    """Spark groups them so, and so do Postgres's unique keys; what is no key keeps its sign."""
    column = pa.array([0.0, -0.0, nan, -nan])
    with rolled_back(shared_connection) as tx:
        one = OneState(
            tx,
            State("s", key={"k": "double precision"}, values={"n": Count(), "v": Max("v", "real")}),
        )
        for txid in (1, 2):
            copy_in(one, txid, 0, {"k": column, "v": pa.array([-0.0] * 4, pa.float32())})
            one.change(txid, 0, None)
        assert one.select("k::text, n, v::text") == [("0", 4, "-0"), ("NaN", 4, "-0")]


def test_what_postgres_holds_for_one_key_is_one_key(shared_connection):
    """Two texts in Spark may be one uuid or one jsonb: the fold in Postgres takes them for one."""
    with rolled_back(shared_connection) as tx:
        one = OneState(tx, State("s", key={"i": "uuid", "j": "jsonb"}, values={"n": Count()}))
        columns = {
            "i": pa.array([IDS[0], IDS[0].upper()]),
            "j": pa.array(['{"a":1,"b":2}', '{"b": 2, "a": 1}']),
        }
        copy_in(one, 1, 0, columns)
        one.change(1, 0, None)
        copy_in(one, 1, 1, columns)
        one.change(1, 1, 0)
        assert one.select("n") == [(2,)]


def test_values_are_as_large_as_postgres_takes_them(shared_connection):
    text, document = "ü\n" * 10_000_000, json.dumps({"a": ["x" * 100] * 50_000})
    values = {"t": Latest("t", {"d": "bigint"}, "text"), "j": Latest("j", {"d": "bigint"}, "jsonb")}
    with rolled_back(shared_connection) as tx:
        one = OneState(tx, State("s", values=values))
        for txid in (1, 2):
            columns = {"t": pa.array([text]), "j": pa.array([document])}
            copy_in(one, txid, 0, {"_key": pa.array([True]), **columns})
            one.change(txid, 0, None)
        assert one.select("octet_length(t), md5(t)") == [
            (30_000_000, md5(text.encode()).hexdigest())
        ]
        assert one.select("jsonb_array_length(j->'a')") == [(50_000,)]


@pytest.mark.parametrize(
    ("type_", "value", "error"),
    [
        ("uuid", "no uuid", SchemaMismatch),
        ("uuid", "{" + IDS[0], SchemaMismatch),
        ("uuid[]", [IDS[0], "no uuid"], SchemaMismatch),
        ("jsonb", "{", UnexpectedAnswer),
        ("text", "a\0b", TextNotStorable),
        ("numeric(5,2)", Decimal("1234.5"), UnexpectedAnswer),
    ],
)
def test_what_is_no_value_of_the_type_is_refused(shared_connection, type_, value, error):
    with pytest.raises(error):
        stage_one(shared_connection, type_, pa.array([value]))


@pytest.mark.parametrize(
    ("type_", "number", "error"),
    [
        ("date", 2**31 - 1, UnexpectedAnswer),
        ("date", -(2**31), SchemaMismatch),
        ("timestamp", -211_810_204_800_000_000, UnexpectedAnswer),  # before 4713 BC
        ("timestamp", -(2**63), SchemaMismatch),
        ("timestamptz", -(2**63), SchemaMismatch),
        ("timestamptz[]", -(2**63), SchemaMismatch),
    ],
)
def test_a_time_before_or_after_those_of_postgres_is_refused(
    shared_connection, type_, number, error
):
    is_date = type_ == "date"
    zone = "UTC" if type_.startswith("timestamptz") else None
    column = pa.array([number], pa.int32() if is_date else pa.int64())
    column = column.cast(pa.date32() if is_date else pa.timestamp("us", zone))
    if type_.endswith("[]"):
        column = pa.ListArray.from_arrays([0, 1], column)
    with pytest.raises(error):
        stage_one(shared_connection, type_, column)


def stage_one(shared_connection, type_, column):
    with rolled_back(shared_connection) as tx:
        one = OneState(tx, State("s", values={"v": Latest("v", {"d": "bigint"}, type_)}))
        copy_in(one, 1, 0, {"_key": pa.array([True]), "v": column})
