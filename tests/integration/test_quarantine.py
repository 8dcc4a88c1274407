"""Rows in quarantine: shown, exported, edited, and back as a correcting replay (rule V9)."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace as replace_in
from datetime import date, datetime
from decimal import Decimal

import pytest
from typer.testing import CliRunner

import reliability
from reliability import Append, Csv, FileSpout, Parquet, State, Sum, Topology
from reliability.cli import app
from reliability.core.errors import CorrectionRefused, CorrectionStale
from reliability.core.set_aside import Correction
from reliability.core.texts import as_exact_json, parse_exact, parse_unambiguous
from reliability.spark.frames.corrections import _Change, _typed, with_corrections
from reliability.transaction.correct.exclude import exclude, include
from reliability.transaction.correct.quarantine import (
    edited_rows,
    end_corrections,
    exported,
    quarantined_rows,
    record_corrections,
)
from reliability.transaction.emit.refreeze import refreeze
from tests.support.fix_pipeline import month, shop, write_parquet
from tests.support.fix_postgres import rows
from tests.support.functions import F
from tests.support.variants import variants

ROWS = [{"customer": n, "day": date(1997, 1, 1), "price": Decimal(n)} for n in range(5)]
REVENUE = "SELECT customer, revenue FROM per_customer ORDER BY customer"


def positive(batch):
    good = reliability.quarantine(batch, "price < 2", "too cheap")
    return {"per_customer": good, "per_day": good}


@pytest.fixture
def committed(tmp_path, pipeline):
    write_parquet(tmp_path / "1997-01" / "a.parquet", ROWS)
    pipe = pipeline(shop(tmp_path, positive))
    pipe.emit(month(1997, 1))
    pipe.transact(1)
    return pipe


def lines(connection, topology="shop"):
    """Export the rows, as they are read again."""
    rows_of_it = quarantined_rows(connection, topology, None)
    return [parse_exact(as_exact_json(exported(row))) for row in rows_of_it]


def edit(line, **values):
    return {**line, "values": {**line["values"], **values}}


def compare(connection, changed, topology="shop"):
    rows_of_it = quarantined_rows(connection, topology, None)
    return edited_rows(rows_of_it, dict(enumerate(changed, 1)))


def correct(connection, changed, topology="shop"):
    found = compare(connection, changed, topology)
    record_corrections(connection, topology, found, "a test", "ann")


def again(pipe):
    """Clear the run once more."""
    pipe.max_tries += 1
    assert pipe.emit(month(1997, 1)) == [1]
    return pipe


def replay(pipe):
    again(pipe).transact(1)


def test_an_edited_row_counts_once_until_it_is_taken_back(committed, connection):
    first, second = lines(connection)
    correct(connection, [edit(second, price=9)])  # the next one takes its place
    assert (first["txid"], first["reason"], first["row"]) == (1, "too cheap", 0)
    assert second["values"]["price"] == Decimal("1.00")
    correct(connection, [first, edit(second, price=Decimal("7.25"), day="1997-01-02")])
    replay(committed)
    assert rows(connection, REVENUE) == [
        (1, Decimal("7.25")),
        (2, Decimal("2.00")),
        (3, Decimal("3.00")),
        (4, Decimal("4.00")),
    ]
    assert rows(connection, "SELECT day, orders FROM per_day ORDER BY day") == [
        (date(1997, 1, 1), 3),
        (date(1997, 1, 2), 1),
    ]
    accounts = "SELECT DISTINCT emitted, applied, quarantined FROM reliability.accounts"
    assert rows(connection, f"{accounts} WHERE status = 'COMMITTED'") == [(5, 4, 1)]
    assert [line["row"] for line in lines(connection)] == [0]
    with connection.transaction() as tx:
        assert end_corrections(tx, "shop", 1, "a test") == 1
    replay(committed)
    assert rows(connection, REVENUE)[0] == (2, Decimal("2.00"))


@pytest.mark.slow
def test_a_row_that_is_still_wrong_is_corrected_again(committed, connection):
    """The quarantine then has the corrected values, and the source those before."""
    _, second = lines(connection)
    correct(connection, [edit(second, price=Decimal("1.50"), day="1997-01-02")])
    replay(committed)
    _, second = lines(connection)
    values = second["values"]
    assert (values["price"], values["day"]) == (Decimal("1.50"), "1997-01-02")
    correct(connection, [edit(second, price=3)])
    replay(committed)
    assert rows(connection, REVENUE)[0] == (1, Decimal("3.00"))
    assert rows(connection, "SELECT day, orders FROM per_day ORDER BY day") == [
        (date(1997, 1, 1), 3),
        (date(1997, 1, 2), 1),
    ]


@pytest.mark.slow
def test_values_that_are_as_in_the_source_again_are_refused(committed, connection):
    _, second = lines(connection)
    correct(connection, [edit(second, price=Decimal("1.50"))])
    replay(committed)
    _, second = lines(connection)
    with pytest.raises(CorrectionRefused, match="values of the source again"):
        correct(connection, [edit(second, price=Decimal("1.00"))])
    ended = "SELECT ended_reason FROM reliability.correction"
    assert rows(connection, ended) == [(None,)]


def test_a_row_that_is_another_one_now_or_gone_fails_the_attempt(committed, connection):
    """All values are compared, not only those that are edited."""
    _, second = lines(connection)
    correct(connection, [edit(second, price=3)])
    other = "UPDATE reliability.correction SET was = replace(was, '1997-01-01', '1997-01-07')"
    assert rows(connection, f"{other} RETURNING 1") == [(1,)]
    with pytest.raises(CorrectionStale, match="1 no longer have the values"):
        again(committed).process(1)
    assert rows(connection, "UPDATE reliability.correction SET row = 9 RETURNING 1") == [(1,)]
    with pytest.raises(CorrectionStale, match="1 are not in the batch any more"):
        again(committed).process(1)
    assert rows(connection, REVENUE)[0] == (2, Decimal("2.00"))


def test_a_refreeze_ends_corrections_and_a_dry_run_of_it_reads_none(
    committed, connection, tmp_path
):
    """V9: the new rows have the same ids, the same index and the same file."""
    old = lines(connection)
    correct(connection, [edit(old[1], price=3)])
    replay(committed)
    corrected = rows(connection, REVENUE)
    assert corrected[0] == (1, Decimal("3.00"))
    others = [{**row, "customer": 10 + place} for place, row in enumerate(ROWS)]
    write_parquet(tmp_path / "1997-01" / "a.parquet", others)

    runner, work = committed.runner, committed.work(None)
    committed.max_tries += 1
    who = replace_in(committed.who(work.task), is_dry_run=True)
    asked = runner.contact(1, who).request_id
    dry_run = runner.run(1, asked, work, committed, as_refrozen=True)
    assert dry_run is not None
    changed = {one.state: (one.rows_added, one.rows_removed) for one in dry_run.differences}
    assert changed["per_customer"] == (3, 4)
    assert rows(connection, REVENUE) == corrected

    assert refreeze(connection, runner.topology, 1, "delivered anew") is not None
    replay(committed)
    assert rows(connection, REVENUE)[0] == (12, Decimal("2.00"))
    assert [line["row"] for line in lines(connection)] == [0, 1]
    for line in (old[1], edit(old[1], price=3)):
        with pytest.raises(
            CorrectionRefused, match="line 1 is not a row that is in quarantine now"
        ):
            compare(connection, [line])


# --- files before a row's own --------------------------------------------------------------------


def priced(batch):
    return {"s": reliability.quarantine(batch, "p IS NULL", "no price")}


def started(pipeline, topology):
    pipe = pipeline(topology)
    assert pipe.emit(None) == [1]
    pipe.transact(1)
    return pipe


def once_more(pipe):
    pipe.max_tries += 1
    assert pipe.emit(None) == [1]
    pipe.transact(1)


def by_k(**values):
    return [State("s", key={"k": "bigint"}, values=values)]


def write_priced(path, keys, prices):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"k": keys, "p": pa.array(prices, pa.int64())}), path)


@pytest.mark.slow
def test_a_correction_follows_its_row_when_a_file_is_excluded(tmp_path, pipeline, connection):
    """The other files' rows then have the ids that were a.parquet's and b.parquet's."""
    for n, name in enumerate("abc"):
        write_priced(tmp_path / f"{name}.parquet", [10 * n, 10 * n + 1], [1, None])
    spout = FileSpout(f"{tmp_path}/*.parquet", 3)
    pipe = started(pipeline, Topology("three", spout, by_k(p=Sum("p", "bigint")), priced))
    _, second, _ = old = lines(connection, "three")
    correct(connection, [edit(second, p=100)], "three")
    whole = "SELECT k::int, p::int FROM s ORDER BY k"
    exclude(connection, "three", f"{tmp_path}/a.parquet", "a test")
    once_more(pipe)
    assert rows(connection, whole) == [(10, 1), (11, 100), (20, 1)]
    with pytest.raises(CorrectionRefused, match="not a row that is in quarantine now"):
        compare(connection, [edit(old[0], p=7)], "three")
    correct(connection, [edit(lines(connection, "three")[0], p=9)], "three")
    include(connection, "three", f"{tmp_path}/a.parquet", "a test")
    once_more(pipe)
    assert rows(connection, whole) == [(0, 1), (10, 1), (11, 100), (20, 1), (21, 9)]
    exclude(connection, "three", f"{tmp_path}/b.parquet", "a test")
    with pytest.raises(CorrectionStale, match="of 2 corrected rows, 1 are not in the batch"):
        once_more(pipe)


