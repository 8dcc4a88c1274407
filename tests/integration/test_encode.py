"""Rows in Postgres's binary format and as texts are the same rows."""

from __future__ import annotations

from decimal import Decimal
from io import BytesIO
from json import dumps
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg2.extras import execute_values
from psycopg2.sql import SQL

from reliability.core.errors import SchemaMismatch
from reliability.deployment.lazy import pa
from reliability.spark.frames.values import MAX_CHARACTERS_IN_ERROR
from reliability.spark.stage.encode import encode
from tests.support.fix_postgres import rolled_back
from tests.support.spark_rows import arrow_type

DAY = 86_400_000_000
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=9)
# years 1 to 9999, where Python has dates at all
DAYS = st.integers(-719_162, 2_932_896)
TIMES = st.integers(-719_162 * DAY, 2_932_896 * DAY)
SCALARS = {
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "numeric": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}E-2")),
    "numeric(14,2)": st.integers(-(10**14) + 1, 10**14 - 1).map(lambda n: Decimal(f"{n}E-2")),
    "real": st.floats(width=32),
    "double precision": st.floats(),
    "text": TEXT,
    "varchar": TEXT,
    "date": DAYS,
    "timestamp": TIMES,
    "timestamptz": TIMES,
    "boolean": st.booleans(),
    "uuid": st.uuids().map(str),
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
)
SHAPES: dict[str, dict[str, Any]] = {
    "scalars": {**SCALARS, "bytea": st.binary(max_size=9), "jsonb": JSON.map(dumps)},
    "arrays": {
        f"{type_}[]": st.lists(st.none() | values, max_size=4) for type_, values in SCALARS.items()
    },
}


@pytest.mark.parametrize("shapes", SHAPES)
def test_the_binary_way_and_texts_write_the_same(shared_connection, shapes):
    values = {type_: st.none() | value for type_, value in SHAPES[shapes].items()}
    columns = {f"v_{number}": type_ for number, type_ in enumerate(values)}
    listed = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
    differ = " UNION ALL ".join(
        f"SELECT '{type_}' AS type, one.{name}::text AS one, other.{name}::text AS other"
        f" FROM one FULL JOIN other USING (n)"
        f" WHERE one.{name}::text IS DISTINCT FROM other.{name}::text"
        for name, type_ in columns.items()
    )
    with rolled_back(shared_connection) as tx:
        for table in ("one", "other"):
            tx.run(SQL(f"CREATE TEMPORARY TABLE {table} (n integer, {listed}) ON COMMIT DROP"))

        @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(st.fixed_dictionaries(values), max_size=5), st.integers(0, 3))
        def compare(rows, skipped):
            of_columns = {name: [row[type_] for row in rows] for name, type_ in columns.items()}
            write_both(tx, columns, of_columns, len(rows), skipped)
            assert tx.all(SQL(differ)) == []
            found = tx.one(SQL("SELECT count(*) AS rows FROM one"))["rows"]
            assert found == max(len(rows) - skipped, 0)

        compare()


def write_both(tx, columns, values, number, skipped):
    """Fill both tables, in two batches, of which the first is a slice of Arrow arrays."""
    arrays = {name: column_of(arrow_type(type_), values[name]) for name, type_ in columns.items()}
    batch = pa.RecordBatch.from_pydict({"n": pa.array(range(number), pa.int32()), **arrays})
    rest = batch.slice(skipped)
    tx.run(SQL("TRUNCATE one, other"))
    batches = [rest.slice(0, 1), rest.slice(1)]
    binary = b"".join(encode(iter(batches), {"n": "integer", **columns}))
    tx.copy("COPY one FROM STDIN (FORMAT binary)", BytesIO(binary))
    rows = [row for each in batches for row in zip(*each.to_pydict().values(), strict=True)]
    as_texts = [(n, *map(as_text, values)) for n, *values in rows]
    casts = ", ".join(f"CAST(%s AS {type_})" for type_ in columns.values())
    execute_values(tx.cursor, "INSERT INTO other VALUES %s", as_texts, f"(%s, {casts})")


def as_text(value):
    """Write a value as a text that Postgres reads; arrays and bytes are psycopg2's to write."""
    if isinstance(value, list):
        return [as_text(element) for element in value]
    return value if value is None or isinstance(value, bytes) else str(value)


def column_of(arrow, values):
    inner = arrow.value_type if pa.types.is_list(arrow) else arrow
    return from_numbers(arrow, values) if pa.types.is_temporal(inner) else pa.array(values, arrow)


def test_the_texts_of_numbers_may_have_offsets_of_any_width():
    """spark.sql.execution.arrow.useLargeVarTypes is the user's."""
    numbers = ["12.5", None, "-0.001", "NaN"]
    columns = (pa.array(numbers, type_) for type_ in (pa.string(), pa.large_string()))
    batches = (pa.record_batch({"n": column}) for column in columns)
    one, other = (b"".join(encode(iter([batch]), {"n": "numeric"})) for batch in batches)
    assert one == other


def test_an_error_shows_the_start_of_a_wrong_uuid():
    batch = pa.record_batch({"id": ["x" * (MAX_CHARACTERS_IN_ERROR + 1)]})
    start = "x" * MAX_CHARACTERS_IN_ERROR
    with pytest.raises(SchemaMismatch, match=f"column id: '{start}' is not a valid uuid"):
        list(encode(iter([batch]), {"id": "uuid"}))


def from_numbers(arrow, values):
    """Make days and microseconds since 1970 dates and times: Python's own have other bounds."""
    if pa.types.is_list(arrow):
        flat = from_numbers(arrow.value_type, [e for value in values if value for e in value])
        ends = [0]
        for value in values:
            ends.append(ends[-1] + len(value or ()))
        missing = [value is None for value in values]
        offsets = pa.array([None if m else e for m, e in zip([*missing, False], ends, strict=True)],
                           pa.int32())  # fmt: skip
        return pa.ListArray.from_arrays(offsets, flat).cast(arrow)
    width = pa.int32() if pa.types.is_date32(arrow) else pa.int64()
    return pa.array(values, width).cast(arrow)


@pytest.mark.parametrize("type_", ["date", "timestamp", "timestamp with time zone", "date[]"])
def test_no_value_becomes_minus_infinity(type_):
    """Counted from Postgres's epoch, one day and one microsecond are its -infinity."""
    is_date = type_.startswith("date")
    lowest = -(2**31) + 10_957 if is_date else -(2**63) + 946_684_800_000_000
    numbers = pa.array([0, lowest, None], pa.int32() if is_date else pa.int64())
    values = numbers.cast(pa.date32() if is_date else pa.timestamp("us"))
    if type_.endswith("[]"):
        values = pa.ListArray.from_arrays(pa.array([0, 3], pa.int32()), values)
    with pytest.raises(SchemaMismatch, match="column at: a day or time is out of range"):
        list(encode(iter([pa.record_batch({"at": values})]), {"at": type_}))
