"""CSV, JSON lines and names of files on real Spark: read as they stand, or refused (V6)."""

from __future__ import annotations

import csv
import io
import json
import os
import random
from collections import Counter
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import zip_longest
from typing import Any

import pytest

from reliability import Count, Csv, FileSpout, JsonLines, State, Sum, Topology
from reliability.core.column import quoted
from reliability.core.errors import SchemaMismatch, SourceUnreadable
from reliability.core.fold import Fold
from reliability.core.spout import NoItems
from reliability.deployment.lazy import pa, pq
from reliability.spark.driver import _summary
from reliability.spark.frames.accounting import hide_accounting
from reliability.spark.frames.values import as_text, as_typed, misfit, translate_value_errors, typed
from reliability.spouts.text import line_end
from tests.support.batches import meta_of
from tests.support.fix_pipeline import in_both_engines
from tests.support.fix_postgres import rows
from tests.support.variants import variants


def read(spark, spout):
    """The values of the spout's files; what Spark reads has to be as much as was counted."""
    meta = meta_of(spout)
    found = [tuple(row)[:-2] for row in spout.frame(spark, meta).collect()]
    assert len(found) == meta.emitted.count
    return found


# --- values --------------------------------------------------------------------------------------


def texts_of(spark, columns):
    """Make a frame with a column of texts for each type, whose name is the type; and its schema."""
    schema = spark.createDataFrame([], ", ".join(f"`{type_}` {type_}" for type_ in columns)).schema
    return spark.createDataFrame([*zip_longest(*columns.values())], as_text(schema)), schema


def moment(*parts):
    return datetime(*parts).replace(tzinfo=timezone.utc)


VALUES: dict[str, dict[str | None, Any]] = {
    "tinyint": {"127": 127, "-128": -128, "+1": 1, None: None},
    "bigint": {"9223372036854775807": 9223372036854775807, "007": 7},
    "decimal(10,2)": {
        text: Decimal(value)
        for text, value in {
            "1.10": "1.10",
            "-.5": "-0.50",
            "7.": "7.00",
            "1.5000": "1.50",
            "15e-1": "1.50",
            "1.50E1": "15.00",
            "0E-18": "0.00",
            "1.2e3": "1200.00",
            "12345678.99": "12345678.99",
        }.items()
    },
    "decimal(38,0)": {"9" * 38: Decimal("9" * 38), "10e1": Decimal(100), "0.0": Decimal(0)},
    "double": {
        **{"0.1": 0.1, "1e308": 1e308, "5e-324": 5e-324, "0e-999": 0.0, "-0": 0.0},
        **{"Inf": float("inf"), "-Infinity": -float("inf"), "+inf": float("inf")},
    },
    "float": {"0.5": 0.5, "16777216": 16777216.0, "3.4028235e38": 3.4028234663852886e38},
    "boolean": {"true": True, "FALSE": False},
    "date": {
        "2024-02-29": date(2024, 2, 29),
        "0001-01-01": date(1, 1, 1),
        "2024-2-9": date(2024, 2, 9),
        "2024-02-29T00:00:00.000": date(2024, 2, 29),
        "2024-02-29 00:00": date(2024, 2, 29),
    },
    "timestamp": {
        "2024-02-29": moment(2024, 2, 29),
        "2024-02-29 12:30": moment(2024, 2, 29, 12, 30),
        "2024-02-29T12:00:00.123456Z": moment(2024, 2, 29, 12, 0, 0, 123456),
        "2024-02-29 12:00:00.123456000 +01:00": moment(2024, 2, 29, 11, 0, 0, 123456),
        "2024-02-29T12:00:00-0130": moment(2024, 2, 29, 13, 30),
    },
    "timestamp_ntz": {"2024-02-29T12:00:00.5": datetime(2024, 2, 29, 12, 0, 0, 500000)},
    "binary": {"AP8=": b"\x00\xff", "": b""},
    "string": {"": "", " x ": " x ", "NULL": "NULL", "1.005": "1.005"},
}


def test_a_text_becomes_the_value_that_it_says(spark):
    texts, schema = texts_of(spark, VALUES)
    with translate_value_errors():
        columns = zip(*as_typed(texts, schema, is_base64=True).collect(), strict=True)
    for found, (type_, wanted) in zip(columns, VALUES.items(), strict=True):
        values = list(found[: len(wanted)])
        if type_ == "timestamp":
            values = [value.astimezone(timezone.utc) for value in values]
        assert values == list(wanted.values()), type_