@pytest.mark.slow
def test_a_correction_never_moves_to_an_equal_row_of_another_file(tmp_path, pipeline, connection):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("1,1\n2,\n")
    spout = FileSpout(f"{tmp_path}/*.csv", 2, format=Csv(), schema="k bigint, p bigint")
    pipe = started(pipeline, Topology("texts", spout, by_k(p=Sum("p", "bigint")), priced))
    first, _ = sorted(lines(connection, "texts"), key=lambda line: line["item"])
    correct(connection, [edit(first, p=100)], "texts")
    exclude(connection, "texts", f"{tmp_path}/a.csv", "a test")
    with pytest.raises(CorrectionStale, match="1 are not in the batch any more"):
        once_more(pipe)


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_correction_finds_its_row_when_the_home_has_moved(
    tmp_path, pipeline, connection, monkeypatch, format
):
    """V9: a release folder that moves makes no new files; its old path was looked for."""
    old, new = tmp_path / "release 1", tmp_path / "release 2"
    (old / "in").mkdir(parents=True)
    if format == "csv":
        (old / "in" / "a.csv").write_text("1,1\n2,\n")
    else:
        write_priced(old / "in" / "a.parquet", [1, 2], [1, None])
    read_as = Csv() if format == "csv" else Parquet()
    monkeypatch.setenv("RELIABILITY_HOME", str(old))
    spout = FileSpout(f"in/*.{format}", format=read_as, schema="k bigint, p bigint")
    pipe = started(pipeline, Topology("texts", spout, by_k(p=Sum("p", "bigint")), priced))
    [line] = lines(connection, "texts")
    assert (line["item"], line["row"]) == (f"in/a.{format}", 1)
    correct(connection, [edit(line, p=100)], "texts")
    old.rename(new)
    monkeypatch.setenv("RELIABILITY_HOME", str(new))
    once_more(pipe)
    assert rows(connection, "SELECT k::int, p::int FROM s ORDER BY k") == [(1, 1), (2, 100)]


