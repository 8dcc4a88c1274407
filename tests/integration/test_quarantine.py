"""Rows in quarantine: shown, exported, edited, and back as a correcting replay (rule V9)."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import replace as replace_in
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

import reliability
from reliability import Append, Count, Csv, FileSpout, History, State, Sum, Topology
from reliability.core.errors import CorrectionRefused, CorrectionStale, ReplayNotPossible
from reliability.core.set_aside import Correction
from reliability.core.texts import as_exact_json, parse_exact, parse_unambiguous
from reliability.deployment.lazy import pa, pq
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import holding
from reliability.spark.frames.corrections import _Change, _typed, with_corrections
from reliability.transaction.correct.exclude import exclude, include
from reliability.transaction.correct.park import skip
from reliability.transaction.correct.quarantine import (
    EditedRow,
    check_correctable,
    edited_rows,
    exported,
    record_corrections,
)
from reliability.transaction.correct.replayable import Replayable
from reliability.transaction.correct.rollback import roll_back
from reliability.transaction.emit.refreeze import refreeze
from reliability.transaction.maintain.compaction import compact
from reliability.transaction.replay import ReplayRequest, ReplayRun
from tests.replay.shop import Shop, made
from tests.support.command_line import read, say
from tests.support.fix_pipeline import month, pipeline_of, shop, write_parquet
from tests.support.fix_postgres import database_of, execute, new_database, rows
from tests.support.functions import F
from tests.support.quarantined import compare, correct, edit, lines
from tests.support.variants import variants

EXACT, LONG = Decimal("0.12345678901234567890"), 2**62 + 1
ROWS = [
    {"customer": n, "day": date(1997, 1, 1), "price": Decimal(n), "exact": EXACT, "long": LONG}
    for n in range(5)
]
REVENUE = "SELECT customer, revenue FROM per_customer ORDER BY customer"
PER_DAY = "SELECT day, orders FROM per_day ORDER BY day"


def positive(batch):
    good = reliability.quarantine(batch, "price < 2", "too cheap")
    return {"per_customer": good, "per_day": reliability.drop(good, "price = 4", "four")}


def write_exact(path, rows):
    types = {"customer": pa.int64(), "day": pa.date32(), "price": pa.decimal128(10, 2)}
    exact = {"exact": pa.decimal128(38, 20), "long": pa.int64()}
    write_parquet(path, rows, pa.schema(types | exact))


def exact_shop():
    """A topology over a home's files."""
    revenue: dict[str, Any] = {"revenue": Sum("price", "numeric(14,2)")}
    exact = {"exact": Sum("exact", "numeric(38,20)"), "long": Sum("long", "bigint")}
    return Topology(
        "shop",
        FileSpout("{data_interval_start:%Y-%m}/*.parquet"),
        [
            State("per_customer", key={"customer": "bigint"}, values=revenue | exact),
            State("per_day", key={"day": "date"}, values={"orders": Count(), **revenue}),
        ],
        positive,
    )


@pytest.fixture(scope="module")
def first_home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    write_exact(home / "1997-01" / "a.parquet", ROWS)
    return home


@pytest.fixture(scope="module")
def database(template, spark, first_home):
    """A ledger in which the batch has committed."""
    with new_database(template) as dsn, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RELIABILITY_HOME", str(first_home))
        with LedgerConnection(dsn) as connection:
            pipeline_of(exact_shop(), connection, spark).take_in(month(1997, 1))
        yield database_of(dsn)


@pytest.fixture
def origin(request, template):
    needs_batch = "committed" in request.fixturenames
    return request.getfixturevalue("database") if needs_batch else template


