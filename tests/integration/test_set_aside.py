"""Rows that leave or multiply on purpose: nothing else passes (rules V1, V2, V8)."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest

import reliability
from reliability import Append, Count, FileSpout, State, Step, Sum, Topology
from reliability.core.errors import (
    InvalidDefinition,
    NotInProcessFunction,
    RowsUnaccounted,
    SchemaMismatch,
)
from reliability.deployment.lazy import pa, pq
from reliability.spark.frames.quarantined import ITEM, ROW
from reliability.spark.frames.set_aside_rows import evaluate, noting
from reliability.transaction.correct.rollback import roll_back
from reliability.transaction.maintain.sweep import sweep
from tests.support.accounts import Called
from tests.support.fix_pipeline import TWENTY, in_both_engines, month, shop, write_parquet
from tests.support.fix_postgres import rows
from tests.support.functions import F

ACCOUNTS = (
    "SELECT state, emitted, applied, dropped, quarantined, added_rows FROM reliability.accounts"
    " WHERE status = 'COMMITTED' ORDER BY txid, state"
)
REASONS = "SELECT sink, kind, reason, count FROM reliability.set_aside ORDER BY sink, kind, reason"
QUARANTINE = "SELECT reason, row, item, contents FROM reliability.quarantine ORDER BY row"
# A source may call its columns like something of ours.
MARKS = ["_set_aside_0", "_set_aside_item", "_set_aside_row", "_set_aside_reason"]
LIKE_OURS = {
    "_malformed": {"reason": "r", "_line": 1, "_why": "w", "_record": "***"},
    **{name: name for name in [*MARKS, "_staged_per_day", "_line", "_record", "_item", "_row"]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    path = write_parquet(folder / "1997-01" / "a.parquet", TWENTY)
    table = pq.read_table(path)
    for name, value in LIKE_OURS.items():
        table = table.append_column(name, pa.array([value] * len(TWENTY)))
    pq.write_table(table, path)
    return folder


def clean(batch):
    """Drop two rows for all states, and quarantine one for `per_day`; no state lacks another."""
    marks = " AND ".join(f"{name} = '{name}'" for name in MARKS)
    kept = reliability.drop(batch, "price < 2", "too cheap")
    days = reliability.quarantine(kept, f"price = 7 AND {marks}", "a price of 7", mask=["customer"])
    reliability.quarantine(kept, "price = 8", "a price of 8")
    return {
        "per_customer": kept.join(days.select("price"), "price", "left"),
        "per_day": days.select("day", "price"),
    }


@in_both_engines
def test_what_is_set_aside_counts_from_the_commit_to_a_rollback(folder, pipeline, connection):
    """A struct called _malformed sent its rows into the quarantine; a mark replaced a column.

    What no state lacks is applied, and not in quarantine: a correction would count beside it.
    """
    pipe = pipeline(replace(shop(folder, clean), max_quarantined=1))
    assert pipe.emit(month(1997, 1)) == [1]
    pipe.process(1)
    assert rows(connection, QUARANTINE) == []
    pipe.transact(1)
    assert rows(connection, ACCOUNTS) == [
        ("per_customer", 20, 18, 2, 0, 0),
        ("per_day", 20, 17, 2, 1, 0),
    ]
    assert rows(connection, REASONS) == [
        ("per_customer", "DROPPED", "too cheap", 2),
        ("per_day", "DROPPED", "too cheap", 2),
        ("per_day", "QUARANTINED", "a price of 7", 1),
    ]
    assert rows(connection, "SELECT sum(orders)::int FROM per_customer") == [(18,)]
    assert rows(connection, "SELECT sum(orders)::int FROM per_day") == [(17,)]
    [(reason, row, item, contents)] = rows(connection, QUARANTINE)
    assert (reason, row) == ("a price of 7", 7)
    assert item.endswith("/1997-01/a.parquet")
    shown = {"customer": "***", "day": "1997-01-03", "price": 7.00, **LIKE_OURS}
    assert json.loads(contents) == shown
    roll_back(connection, "shop", 0, "a test")
    assert rows(connection, QUARANTINE) == []
    assert rows(connection, ACCOUNTS) == []
    sweep(connection, "shop", clean=True)
    assert rows(connection, "SELECT count(*)::int FROM reliability.quarantined_row") == [(0,)]


# --- nothing else passes -------------------------------------------------------------------------


def called(spark, folder, process, *states):
    """Call a function of the shop's batch that makes a frame for each of the states."""
    counts = [State(name, values={"n": Count()}) for name in states]
    topology = replace(shop(folder), states=counts, process=process, steps=(), module="")
    return Called.of(spark, topology, month(1997, 1))