# --- a row that is in quarantine twice -----------------------------------------------------------


def masked_for_one(batch):
    return {
        "s1": reliability.quarantine(batch, "p < 0", "less", mask=["email"]),
        "s2": reliability.quarantine(batch.withColumn("note", F.lit("x")), "p < 0", "less"),
    }


@pytest.mark.slow
def test_each_line_is_compared_with_the_row_that_it_is_from(tmp_path, pipeline, connection):
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = {"k": [1, 2], "email": ["a@b", "c@d"], "note": [None, None], "p": [1, -1]}
    types = {"note": pa.string()}
    pq.write_table(
        pa.table({n: pa.array(v, types.get(n)) for n, v in source.items()}), tmp_path / "a.parquet"
    )
    shown = {n: Append(n, "text") for n in ("email", "note")} | {"p": Append("p", "bigint")}
    states = [State(name, key={"k": "bigint"}, values=shown) for name in ("s1", "s2")]
    topology = Topology("two", FileSpout(f"{tmp_path}/*.parquet"), states, masked_for_one)
    pipe = started(pipeline, topology)
    masked, plain = both = lines(connection, "two")
    assert (masked["values"]["email"], plain["values"]["email"]) == ("***", "c@d")
    assert compare(connection, both, "two") == []
    with pytest.raises(CorrectionRefused, match=r"lines 1 and 2 .* differ in \['p'\]"):
        compare(connection, [edit(masked, p=5), edit(plain, p=6)], "two")
    with pytest.raises(CorrectionRefused, match="'note' does not have the source's value"):
        compare(connection, [edit(plain, note="y")], "two")
    correct(connection, [edit(plain, email="e@f", p=-2)], "two")
    once_more(pipe)
    masked, plain = lines(connection, "two")
    correct(connection, [edit(masked, p=5), plain], "two")
    once_more(pipe)  # the line with *** keeps what was corrected beside it
    second = "SELECT email, note, p::int FROM {} WHERE k = 2"
    assert rows(connection, second.format("s1")) == [("e@f", None, 5)]
    assert rows(connection, second.format("s2")) == [("e@f", "x", 5)]