NOT_AS_IT_STANDS = {
    "tinyint": ["128", "1.0", "1e1", " 1", "1\n", "", "٣", "0x1", "1L"],
    "bigint": ["9223372036854775808", "1.5", "NaN"],
    "decimal(10,2)": ["1.005", "0.001", "1e-3", "123456789.00", "1,5", "1e99", "1.5 EUR", "NaN"],
    "decimal(38,0)": ["0.1", "1" + "0" * 38, "."],
    "double": ["1e999", "-1e999", "1e-999", "1.5d", "0x1p3", "", "1,5"],
    "float": ["1e39", "1e-50"],
    "boolean": ["1", "yes", "t", " true"],
    "date": ["2024-02-30", "2024-02-29 12:00", "2024-02-29Tx", "2024", "20240229", " 2024-02-29"],
    "timestamp": [
        *("2024-02-29T12:00:00.1234567", "12:00:00", "2024", "1709164800", "2024-02-29T25:00:00"),
        *("2024-03-31T02:30:00 Europe/Vienna", "2024-02-29T12:00:00+25:00"),
    ],
    "timestamp_ntz": ["2024-02-29T12:00:00Z", "2024-02-29T12:00:00.0000001"],
    "binary": ["AP8", "AP8=\n", "!!"],
}


def test_a_value_that_would_change_on_the_way_names_its_column(spark):
    """Spark's readers round, cut, wrap and guess."""
    texts, schema = texts_of(spark, NOT_AS_IT_STANDS)
    whys = []
    for field in schema:
        text, type_ = texts[quoted(field.name)], field.dataType
        value = typed(text, type_, is_base64=True)
        whys.append(misfit(text, value, type_, "v", shown=True).alias(field.name))
    columns = zip(*texts.select(*whys).collect(), strict=True)
    for found, (type_, refused) in zip(columns, NOT_AS_IT_STANDS.items(), strict=True):
        for why, text in zip(found, refused, strict=False):
            shown = "".join("?" if c < " " else c for c in text)
            assert why is not None, f"{text!r} as {type_}"
            assert why.startswith(f"column v: '{shown}' is not a valid {type_}")
    texts, schema = texts_of(spark, {"date": ["2024-02-29", "2024-02-30"]})
    told = "column date: '2024-02-30' is not a valid date"
    with pytest.raises(SchemaMismatch, match=told), translate_value_errors():
        as_typed(texts, schema, is_base64=True).collect()


@pytest.mark.slow
def test_fields_and_elements_of_json_are_held_to_their_types(tmp_path, spark):
    lines = [
        '{"a": {"b": 1.10, "c d": ["x", null]}, "l": [1, null], "other": 1}',
        '{"a": {"b": "2.20"}, "l": []}',
        '{"a": null}',
        "{}",
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))
    schema = "a struct<b: decimal(10,2), `c d`: array<string>>, l array<int>"
    spout = FileSpout(str(path), format=JsonLines(), schema=schema)
    found = [(a and tuple(a), li) for a, li in read(spark, spout)]
    assert found == [
        ((Decimal("1.10"), ["x", None]), [1, None]),
        ((Decimal("2.20"), None), []),
        (None, None),
        (None, None),
    ]
    for line, place in (
        ('{"a": {"b": 1.005}}', "a.b: '1.005' is not a valid decimal"),
        ('{"l": [1, 1.5]}', r"l\[\]: '1.5' is not a valid int"),
        ('{"l": [{"x": 1}]}', r"l\[\]: '\{\"x\": 1\}' is not a valid int"),
    ):
        path.write_text(line)
        with (
            pytest.raises(SchemaMismatch, match=f"line 1 of .*column {place}"),
            translate_value_errors(),
        ):
            read(spark, spout)
    path.write_text('{"l": 1}')
    with pytest.raises(Exception, match=r"line 1 of .*it does not have the form of the schema"):
        read(spark, spout)


def test_a_type_that_text_has_no_values_of_is_refused(tmp_path, spark):
    (tmp_path / "a.jsonl").write_text("{}")
    for type_ in ("map<string,int>", "interval day", "variant"):
        spout = FileSpout(f"{tmp_path}/*", format=JsonLines(), schema=f"a struct<b: {type_}>")
        told = r"column a\.b: .* cannot be read from a text file"
        with pytest.raises(SchemaMismatch, match=told):
            read(spark, spout)


