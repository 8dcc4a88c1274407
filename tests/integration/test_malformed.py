"""Malformed records of CSV and JSON lines: they fail, or go into the quarantine (V6, V8)."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from decimal import Decimal
from itertools import zip_longest

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
from reliability.core.set_aside import MALFORMED
from reliability.core.spout import NoItems
from reliability.deployment.lazy import pa, pq
from reliability.spark.frames.storable import unstorable
from reliability.spark.frames.values import translate_value_errors
from tests.support.accounts import Called, fold_of
from tests.support.batches import meta_of
from tests.support.fix_postgres import rows
from tests.support.functions import F
from tests.support.quarantined import compare, correct, edit, lines

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
WRONG = "INVALID_VALUE: column price is not a valid decimal(10,2)"
# why a record is malformed, the number of its first line, and two of the records
TOLD = {
    "csv": (
        [WRONG, "WRONG_FIELD_COUNT", "NOT_CSV", WRONG, "INVALID_ENCODING", "NOT_CSV"],
        [3, 4, 7, 8, 10, 11],
        ["2,abc,a price that is none", "3,2.00"],
    ),
    "jsonl": (
        [WRONG, "NOT_JSON", "NOT_JSON", WRONG, "INVALID_ENCODING", "NOT_JSON"],
        [2, 3, 5, 6, 8, 9],
        ['{"id": 2, "price": "abc"}', '[{"id": 3}]'],
    ),
}


def prices(folder, format, process=lambda batch: {"totals": batch}, names=("totals",), **options):
    header = options.pop("header", True)
    options = {"malformed": "quarantine", **options}
    read_as = Csv(header=header, **options) if format == "csv" else JsonLines(**options)
    values = {"n": Count(), "price": Sum("price", "numeric(14,2)")}
    return Topology(
        "prices",
        spout=FileSpout(f"{folder}/*.{format}", 9, format=read_as, schema=SCHEMA),
        process=process,
        states=[State(name, values=values) for name in names],
    )


def quarantined(connection):
    found = rows(
        connection, "SELECT reason, row, contents FROM reliability.quarantine ORDER BY row, reason"
    )
    return [(reason, row, json.loads(contents)) for reason, row, contents in found]


@pytest.mark.parametrize("format", FILES)
def test_what_cannot_be_read_is_quarantined_and_the_rest_counts(tmp_path, spark, format):
    (tmp_path / f"a.{format}").write_bytes(FILES[format])
    called = Called.of(spark, prices(tmp_path, format))
    assert called.unaccounted() == []
    counted = called.processed.frames["totals"].selectExpr("count(*)", "sum(price)").collect()
    assert counted == [(3, Decimal("11.10"))]
    found = called.processed.quarantined
    reasons, lines, records = TOLD[format]
    assert [(one.reason, one.row) for one in found] == [
        *zip(reasons, [1, 2, 4, 5, 6, 7], strict=True)
    ]
    contents = [json.loads(one.contents) for one in found]
    assert [each["_line"] for each in contents] == lines
    assert [each["_record"].strip() for each in contents[:2]] == records
    assert contents[0]["id"] == 2
    assert "\\xff" in contents[4]["_record"]


def test_malformed_rows_count_behind_a_checkpoint_and_come_back_with_edited_columns(
    tmp_path, connection, pipeline, monkeypatch
):
    """V9: the plan of a checkpoint does not show them; and they are found in another home."""
    old, new = tmp_path / "release 1", tmp_path / "release 2"
    (old / "in").mkdir(parents=True)
    (old / "in" / "a.csv").write_bytes(CSV)
    monkeypatch.setenv("RELIABILITY_HOME", str(old))

    def process(batch):
        return {"totals": batch, "of_checkpoint": show_accounting(batch).localCheckpoint()}

    pipe = pipeline(prices("in", "csv", process, ("totals", "of_checkpoint"))).take_in()
    assert rows(connection, TOTAL) == [(3, Decimal("11.10"))]
    accounts = "SELECT emitted, applied, quarantined, verdict FROM reliability.accounts"
    assert rows(connection, accounts) == [(9, 3, 6, "EXACT")] * 2
    assert [reason for reason, _, _ in quarantined(connection)] == TOLD["csv"][0]

    first, second, *_ = lines(connection, "prices")
    assert first["values"]["price"] is None
    assert (first["item"], first["row"]) == ("in/a.csv", 1)
    with pytest.raises(CorrectionRefused):
        compare(connection, "prices", edit(first, _record="2,2.50,note"))
    better = edit(first, price=Decimal("2.50")), edit(second, id=3, price=Decimal("2.00"))
    correct(connection, "prices", *better)
    old.rename(new)
    monkeypatch.setenv("RELIABILITY_HOME", str(new))
    pipe.replay(1)
    assert rows(connection, TOTAL) == [(5, Decimal("15.60"))]
    assert len(quarantined(connection)) == 4


def test_by_default_nothing_is_allocated_for_a_file_with_such_a_record(tmp_path):
    wrong = {"csv": "line 7: ',' expected", "jsonl": "line 3: it is not one JSON object"}
    for format, text in FILES.items():
        (tmp_path / f"a.{format}").write_bytes(text.replace(b"\xff", b"y"))
        spout = prices(tmp_path, format, malformed="fail").spout
        with pytest.raises(SourceUnreadable, match=wrong[format]):
            spout.plan(None, NoItems())


def test_a_masked_record_shows_its_place_and_reason_alone_and_cannot_be_edited(
    tmp_path, connection, pipeline
):
    (tmp_path / "a.csv").write_bytes(CSV)
    pipeline(prices(tmp_path, "csv", mask_malformed=True)).take_in()
    masked = {"_line": 3, "_why": "***", "_record": "***"}
    contents = {**masked, "id": None, "price": None, "note": None}
    assert quarantined(connection)[0] == (WRONG, 1, contents)
    assert rows(connection, TOTAL) == [(3, Decimal("11.10"))]
    first, *_ = lines(connection, "prices")
    with pytest.raises(CorrectionRefused):
        compare(connection, "prices", edit(first, price=Decimal("2.50")))


def test_more_than_the_share_of_a_batch_fails_it(tmp_path, spark):
    (tmp_path / "a.csv").write_bytes(CSV)
    topology = replace(prices(tmp_path, "csv"), max_quarantined_share=0.5)
    with pytest.raises(QuarantineFull, match="more than 4 rows are to be quarantined"):
        Called.of(spark, topology)
    assert replace(topology, max_quarantined_share=0.29).most_quarantined(100) == 29
    assert replace(topology, max_quarantined=0).most_quarantined(100) == 0
    # one row of which fan_out() has made many was refused by default
    assert replace(topology, max_quarantined_share=1).most_quarantined(1) == 1000
    with pytest.raises(InvalidDefinition, match="max_quarantined_share must be from 0 to 1"):
        replace(topology, max_quarantined_share=1.5)


def test_options_that_do_not_go_together_are_refused():
    for options, why in (
        ({"malformed": "ignore"}, "malformed is 'ignore'"),
        ({"encoding": "utf-9"}, "no encoding 'utf-9'"),
        ({"encoding": "rot13"}, "no encoding 'rot13'"),
        ({"counted": True, "malformed": "quarantine"}, "only counted is read by Spark"),
        ({"counted": True, "mask_malformed": True}, "only counted is read by Spark"),
        ({"counted": True, "encoding": "latin-1"}, "only counted is read by Spark: in UTF-8"),
    ):
        for read_as in (Csv, JsonLines):
            with pytest.raises(InvalidDefinition, match=f"{read_as.__name__}: .*{why}"):
                read_as(**options)


# --- identity ------------------------------------------------------------------------------------


def lose_and_double(batch):
    """Lose one row and double another: their number is right."""
    return {"totals": batch.where("id <> 2").unionByName(batch.where("id = 3"))}


def test_a_lost_and_a_doubled_record_are_named(tmp_path, spark):
    (tmp_path / "a.jsonl").write_text('{"id":1}\n\n{"id":2}\n{"id":3}\n')
    topology = prices(tmp_path, "jsonl", lose_and_double, malformed="quarantine")
    told = r'lost, for example row 1 of a\.jsonl: \{"id":2'
    told = rf"{told}.*doubled, for example row 2 of a\.jsonl"
    with pytest.raises(RowsUnaccounted, match=told) as raised:
        Called.of(spark, topology).check("totals")
    assert MALFORMED not in raised.value.what


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
    assert found == {row["note"]: row for row in frame.repartition(7).where("id = 24999").collect()}
    assert fold_of(frame) == meta.emitted


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


def test_a_column_that_no_state_uses_must_be_valid_too(tmp_path, spark):
    (tmp_path / "a.csv").write_text("1,1.00,x\ntwo,1.00,y\n")
    (tmp_path / "a.jsonl").write_text('{"id": 1}\r\n\r\n{"id": "two"}')
    for format, place in (("csv", "record 2"), ("jsonl", "line 3")):
        topology = prices(tmp_path, format, header=False, malformed="fail")
        told = rf"{place} of .*column id: 'two' is not a valid int"
        with pytest.raises(SchemaMismatch, match=told), translate_value_errors():
            Called.of(spark, topology)


# --- values that a state cannot store ------------------------------------------------------------

TYPES = {
    "uid": "uuid",
    "note": "text",
    "price": "numeric(5,2)",
    "doc": "jsonb",
    "tags": "text[]",
    "day": "date",
    "at": "timestamptz",
    "local": "timestamp",
}
# days since 1970: Postgres's first, and microseconds
FIRST, LAST = -2_440_588, 2**63 - 1
FIRST_MOMENT = FIRST * 86_400_000_000
NOT_STORABLE = [
    ("uid", "no uuid"),
    ("note", b"a\0b"),
    ("note", b"b\xffd"),
    ("price", Decimal("1e3")),
    ("doc", "{"),
    ("doc", r'{"a": "\u0000"}'),
    ("tags", ["x", "a\0"]),
    ("day", FIRST - 1),
    ("day", 2**31 - 1),
    ("at", FIRST_MOMENT - 1),
    ("at", -(2**63)),
    ("local", FIRST_MOMENT - 1),
]


def write_values(path, rows):
    """Write rows whose days and times are numbers, and whose notes are bytes, not always UTF-8."""

    def column(name, type_):
        return pa.array([row[name] for row in rows], type_)

    notes = column("note", pa.binary()).buffers()
    table = {
        "uid": column("uid", pa.string()),
        "note": pa.Array.from_buffers(pa.string(), len(rows), notes),
        "price": column("price", pa.decimal128(10, 2)),
        "doc": column("doc", pa.string()),
        "tags": column("tags", pa.list_(pa.string())),
        "day": column("day", pa.int32()).cast(pa.date32()),
        "at": column("at", pa.int64()).cast(pa.timestamp("us", "UTC")),
        "local": column("local", pa.int64()).cast(pa.timestamp("us")),
    }
    pq.write_table(pa.table(table), path)


def test_a_value_that_its_state_cannot_store_is_quarantined(tmp_path, connection, pipeline):
    """V8: days before 4714 BC or far ahead, too; a row that two states lack is one of the share."""
    kept = {"uid": UUID, "note": b"fine", "price": Decimal("9.99"), "doc": '{"a": 1}'}
    kept |= {"tags": ["x", None], "day": FIRST, "at": FIRST_MOMENT, "local": FIRST_MOMENT}
    good = [kept, {**kept, "note": b"late", "at": LAST, "local": LAST}, dict.fromkeys(TYPES)]
    bad = [{**kept, name: value} for name, value in NOT_STORABLE]
    write_values(tmp_path / "a.parquet", [*good, *bad])
    topology = Topology(
        "notes",
        spout=FileSpout(f"{tmp_path}/*"),
        process=lambda batch: {"notes": batch, "ids": batch},
        states=[
            State("notes", values={name: Append(name, type_) for name, type_ in TYPES.items()}),
            State("ids", values={"uid": Append("uid", "uuid")}),
        ],
        malformed="quarantine",
        max_quarantined_share=len(bad) / len([*good, *bad]),
    )
    pipeline(topology).take_in()
    found = rows(connection, "SELECT note, day::text, local::text FROM notes ORDER BY note")
    assert found == [
        ("fine", "4714-11-24 BC", "4714-11-24 00:00:00 BC"),
        ("late", "4714-11-24 BC", "294247-01-10 04:00:54.775807"),
        (None, None, None),
    ]
    assert rows(connection, "SELECT count(*)::int FROM ids") == [(len(good) + len(bad) - 1,)]
    reasons = [
        f"INVALID_VALUE: column {name} is not a valid {TYPES[name]}" for name, _ in NOT_STORABLE
    ]
    wrong = [*zip(reasons, range(len(good), len(good) + len(bad)), strict=True)]
    assert [(reason, row) for reason, row, _ in quarantined(connection)] == [wrong[0], *wrong]
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
    ("string", "numeric", ["1" * 16_383, "0." + "1" * 16_384]),
    ("string", "uuid", [UUID.replace("-", "").upper(), f"{{{UUID}}}", f"{{{UUID}", f"{UUID}}}"]),
    ("string", "jsonb", ['{"a": 1, "a": 2}', " [1, null]\n", "null", "7" * 2000, r'"\\u0000"']),
    ("string", "jsonb", ["", "1 2", '{"a": 1} x', "{}]", "1}", "1,2", '1,"b":2', "1]", "],["]),
    (
        "string",
        "jsonb",
        ["1e9999", "-1E+00009", '["1e99999"]', r'{"a\"1e99999": "\\"}', "1e999999"],
    ),
    (
        "string",
        "jsonb",
        ["1e-99999", '{"a": [1, 1E+131072]}', '["\\"", 1e0200000]', "[0.1e-20000]"],
    ),
    ("string", "jsonb", [f'["{text * 20_000}"]' for text in ('\\"1e99999', "1e99999")]),
    ("string", "jsonb", ['1},{"v":2', "NaN", "'x'", r'"\ud800"', r'"\ud83d\ude00"', '"a\tb"']),
]


def test_the_rows_that_leave_are_those_that_postgres_rejects(spark, connection):
    """V8: no good row leaves, and no bad one fails the rest."""
    cases = [
        *CLOSE,
        *(
            (f"array<{in_spark}>", f"{in_postgres}[]", values)
            for in_spark, in_postgres, values in CLOSE
            if in_postgres != "jsonb"
        ),
    ]
    names = [f"v{n}" for n in range(len(cases))]
    texts = spark.createDataFrame(
        [*zip_longest(*(values for *_, values in cases))],
        ", ".join(f"{name} string" for name in names),
    )
    typed = texts.selectExpr(
        *(
            f"CAST(array({name}) AS {in_spark}) AS {name}"
            if in_spark.startswith("array")
            else f"CAST({name} AS {in_spark}) AS {name}"
            for name, (in_spark, *_) in zip(names, cases, strict=True)
        )
    )
    whys = []
    for name, (_, in_postgres, _) in zip(names, cases, strict=True):
        why = unstorable(typed, State("s", values={name: Append(name, in_postgres)}))
        whys.append(F.lit(True) if why is None else why.isNull())
    is_fine = zip(*typed.select(*whys).collect(), strict=True)
    for (in_spark, in_postgres, values), answers in zip(cases, is_fine, strict=True):
        kept = [text for text, is_kept in zip(values, answers, strict=False) if is_kept]
        scalar = in_postgres.removesuffix("[]")
        stored = [text for text in values if stores(connection, text, scalar)]
        assert kept == stored, f"{in_spark} as {in_postgres}"


def test_what_orders_rows_and_what_becomes_json_is_looked_at(spark):
    """V8: neither is a column with the type of a value."""
    frame = spark.createDataFrame([(b"a",), (b"a\0",), (b"\xff",)], "bytes binary")
    frame = frame.selectExpr("bytes::string AS text").selectExpr(
        "text", "array(map(text, named_struct('x', 1))) AS doc", "1 AS n"
    )
    latest = State("s", key={"n": "bigint"}, values={"v": Latest("n", by={"text": "text"})})
    document = State("s", values={"doc": Append("doc", "jsonb")})
    whys = [unstorable(frame, state) for state in (latest, document)]
    answers = [why.isNull() for why in whys if why is not None]
    found = frame.select(F.expr("text::binary"), *answers).collect()
    assert found == [(b"a", True, True), (b"a\0", False, False), (b"\xff", False, False)]


def stores(connection, text, type_):
    try:
        with connection.transaction() as tx:
            tx.cursor.execute(f"SELECT CAST(%s AS {type_})", (text,))
    except ReliabilityError:
        return False
    return True