LOSSES = (
    "another_is_lost",
    "one_is_doubled",
    "one_is_lost_another_doubled",
    "it_left_another_branch",
    "it_left_once_and_not_twice",
)


def losses(batch):
    kept = reliability.drop(batch, "price = 3", "three")
    four = kept.where("price = 4")
    frames = (
        kept.where("price <> 5"),
        kept.union(four),
        kept.where("price <> 5").union(four),
        batch.where("price <> 3"),
        kept.union(kept),
    )
    return dict(zip(LOSSES, frames, strict=True))


def test_an_undeclared_loss_beside_a_declared_one_fails(spark, folder):
    assert called(spark, folder, losses, *LOSSES).unaccounted() == [*LOSSES]


def mistakes(batch):
    kept = reliability.drop(reliability.drop(batch, "price = 3", "three"), "price = 2", "two")
    lost_and_doubled = kept.where("price NOT IN (5, 6)").union(kept.where("price = 4"))
    checkpoint = reliability.show_accounting(kept).localCheckpoint()
    return {"lost_and_doubled": lost_and_doubled.select("price", "day"), "checkpoint": checkpoint}


def test_an_error_names_rows_that_were_lost_or_doubled_or_the_calls_that_a_checkpoint_hides(
    spark, folder
):
    """It advised to look for a join or a filter that loses rows, behind a checkpoint too."""
    found = called(spark, folder, mistakes, "lost_and_doubled", "checkpoint")
    with pytest.raises(RowsUnaccounted) as caught:
        found.check("lost_and_doubled")
    what = caught.value.what
    assert "state lost_and_doubled: 1 of 20 emitted rows did not reach it" in what
    assert "lost, for example row 5 of a.parquet: {" in what
    assert "row 6 of a.parquet" in what
    assert "row 3 of" not in what  # it was dropped
    assert "doubled, for example row 4 of a.parquet: {" in what
    assert '"price":4.00' in what
    with pytest.raises(RowsUnaccounted, match="set aside for 'three', 'two'") as caught:
        found.check("checkpoint")
    assert "after localCheckpoint()" in caught.value.what_to_do


def fails_where_nothing_looks(batch):
    """What is quarantined of it reaches no state, and cannot be evaluated."""
    broken = batch.withColumn("price", F.raise_error(F.lit("no such price")).cast("double"))
    reliability.quarantine(broken, "price > 3", "dear")
    return {"lost": batch.where("price <> 3")}


def test_what_cannot_be_explained_is_still_a_lost_row(spark, folder, caplog):
    """The search for the reason failed, and was told as a fault of the process function."""
    found = called(spark, folder, fails_where_nothing_looks, "lost")
    with pytest.raises(RowsUnaccounted):
        found.check("lost")
    assert "cannot say which call set these rows aside" in caplog.text


WAYS = (
    "through_the_left_side",
    "dropped_by_chance",
    "quarantined_by_chance",
    "through_each_branch",
    "null_stays",
    "a_group_is_all_its_rows",
    "twice_in_a_with_clause",
    "out_of_an_array",
    "not_at_all",
)


