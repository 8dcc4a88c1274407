"""Malformed records of CSV and JSON lines: they fail, or go into the quarantine (V6, V8)."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from decimal import Decimal

import pytest

from reliability import (
    Append,
    Count,
    Csv,
    FileSpout,
    JsonLines,
    Latest,
    State,
    Sum,
    Topology,
    show_accounting,
)
from reliability.core.errors import (
    CorrectionRefused,
    InvalidDefinition,
    QuarantineFull,
    ReliabilityError,
    RowsUnaccounted,
    SchemaMismatch,
    SourceUnreadable,
)
from reliability.core.fold import Fold
from reliability.core.spout import BatchMeta, NoItems
from reliability.spark.frames.storable import unstorable
from reliability.spark.frames.values import translate_value_errors
from reliability.transaction.correct.quarantine import (
    edited_rows,
    exported,
    quarantined_rows,
    record_corrections,
)
from tests.support.fix_postgres import rows
from tests.support.variants import variants

SCHEMA = "id int, price decimal(10,2), note string"
CSV = b"""id,price,note
1,1.10,good
2,abc,a price that is none
3,2.00
4,3.00,"two
lines"
5,4.00,"closed" wrongly
6,5.005,too exact

7,\xff,not UTF-8
8,6.00,"never closed
9,7.00,good
"""
JSON = b"""{"id": 1, "price": 1.10, "note": "good"}
{"id": 2, "price": "abc"}
[{"id": 3}]
{"id": 4, "price": 3.00}
{"id": 5, "price": 4.00} {"id": 5}
{"id": 6, "price": 5.005}