def test_a_column_that_spark_would_fill_itself_is_read(tmp_path, spark):
    """Its name is that of the column for malformed records, in every session or in this one."""
    (tmp_path / "a.jsonl").write_text('{"_corrupt_record": "x", "_": 1, "note": "y"}\n')
    schema = "_corrupt_record string, _ int, note string"
    session = spark.newSession()
    session.conf.set("spark.sql.columnNameOfCorruptRecord", "note")
    spout = FileSpout(f"{tmp_path}/*", format=JsonLines(), schema=schema)
    assert read(session, spout) == read(spark, spout) == [("x", 1, "y")]


@in_both_engines
def test_a_price_with_too_many_digits_fails_the_attempt_and_nothing_counts(
    tmp_path, connection, pipeline
):
    """It was rounded without a word."""
    topology = Topology(
        "prices",
        spout=FileSpout(f"{tmp_path}/*", 9, format=Csv(), schema="n int, price decimal(10,2)"),
        process=lambda batch: {"totals": batch},
        states=[State("totals", values={"n": Count(), "price": Sum("price", "numeric(14,2)")})],
    )
    prices = pipeline(topology)
    (tmp_path / "a.csv").write_text("1,1.10\n2,1.005\n")
    assert prices.emit(None) == [1]
    grant = prices.begin(1)
    with pytest.raises(SchemaMismatch, match=r"column price: '1\.005' is not a valid decimal"):
        prices.run_step(grant)
    raised = SchemaMismatch("as the driver reports it", remedy="widen it in the schema.")
    prices.runner.end_attempt(grant, raised)
    assert " in the schema." in prices.runner.error_of(grant).what_to_do
    assert rows(connection, "SELECT count(*) FROM totals") == [(0,)]


def test_a_record_with_too_few_values_is_told_in_the_one_line_that_the_ledger_keeps(
    tmp_path, spark
):
    """Its first line says only which call of Python failed."""
    (tmp_path / "a.csv").write_text("1,x\n2\n")
    spout = FileSpout(f"{tmp_path}/*", format=Csv(), schema="n int, note string")
    told = r"line 2 of .*a\.csv: it has 1 fields instead of 2"
    with pytest.raises(SchemaMismatch, match=told), translate_value_errors():
        read(spark, spout)
    with pytest.raises(Exception, match="MALFORMED") as raised:
        read(spark, replace(spout, format=Csv(counted=True)))
    assert "Malformed CSV record: 2" in _summary(raised.value)


# --- records -------------------------------------------------------------------------------------


def test_a_csv_record_ends_where_its_file_says(tmp_path, spark):
    """Spark took the first line end for it, be it inside quotes, and kept half of the others."""
    quoted = '"p\nq",1{0}"r\r\ns",2{0}"t\ru",3{0}'
    for name, end in (("unix", "\n"), ("windows", "\r\n")):
        (tmp_path / f"{name}.csv").write_bytes(quoted.format(end).encode())
    schema = "note string, n string"
    both = FileSpout(f"{tmp_path}/*.csv", 9, format=Csv(), schema=schema)
    assert sorted(read(spark, both)) == [
        ("p\nq", "1"),
        ("p\nq", "1"),
        ("r\ns", "2"),  # in a file of Windows
        ("r\r\ns", "2"),
        ("t\ru", "3"),
        ("t\ru", "3"),
    ]
    told = both.frame(spark, meta_of(both)).select("_x", "_metadata.file_name").collect()
    assert len({row["_x"] for row in told}) == 6
    assert sorted(row["file_name"] for row in told) == [*["unix.csv"] * 3, *["windows.csv"] * 3]


def test_files_of_different_line_ends_tell_where_a_row_is_from(tmp_path, spark):
    """Spark reads them apart and unites them, which loses what it hides."""
    for name, end in (("unix", "\n"), ("windows", "\r\n")):
        (tmp_path / f"{name}.csv").write_text(f"1{end}", newline="")
    spout = FileSpout(f"{tmp_path}/*", 2, format=Csv(counted=True), schema="n int")
    batch = hide_accounting(spout.frame(spark, meta_of(spout)))
    assert batch.columns == ["n"]
    names = batch.select("n", "_metadata.file_name").sort("file_name").collect()
    assert [tuple(row) for row in names] == [(1, "unix.csv"), (1, "windows.csv")]