def ways(batch):
    cheap = reliability.drop(batch, "price > 5", "dear")
    best = reliability.aggregate(cheap, ["customer"], best=F.max("price"))
    early = reliability.drop(batch.where("price < 9"), "price = 1", "one")
    late = reliability.drop(batch.where("price >= 9"), "price = 11", "eleven")
    groups = reliability.aggregate(batch, ["customer", "day"], price=F.sum("price"))
    kept = reliability.show_accounting(reliability.drop(batch, "price = 3", "three"))
    kept.createOrReplaceTempView("kept")
    # Spark gives new ids to the columns of a relation where it is used again
    joined = batch.sparkSession.sql(
        "WITH k AS (SELECT * FROM kept), n AS (SELECT customer, count(*) AS n FROM k GROUP BY 1)"
        " SELECT k.*, n.n FROM k JOIN n USING (customer)"
    )
    # the columns that inline() makes have no names in common with what it reads
    arrays = kept.groupBy("customer").agg(F.collect_list(F.struct("*")).alias("found"))
    reliability.quarantine(batch, "price = 7", "seven")
    frames = (
        batch.join(best, "customer", "left"),
        reliability.drop(batch, "rand() < 0.5", "by chance"),
        reliability.quarantine(batch, "rand() < 0.5", "by chance"),
        early.unionByName(late),
        reliability.drop(batch, "NULL", "never"),
        reliability.drop(groups, "customer = 1", "one"),
        joined,
        arrays.selectExpr("inline(found)"),
        batch,
    )
    return dict(zip(WAYS, frames, strict=True))


def test_what_leaves_on_the_way_to_a_state_counts_there_only(spark, folder, caplog):
    assert called(spark, folder, ways, *WAYS).unaccounted() == []
    told = [record.getMessage() for record in caplog.records]
    assert "no state gets the result of a call, so nothing is quarantined for 'seven'" in told


# --- fan out -------------------------------------------------------------------------------------

LINES = ["a b c", "d", "", "e f"]


@pytest.fixture(scope="module")
def in_lines(tmp_path_factory):
    """Make a topology over a file of lines, with a state of words for each name."""
    path = tmp_path_factory.mktemp("lines") / "lines.parquet"
    pq.write_table(pa.table({"line": LINES}), path)

    def make(process, *names):
        states = [State(name, values={"word": Append("word", "text")}) for name in names]
        return Topology("words", FileSpout(str(path)), states, process)

    return make


def fanned(batch):
    split = batch.selectExpr("line", "split(line, ' ') AS word")
    return reliability.fan_out(
        split.selectExpr("line", "IF(line = '', NULL, word) AS word"), "word"
    )


def fanned_groups(batch):
    """The XOR of a group is that of its rows, and each element counts as all of them."""
    words = F.flatten(F.collect_list(F.split("line", " ")))
    groups = batch.selectExpr("line", "length(line) > 1 AS is_long")
    return reliability.fan_out(reliability.aggregate(groups, ["is_long"], word=words), "word")


def all_kinds(batch):
    """Spark takes WORD for word; the other names have been used inside."""
    split = batch.selectExpr("line AS _place", "IF(line = '', NULL, split(line, ' ')) AS word")
    none = batch.where("line = 'none'")
    totals = [reliability.aggregate(some, [], word=F.first("line")) for some in (none, batch)]
    return {
        "words": fanned(batch),
        "of_groups": fanned_groups(batch),
        "by_another_name": reliability.fan_out(split.selectExpr("*", "1 AS _element"), "WORD"),
        "total": totals[0].union(totals[1]),
    }


