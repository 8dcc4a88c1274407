"""Parquet files whose columns differ from the declared ones, by each policy (rule E8)."""

from __future__ import annotations

import doctest
import json
import logging
import re
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any

import pytest

import reliability
from reliability import FileSpout, Parquet
from reliability.core.errors import FileRefused, InvalidDefinition
from reliability.core.fold import ACCOUNTING, Fold
from reliability.core.spout import BatchMeta, NoItems
from reliability.core.types import VOID, common_type
from reliability.deployment.lazy import pa, pq
from reliability.spark.frames.accounting import hide_accounting, show_accounting
from reliability.spark.frames.quarantined import place_of
from reliability.spark.session import pin_settings
from tests.support.fix_pipeline import month, shop
from tests.support.fix_postgres import ROOT, rows
from tests.support.quarantined import correct, edit, lines

PAGE = "docs/sources/parquet.md"
MIDNIGHT = datetime(2013, 3, 1)
TENTH = 0.10000000149011612  # a float's, exactly
FAR = date(9999, 12, 31)


def col(type_, *values):
    """Return a column of an Arrow type, as pyarrow calls it."""
    made = {
        "decimal": lambda p, s: pa.decimal128(int(p), int(s)),
        "timestamp": lambda unit, *zone: pa.timestamp(unit, *zone),
    }
    name, *arguments = re.findall(r"\w+", type_)
    wanted = made[name](*arguments) if arguments else getattr(pa, name)()
    return pa.array(values, wanted)


def nested(*values):
    return pa.array(values)