{"id": 7, "note": "\xff"}
{"id": 8
{"id": 9, "price": 7.00, "note": {"x": 1.50}}
"""
FILES = {"csv": CSV, "jsonl": JSON}
TOTAL = "SELECT n, price FROM totals"
ACCOUNTS = "SELECT emitted, applied, quarantined, verdict FROM reliability.accounts"


def meta_of(spout):
    items = tuple(spout.plan(None, NoItems()))
    return BatchMeta(items=items, emitted=spout.count(items))


def pass_on(batch):
    return {"totals": batch}


def prices(tmp_path, format, process=pass_on, **options):
    header = options.pop("header", True)
    options = {"malformed": "quarantine", **options}
    read_as = Csv(header=header, **options) if format == "csv" else JsonLines(**options)
    return Topology(
        "prices",
        spout=FileSpout(f"{tmp_path}/*.{format}", 9, format=read_as, schema=SCHEMA),
        process=process,
        states=[State("totals", values={"n": Count(), "price": Sum("price", "numeric(14,2)")})],
    )


def quarantined(connection):
    found = rows(
        connection, "SELECT reason, row, contents FROM reliability.quarantine ORDER BY row"
    )
    return [(reason, row, json.loads(contents)) for reason, row, contents in found]


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_what_cannot_be_read_is_quarantined_and_the_rest_counts(
    tmp_path, connection, pipeline, format
):
    (tmp_path / f"a.{format}").write_bytes(FILES[format])
    pipe = pipeline(prices(tmp_path, format))
    assert pipe.emit(None) == [1]
    pipe.transact(1)
    assert rows(connection, TOTAL) == [(3, Decimal("11.10"))]
    assert rows(connection, ACCOUNTS) == [(9, 3, 6, "EXACT")]
    found = quarantined(connection)
    wrong = "INVALID_VALUE: column price is not a valid decimal(10,2)"
    if format == "csv":
        reasons = [wrong, "WRONG_FIELD_COUNT", "NOT_CSV", wrong, "INVALID_ENCODING", "NOT_CSV"]
        lines, records = [3, 4, 7, 8, 10, 11], ["2,abc,a price that is none", "3,2.00"]
    else:
        reasons = [wrong, "NOT_JSON", "NOT_JSON", wrong, "INVALID_ENCODING", "NOT_JSON"]
        lines, records = [2, 3, 5, 6, 8, 9], ['{"id": 2, "price": "abc"}', '[{"id": 3}]']
    assert [reason for reason, _, _ in found] == reasons
    assert [row for _, row, _ in found] == [1, 2, 4, 5, 6, 7]
    assert [contents["_line"] for _, _, contents in found] == lines
    assert [contents["_record"].strip() for _, _, contents in found[:2]] == records
    assert found[0][2]["id"] == 2
    assert "\\xff" in found[4][2]["_record"]


def of_a_checkpoint(batch):
    return {"totals": show_accounting(batch).localCheckpoint()}


def test_malformed_rows_count_although_the_plan_of_a_checkpoint_does_not_show_them(
    tmp_path, connection, pipeline
):
    (tmp_path / "a.csv").write_bytes(CSV)
    pipe = pipeline(prices(tmp_path, "csv", of_a_checkpoint))
    pipe.emit(None)
    pipe.transact(1)
    assert rows(connection, ACCOUNTS) == [(9, 3, 6, "EXACT")]
    assert len(quarantined(connection)) == 6


def test_by_default_nothing_is_allocated_for_a_file_with_such_a_record(tmp_path):
    wrong = {"csv": "line 7: ',' expected", "jsonl": "line 3: it is not one JSON object"}
    for format, text in FILES.items():
        (tmp_path / f"a.{format}").write_bytes(text.replace(b"\xff", b"y"))
        spout = prices(tmp_path, format, malformed="fail").spout
        with pytest.raises(SourceUnreadable, match=wrong[format]):
            spout.plan(None, NoItems())


def test_a_masked_record_shows_its_place_and_reason_alone(tmp_path, connection, pipeline):
    (tmp_path / "a.csv").write_bytes(CSV)
    pipe = pipeline(prices(tmp_path, "csv", mask_malformed=True))
    pipe.emit(None)
    pipe.transact(1)
    first = quarantined(connection)[0]
    assert first[:2] == ("INVALID_VALUE: column price is not a valid decimal(10,2)", 1)
    masked = {"_line": 3, "_why": "***", "_record": "***"}
    assert first[2] == {**masked, "id": None, "price": None, "note": None}
    assert rows(connection, TOTAL) == [(3, Decimal("11.10"))]


def test_more_than_the_share_of_a_batch_fails_it(tmp_path, connection, pipeline):
    (tmp_path / "a.csv").write_bytes(CSV)
    topology = replace(prices(tmp_path, "csv"), max_quarantined_share=0.5)
    pipe = pipeline(topology)
    pipe.emit(None)
    with pytest.raises(QuarantineFull, match="more than 4 rows are to be quarantined"):
        pipe.run_step(pipe.begin(1))
    assert rows(connection, "SELECT count(*) FROM totals") == [(0,)]
    assert replace(topology, max_quarantined_share=0.29).most_quarantined(100) == 29
    with pytest.raises(InvalidDefinition, match="max_quarantined_share must be from 0 to 1"):
        replace(topology, max_quarantined_share=1.5)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"malformed": "ignore"}, "malformed is 'ignore'"),
        ({"encoding": "utf-9"}, "no encoding 'utf-9'"),
        ({"encoding": "rot13"}, "no encoding 'rot13'"),
        ({"counted": True, "malformed": "quarantine"}, "only counted is read by Spark"),
        ({"counted": True, "mask_malformed": True}, "only counted is read by Spark"),
        ({"counted": True, "encoding": "latin-1"}, "only counted is read by Spark: in UTF-8"),
    ],
)
@pytest.mark.parametrize("format", [Csv, JsonLines])
def test_options_that_do_not_go_together_are_refused(format, options, why):
    with pytest.raises(InvalidDefinition, match=f"{format.__name__}: .*{why}"):
        format(**options)


# --- identity ------------------------------------------------------------------------------------


def lose_and_double(batch):
    """Lose one row and double another: their number is right."""
    first = batch.where("id <> 2")
    return {"totals": first.unionByName(batch.where("id = 3"))}


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_a_lost_and_a_doubled_record_are_named(tmp_path, pipeline, format):
    text = {"csv": "1,1,x\n\n2,1,x\n3,1,x\n", "jsonl": '{"id":1}\n\n{"id":2}\n{"id":3}\n'}
    (tmp_path / f"a.{format}").write_text(text[format])
    topology = replace(
        prices(tmp_path, format, header=False, malformed="fail"),
        process=lose_and_double,
        steps=(),
        module="",
    )
    pipe = pipeline(topology)
    pipe.emit(None)
    told = rf'lost, for example row 1 of a\.{format}: \{{"id":2'
    with pytest.raises(
        RowsUnaccounted, match=rf"{told}.*doubled, for example row 2 of a\.{format}"
    ):
        pipe.run_step(pipe.begin(1))


@pytest.mark.slow
def test_encodings_compression_and_headers(tmp_path, spark):
    text = 'id,price,note\r\n1,1.10,"gr\u00fc\u00df\r\ndich"\r\n2,2.20,\r\n'
    wanted = [(1, Decimal("1.10"), "gr\u00fc\u00df\ndich"), (2, Decimal("2.20"), None)]
    for number, encoding in enumerate(("utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16")):
        path = tmp_path / f"{number}.csv.gz"
        path.write_bytes(gzip.compress(text.encode(encoding)))
        for malformed in ("fail", "quarantine"):
            spout = prices(tmp_path, "csv", malformed=malformed).spout
            name = "utf-8" if encoding == "utf-8-sig" else encoding
            spout = replace(
                spout, pattern=str(path), format=replace(spout.file_format, encoding=name)
            )
            meta = meta_of(spout)
            frame = spout.frame(spark, meta)
            found = sorted(tuple(row)[:3] for row in frame.collect())
            assert found == wanted, (encoding, malformed)
            ids = frame.select("_x", "_metadata.file_path", "_metadata.row_index").collect()
            assert Fold.of(Fold(row["_x"], 1) for row in ids) == meta.emitted
            assert [(p, r) for _, p, r in ids] == [(str(path), 0), (str(path), 1)]
    spout = replace(spout, schema="id int, note string, price decimal(10,2)")
    with pytest.raises(SchemaMismatch, match=r"the header of .* is"), translate_value_errors():
        spout.frame(spark, meta_of(spout)).collect()


def test_a_record_has_the_same_id_however_spark_cuts_the_work(tmp_path, spark):
    for name in "abc":
        lines = (f'{{"id": {n}, "note": "{name}"}}\n' for n in range(25_000))
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    spout = prices(tmp_path, "jsonl", malformed="fail").spout
    meta = meta_of(spout)
    frame = spout.frame(spark, meta)
    found = {row["note"]: row for row in frame.where("id = 24999").collect()}
    again = {row["note"]: row for row in frame.repartition(7).where("id = 24999").collect()}
    assert found == again
    fold = frame.selectExpr("bit_xor(_x) AS x", "sum(_n) AS n").collect()[0]
    assert Fold(fold["x"], fold["n"]) == meta.emitted


# --- exactness -----------------------------------------------------------------------------------


def test_numbers_and_objects_of_json_are_read_as_they_stand(tmp_path, spark):
    """Spark's from_json rounds a number on its way to a string."""
    line = '{"d": 1234567890123456789.0123456789, "s": 1.50, "o": {"k": [1.50, true, null, "x"]}}'
    plain = '{"d": 1234567890123456789.0123456789, "s": 1.50, "o": 1e2}'
    (tmp_path / "a.jsonl").write_text(f"{line}\n{plain}\n")
    schema = "d decimal(38,10), s string, o string"
    spout = FileSpout(f"{tmp_path}/*", format=JsonLines(), schema=schema)
    found = [tuple(row)[:3] for row in spout.frame(spark, meta_of(spout)).collect()]
    number = Decimal("1234567890123456789.0123456789")
    assert found == [(number, "1.50", '{"k": [1.50, true, null, "x"]}'), (number, "1.50", "1e2")]


def test_a_column_that_no_state_uses_must_be_valid_too(tmp_path, connection, pipeline):
    (tmp_path / "a.csv").write_text("1,1.00,x\ntwo,1.00,y\n")
    pipe = pipeline(prices(tmp_path, "csv", header=False, malformed="fail"))
    pipe.emit(None)
    with pytest.raises(SchemaMismatch, match=r"record 2 of .*column id: 'two' is not a valid int"):
        pipe.run_step(pipe.begin(1))


# --- values that a state cannot store ------------------------------------------------------------


def each(batch):
    return {"notes": batch}


def test_a_value_that_its_state_cannot_store_is_quarantined(tmp_path, connection, pipeline):
    uuid = "12345678-1234-1234-1234-123456789abc"
    kept = {"uid": uuid, "note": "fine", "price": 9.99, "doc": '{"a": 1}', "tags": ["x", None]}
    wrong = {"uid": "no uuid", "note": "a\0b", "price": 1e3, "doc": "{", "tags": ["x", "a\0"]}
    lines = [kept, *({**kept, name: value} for name, value in wrong.items()), {"note": None}]
    lines.append({**kept, "doc": r'{"a": "\u0000"}'})
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    types = {
        "uid": "uuid",
        "note": "text",
        "price": "numeric(5,2)",
        "doc": "jsonb",
        "tags": "text[]",
    }
    topology = Topology(
        "notes",
        spout=FileSpout(
            f"{tmp_path}/*",
            format=JsonLines(),
            schema="uid string, note string, price decimal(10,2), doc string, tags array<string>",
        ),
        process=each,
        states=[
            State("notes", values={name: Append(name, type_) for name, type_ in types.items()})
        ],
    )
    pipe = pipeline(replace(topology, malformed="quarantine"))
    pipe.emit(None)
    pipe.transact(1)
    assert rows(connection, "SELECT note FROM notes ORDER BY note") == [("fine",), (None,)]
    reasons = [f"INVALID_VALUE: column {name} is not a valid {types[name]}" for name in wrong]
    found = [(reason, row) for reason, row, _ in quarantined(connection)]
    assert found == [*zip(reasons, range(1, 6), strict=True), (reasons[3], 7)]
    with pytest.raises(InvalidDefinition, match="malformed is 'drop'"):
        replace(topology, malformed="drop")


UUID = "12345678-1234-1234-1234-123456789abc"
# the type in Spark and in Postgres, and values
CLOSE: list[tuple[str, str, list[str]]] = [
    ("decimal(38,4)", "numeric(30,4)", ["1", "-99999999999999999999999999.9999", "1e26"]),
    ("decimal(38,0)", "numeric(40,0)", ["1", "9" * 38]),
    ("decimal(38,25)", "numeric(30,25)", ["99999.9999999999999999999999999", "1e5"]),
    ("decimal(38,25)", "numeric(20,25)", ["0.0000099999999999999999999", "1e-5"]),
    ("bigint", "numeric(4,1)", ["-999", "1000", "-9223372036854775808"]),
    ("tinyint", "numeric(2,0)", ["99", "100", "-128"]),
    ("string", "numeric(4,2)", ["-99.9900", "100", "NaN", "Infinity", "x"]),
    ("string", "uuid", [UUID.replace("-", "").upper(), f"{{{UUID}}}", f"{{{UUID}", f"{UUID}}}"]),
    ("string", "jsonb", ['{"a": 1, "a": 2}', " [1, null]\n", "null", "7" * 2000, r'"\\u0000"']),
    ("string", "jsonb", ["", "1 2", '{"a": 1} x', "{}]", "1}", "1,2", '1,"b":2', "1]", "],["]),
    ("string", "jsonb", ['1},{"v":2', "NaN", "'x'", r'"\ud800"', r'"\ud83d\ude00"', '"a\tb"']),
]


FIRST = {(case[0][:3], case[1][:4]): case for case in reversed(CLOSE)}  # of each pair of types


@pytest.mark.parametrize(
    ("in_spark", "in_postgres", "values"), variants(CLOSE, lambda case: case in FIRST.values())
)
def test_the_rows_that_leave_are_those_that_postgres_rejects(
    spark, connection, in_spark, in_postgres, values
):
    """V8: no good row leaves, and no bad one fails the rest."""
    from pyspark.sql import functions as F

    frame = spark.createDataFrame([(text,) for text in values], "text string")
    for type_ in (in_spark, f"array<{in_spark}>"):
        is_array = type_ != in_spark
        if is_array and in_postgres == "jsonb":
            continue
        value = F.col("text").cast(in_spark)
        typed = frame.select("text", (F.array(value) if is_array else value).alias("v"))
        why = unstorable(
            typed, State("s", values={"v": Append("v", in_postgres + "[]" * is_array)})
        )
        is_fine = F.lit(True) if why is None else why.isNull()
        kept = [row["text"] for row in typed.where(is_fine).collect()]
        assert kept == [text for text in values if stores(connection, text, in_postgres)]


def test_what_orders_rows_and_what_becomes_json_is_looked_at(spark):
    """V8: neither is a column with the type of a value."""
    frame = spark.createDataFrame([("a",), ("a\0",)], "text string")
    frame = frame.selectExpr("text", "named_struct('x', text) AS doc", "1 AS n")
    latest = State("s", key={"n": "bigint"}, values={"v": Latest("n", by={"text": "text"})})
    for state in (latest, State("s", values={"doc": Append("doc", "jsonb")})):
        why = unstorable(frame, state)
        assert why is not None
        assert [row["text"] for row in frame.where(why.isNull()).collect()] == ["a"]


def stores(connection, text, type_):
    try:
        with connection.transaction() as tx:
            tx.cursor.execute(f"SELECT CAST(%s AS {type_})", (text,))
    except ReliabilityError:
        return False
    return True


def test_rows_with_texts_and_days_that_postgres_lacks_are_quarantined(
    tmp_path, connection, pipeline
):
    """V8: bytes that are not UTF-8, and days before 4714 BC or far ahead."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    first, far = -2_440_588, 2**31 - 1
    microseconds = [0, first * 86_400_000_000, first * 86_400_000_000 - 1, -(2**63), 2**63 - 1, 0]
    days = pa.array([first, first - 1, 0, 0, far, 0], pa.int32()).cast(pa.date32())
    raw = pa.array([b"x", b"x", b"x", b"x", b"x", b"b\xffd"], pa.binary()).buffers()
    table = {
        "note": pa.Array.from_buffers(pa.string(), 6, raw),
        "day": days,
        "at": pa.array(microseconds, pa.int64()).cast(pa.timestamp("us", "UTC")),
        "local": pa.array(microseconds, pa.int64()).cast(pa.timestamp("us")),
    }
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    types = {"note": "text", "day": "date", "at": "timestamptz", "local": "timestamp"}
    values = {name: Append(name, type_) for name, type_ in types.items()}
    topology = Topology(
        "notes",
        spout=FileSpout(f"{tmp_path}/*"),
        process=each,
        states=[State("notes", values=values)],
        malformed="quarantine",
    )
    pipe = pipeline(topology)
    pipe.emit(None)
    pipe.transact(1)
    kept = rows(connection, "SELECT day::text, local::text FROM notes ORDER BY day")
    assert kept == [("4714-11-24 BC", "1970-01-01 00:00:00")]
    wrong = {1: "day", 2: "at", 3: "at", 4: "day", 5: "note"}
    assert [(row, reason.split()[2]) for reason, row, _ in quarantined(connection)] == [
        *wrong.items()
    ]


# --- back from the quarantine --------------------------------------------------------------------


def test_a_malformed_row_comes_back_with_edited_columns(tmp_path, connection, pipeline):
    (tmp_path / "a.csv").write_bytes(CSV)
    pipe = pipeline(prices(tmp_path, "csv"))
    pipe.emit(None)
    pipe.transact(1)
    found = quarantined_rows(connection, "prices", None)
    lines = [exported(row) for row in found]
    assert lines[0]["values"]["price"] is None
    assert lines[0]["row"] == 1
    with pytest.raises(CorrectionRefused):
        edited_rows(found, {1: with_values(lines[0], _record="2,2.50,note")})
    edited = {
        1: with_values(lines[0], price=Decimal("2.50")),
        2: with_values(lines[1], id=3, price=Decimal("2.00")),
    }
    record_corrections(connection, "prices", edited_rows(found, edited), "a test", "ann")
    pipe.max_tries += 1
    assert pipe.emit(None) == [1]
    pipe.transact(1)
    assert rows(connection, TOTAL) == [(5, Decimal("15.60"))]
    assert len(quarantined(connection)) == 4


def into_both(batch):
    return {"a": batch, "b": batch}


def test_a_row_that_two_states_cannot_store_is_one_row_of_the_share(tmp_path, connection, pipeline):
    lines = [
        json.dumps({"id": text}) for text in ("x", "y", "12345678-1234-1234-1234-123456789abc")
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    states = [State(name, values={"id": Append("id", "uuid")}) for name in "ab"]
    spout = FileSpout(f"{tmp_path}/*", format=JsonLines(), schema="id string")
    topology = Topology("two", spout=spout, process=into_both, states=states)
    pipe = pipeline(replace(topology, malformed="quarantine", max_quarantined_share=0.7))
    pipe.emit(None)
    pipe.transact(1)
    assert len(quarantined(connection)) == 4
    assert rows(connection, "SELECT count(*) FROM a, b") == [(1,)]


def with_values(line, **values):
    return {**line, "values": {**line["values"], **values}}


def test_a_masked_row_cannot_be_edited(tmp_path, connection, pipeline):
    (tmp_path / "a.csv").write_bytes(CSV)
    pipe = pipeline(prices(tmp_path, "csv", mask_malformed=True))
    pipe.emit(None)
    pipe.transact(1)
    found = quarantined_rows(connection, "prices", None)
    with pytest.raises(CorrectionRefused):
        edited_rows(found, {1: with_values(exported(found[0]), price=Decimal("2.50"))})