QUARANTINED = {
    "txid": 1, "xor": -7, "count": 1, "step": "process", "reason": "why", "item": None, "row": None,
    "is_cut": False, "contents": '{"price":1.10,"email":"***","s":{"a":1},"t":"x"}',
    "source": '{"price":1.10,"s":{"a":1},"t":"x"}',
}  # fmt: skip


@pytest.mark.parametrize(
    ("row", "line", "values", "what"),
    [
        ({}, {"id": "5"}, {}, "line 1 is not a row that is in quarantine now"),
        ({}, {"txid": 2}, {}, "line 1 is not a row that is in quarantine now"),
        ({}, {"row": 5}, {}, "'row' is not for you to edit"),
        ({}, {"price": 5}, {}, "'price' is not for you to edit"),
        ({}, {"values": None}, {}, "does not have the columns of the row"),
        ({}, {}, {"colour": "red"}, "does not have the columns of the row: \\['colour'\\]"),
        ({}, {}, {"email": "a@b"}, "'email' is masked"),
        ({}, {}, {"t": 1}, "'t' was \"x\", and 1 is not of that kind"),
        ({}, {}, {"s": {"a": 1, "b": 1}}, "is not of that kind"),
        ({"count": 2, "source": None}, {}, {"price": 5}, "made of several source rows"),
        ({"source": None}, {}, {"price": 5}, "a fan_out\\(\\) or an earlier step has made it"),
        ({"source": "{}"}, {}, {"price": 5}, "'price' does not have the source's value"),
        ({"is_cut": True}, {"values": {}}, {}, "its contents were cut"),
    ],
)
def test_a_line_that_fits_no_row_is_refused(row, line, values, what):
    quarantined = {**QUARANTINED, **row}
    edited = exported(quarantined)
    if values:
        edited = edit(edited, **values)
    with pytest.raises(CorrectionRefused, match=what):
        edited_rows([quarantined], {1: {**edited, **line}})