def write(path, columns, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return path


def spout_of(folder, schema, drift, **options):
    return FileSpout(f"{folder}/*.parquet", format=Parquet(drift=drift), schema=schema, **options)


def planned(spout):
    items = spout.plan(None, NoItems())
    return [BatchMeta(items=batch, emitted=spout.count(batch)) for batch in spout.cut(items)]


def contents(frame, meta) -> tuple[list[tuple[str, str]], list[tuple[Any, ...]]]:
    """Return the columns of a batch's frame, and its sorted rows; the accounts have to balance."""
    rows = frame.collect()
    assert frame.columns[-2:] == [*ACCOUNTING]
    assert Fold.of(Fold(row["_x"], row["_n"]) for row in rows) == meta.emitted
    return frame.dtypes[:-2], sorted((tuple(row)[:-2] for row in rows), key=str)


@pytest.fixture(scope="module")
def pinned(spark):
    pin_settings(spark)
    return spark


# --- the table of the page: one file against the schema -----------------------------------------

# the file's type, a value, the declared type, and the value in it
NARROWER = [
    ("int8", -128, "smallint", -128),
    ("uint8", 255, "int", 255),
    ("int16", -(2**15), "int", -(2**15)),
    ("uint32", 2**32 - 1, "decimal(19,0)", Decimal(2**32 - 1)),
    ("int32", -(2**31), "bigint", -(2**31)),
    ("int32", 2**31 - 1, "double", 2.0**31 - 1),
    ("int16", 2**15 - 1, "float", 2.0**15 - 1),
    ("int64", -(2**63), "decimal(20,1)", Decimal(-(2**63))),
    ("uint64", 2**64 - 1, "decimal(21,0)", Decimal(2**64 - 1)),
    ("float32", 0.1, "double", TENTH),
    ("decimal(8,2)", Decimal("-999999.99"), "decimal(10,2)", Decimal("-999999.99")),
    ("decimal(8,2)", Decimal("999999.99"), "decimal(38,4)", Decimal("999999.99")),
    ("decimal(18,9)", Decimal("1e-9"), "decimal(19,9)", Decimal("1e-9")),
    ("date32", FAR, "timestamp_ntz", datetime(9999, 12, 31)),
    ("null", None, "string", None),
    ("null", None, "array<int>", None),
]
# the file's type in Arrow and in Spark, a value, the declared type, and the batch's
WIDER = [
    ("int64", "bigint", 2**63 - 1, "int", "bigint"),
    ("uint64", "decimal(20,0)", Decimal(2**64 - 1), "bigint", "decimal(20,0)"),
    ("float64", "double", 0.1, "float", "double"),
    ("float32", "float", TENTH, "int", "double"),
    ("decimal(12,2)", "decimal(12,2)", Decimal("1e9"), "decimal(10,2)", "decimal(12,2)"),
    ("decimal(10,4)", "decimal(10,4)", Decimal("0.0001"), "decimal(10,2)", "decimal(12,4)"),
    ("decimal(4,2)", "decimal(4,2)", Decimal("0.01"), "int", "decimal(12,2)"),
    ("timestamp(us)", "timestamp_ntz", MIDNIGHT, "date", "timestamp_ntz"),
]
# columns of a file, the declared type of v, and what an error says after "column v"
NOT_EXACT: list[tuple[Any, str, str]] = [
    *(
        (lambda type_=type_, value=value: {"v": col(type_, value, None)}, declared, said)
        for type_, value, declared, said in [
            ("string", "1", "int", "is string in"),
            ("int32", 1, "string", "is int in"),
            ("int64", 1, "double", "is bigint in"),
            ("float64", 1.0, "decimal(10,2)", "is double in"),
            ("decimal(38,0)", Decimal(1), "decimal(38,2)", r"is decimal\(38,0\) in"),
            ("timestamp(us)", MIDNIGHT, "timestamp", "is timestamp_ntz in"),
            ("timestamp(us,UTC)", MIDNIGHT, "timestamp_ntz", "is timestamp in"),
            ("date32", FAR, "timestamp", "is date in"),
            ("binary", b"1", "string", "is binary in"),
            ("bool_", True, "int", "is boolean in"),
        ]
    ),
    (
        lambda: {"v": nested({"a": 1, "b": "x"})},
        "struct<a: bigint>",
        "is struct<a:bigint,b:string> in",
    ),
    (lambda: {"v": nested({"A": 1})}, "struct<a: bigint>", "is struct<A:bigint> in"),
    (lambda: {"v": nested([MIDNIGHT.date()])}, "array<bigint>", "is array<date> in"),
    (lambda: {"v": nested([{"a": 1.0}])}, "array<struct<a: float>>", "is array<struct<a:double>>"),
]
ID = ("id", "bigint")


def ids():
    return col("int64", 1, None)


def declared(types):
    return ", ".join(["id bigint", *(f"c{n} {type_}" for n, type_ in enumerate(types))])


def frame_of(spark, folder, schema, drift):
    """Return the columns and rows of the one batch in a folder, whose accounts balance."""
    spout = spout_of(folder, schema, drift, max_files_per_batch=9)
    [meta] = planned(spout)
    return contents(spout.frame(spark, meta), meta)


def test_a_narrower_type_is_cast_and_no_value_changes(pinned, tmp_path):
    """E8: also with NULL, and beside a file that has the declared types."""
    columns = {f"c{n}": col(t, value, None) for n, (t, value, _, _) in enumerate(NARROWER)}
    old = write(tmp_path / "old.parquet", {"id": ids(), **columns})
    schema = declared(type_ for *_, type_, _ in NARROWER)
    with pytest.raises(FileRefused) as refused:
        planned(spout_of(tmp_path, schema, "refuse"))
    assert str(old) in refused.value.what
    assert "column c0 is tinyint in" in refused.value.what
    assert "set drift='ignore' or drift='widen', which read it" in refused.value.what_to_do
    types = [ID, *((f"c{n}", type_) for n, (*_, type_, _) in enumerate(NARROWER))]
    wanted = [value for *_, value in NARROWER]
    alone = (types, [(1, *wanted), (None, *[None] * len(wanted))])
    assert frame_of(pinned, tmp_path, schema, "ignore") == alone
    spout = spout_of(tmp_path, schema, "ignore")
    frame = spout.frame(pinned, planned(spout)[0])
    # a file with the declared types
    new = frame.selectExpr("id + 1 AS id", *(name for name, _ in types[1:])).toArrow()
    write(tmp_path / "new.parquet", dict(zip(new.column_names, new.columns, strict=True)))
    for drift in ("ignore", "widen"):
        assert frame_of(pinned, tmp_path, schema, drift) == (
            types,
            [(1, *wanted), (2, *wanted), *[(None, *[None] * len(wanted))] * 2],
        )


def test_a_wider_type_widens_the_column_or_is_refused(pinned, tmp_path):
    """E8: what does not fit the declared type is never cut."""
    columns = {f"c{n}": col(t, value, None) for n, (t, _, value, _, _) in enumerate(WIDER)}
    write(tmp_path / "a.parquet", {"id": ids(), **columns})
    schema = declared(type_ for *_, type_, _ in WIDER)
    with pytest.raises(FileRefused) as refused:
        planned(spout_of(tmp_path, schema, "ignore"))
    for n, (_, in_file, _, type_, _) in enumerate(WIDER):
        said = f"column c{n} is {in_file} in {tmp_path}/a.parquet, and {type_} in the spout's"
        assert said in refused.value.what
    assert "or set drift='widen', which reads it" in refused.value.what_to_do
    with pytest.raises(FileRefused, match=r"set drift='widen', which reads it \(drift='ignore' d"):
        planned(spout_of(tmp_path, schema, "refuse"))
    types, found = frame_of(pinned, tmp_path, schema, "widen")
    assert types == [ID, *((f"c{n}", type_) for n, (*_, type_) in enumerate(WIDER))]
    assert found == [(1, *(value for _, _, value, _, _ in WIDER)), (None, *[None] * len(WIDER))]


@pytest.mark.parametrize("drift", ["refuse", "ignore", "widen"])
def test_types_without_an_exact_common_one_are_refused(tmp_path, drift):
    """E8: by every policy."""
    for columns, type_, said in NOT_EXACT:
        write(tmp_path / "a.parquet", columns())
        with pytest.raises(
            FileRefused, match=f"column v {said}.* in the spout's schema"
        ) as refused:
            planned(spout_of(tmp_path, f"v {type_}", drift))
        assert "which read" not in refused.value.what_to_do


SHAPES: list[tuple[str, Any, Any, Any]] = [
    # schema, the file's columns, and the batch's columns beside id, by ignore and by widen
    (  # fewer, in another order, with dots and blanks, and one like the path of a field
        "id bigint, n string, w struct<`a b`: int>, v int, `a b` bigint, `v.w` bigint,"
        " `a.b` bigint",
        lambda: {
            "v.w": col("int32", 7, None),
            "v": col("int32", 1, None),
            "a b": col("int32", 3, None),
            "id": ids(),
            "a": nested({"b": None}, None),
            "a.b": ids(),
        },
        FEWER := {
            "n": ("string", None),
            "w": ("struct<a b:int>", None),
            "v": ("int", 1),
            "a b": ("bigint", 3),
            "v.w": ("bigint", 7),
            "a.b": ("bigint", 1),
        },
        {**FEWER, "a": ("struct<b:int>", (None,))},
    ),
    (  # more, without any value, and with the name that Spark hides
        "id bigint, v array<int>",
        lambda: {
            "z": nested([1], None),
            "v": col("null", None, None),
            "id": ids(),
            "b": col("string", "x", None),
            "_metadata": nested({"row_index": 7}, None),
            "w": col("null", None, None),
        },
        MORE := {"v": ("array<int>", None)},
        {
            **MORE,
            "_metadata": ("struct<row_index:bigint>", (7,)),
            "b": ("string", "x"),
            "w": ("int", None),
            "z": ("array<bigint>", [1]),
        },
    ),
]


@pytest.mark.parametrize(("schema", "columns", "ignored", "widened"), SHAPES, ids=["fewer", "more"])
def test_columns_more_or_fewer_or_in_another_order(
    pinned, tmp_path, schema, columns, ignored, widened
):
    """E8: what a file has more is left out or kept, and what it lacks is NULL."""
    write(tmp_path / "a.parquet", columns())
    with pytest.raises(FileRefused, match="set drift='ignore' or drift='widen', which read it"):
        planned(spout_of(tmp_path, schema, "refuse"))
    for drift, wanted in (("ignore", ignored), ("widen", widened)):
        types, found = frame_of(pinned, tmp_path, schema, drift)
        assert types == [ID, *((name, type_) for name, (type_, _) in wanted.items())]
        values = [value for _, value in wanted.values()]
        assert found == [(1, *values), (None, *[None] * len(values))]


def test_the_file_and_all_its_columns_are_named_with_both_types(tmp_path):
    path = write(tmp_path / "a.parquet", {"id": ids(), "x": ids(), "y": col("date32", FAR, FAR)})
    with pytest.raises(FileRefused) as refused:
        planned(spout_of(tmp_path, "id int, v string", "refuse"))
    assert refused.value.what == (
        f"column id is bigint in {path}, and int in the spout's schema; the spout's schema has no "
        f"columns x, y, which {path} has as bigint, date; {path} has no column v, which the "
        "spout's schema has as string"
    )


@pytest.mark.parametrize("drift", ["refuse", "ignore", "widen"])
def test_a_name_in_another_case_is_refused(tmp_path, drift):
    """E8: Spark would take it for the declared one, or it would be NULL, as all of another source.

    A batch of nothing but NULL says nothing of its file.
    """
    if drift != "refuse":
        write(tmp_path / "a.parquet", {"x": ids()})
        with pytest.raises(FileRefused, match=r"a\.parquet has none of the columns of the spout's"):
            planned(spout_of(tmp_path, "id bigint, v string", drift))
    write(tmp_path / "a.parquet", {"id": ids(), "V": ids()})
    with pytest.raises(FileRefused, match=r"column V in .*a\.parquet is v in the spout's schema"):
        planned(spout_of(tmp_path, "id bigint, v bigint", drift))
    write(tmp_path / "a.parquet", {"id": ids(), "_X": ids()})
    with pytest.raises(FileRefused, match=r"columns of its own called \['_X'\]"):
        planned(spout_of(tmp_path, "id bigint", drift))


def test_a_policy_needs_a_schema_of_parquet():
    for schema, said in (
        ("", "drift='ignore' needs a schema"),
        ("id int NOT NULL, v char(3)", "of the schema: id, v"),
        ("id int COMMENT 'x, y'", "the types of the schema"),
        ("id int, ID bigint", "more than once"),
    ):
        with pytest.raises(InvalidDefinition, match=re.escape(said)):
            FileSpout("in/*", format=Parquet(drift="ignore"), schema=schema)
        FileSpout("in/*", schema=schema)  # refuses what differs
    with pytest.raises(InvalidDefinition, match="drift 'merge' is not one of"):
        Parquet(drift="merge")


# --- batches of old and new files ----------------------------------------------------------------

SCHEMA = "id int, price decimal(8,2), note string"


@pytest.fixture
def old_and_new(tmp_path):
    """Four files: as declared, with less, with more, and in pieces."""

    def prices(*texts):
        return map(Decimal, texts)

    write(
        tmp_path / "a.parquet",
        {
            "id": col("int32", 1, 2),
            "price": col("decimal(8,2)", *prices("1.10", "2.20")),
            "note": col("string", "x", None),
        },
    )
    write(
        tmp_path / "b.parquet",
        {"price": col("decimal(6,1)", *prices("3.3")), "id": col("int16", 3)},
    )
    write(
        tmp_path / "c.parquet",
        {
            "shop": col("string", "here", None),
            "id": col("int32", 4, 5),
            "age": col("int16", 40, None),
            "price": col("decimal(8,2)", *prices("4.40", "5.50")),
            "note": col("null", None, None),
        },
    )
    write(
        tmp_path / "d.parquet",
        {
            "id": col("int16", *range(6, 18)),
            "age": col("int8", *range(6, 18)),
            "note": col("string", *"fghijklmnopq"),
        },
        row_group_size=2,
    )
    return tmp_path


DECLARED = [("id", "int"), ("price", "decimal(8,2)"), ("note", "string")]


def places(frame):
    """Return the rows with where each comes from, as the quarantine asks for it."""
    hidden = hide_accounting(frame)
    name, row = place_of(hidden, "file_name"), place_of(hidden, "row_index")
    return sorted(tuple(row) for row in hidden.select("id", name, row).collect())


@pytest.mark.parametrize("drift", ["ignore", "widen"])
def test_a_batch_mixes_old_and_new_files_and_pieces_of_them(pinned, old_and_new, drift):
    """E8: each row has its own file's values, and is accounted for by its place there."""
    spout = spout_of(old_and_new, SCHEMA, drift, max_files_per_batch=9, max_rows_per_batch=9)
    metas = planned(spout)
    assert [len(meta.items) for meta in metas] == [4, 1]
    frames = [spout.frame(pinned, meta) for meta in metas]
    (types, first), (later_types, later) = map(contents, frames, metas)
    more = [("age", "smallint"), ("shop", "string")] if drift == "widen" else []
    assert types == [*DECLARED, *more]
    wanted = [
        (1, Decimal("1.10"), "x", None, None),
        (2, Decimal("2.20"), None, None, None),
        (3, Decimal("3.30"), None, None, None),
        (4, Decimal("4.40"), None, 40, "here"),
        (5, Decimal("5.50"), None, None, None),
        *((n, None, "fghijk"[n - 6], n, None) for n in (6, 7, 8, 9)),
    ]
    width = len(types)
    assert sorted(first) == [row[:width] for row in wanted]
    # the other piece has the columns of its own file, whatever the batch before had
    assert later_types == [*DECLARED, *([("age", "tinyint")] if drift == "widen" else [])]
    assert later == [(n, None, "fghijklmnopq"[n - 6], n)[: len(later_types)] for n in range(10, 18)]
    assert places(frames[0])[2:7] == [
        (3, "b.parquet", 0),
        (4, "c.parquet", 0),
        (5, "c.parquet", 1),
        (6, "d.parquet", 0),
        (7, "d.parquet", 1),
    ]


def test_a_file_lacks_a_column_whose_fields_have_any_names(pinned, tmp_path):
    """E8: what another file has, and the schema has not."""
    type_ = "struct<a b:bigint,a-b:bigint,é:bigint>"
    write(tmp_path / "a.parquet", {"id": ids(), "w": nested({"a b": 1, "a-b": 2, "é": 3}, None)})
    write(tmp_path / "b.parquet", {"id": ids()})
    types, found = frame_of(pinned, tmp_path, "id bigint", "widen")
    assert types == [ID, ("w", type_)]
    assert found == [(1, None), (1, (1, 2, 3)), (None, None), (None, None)]


def test_a_column_of_the_users_does_not_say_where_a_row_is_from(pinned, tmp_path):
    """V8: it has the name of the one that Spark hides, and its fields."""
    mine = nested({"file_name": "mine", "row_index": 7}, None)
    write(tmp_path / "a.parquet", {"id": ids(), "_metadata": mine})
    [meta] = planned(spout_of(tmp_path, "id bigint", "widen"))
    frame = spout_of(tmp_path, "id bigint", "widen").frame(pinned, meta)
    assert places(frame.where("id = 1")) == [(1, None, None)]


def test_pieces_that_do_not_follow_each_other_share_a_batch(pinned, old_and_new):
    """E8: after a file with other columns."""
    spout = spout_of(old_and_new, SCHEMA, "widen", max_rows_per_batch=2)
    _, _, third, *pieces = spout.plan(None, NoItems())
    items = (third, pieces[-3], pieces[-1])
    meta = BatchMeta(items=items, emitted=spout.count(items))
    _, found = contents(spout.frame(pinned, meta), meta)
    assert sorted(row[0] for row in found) == [4, 5, 12, 13, 16, 17]


def test_a_process_function_gets_an_ordinary_frame(pinned, old_and_new):
    """E8, V3: the accounting is carried through a union of files that are read on their own."""
    from pyspark.sql import functions as F

    spout = spout_of(old_and_new, SCHEMA, "widen", max_files_per_batch=9)
    [meta] = planned(spout)
    batch = hide_accounting(spout.frame(pinned, meta))
    assert batch.columns == ["id", "price", "note", "age", "shop"]
    others = batch.select("id", "age").withColumnRenamed("age", "years")
    made = [
        batch.where("id < 4").union(batch.where("id >= 4")),
        batch.join(others, "id", "left").withColumn("twice", F.col("age") * 2),
        reliability.aggregate(batch, ["shop"], ages=F.sum("age")),
    ]
    folds = [show_accounting(one).agg(F.bit_xor("_x"), F.sum("_n")) for one in made]
    found = reduce(lambda one, other: one.union(other), folds).collect()
    assert [Fold(*row) for row in found] == [meta.emitted] * len(made)


def test_files_of_a_batch_that_widen_to_no_common_type_are_refused(tmp_path):
    """E8: each would be right on its own."""
    one = {"id": col("int32", 1), "v": col("float32", 0.5)}
    for other, said in (
        (
            {"v": col("decimal(8,2)", Decimal(1))},
            r"v is decimal\(8,2\) in .*b.parquet, and double in",
        ),
        ({"w": ids(), "v": col("int32", 1)}, ""),
        ({"W": col("int32", 1)}, r"column W in .*b\.parquet is w in .*a\.parquet"),
        ({"w": col("string", "x")}, r"w is string in .*b\.parquet, and int in .*a\.parquet"),
    ):
        write(tmp_path / "a.parquet", {**one, "w": col("int32", 1)})
        write(tmp_path / "b.parquet", {"id": col("int32", 1), **other} if said else one)
        alone, together = (
            spout_of(tmp_path, "id int, v int", "widen", max_files_per_batch=n) for n in (1, 2)
        )
        assert len(planned(alone)) == 2
        if not said:
            assert len(planned(together)) == 1
            continue
        with pytest.raises(FileRefused, match=f"need common columns, but .*{said}") as refused:
            planned(together)
        assert "max_files_per_batch=1" in refused.value.what_to_do


def test_a_batch_depends_on_its_files_and_not_on_what_spark_says(pinned, tmp_path):
    """E8: an empty batch has the declared columns, and a file of no rows counts."""
    write(tmp_path / "a.parquet", {"id": col("int32"), "more": col("string")})
    spout = spout_of(tmp_path, "id bigint", "widen", opaque=True)
    empty = BatchMeta(items=(), emitted=Fold())
    assert contents(spout.frame(pinned, empty), empty) == ([ID], [])
    assert frame_of(pinned, tmp_path, "id bigint", "widen") == ([ID, ("more", "string")], [])
    [meta] = planned(spout)
    other = spout_of(tmp_path, "id string", "widen")  # schema= has changed since it was emitted
    with pytest.raises(FileRefused, match="column id is int in"):
        other.frame(pinned, meta)


# --- types ---------------------------------------------------------------------------------------

EXTREMES = {
    "boolean": ["true"],
    "tinyint": ["-128", "127"],
    "smallint": ["-32768", "32767"],
    "int": ["-2147483648", "2147483647", "16777217"],
    "bigint": ["-9223372036854775808", "9223372036854775807", "9007199254740993"],
    "float": ["0.1", "'3.4028235e38'", "'1.4e-45'", "'-0.0'", "'NaN'", "'-Infinity'"],
    "double": ["0.1", "'1.7976931348623157e308'"],
    "decimal(8,2)": ["999999.99", "-0.01"],
    "decimal(10,4)": ["999999.9999"],
    "decimal(20,0)": ["18446744073709551615"],
    "decimal(38,2)": ["999999999999999999999999999999999999.99"],
    "date": ["'0001-01-01'", "'9999-12-31'"],
    "timestamp": ["'2013-03-01 00:00:00.000001'"],
    "timestamp_ntz": ["'2013-03-01 00:00:00.000001'"],
    "string": ["'x'"],
    "binary": ["'x'"],
}


def test_what_is_cast_to_a_common_type_and_back_is_the_same(pinned):
    """E8: for every two types that have a common one, with the values at their ends."""
    pairs = [(one, other, common_type(one, other)) for one in EXTREMES for other in EXTREMES]
    assert all(common == common_type(other, one) for one, other, common in pairs)
    texts = {
        f"to_json(struct({value} AS v)) = to_json(struct({there} AS v))"
        if one in ("float", "double")
        else f"{value} <=> {there}"
        for one, _, common in pairs
        if common not in (None, one)
        for text in EXTREMES[one]
        for value in [f"CAST({text} AS {one})"]
        for there in [f"CAST(CAST({value} AS {common}) AS {one})"]
    }
    assert len(texts) > 40
    query = ", ".join(f"{text} AS c{n}" for n, text in enumerate(texts))
    row = pinned.sql(f"SELECT {query}").collect()[0]
    assert [text for text, is_same in zip(texts, row, strict=True) if not is_same] == []
    assert {common_type(one, VOID) for one in EXTREMES} == {*EXTREMES}


# --- a pipeline ----------------------------------------------------------------------------------
def drifting(folder, drift, process):
    """The shop, whose files may differ from its schema."""
    topology = shop(folder, process, files=9)
    assert isinstance(topology.spout, FileSpout)
    schema = "customer bigint, day date, price decimal(10,2)"
    return replace(
        topology, spout=replace(topology.spout, format=Parquet(drift=drift), schema=schema)
    )


def shop_files(folder):
    """Write a file as declared, and one with wider prices, without days and with notes."""
    day = date(1997, 1, 1)
    declared = {
        "customer": col("int64", 1, 2),
        "day": col("date32", day, day),
        "price": col("decimal(10,2)", Decimal("1.10"), Decimal("0.20")),
    }
    other = {
        "price": col("decimal(12,2)", Decimal("3.33"), Decimal("4"), Decimal("0.1")),
        "note": col("string", "x", None, "y"),
        "customer": col("int32", 1, 3, 3),
    }
    write(folder / "1997-01" / "a.parquet", declared)
    return write(folder / "1997-01" / "b.parquet", other)


def cheap_aside(batch):
    good = reliability.quarantine(batch, "price < 1", "too cheap")
    return {"per_customer": good, "per_day": good}


@pytest.mark.slow
def test_the_accounts_of_a_batch_with_drift_balance(tmp_path, connection, pipeline, caplog):
    """E8, V9: a row that is set aside is named by its place, and can be corrected there."""
    other = shop_files(tmp_path)
    pipe = pipeline(drifting(tmp_path, "widen", cheap_aside))
    with caplog.at_level(logging.WARNING, "reliability.transaction.emit"):
        assert pipe.emit(month(1997, 1)) == [1]
    assert [record.getMessage() for record in caplog.records] == [
        f"drift='widen': column price is decimal(12,2) in {other}, and decimal(10,2) in the "
        f"spout's schema; column customer is int in {other}, and bigint in the spout's schema; the "
        f"spout's schema has no column note, which {other} has as string; {other} has no column "
        "day, which the spout's schema has as date"
    ]
    pipe.transact(1)
    revenue = "SELECT customer, orders, revenue FROM per_customer ORDER BY customer"
    assert rows(connection, revenue) == [(1, 2, Decimal("4.43")), (3, 1, Decimal("4.00"))]
    accounts = "SELECT DISTINCT emitted, applied, quarantined FROM reliability.accounts"
    assert rows(connection, accounts) == [(5, 3, 2)]
    aside = "SELECT item, row, contents FROM reliability.quarantine ORDER BY item"
    (first, row, contents), (second, other_row, other_contents) = rows(connection, aside)
    assert (first.endswith("1997-01/a.parquet"), row) == (True, 1)
    assert (second.endswith("1997-01/b.parquet"), other_row) == (True, 2)
    assert json.loads(contents) == {"customer": 2, "day": "1997-01-01", "price": 0.2, "note": None}
    assert json.loads(other_contents) == {"customer": 3, "day": None, "price": 0.1, "note": "y"}
    [told] = [line for line in lines(connection, "shop") if line["row"] == 1]
    correct(connection, "shop", edit(told, price=2))
    pipe.replay(1)
    assert rows(connection, revenue) == [
        (1, 2, Decimal("4.43")),
        (2, 1, Decimal("2.00")),
        (3, 1, Decimal("4.00")),
    ]


def test_nothing_is_allocated_for_a_file_that_a_policy_refuses(
    tmp_path, connection, python_pipeline
):
    """E8: the error comes at emission."""
    shop_files(tmp_path)
    for drift in ("refuse", "ignore"):
        pipe = python_pipeline(drifting(tmp_path, drift, cheap_aside))
        with pytest.raises(FileRefused, match="column price is decimal"):
            pipe.emit(month(1997, 1))
        assert rows(connection, "SELECT count(*) FROM reliability.transaction") == [(0,)]


# --- the page ------------------------------------------------------------------------------------


def test_the_example_of_the_page(pinned, tmp_path, monkeypatch):
    def batch_of(spout):
        [meta] = planned(spout)
        return hide_accounting(spout.frame(pinned, meta))

    monkeypatch.setenv("RELIABILITY_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    names = {"pa": pa, "pq": pq, "batch_of": batch_of, "replace": replace, "FileSpout": FileSpout}
    names["Parquet"] = Parquet
    [text] = re.findall(r"```python\n(>>> .*?)```", (ROOT / PAGE).read_text(), re.DOTALL)
    example = doctest.DocTestParser().get_doctest(text, names, PAGE, PAGE, lineno=0)
    assert len(example.examples) == 9
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(example)
    assert runner.summarize().failed == 0