@pytest.fixture
def committed(first_home, tmp_path, pipeline, monkeypatch):
    """The pipeline of a copy of that ledger; its home has moved."""
    shutil.copytree(first_home, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("RELIABILITY_HOME", str(tmp_path))
    return pipeline(exact_shop())


@pytest.fixture
def with_spark(committed, monkeypatch):
    """Run the steps of replays in this process's session; the code is what was deployed."""

    def run_step(grant, step, is_wanted):
        committed.run_step(grant, step)

    monkeypatch.setattr("reliability.cli.replay.steps_of", lambda *chosen: run_step)
    monkeypatch.setattr(
        "reliability.cli.replay.topology_from_code", lambda *chosen: committed.runner.topology
    )


def call(*arguments, code=0):
    return say("quarantine", *map(str, arguments), code=code)


def test_an_edited_row_counts_once_until_it_is_taken_back(
    committed, with_spark, connection, tmp_path
):
    """V9: found by its place in a home that has moved, with all digits; a dry run's is its own."""
    first, second = lines(connection, "shop")
    place = {name: second[name] for name in ("txid", "reason", "item", "row")}
    assert place == {"txid": 1, "reason": "too cheap", "item": "1997-01/a.parquet", "row": 1}
    numbers = {"price": Decimal("1.00"), "exact": EXACT, "long": LONG}
    assert second["values"] == {"customer": 1, "day": "1997-01-01", **numbers}
    file = tmp_path / "rows.jsonl"
    options = ("--file", file, "--reason", "asked them", "--module", __name__)

    call("export", "shop", "--file", file)
    file.write_text(file.read_text().replace('"price": 1.00', '"price": 8.25'))
    tried = call("replay", "shop", *options, "--dry-run")
    assert "1:1 (1997-01) would change" in tried.stdout
    assert "revenue +8.25" in tried.stdout
    assert "1 rows of txid 1 would be read as corrected" in tried.stdout
    assert rows(connection, REVENUE)[0] == (2, Decimal("2.00"))
    attempts = rows(connection, "SELECT count(*) FROM reliability.attempt")
    asked = call("replay", "shop", *options, code=1)  # nobody answers: Spark must not run first
    assert "Correct 1 rows of txid 1?" in asked.stderr
    assert "add --yes to go on without it" in asked.stderr
    assert rows(connection, "SELECT count(*) FROM reliability.attempt") == attempts

    correct(connection, "shop", edit(second, price=9))  # the next one takes its place
    better = edit(second, price=Decimal("7.25"), day="1997-01-02", exact=EXACT + 1)
    file.write_text("".join(f"{as_exact_json(line)}\n" for line in (first, better)))
    done = call("replay", "shop", *options, "--yes")
    assert "1:2 (1997-01) changed" in done.stdout
    assert rows(connection, REVENUE) == [(1, Decimal("7.25")), (2, 2), (3, 3), (4, 4)]
    exact = "SELECT exact, long FROM per_customer ORDER BY customer LIMIT 2"
    assert rows(connection, exact) == [(EXACT + 1, LONG), (EXACT, LONG)]
    assert rows(connection, PER_DAY) == [(date(1997, 1, 1), 2), (date(1997, 1, 2), 1)]
    accounts = "SELECT emitted, applied, dropped, quarantined FROM reliability.accounts"
    accounts += " WHERE status = 'COMMITTED' ORDER BY state"
    assert rows(connection, accounts) == [(5, 4, 0, 1), (5, 3, 1, 1)]
    assert [line["row"] for line in lines(connection, "shop")] == [0]
    assert "CORRECTION_REFUSED" in call("replay", "shop", *options, "--yes", code=1).stderr

    done = call("forget", "shop", "1", "--reason", "wrong after all")
    assert "1 corrections are taken back" in done.stdout  # without the dry run's
    assert "reliability replay shop 1" in done.stdout
    committed.replay(1)
    assert rows(connection, REVENUE)[0] == (2, Decimal("2.00"))


@pytest.mark.slow
def test_a_row_that_is_still_wrong_is_corrected_again(committed, connection):
    """The quarantine then has the corrected values, and the source those before."""
    _, second = lines(connection, "shop")
    correct(connection, "shop", edit(second, price=Decimal("1.50"), day="1997-01-02"))
    committed.replay(1)
    _, second = lines(connection, "shop")
    values = second["values"]
    assert (values["price"], values["day"]) == (Decimal("1.50"), "1997-01-02")
    with pytest.raises(CorrectionRefused, match="values of the source again"):
        correct(connection, "shop", edit(second, price=Decimal("1.00"), day="1997-01-01"))
    assert rows(connection, "SELECT ended_reason FROM reliability.correction") == [(None,)]
    correct(connection, "shop", edit(second, price=3))
    committed.replay(1)
    assert rows(connection, REVENUE)[0] == (1, Decimal("3.00"))
    assert rows(connection, PER_DAY) == [(date(1997, 1, 1), 2), (date(1997, 1, 2), 1)]


def test_a_row_that_is_another_one_now_or_gone_fails_the_attempt(committed, connection):
    """All values are compared, not only those that are edited."""
    correct(connection, "shop", *(edit(line, price=3) for line in lines(connection, "shop")))
    other = "SET was = replace(was, '1997-01-01', '1997-01-07') WHERE row = 1"
    for change in ("SET row = 9 WHERE row = 0", other):
        assert rows(connection, f"UPDATE reliability.correction {change} RETURNING 1") == [(1,)]
    told = "of 2 corrected rows, 1 are not in the batch any more, and 1 no longer have the values"
    with pytest.raises(CorrectionStale, match=told):
        committed.replay(1)
    assert rows(connection, REVENUE)[0] == (2, Decimal("2.00"))


def test_a_refreeze_ends_corrections_and_a_dry_run_of_it_reads_none(
    committed, connection, tmp_path
):
    """V9: the new rows have the same ids, the same index and the same file."""
    old = lines(connection, "shop")
    correct(connection, "shop", edit(old[1], price=3))
    before = rows(connection, REVENUE)
    others = [{**row, "customer": 10 + place} for place, row in enumerate(ROWS)]
    write_exact(tmp_path / "1997-01" / "a.parquet", others)

    runner, work = committed.runner, committed.work(None)
    committed.max_tries += 1
    asked = runner.contact(1, replace_in(committed.who(work.task), is_dry_run=True)).request_id
    dry_run = runner.run(1, asked, work, committed, as_refrozen=True)
    assert dry_run is not None
    changed = {one.state: (one.rows_added, one.rows_removed) for one in dry_run.differences}
    assert changed["per_customer"] == (3, 3)
    assert rows(connection, REVENUE) == before

    assert refreeze(connection, runner.topology, 1, "delivered anew") is not None
    committed.replay(1)
    assert rows(connection, REVENUE)[0] == (12, Decimal("2.00"))
    assert [line["row"] for line in lines(connection, "shop")] == [0, 1]
    for line in (old[1], edit(old[1], price=3)):
        with pytest.raises(CorrectionRefused, match="1 is not a row that is in quarantine now"):
            compare(connection, "shop", line)


# --- files before a row's own --------------------------------------------------------------------


def priced(batch):
    return {"s": reliability.quarantine(batch, "p IS NULL", "no price")}


def by_k(**values):
    return [State("s", key={"k": "bigint"}, values=values)]


def write_priced(path, keys, prices):
    pq.write_table(pa.table({"k": keys, "p": pa.array(prices, pa.int64())}), path)


@pytest.mark.slow
def test_a_correction_follows_its_row_when_a_file_is_excluded(tmp_path, pipeline, connection):
    """The other files' rows then have the ids that were a.parquet's and b.parquet's."""
    for n, name in enumerate("abc"):
        write_priced(tmp_path / f"{name}.parquet", [10 * n, 10 * n + 1], [1, None])
    spout = FileSpout(f"{tmp_path}/*.parquet", 3)
    pipe = pipeline(Topology("three", spout, by_k(p=Sum("p", "bigint")), priced)).take_in()
    _, second, _ = old = lines(connection, "three")
    correct(connection, "three", edit(second, p=100))
    whole = "SELECT k::int, p::int FROM s ORDER BY k"
    exclude(connection, "three", f"{tmp_path}/a.parquet", "a test")
    pipe.replay(1)
    assert rows(connection, whole) == [(10, 1), (11, 100), (20, 1)]
    with pytest.raises(CorrectionRefused, match="not a row that is in quarantine now"):
        compare(connection, "three", edit(old[0], p=7))
    correct(connection, "three", edit(lines(connection, "three")[0], p=9))
    include(connection, "three", f"{tmp_path}/a.parquet", "a test")
    pipe.replay(1)
    assert rows(connection, whole) == [(0, 1), (10, 1), (11, 100), (20, 1), (21, 9)]
    exclude(connection, "three", f"{tmp_path}/b.parquet", "a test")
    with pytest.raises(CorrectionStale, match="of 2 corrected rows, 1 are not in the batch"):
        pipe.replay(1)


@pytest.mark.slow
def test_a_correction_never_moves_to_an_equal_row_of_another_file(tmp_path, pipeline, connection):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("1,1\n2,\n")
    spout = FileSpout(f"{tmp_path}/*.csv", 2, format=Csv(), schema="k bigint, p bigint")
    pipe = pipeline(Topology("texts", spout, by_k(p=Sum("p", "bigint")), priced)).take_in()
    first, _ = sorted(lines(connection, "texts"), key=lambda line: line["item"])
    correct(connection, "texts", edit(first, p=100))
    exclude(connection, "texts", f"{tmp_path}/a.csv", "a test")
    with pytest.raises(CorrectionStale, match="1 are not in the batch any more"):
        pipe.replay(1)


# --- a row that is in quarantine twice -----------------------------------------------------------


def masked_for_one(batch):
    return {
        "s1": reliability.quarantine(batch, "p < 0", "less", mask=["email"]),
        "s2": reliability.quarantine(batch.withColumn("note", F.lit("x")), "p < 0", "less"),
    }


@pytest.mark.slow
def test_each_line_is_compared_with_the_row_that_it_is_from(tmp_path, pipeline, connection):
    source = {"k": [1, 2], "email": ["a@b", "c@d"], "note": [None, None], "p": [1, -1]}
    types = {"note": pa.string()}
    pq.write_table(
        pa.table({n: pa.array(v, types.get(n)) for n, v in source.items()}), tmp_path / "a.parquet"
    )
    shown = {n: Append(n, "text") for n in ("email", "note")} | {"p": Append("p", "bigint")}
    states = [State(name, key={"k": "bigint"}, values=shown) for name in ("s1", "s2")]
    topology = Topology("two", FileSpout(f"{tmp_path}/*.parquet"), states, masked_for_one)
    pipe = pipeline(topology).take_in()
    masked, plain = both = lines(connection, "two")
    assert (masked["values"]["email"], plain["values"]["email"]) == ("***", "c@d")
    assert compare(connection, "two", *both) == []
    with pytest.raises(CorrectionRefused, match=r"lines 1 and 2 .* differ in \['p'\]"):
        compare(connection, "two", edit(masked, p=5), edit(plain, p=6))
    with pytest.raises(CorrectionRefused, match="'note' does not have the source's value"):
        compare(connection, "two", edit(plain, note="y"))
    correct(connection, "two", edit(plain, email="e@f", p=-2))
    pipe.replay(1)
    masked, plain = lines(connection, "two")
    correct(connection, "two", edit(masked, p=5), plain)
    pipe.replay(1)  # the line with *** keeps what was corrected beside it
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
    "d": ["1e400"],
    "f": ["1e39"],
    "yes": ["1"],
    "i64": ["9223372036854775808"],
    "i8": ["200", "1.5", "true"],
    "t": ["1.10", "true", "{}"],
    "bin": ["1234", '"AA"'],
    "a": ["[1.55]", "5"],
    "dec": ["7.255", '"7,25"', '"x"', "true", "1e9"],
    "dt": ['"19970102"', '"1997-01-02 x"', '"1997-02-30"', "5"],
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


def test_a_row_of_a_file_that_is_twice_in_a_batch_is_not_corrected(tmp_path, spark):
    """A feed had a file as inserted and as deleted, and "of 1 corrected rows, -1" were gone."""
    write_priced(tmp_path / "a.parquet", [1, 2], [1, None])
    changes = spark.range(2).withColumnRenamed("id", "_x").selectExpr("_x", "1L AS _n")
    batch = spark.read.parquet(f"{tmp_path}/a.parquet").crossJoin(changes)
    [path] = batch.select("_metadata.file_path").distinct().collect()
    change = Correction(xor=1, item=path[0], row=1, was='{"k": 2}', becomes='{"p": 5}')
    told = "of 1 corrected rows, some are in the batch more .*`reliability quarantine forget"
    with pytest.raises(CorrectionRefused, match=told):
        with_corrections(batch, [change], str)
    [row] = with_corrections(batch.where("_x = 1"), [change], str).where("k = 2").collect()
    assert row["p"] == 5


def test_a_value_of_each_type_is_read_as_it_is_written(spark):
    becomes = {
        "dec": Decimal("7.25"), "i8": -128, "dt": "1997-01-02", "d": Decimal("1e300"), "f": "NaN",
        "t": "\0 1.10", "yes": False, "bin": "AAE=", "a": [Decimal("2.5"), None],
        "ts": "1997-01-01T12:00:00.000001+02:00", "ntz": None, "s": {"b": "y", "a": 2},
    }  # fmt: skip
    text = as_exact_json(becomes)
    change = Correction(xor=1, item=None, row=None, was='{"i64": 1}', becomes=text)
    [row] = with_corrections(spark.sql(SOURCE), [change], str).collect()
    assert math.isnan(row["f"])
    assert {**row.asDict(recursive=True), "f": None} == {
        "_x": 1, "_n": 1, "i64": 1, "m": {"x": 1}, "dec": Decimal("7.25"), "i8": -128,
        "dt": date(1997, 1, 2), "d": 1e300, "f": None, "t": "\0 1.10", "yes": False,
        "bin": b"\0\1", "a": [Decimal("2.5"), None], "ts": datetime(1997, 1, 1, 10, 0, 0, 1),
        "ntz": None, "s": {"a": 2, "b": "y"},
    }  # fmt: skip
    change = replace_in(change, becomes='{"dec": 7.255}')
    with pytest.raises(CorrectionRefused, match="column dec"):
        with_corrections(spark.sql(SOURCE), [change], str)


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
    pipe = pipeline(topology).take_in()
    first, *others = lines(connection, "own")
    for line in others:
        name = "k" if "k" in line["values"] else "n"
        if line["row"] == 2:  # an array of one: the row is the source's, its word is not
            name = "words"
        with pytest.raises(CorrectionRefused):
            compare(connection, "own", edit(line, **{name: 9}))
    assert first["values"]["values"] == "values 0"
    correct(connection, "own", edit(first, p=5, _id="new", values="new", **{"a.b": "new"}))
    pipe.replay(1)
    assert rows(connection, "SELECT p::int, o, t FROM s WHERE k = 1") == [(5, "new", "txid 0")]


# --- the command line ----------------------------------------------------------------------------


def test_list_show_export_and_completeness(committed, connection, tmp_path):
    """One state's drops were everybody's.

    Of a file in which no row was edited, stdout had nothing that a program could read.
    """
    [interval] = read("completeness", "shop")["intervals"]
    assert interval == {
        "interval": "1997-01",
        "state": "complete",
        "why": None,
        "next_step": None,
        "count": 1,
        "txids": 1,
        "committed": 1,
        "first_txid": 1,
        "emitted": 5,
        "dropped": 1,
        "quarantined": 2,
        "states": [
            {"state": "per_customer", "dropped": 0, "quarantined": 2},
            {"state": "per_day", "dropped": 1, "quarantined": 2},
        ],
    }
    assert "1 per_day" in told(code=3)  # nobody can read the source
    assert "too cheap" in call("list").stdout
    [counted] = read("quarantine", "list", "shop")
    assert (counted["txid"], counted["rows"]) == (1, 2)
    shown = call("show", "shop", "1").stdout
    assert "1997-01/a.parquet, row 0" in shown
    assert '"price":0.00' in shown
    as_json = read("quarantine", "show", "shop", "1")[0]
    assert as_json.keys() >= {"number", "interval_start", "interval_zone", "committed_at", "row"}
    call("show", code=2)
    file = tmp_path / "rows.jsonl"
    call("export", "shop", "--file", file)
    first, _ = file.read_text().splitlines()
    assert json.loads(first)["values"]["customer"] == 0
    options = ("--file", file, "--reason", "x")
    assert call("replay", "shop", *options).stdout == "No row was changed.\n"
    for how in ((), ("--dry-run",)):
        answer = {"topology": "shop", "is_dry_run": how != (), "replayed": []}
        assert json.loads(call("replay", "shop", *options, *how, "--json").stdout) == answer
    number, deep = first.replace("0.00", "1e9999999999999999999"), "[" * 100_000
    for text, what in (
        ("{", "line 1 is not JSON"),
        (number, "line 1 is not JSON"),
        (deep, "line 1 is not JSON"),
        (first.replace('"txid": 1', '"txid": [1]'), "line 1 is not a row that is in quarantine"),
        (first.encode("utf-16"), "is not a text in UTF-8"),
    ):
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        said = call("replay", "shop", *options, "--yes", code=1).stderr
        assert "CORRECTION_REFUSED" in said
        assert what in said
    for verb in ("replay", "export"):
        done = call(verb, "shop", "--file", tmp_path, "--reason", "x", "--yes", code=2)
        assert "Is a directory" in done.stderr


CORRECTED = """
    INSERT INTO reliability.correction (topology, txid, xor, was, becomes, reason, corrected_by)
    SELECT 'shop', txid, 1, '{"k": 1}', '{"k": 2}', 'r', 'ann'
      FROM unnest(%(txids)s::bigint[]) AS t (txid)
"""
COUNTING = "SELECT txid FROM reliability.correction WHERE ended_at IS NULL ORDER BY txid"


def one_txid(_):
    """A state that keeps the last txid alone."""
    return [State("exact", key={"k": "bigint"}, values={"n": Count()}, keep=History(txids=1))]


def test_what_no_attempt_could_read_any_more_is_not_recorded(connection):
    """H5: while a person answers the command's question, others commit, and a sweep compacts."""
    Shop(connection, kinds=one_txid).commit(*(made(n) for n in range(1, 4)))
    place: dict[str, Any] = {"txid": 2, "xor": 1, "item": None, "row": None}
    edited = EditedRow(ids=frozenset(), was={"k": 1}, values={"k": 2}, **place)
    replayable = Replayable.of(connection, "shop")
    check_correctable(connection, replayable, [edited])
    compact(connection, "shop")
    with (
        holding(connection, "shop") as (tx, _),
        pytest.raises(ReplayNotPossible, match=r"txid 2: .* has compacted its history"),
    ):
        record_corrections(tx, replayable, [edited], "a test", "ann")
    assert rows(connection, COUNTING) == []


def test_compaction_waits_for_the_replay_that_reads_a_correction(connection):
    """H2: the replay failed, a sweep came, and no attempt could ever read the correction."""
    Shop(connection, kinds=one_txid).commit(*(made(n) for n in range(1, 5)))
    execute(connection, CORRECTED, txids=[2])
    assert [(done.through, done.held_up_by) for done in compact(connection, "shop")] == [(1, 2)]
    execute(connection, "UPDATE reliability.attempt SET granted_at = clock_timestamp()")
    assert [done.through for done in compact(connection, "shop")] == [3]


def test_who_takes_corrections_back_is_told_what_makes_the_tables_agree(connection):
    """A replay was named, and refused, of txids that are not committed, are folded or skipped."""
    Shop(connection, kinds=one_txid).commit(*(made(n) for n in range(1, 5)))
    roll_back(connection, "shop", 3, "a test")
    assert [done.through for done in compact(connection, "shop")] == [2]
    execute(connection, CORRECTED, txids=[2, 3, 4])
    refused = call("forget", "shop", "2..4", "--reason", "x", code=1)
    assert "txid 2 keeps its corrections: state exact has compacted its history" in refused.stderr
    assert rows(connection, COUNTING) == [(2,), (3,), (4,)]
    done = call("forget", "shop", "3,4", "--reason", "x")
    assert done.stdout.splitlines()[:4] == [
        "2 corrections are taken back",
        "Next: reliability replay shop 3",
        "txid 4 is not committed yet. Next:",
        "  reliability resume-runs shop  # shows what they lack, and clears it with --yes",
    ]
    assert rows(connection, COUNTING) == [(2,)]
    skip(connection, "shop", 4, "a test")
    execute(connection, CORRECTED, txids=[4])
    assert call("forget", "shop", "4", "--reason", "x").stdout == "1 corrections are taken back\n"


def test_what_was_forgotten_is_neither_compacted_nor_committed_with_its_corrections(connection):
    """The corrected values counted for ever: the replay that was named was refused, or none was."""
    words = Shop(connection, kinds=one_txid)
    words.commit(*(made(n) for n in range(1, 3)))
    execute(connection, CORRECTED, txids=[1])
    call("forget", "shop", "1", "--reason", "x")
    words.commit(made(3))
    assert [done.through for done in compact(connection, "shop")] == [0]
    words.replay(1)
    assert [done.through for done in compact(connection, "shop")] == [2]
    words.deliver(made(4), made(5))
    execute(connection, CORRECTED, txids=[5])
    words.process(5)
    assert "txid 5 is not committed yet" in call("forget", "shop", "5", "--reason", "x").stdout
    status = "SELECT status FROM reliability.attempt WHERE txid = 5"
    assert rows(connection, status) == [("FENCED",)]


# --- what is not complete ------------------------------------------------------------------------


def test_a_month_is_complete_only_if_it_counts_what_the_source_has(
    python_pipeline, connection, tmp_path, monkeypatch
):
    """An excluded file, an exchanged one and a second delivery were complete, or just late."""
    folder = tmp_path / "1997-01"
    for name in ("a", "b"):
        write_parquet(folder / f"{name}.parquet", ROWS if name == "a" else [*ROWS, *ROWS])
    monkeypatch.setenv("RELIABILITY_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    pipe = python_pipeline(shop(tmp_path, files=2))
    monkeypatch.setattr("reliability.cli.lag.topology_from_code", lambda *_: pipe.runner.topology)
    pipe.take_in(month(1997, 1))
    [found] = completeness()
    assert (found["state"], found["emitted"]) == ("complete", 15)
    told()
    say("completeness", "shop", "--check", code=3)  # nobody says which others there should be
    say("completeness", "shop", "--check", "--interval", "2031-05", code=3)

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
    pipe.replay(1)
    [found] = completeness()
    assert (found["state"], found["emitted"]) == ("complete", 5)

    whole = (folder / "a.parquet").read_bytes()
    write_parquet(folder / "a.parquet", ROWS[1:])
    [found] = completeness()
    assert found["state"] == "changed"
    changed = r"1997-01/a.parquet has changed .*: [\d,]+ bytes then, [\d,]+ now"
    assert re.match(changed, found["why"])
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
    assert second in say("lag", "shop").stdout


def completeness():
    found = read("completeness", "shop")
    assert (found["source_error"], found["states_error"]) == (None, None)
    return found["intervals"]


def told(code=0):
    return say("completeness", "shop", "--check", "--interval", "1997-01", code=code).stdout


def test_no_attempt_comes_between_a_request_and_its_corrections(connection):
    """V9: one did, satisfied the request without them, and they were reported as read."""
    words = Shop(connection)
    words.commit(made(1))
    asked = "SELECT request_id FROM reliability.request"
    before = rows(connection, asked)
    request = ReplayRequest(topology=words.topology, txids=[1], by="ann")

    def record(tx, requests):
        assert [*requests] == [1]
        with LedgerConnection(connection.dsn) as other:
            assert rows(other, asked) == before
        raise CorrectionRefused("a row has left the quarantine")

    with pytest.raises(CorrectionRefused):
        ReplayRun(connection, request, lambda *_: None).run(record)
    assert rows(connection, asked) == before