def test_two_lines_of_a_row_must_not_differ():
    line = exported(QUARANTINED)
    same = [edit(line, price=5), line, edit(line, price=Decimal("5.0"))]
    [found] = edited_rows([QUARANTINED], dict(enumerate(same)))
    assert found.becomes == {"price": 5}
    with pytest.raises(CorrectionRefused, match=r"lines 3 and 7 .* differ in \['price', 't'\]"):
        edited_rows([QUARANTINED], {3: edit(line, price=5), 5: line, 7: edit(line, t="y")})


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"a": 1, "a": 2}', "a name is there twice"),
        ('{"a": NaN}', 'write "NaN"'),
        ('{"a": "\\ud800"}', "surrogates not allowed"),
        ("[1", "Expecting"),
    ],
)
def test_json_that_can_be_read_in_two_ways_is_refused(line, what):
    with pytest.raises(ValueError, match=what):
        parse_unambiguous(line)


# --- values --------------------------------------------------------------------------------------

SOURCE = (
    "SELECT 1L AS _x, 1L AS _n, 1.10BD AS dec, 1Y AS i8, 1L AS i64, DATE '1997-01-01' AS dt,"
    " 1.0D AS d, 1.0F AS f, 'x' AS t, true AS yes, X'00' AS bin, array(1.5BD) AS a,"
    " TIMESTAMP '1997-01-01 12:00:00' AS ts, TIMESTAMP_NTZ '1997-01-01 12:00:00' AS ntz,"
    " named_struct('a', 1, 'b', 'x') AS s, map('x', 1) AS m"
)


REFUSED = {
    "dec": ["7.255", '"7,25"', '"x"', "true", "1e9"],
    "i8": ["200", "1.5", "true"],
    "i64": ["9223372036854775808"],
    "dt": ['"19970102"', '"1997-01-02 x"', '"1997-02-30"', "5"],
    "d": ["1e400"],
    "f": ["1e39"],
    "t": ["1.10", "true", "{}"],
    "yes": ["1"],
    "bin": ["1234", '"AA"'],
    "a": ["[1.55]", "5"],
    "ts": ["0", '"1997-01-01T12:00:00.1234567Z"'],
    "ntz": ['"1997-01-01T12:00:00Z"'],
    "s": ['{"a": 1}', '{"a": 1, "b": "x", "c": 1}', '{"a": 1.5, "b": "x"}', '{"a": 1, "b": 1}'],
    "m": ['{"x": 2}'],
}


@pytest.mark.parametrize(
    ("column", "text"),
    variants(
        [(name, text) for name, texts in REFUSED.items() for text in texts],
        lambda case: case[1] == REFUSED[case[0]][0],
    ),
)
def test_a_value_that_would_change_is_refused(spark, column, text):
    """Spark's JSON reader rounds, wraps and cuts without a word (V6)."""
    schema = spark.sql(SOURCE).select(column).schema
    change = _Change(was={}, becomes=parse_exact(f'{{"{column}": {text}}}'))
    with pytest.raises(CorrectionRefused, match=f"column {column}"):
        _typed(spark, schema, {(None, 1): change})


def test_a_batch_with_a_value_that_would_change_is_refused(spark):
    becomes = '{"dec": 7.255}'
    change = Correction(xor=1, item=None, row=None, was='{"i64": 1}', becomes=becomes)
    with pytest.raises(CorrectionRefused, match="column dec"):
        with_corrections(spark.sql(SOURCE), [change], str)


def test_a_value_of_each_type_is_read_as_it_is_written(spark):
    becomes = {
        "dec": Decimal("7.25"), "i8": -128, "dt": "1997-01-02", "d": Decimal("1e300"), "f": "NaN",
        "t": "\0 1.10", "yes": False, "bin": "AAE=", "a": [Decimal("2.5"), None],
        "ts": "1997-01-01T12:00:00.000001+02:00", "ntz": None, "s": {"b": "y", "a": 2},
    }  # fmt: skip
    change = Correction(
        xor=1, item=None, row=None, was='{"i64": 1}', becomes=as_exact_json(becomes)
    )
    [row] = with_corrections(spark.sql(SOURCE), [change], str).collect()
    assert math.isnan(row["f"])
    assert {**row.asDict(recursive=True), "f": None} == {
        "_x": 1, "_n": 1, "i64": 1, "m": {"x": 1}, "dec": Decimal("7.25"), "i8": -128,
        "dt": date(1997, 1, 2), "d": 1e300, "f": None, "t": "\0 1.10", "yes": False,
        "bin": b"\0\1", "a": [Decimal("2.5"), None], "ts": datetime(1997, 1, 1, 10, 0, 0, 1),
        "ntz": None, "s": {"a": 2, "b": "y"},
    }  # fmt: skip