FORMATS = {"csv": Csv, "jsonl": JsonLines}
MARKS = {
    "csv": [
        ["a", '"', "\n", " "],
        ["a", '"', '"', "\r\n", "\n", "\t"],
        ["a", '"', "\n", "\r", "\r\n", '""'],
        ["a", '"', '"\n"', '"\r\n"', "\r\n", "#", "\\", "\ufeff", "\x0b", "\x85", "\u2028"],
    ],
    "jsonl": [
        ['{"v": "x"}', '{"v": 1.50}', '{"w": 1}', "{}", "{", "}", "[", "]", ",", " ", "\n", "\r"],
        ['{"v": "\u2028"}', r'{"v": "\ud83d"}', '{"v": "a", "v": "b"}', "\n", "\ufeff", "\t", "1"],
    ],
}


READ = [
    (f, marks, counted) for f, each in MARKS.items() for marks in each for counted in (False, True)
]


@pytest.mark.parametrize(
    ("format", "marks", "counted"), variants(READ, lambda r: not r[2] or r[1] is MARKS[r[0]][-1])
)
def test_what_is_counted_is_what_spark_reads(tmp_path, spark, format, marks, counted):
    """Whatever stands in a text: a file is refused, or Spark reads the values that Python does."""
    dice = random.Random(7)
    wanted: Counter[str | None] = Counter()
    kept = 0
    for number in range(200):
        text = "".join(dice.choice(marks) for _ in range(dice.randint(1, 9)))
        path = tmp_path / f"{number}.{format}"
        path.write_bytes(text.encode())
        try:
            meta_of(
                FileSpout(str(path), format=FORMATS[format](counted=counted), schema="v string")
            )
        except SourceUnreadable:
            path.unlink()
        else:
            kept += 1
            wanted.update(python_reads(path, text.removeprefix("\ufeff")))
    assert kept > 10
    spout = FileSpout(
        f"{tmp_path}/*", 999, format=FORMATS[format](counted=counted), schema="v string"
    )
    assert Counter(v for (v,) in read(spark, spout)) == wanted


def python_reads(path, text):
    if path.suffix == ".csv":
        is_windows = line_end(str(path)) == "\r\n"
        records = filter(None, csv.reader(io.StringIO(text, newline=""), strict=True))
        return [(v.replace("\r\n", "\n") if is_windows else v) or None for (v,) in records]
    lines = filter(lambda line: line.strip(" \t\r\n"), io.StringIO(text, newline=None))
    return [json.loads(line, parse_int=str, parse_float=str).get("v") for line in lines]


# --- names of files ------------------------------------------------------------------------------

PRINTABLE = [c for c in map(chr, range(32, 127)) if c != "/" and not c.isalnum()] + ["a", "1"]
OTHERS = ["\n", "\t", "\x7f", "é", "e\u0301", "ß", "日本", "😀", "\u2028", "\u200b", "%41", "a%2Fb"]
BYTES = [os.fsdecode(b"a\xffb")]


def test_every_name_is_read_or_refused(tmp_path, spark):
    """Of a file and of a folder; where Spark reads it, then as the file that it is."""
    names = [f"{c}{c}" for c in PRINTABLE if c != "."] + [f"a{c}b" for c in (*PRINTABLE, *OTHERS)]
    names += [f"{c}a" for c in (" ", "~", "é")] + [f"a{c}" for c in (" ", "%", ".")] + BYTES
    refused, hidden = set(), set()
    for number, name in enumerate(names):
        for kind, below in (("file", name), ("folder", f"{name}/x")):
            folder = tmp_path / str(number) / kind
            write_numbers(folder / below, number)
            try:
                found = FileSpout(f"{folder}/**", allow_empty=True).plan(None, NoItems())
            except SourceUnreadable:
                refused.add((kind, name))
                (folder / below).unlink()
            else:
                hidden |= set() if found else {(kind, name)}
    kinds = ("file", "folder")
    assert refused == {("file", "::"), ("file", "a:b"), *((kind, BYTES[0]) for kind in kinds)}
    assert hidden == {(kind, "__") for kind in kinds}
    spout = FileSpout(f"{tmp_path}/**", 999)
    meta = meta_of(spout)
    assert len(meta.items) == 2 * len(names) - len(refused) - len(hidden)
    [fold] = spout.frame(spark, meta).selectExpr("bit_xor(_x)", "sum(_n)").collect()
    assert Fold(*fold) == meta.emitted


def write_numbers(path, number):
    """A Parquet file that has as many rows as no other; pyarrow takes not every name."""
    path.parent.mkdir(parents=True)
    whole = path.parents[1] / "whole"
    pq.write_table(pa.table({"n": [number] * (number + 1)}), whole)
    os.rename(whole, path)