def test_one_line_becomes_many_words(in_lines, pipeline, connection):
    """V3: Spark makes a row of none, which would count as one."""
    pipeline(in_lines(all_kinds, "words", "of_groups", "by_another_name", "total")).take_in()
    for state in ("words", "by_another_name"):
        assert rows(connection, f"SELECT word FROM {state} ORDER BY word") == [*zip("abcdef")]
    found = sorted(word for (word,) in rows(connection, "SELECT word FROM of_groups"))
    assert found == ["", *"abcdef"]
    assert rows(connection, "SELECT count(*)::int FROM total") == [(1,)]
    assert rows(connection, ACCOUNTS) == [
        ("by_another_name", 4, 3, 1, 0, 3),
        # the two elements of one group are its two lines; the five of the other add eight
        ("of_groups", 4, 4, 0, 0, 10),
        ("total", 4, 4, 0, 0, 0),
        ("words", 4, 3, 1, 0, 3),
    ]
    assert [reason for reason in rows(connection, REASONS) if reason[0] == "words"] == [
        ("words", "DROPPED", "word is empty", 1),
        ("words", "FANNED_OUT", "word", -3),
    ]


ELEMENTS = (
    "words",
    "of_groups",
    "one_lost",
    "one_doubled",
    "one_lost_another_doubled",
    "three_of_one",
    "the_first_lost",
    "one_of_a_group_lost",
)


def elements(batch):
    words, of_groups = fanned(batch), fanned_groups(batch)
    one = words.where("word = 'c'")
    frames = (
        words,
        of_groups,
        words.where("word <> 'c'"),
        words.union(one),
        words.where("word <> 'c'").union(words.where("word = 'b'")),
        words.union(one).union(one),
        words.where("word <> 'a'"),
        of_groups.where("word <> 'c'"),
    )
    return dict(zip(ELEMENTS, frames, strict=True))


def test_each_element_is_accounted_for(spark, in_lines):
    assert Called.of(spark, in_lines(elements, *ELEMENTS)).unaccounted() == [*ELEMENTS[2:]]


# --- what the quarantine shows -------------------------------------------------------------------


def contents_of(rows, *masks):
    """Return what the quarantine shows of a row, by each of the masks."""
    frame = rows.selectExpr("*", "1L AS _x", "1L AS _n")
    with noting() as calls:
        for mask in masks:
            reliability.quarantine(frame, "true", "all", mask=mask)
    return [json.loads(found.contents) for found in evaluate(calls, 9)[1]]


USER = (
    "SELECT 'a@b' AS email, named_struct('Email', 'c@d', 'home', named_struct('zip', 7)) AS user, "
    "'x' AS `user.email`, 1 AS n, array(named_struct('email', 'e')) AS others"
)


def test_what_is_masked_is_not_shown(spark):
    home, user = {"zip": 7}, {"Email": "c@d", "home": {"zip": 7}}
    shown = {
        **{"email": "a@b", "user": user, "user.email": "x"},
        **{"n": 1, "others": [{"email": "e"}]},
    }
    by_mask = {
        (): shown,
        ("EMAIL",): {**shown, "email": "***"},
        "email": {**shown, "email": "***"},
        ("user.home.ZIP",): {**shown, "user": {**user, "home": {**home, "zip": "***"}}},
        ("User.email",): {**shown, "user.email": "***"},
        ("user",): {**shown, "user": "***"},
    }
    found = contents_of(spark.sql(USER), *by_mask)
    assert dict(zip(by_mask, found, strict=True)) == by_mask
    null = spark.sql("SELECT CAST(NULL AS STRUCT<email: STRING>) AS user")
    assert contents_of(null, ["user.email"]) == [{"user": None}]


def test_what_a_join_has_doubled_and_times_of_day_are_shown(spark):
    one = spark.sql("SELECT 1 AS g, 2 AS g_2, time'12:30:00' AS t")
    assert contents_of(one.join(spark.sql("SELECT 3 AS G")), (), ["g", "t"]) == [
        {"g": 1, "g_2": 2, "t": "12:30:00", "G_3": 3},
        {"g": "***", "g_2": 2, "t": "***", "g_3": "***"},
    ]