OWN_NAMES = [
    "_id", "_txid", "_row", "_item", "_reason", "_corrected", "_names", "_was", "_becomes", "id",
    "txid", "row", "item", "values", "names", "text", "texts", "a.b", "a`b", "the longest. `name`",
]  # fmt: skip


def negative_of_each(batch):
    words = reliability.fan_out(batch, "words")
    total = reliability.aggregate(batch, ["p"], n=F.count("*"))
    return {
        "s": reliability.quarantine(batch, "p < 0", "less"),
        "w": reliability.quarantine(words, "words = 'b'", "b"),
        "g": reliability.quarantine(total, "p = 2", "two"),
    }


@pytest.mark.slow
def test_columns_of_any_name_and_rows_that_are_no_source_rows(tmp_path, pipeline, connection):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = {
        "k": pa.array([1, 2, 3, 4]),
        "p": pa.array([-1, 2, 2, 1]),
        "words": pa.array([["a", "b"], ["a"], ["b"], ["c"]]),
        "m": pa.array([[("x", 1)]] * 4, pa.map_(pa.string(), pa.int64())),
    }
    own = {name: pa.array([f"{name} {n}" for n in range(4)]) for name in OWN_NAMES}
    pq.write_table(pa.table(table | own), tmp_path / "a.parquet")
    states = [
        *by_k(p=Append("p", "bigint"), o=Append("_id", "text"), t=Append("txid", "text")),
        State("w", values={"word": Append("words", "text")}),
        State("g", key={"p": "bigint"}, values={"n": Sum("n", "numeric")}),
    ]
    topology = Topology("own", FileSpout(f"{tmp_path}/*.parquet"), states, negative_of_each)
    pipe = started(pipeline, topology)
    first, *others = lines(connection, "own")
    for line in others:
        name = "k" if "k" in line["values"] else "n"
        if line["row"] == 2:  # an array of one: the row is the source's, its word is not
            name = "words"
        with pytest.raises(CorrectionRefused):
            compare(connection, [edit(line, **{name: 9})], "own")
    assert first["values"]["values"] == "values 0"
    correct(connection, [edit(first, p=5, _id="new", values="new", **{"a.b": "new"})], "own")
    once_more(pipe)
    edited = "SELECT p::int, o, t FROM s WHERE k = 1"
    assert rows(connection, edited) == [(5, "new", "txid 0")]


def test_numbers_keep_their_digits(connection, tmp_path, pipeline):
    import pyarrow as pa
    import pyarrow.parquet as pq

    exact, long = Decimal("0.12345678901234567890"), 2**62 + 1
    table = pa.table({"n": pa.array([exact], pa.decimal128(38, 20)), "k": [long]})
    pq.write_table(table, tmp_path / "a.parquet")
    sums = State("sums", values={"n": Sum("n", "numeric(38,20)"), "k": Sum("k", "bigint")})
    pipe = pipeline(Topology("exact", FileSpout(f"{tmp_path}/*.parquet"), [sums], all_of_it))
    pipe.emit(None)
    pipe.transact(1)
    [line] = lines(connection, "exact")
    assert line["values"] == {"n": exact, "k": long}
    correct(connection, [edit(line, n=exact + 1)], "exact")
    once_more(pipe)
    assert rows(connection, "SELECT n, k FROM sums") == [(exact + 1, long)]


def all_of_it(batch):
    return {"sums": reliability.quarantine(batch, "n < 1", "small")}


# --- the command line ----------------------------------------------------------------------------


@pytest.fixture
def call(committed, connection, monkeypatch, tmp_path):
    monkeypatch.setenv("RELIABILITY_DSN", connection.dsn)

    def run(*arguments):
        return CliRunner().invoke(app, ["quarantine", *map(str, arguments)])

    return run


def test_list_show_export_completeness_and_forget(call, connection, tmp_path):
    done = CliRunner().invoke(app, ["completeness", "shop", "--json"])
    [interval] = json.loads(done.stdout)["intervals"]
    assert interval == {
        "interval": "1997-01",
        "state": "complete",
        "count": 1,
        "txids": 1,
        "committed": 1,
        "first_txid": 1,
        "emitted": 5,
        "dropped": 0,
        "quarantined": 2,
        "states": [
            {"state": "per_customer", "dropped": 0, "quarantined": 2},
            {"state": "per_day", "dropped": 0, "quarantined": 2},
        ],
        "why": None,
        "next_step": None,
    }
    listed = call("list")
    assert listed.exit_code == 0
    assert "too cheap" in listed.stdout
    [counted] = json.loads(call("list", "shop", "--json").stdout)
    assert (counted["txid"], counted["rows"]) == (1, 2)
    shown = call("show", "shop", "1").stdout
    assert "1997-01/a.parquet, row 0" in shown
    assert '"price":0.00' in shown
    assert call("export", "shop", "--file", tmp_path / "rows.jsonl").exit_code == 0
    first, _ = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert json.loads(first)["values"]["customer"] == 0
    assert call("show").exit_code == 2

    file = tmp_path / "rows.jsonl"
    file.write_text("{")
    done = call("replay", "shop", "--file", file, "--reason", "x", "--yes")
    assert done.exit_code == 1
    assert "CORRECTION_REFUSED" in done.stderr
    assert "line 1 is not JSON" in done.stderr

    _, second = lines(connection)
    correct(connection, [edit(second, price=3)])
    done = call("forget", "shop", "1", "--reason", "wrong after all")
    assert "1 corrections are taken back" in done.stdout
    assert "reliability replay shop 1" in done.stdout


# --- what is not complete ------------------------------------------------------------------------


def cheap_days_leave(batch):
    dear = reliability.drop(batch, "price < 3", "a cheap day")
    return {"per_customer": batch, "per_day": dear}


def test_a_month_is_complete_only_if_it_counts_what_the_source_has(
    pipeline, connection, tmp_path, monkeypatch
):
    """One state's drops were everybody's; an excluded file, an exchanged one and a second
    delivery were complete, or just late."""
    folder = tmp_path / "1997-01"
    for name in ("a", "b"):
        write_parquet(folder / f"{name}.parquet", ROWS if name == "a" else [*ROWS, *ROWS])
    monkeypatch.setenv("RELIABILITY_HOME", str(tmp_path))
    pipe = pipeline(shop(tmp_path, cheap_days_leave, files=2))
    monkeypatch.setattr("reliability.cli.lag.topology_from_code", lambda *_: pipe.runner.topology)
    pipe.emit(month(1997, 1))
    pipe.transact(1)
    [found] = completeness()
    assert (found["state"], found["emitted"]) == ("complete", 15)
    assert found["states"] == [
        {"state": "per_customer", "dropped": 0, "quarantined": 0},
        {"state": "per_day", "dropped": 9, "quarantined": 0},
    ]
    assert "9 per_day" in told()

    write_parquet(folder / "b.parquet", ROWS)
    assert pipe.runner.refreeze(1, "a corrected delivery")  # and its replay fails, or still runs
    [found] = completeness()
    assert (found["state"], found["emitted"]) == ("changed", 15)
    assert found["why"].startswith("1997-01/b.parquet has changed since it was read: ")
    told(code=3)
    exclude(connection, "shop", "1997-01/b.parquet", "its prices are in pence")
    [found] = completeness()
    assert (found["state"], found["emitted"]) == ("to_replay", 15)
    assert found["why"] == "1997-01/b.parquet is excluded and still counted"
    assert "  next: to make the tables agree: reliability replay shop 1\n" in told(code=3)
    replay(pipe)
    [found] = completeness()
    assert (found["state"], found["emitted"]) == ("complete", 5)

    whole = (folder / "a.parquet").read_bytes()
    write_parquet(folder / "a.parquet", ROWS[1:])
    [found] = completeness()
    assert found["state"] == "changed"
    assert re.match(
        r"1997-01/a.parquet has changed .*: [\d,]+ bytes then, [\d,]+ now", found["why"]
    )
    assert "reliability replay shop 1 --refreeze" in told(code=3)
    (folder / "a.parquet").unlink()  # archived: it has not changed
    (folder / "b.parquet").unlink()
    assert completeness()[0]["state"] == "complete"

    (folder / "again.parquet").write_bytes(whole)
    write_parquet(folder / "new.parquet", ROWS[:1])
    [found] = completeness()
    second = "1997-01/again.parquet looks like a second delivery of 1997-01/a.parquet"
    assert found["state"] == "late"
    assert found["why"].endswith(f"; {second}, which has counted")
    assert "`reliability exclude shop 1997-01/again.parquet --reason '…'`" in found["next_step"]
    assert "1997-01/new.parquet looks" not in found["why"]
    assert second in told(code=3)
    assert second in CliRunner().invoke(app, ["lag", "shop"]).stdout