@pytest.fixture
def logged_by_spark():
    """What Spark logs of columns that it does not find."""
    from pyspark.logger import PySparkLogger

    records: list[logging.LogRecord] = []

    class Handler(logging.Handler):
        def emit(self, record):
            records.append(record)

    logger, handler = PySparkLogger.getLogger("DataFrameQueryContextLogger"), Handler()
    logger.addHandler(handler)
    yield records
    logger.removeHandler(handler)


def test_no_error_is_logged_because_a_row_is_of_no_file(spark, logged_by_spark):
    """The log of a good batch of a table showed two, each with the whole plan."""
    rows = spark.range(3).selectExpr("id", "id AS _x", "1L AS _n")
    with noting() as calls:
        reliability.quarantine(rows, "id = 1", "one")
    assert calls[0].rows.select(ITEM, ROW).collect() == [(None, None)]
    assert logged_by_spark == []


# --- several steps -------------------------------------------------------------------------------


def first_step(batch):
    return {"per_day": reliability.drop(batch, "price = 3", "three")}


def second_step(days):
    """The plan of a checkpoint shows nothing of what was before it."""
    checkpoint = reliability.show_accounting(days).localCheckpoint()
    return {"per_year": in_years(days), "of_checkpoint": in_years(checkpoint)}


def in_years(days):
    left = reliability.drop(days, "day = DATE '1997-01-01'", "the first day")
    return left.selectExpr("cast(year(day) AS bigint) AS year", "orders")


YEARS = ["per_year", "of_checkpoint"]


def test_a_later_step_starts_from_what_an_earlier_one_has_left(folder, pipeline, connection):
    revenue = {"orders": Count(), "revenue": Sum("price", "numeric(14,2)")}
    orders = {"orders": Sum("orders", "bigint")}
    years = [State(name, key={"year": "bigint"}, values=orders) for name in YEARS]
    steps = [
        Step("daily", first_step, feeds=["per_day"]),
        Step("yearly", second_step, feeds=YEARS, reads=["per_day"]),
    ]
    per_day = State("per_day", key={"day": "date"}, values=revenue)
    spout = FileSpout(f"{folder}/{{data_interval_start:%Y-%m}}/*.parquet")
    topology = Topology("shop", spout=spout, states=[per_day, *years], steps=steps, module=__name__)
    pipeline(topology).take_in(month(1997, 1))
    assert rows(connection, ACCOUNTS) == [
        ("of_checkpoint", 20, 15, 5, 0, 0),
        ("per_day", 20, 19, 1, 0, 0),
        ("per_year", 20, 15, 5, 0, 0),
    ]
    for state in YEARS:
        assert rows(connection, f"SELECT orders::int FROM {state}") == [(15,)]


# --- what is refused -----------------------------------------------------------------------------

ROW_OF = f"{USER}, 1L AS _x, 1L AS _n"


def test_a_call_that_is_no_good_is_refused(spark):
    """Elsewhere, without a short text as its reason, or of what is no array to fan out."""
    row = spark.sql(ROW_OF)
    with pytest.raises(NotInProcessFunction):
        reliability.drop(row, "true", "why")
    for reason in ("", " ", "x" * 201):
        with noting(), pytest.raises(InvalidDefinition, match="a reason has 1 to 200 characters"):
            reliability.drop(row, "true", reason)
    for column, told in (("words", "no column called 'words'"), ("email", "email is not an array")):
        with noting(), pytest.raises(SchemaMismatch, match=told):
            reliability.fan_out(row, column)


def test_what_cannot_be_masked_is_refused(spark):
    """A slip of the pen would show what must not be shown."""
    row = spark.sql(ROW_OF)
    for name in ("emial", "user.emial", "others.email", "n.email", "email.", ""):
        with noting(), pytest.raises(SchemaMismatch, match="called"):
            reliability.quarantine(row, "true", "all", mask=[name])