def completeness():
    done = CliRunner().invoke(app, ["completeness", "shop", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["source_error"], found["states_error"]) == (None, None)
    return found["intervals"]


def told(code=0):
    done = CliRunner().invoke(app, ["completeness", "shop", "--check"])
    assert done.exit_code == code, done.output
    return done.stdout


@pytest.fixture
def with_spark(committed, monkeypatch):
    """Run the steps of replays in this process's session; the code is what was deployed."""

    def run_step(grant, step, is_wanted):
        committed.run_step(grant, step)

    monkeypatch.setattr("reliability.cli.replay.steps_of", lambda *chosen: run_step)
    monkeypatch.setattr(
        "reliability.cli.replay.topology_from_code", lambda *chosen: committed.runner.topology
    )


def test_a_dry_run_shows_what_corrected_rows_change_and_a_replay_does_it(
    call, with_spark, committed, connection, tmp_path
):
    file = tmp_path / "rows.jsonl"
    call("export", "shop", "--file", file)
    file.write_text(file.read_text().replace('"price": 1.00', '"price": 7.25'))
    options = ("--file", file, "--reason", "asked them", "--module", __name__)
    tried = call("replay", "shop", *options, "--dry-run")
    assert tried.exit_code == 0, tried.output
    assert "1:1 (1997-01) would change" in tried.stdout
    assert "revenue +7.25" in tried.stdout
    assert "1 rows of txid 1 would be read as corrected" in tried.stdout
    replay(committed)  # a dry run's corrections are its own
    assert rows(connection, REVENUE)[0] == (2, Decimal("2.00"))
    attempts = rows(connection, "SELECT count(*) FROM reliability.attempt")
    asked = call("replay", "shop", *options)  # nobody answers, and Spark must not run first
    assert asked.exit_code == 1
    assert "Correct 1 rows of txid 1?" in asked.stderr
    assert "add --yes to go on without it" in asked.stderr
    assert rows(connection, "SELECT count(*) FROM reliability.attempt") == attempts
    done = call("replay", "shop", *options, "--yes")
    assert done.exit_code == 0, done.output
    assert "1:3 (1997-01) changed" in done.stdout
    assert rows(connection, REVENUE)[0] == (1, Decimal("7.25"))
    assert "CORRECTION_REFUSED" in call("replay", "shop", *options, "--yes").stderr
    done = call("forget", "shop", "1", "--reason", "wrong after all")
    assert "1 corrections are taken back" in done.stdout  # without the dry run's
