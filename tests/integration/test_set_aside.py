"""Rows that leave or multiply on purpose: nothing else passes (rules V1, V2, V8)."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest

import reliability
from reliability import Append, Count, FileSpout, State, Step, Sum, Topology
from reliability.core.errors import (
    InvalidDefinition,
    NotInProcessFunction,
    QuarantineFull,
    RowsUnaccounted,
    SchemaMismatch,
)
from reliability.spark.frames.quarantined import ITEM, ROW
from reliability.spark.frames.set_aside_rows import evaluate, noting
from reliability.transaction.correct.rollback import roll_back
from reliability.transaction.maintain.sweep import sweep
from tests.support.accounts import unaccounted
from tests.support.fix_pipeline import in_both_engines, month, shop, write_parquet
from tests.support.fix_postgres import rows
from tests.support.functions import F

ROWS = [
    {"customer": n % 3, "day": date(1997, 1, 1 + n % 5), "price": Decimal(n)} for n in range(20)
]
ACCOUNTS = (
    "SELECT state, emitted, applied, dropped, quarantined, added_rows FROM reliability.accounts"
    " WHERE status = 'COMMITTED' ORDER BY txid, state"
)
REASONS = "SELECT sink, kind, reason, count FROM reliability.set_aside ORDER BY sink, kind, reason"
QUARANTINE = "SELECT reason, row, contents FROM reliability.quarantine ORDER BY row"


def clean(batch):
    """Drop two rows for all states, and quarantine one for `per_day`."""
    kept = reliability.drop(batch, "price < 2", "too cheap")
    days = reliability.quarantine(kept, "price = 7", "a price of 7", mask=["customer"])
    return {"per_customer": kept, "per_day": days.select("day", "price")}


@pytest.fixture
def folder(tmp_path):
    write_parquet(tmp_path / "1997-01" / "a.parquet", ROWS)
    return tmp_path


@in_both_engines
def test_what_is_set_aside_counts_from_the_commit_to_a_rollback(folder, pipeline, connection):
    pipe = pipeline(shop(folder, clean))
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
    [(reason, row, contents)] = rows(connection, QUARANTINE)
    assert (reason, row) == ("a price of 7", 7)
    assert json.loads(contents) == {"customer": "***", "day": "1997-01-03", "price": 7.00}
    [(item,)] = rows(connection, "SELECT item FROM reliability.quarantine")
    assert item.endswith("/1997-01/a.parquet")
    roll_back(connection, "shop", 0, "a test")
    assert rows(connection, QUARANTINE) == []
    assert rows(connection, ACCOUNTS) == []
    sweep(connection, "shop", clean=True)
    assert rows(connection, "SELECT count(*)::int FROM reliability.quarantined_row") == [(0,)]


MARKS = ["_malformed", "_set_aside_0", "_set_aside_item", "_set_aside_row", "_set_aside_reason"]


def test_columns_that_are_called_like_something_of_ours_are_only_the_users(
    tmp_path, pipeline, connection
):
    """A struct called _malformed sent its rows into the quarantine; a mark replaced a column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    told = {"reason": "r", "_line": 1, "_why": "w", "_record": "***"}
    marks = {name: [name] * 20 for name in [*MARKS[1:], "_staged_per_day", "_line", "_record"]}
    table = pa.table({name: [row[name] for row in ROWS] for name in ROWS[0]} | marks)
    path = tmp_path / "1997-01" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(table.append_column("_malformed", pa.array([told] * 20)), path)
    pipe = pipeline(shop(tmp_path, clean_by_names))
    pipe.emit(month(1997, 1))
    pipe.transact(1)
    assert rows(connection, ACCOUNTS) == [
        ("per_customer", 20, 18, 2, 0, 0),
        ("per_day", 20, 17, 2, 1, 0),
    ]
    [(reason, row, contents)] = rows(connection, QUARANTINE)
    assert (reason, row) == ("a price of 7", 7)
    kept = {"_malformed": told, **{name: values[0] for name, values in marks.items()}}
    assert {name: json.loads(contents)[name] for name in kept} == kept


def clean_by_names(batch):
    mine = " AND ".join(f"{name} = '{name}'" for name in MARKS[1:])
    kept = reliability.drop(batch, "price < 2", "too cheap")
    days = reliability.quarantine(kept, f"price = 7 AND {mine}", "a price of 7")
    return {"per_customer": kept, "per_day": days}


def quarantine_that_no_state_gets(batch):
    reliability.quarantine(batch, "price = 7", "seven")
    good = reliability.quarantine(batch, "price > 18", "dear")
    return {"per_customer": batch.join(good.select("price"), "price", "left"), "per_day": good}


def test_what_no_state_lacks_is_not_in_quarantine(folder, pipeline, connection, caplog):
    """These rows are applied: a correction would count beside them."""
    pipe = pipeline(replace(shop(folder, quarantine_that_no_state_gets), max_quarantined=1))
    pipe.emit(month(1997, 1))
    pipe.transact(1)
    assert [reason for reason, _, _ in rows(connection, QUARANTINE)] == ["dear"]
    assert rows(connection, ACCOUNTS) == [
        ("per_customer", 20, 20, 0, 0, 0),
        ("per_day", 20, 19, 0, 1, 0),
    ]
    told = [record.getMessage() for record in caplog.records]
    assert "no state gets the result of a call, so nothing is quarantined for 'seven'" in told


# --- nothing else passes -------------------------------------------------------------------------


def lose_another(batch):
    return {**clean(batch), "per_customer": clean(batch)["per_customer"].where("price <> 5")}


def drop_one_and_double_one(batch):
    kept = reliability.drop(batch, "price = 3", "three")
    return {"per_customer": batch, "per_day": kept.union(kept.where("price = 4"))}


def lose_one_and_double_one(batch):
    kept = reliability.drop(batch, "price = 3", "three")
    days = kept.where("price <> 5").union(kept.where("price = 4"))
    return {"per_customer": batch, "per_day": days}


def drop_of_another_branch(batch):
    reliability.drop(batch, "price = 3", "three")
    return {"per_customer": batch.where("price <> 3"), "per_day": batch}


def drop_twice_what_leaves_once(batch):
    kept = reliability.drop(batch, "price = 3", "three")
    return {"per_customer": kept.union(kept), "per_day": batch}


def test_an_undeclared_loss_beside_a_declared_one_fails(spark, folder):
    wrong = {
        lose_another: "per_customer",
        drop_one_and_double_one: "per_day",
        lose_one_and_double_one: "per_day",
        drop_of_another_branch: "per_customer",
        drop_twice_what_leaves_once: "per_customer",
    }
    topologies = {process.__name__: shop(folder, process) for process in wrong}
    assert unaccounted(spark, topologies, month(1997, 1)) == {
        process.__name__: [state] for process, state in wrong.items()
    }


def lose_and_double(batch):
    kept = reliability.drop(batch, "price = 3", "three")
    days = kept.where("price NOT IN (5, 6)").union(kept.where("price = 4"))
    return {"per_customer": batch, "per_day": days.select("price", "day")}


def test_an_error_names_rows_that_were_lost_or_doubled(folder, pipeline):
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = folder / "1997-01" / "a.parquet"  # a source may call its columns like anything
    own = [pa.array(["x"] * len(ROWS))] * 2
    pq.write_table(
        pq.read_table(file).append_column("_item", own[0]).append_column("_row", own[1]), file
    )
    pipe = pipeline(shop(folder, lose_and_double))
    pipe.emit(month(1997, 1))
    with pytest.raises(RowsUnaccounted) as caught:
        pipe.process(1)
    what = caught.value.what
    assert "state per_day: 1 of 20 emitted rows did not reach it" in what
    assert "lost, for example row 5 of a.parquet: {" in what
    assert "row 6 of a.parquet" in what
    assert "row 3 of" not in what  # it was dropped
    assert "doubled, for example row 4 of a.parquet: {" in what
    assert '"price":4.00' in what


def join_with_what_was_dropped_elsewhere(batch):
    """Only the left side of the join accounts for the rows."""
    from pyspark.sql import functions as F

    cheap = reliability.drop(batch, "price > 5", "dear")
    best = reliability.aggregate(cheap, ["customer"], best=F.max("price"))
    return {"per_customer": batch.join(best, "customer", "left"), "per_day": batch}


def by_chance(batch):
    return {
        "per_customer": reliability.drop(batch, "rand() < 0.5", "by chance"),
        "per_day": reliability.quarantine(batch, "rand() < 0.5", "by chance"),
    }


def branches(batch):
    early, late = batch.where("price < 9"), batch.where("price >= 9")
    early = reliability.drop(early, "price = 1", "one")
    late = reliability.drop(late, "price = 11", "eleven")
    return {"per_customer": early.unionByName(late), "per_day": batch}


def null_stays(batch):
    return {"per_customer": reliability.drop(batch, "NULL", "never"), "per_day": batch}


def of_groups(batch):
    """A dropped group counts as all its rows."""
    from pyspark.sql import functions as F

    groups = reliability.aggregate(batch, ["customer", "day"], price=F.sum("price"))
    return {"per_customer": batch, "per_day": reliability.drop(groups, "customer = 1", "one")}


def twice_in_a_with_clause(batch):
    """Spark gives new ids to the columns of a relation where it is used again."""
    kept = reliability.show_accounting(reliability.drop(batch, "price = 3", "three"))
    kept.createOrReplaceTempView("kept")
    joined = batch.sparkSession.sql(
        "WITH k AS (SELECT * FROM kept), n AS (SELECT customer, count(*) AS n FROM k GROUP BY 1)"
        " SELECT k.*, n.n FROM k JOIN n USING (customer)"
    )
    return {"per_customer": joined, "per_day": batch}


def out_of_an_array(batch):
    """The columns that inline() makes have no names in common with what it reads."""
    kept = reliability.show_accounting(reliability.drop(batch, "price = 3", "three"))
    arrays = kept.groupBy("customer").agg(F.collect_list(F.struct("*")).alias("found"))
    return {"per_customer": arrays.selectExpr("inline(found)"), "per_day": batch}


def test_what_leaves_on_the_way_to_a_state_counts_there_only(spark, folder):
    right = (
        *(join_with_what_was_dropped_elsewhere, by_chance, branches, null_stays, of_groups),
        *(twice_in_a_with_clause, out_of_an_array),
    )
    topologies = {process.__name__: shop(folder, process) for process in right}
    assert unaccounted(spark, topologies, month(1997, 1)) == {name: [] for name in topologies}


def before_a_checkpoint(batch):
    kept = reliability.drop(reliability.drop(batch, "price = 3", "three"), "price = 4", "four")
    checkpoint = reliability.show_accounting(kept).localCheckpoint()
    return {"per_customer": checkpoint, "per_day": kept}


def test_an_error_names_the_calls_that_a_checkpoint_hides(folder, pipeline):
    """It advised to look for a join or a filter that loses rows; there is none."""
    pipe = pipeline(shop(folder, before_a_checkpoint))
    pipe.emit(month(1997, 1))
    with pytest.raises(RowsUnaccounted, match="set aside for 'four', 'three'") as caught:
        pipe.process(1)
    assert "after localCheckpoint()" in caught.value.what_to_do


def fails_where_nothing_looks(batch):
    """What is quarantined of it reaches no state, and cannot be evaluated."""
    from pyspark.sql import functions as F

    broken = batch.withColumn("price", F.raise_error("no such price").cast("double"))
    reliability.quarantine(broken, "price > 3", "dear")
    kept = batch.where("price <> 3")
    return {"per_customer": kept, "per_day": kept}


def test_what_cannot_be_explained_is_still_a_lost_row(folder, pipeline, caplog):
    """The search for the reason failed, and was told as a fault of the process function."""
    pipe = pipeline(shop(folder, fails_where_nothing_looks))
    pipe.emit(month(1997, 1))
    with pytest.raises(RowsUnaccounted):
        pipe.process(1)
    assert "cannot say which call set these rows aside" in caplog.text


def test_too_many_for_the_quarantine_fail_the_batch(folder, pipeline, connection):
    pipe = pipeline(replace(shop(folder, clean), max_quarantined=0))
    pipe.emit(month(1997, 1))
    with pytest.raises(QuarantineFull, match="more than 0 rows"):
        pipe.process(1)


# --- fan out -------------------------------------------------------------------------------------


def fan(batch):
    return {"words": fanned(batch)}


def fanned(batch):
    split = batch.selectExpr("line", "split(line, ' ') AS word")
    return reliability.fan_out(
        split.selectExpr("line", "IF(line = '', NULL, word) AS word"), "word"
    )


def lose_an_element(batch):
    return {"words": fanned(batch).where("word <> 'c'")}


def double_an_element(batch):
    words = fanned(batch)
    return {"words": words.union(words.where("word = 'c'"))}


def lose_one_element_and_double_another(batch):
    words = fanned(batch)
    return {"words": words.where("word <> 'c'").union(words.where("word = 'b'"))}


def three_of_an_element(batch):
    words = fanned(batch)
    one = words.where("word = 'c'")
    return {"words": words.union(one).union(one)}


def lose_the_first(batch):
    return {"words": fanned(batch).where("word <> 'a'")}


LINES = ["a b c", "d", "", "e f"]


@pytest.fixture
def lines(tmp_path):
    """A file of lines."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"line": LINES}), tmp_path / "lines.parquet")
    return f"{tmp_path}/lines.parquet"


def in_words(lines, process):
    states = [State("words", values={"word": Append("word", "text")})]
    return Topology("words", FileSpout(lines), states, process)


@pytest.fixture
def in_lines(lines, pipeline):
    def make(process):
        pipe = pipeline(in_words(lines, process))
        assert pipe.emit(None) == [1]
        return pipe

    return make


def test_one_line_becomes_many_words(in_lines, connection):
    in_lines(fan).transact(1)
    assert rows(connection, "SELECT word FROM words ORDER BY word") == [(w,) for w in "abcdef"]
    assert rows(connection, ACCOUNTS) == [("words", 4, 3, 1, 0, 3)]
    assert rows(connection, REASONS) == [
        ("words", "DROPPED", "word is empty", 1),
        ("words", "FANNED_OUT", "word", -3),
    ]


def grouped_lines(batch):
    """The XOR of a group is that of its rows, and each element counts as all of them."""
    words = F.flatten(F.collect_list(F.split("line", " ")))
    groups = batch.selectExpr("line", "length(line) > 1 AS is_long")
    return reliability.aggregate(groups, ["is_long"], word=words)


def fan_of_groups(batch):
    return {"words": reliability.fan_out(grouped_lines(batch), "word")}


def lose_an_element_of_groups(batch):
    return {"words": fan_of_groups(batch)["words"].where("word <> 'c'")}


def test_groups_become_many_words(in_lines, connection):
    in_lines(fan_of_groups).transact(1)
    found = sorted(word for (word,) in rows(connection, "SELECT word FROM words"))
    assert found == ["", *"abcdef"]
    # the two elements of one group are its two lines; the five of the other add eight
    assert rows(connection, ACCOUNTS) == [("words", 4, 4, 0, 0, 10)]


def test_each_element_is_accounted_for(spark, lines):
    right = (fan, fan_of_groups)
    wrong = (
        lose_an_element,
        double_an_element,
        lose_one_element_and_double_another,
        three_of_an_element,
        lose_the_first,
        lose_an_element_of_groups,
    )
    found = unaccounted(spark, {one.__name__: in_words(lines, one) for one in (*right, *wrong)})
    assert [name for name, states in found.items() if not states] == [one.__name__ for one in right]


def with_names_of_all_kinds(batch):
    """Spark takes WORD for word; the other names have been used inside."""
    split = batch.selectExpr("line AS _place", "IF(line = '', NULL, split(line, ' ')) AS word")
    return {"words": reliability.fan_out(split.selectExpr("*", "1 AS _element"), "WORD")}


def test_a_column_is_found_as_spark_finds_it(in_lines, connection):
    in_lines(with_names_of_all_kinds).transact(1)
    assert rows(connection, "SELECT word FROM words ORDER BY word") == [(w,) for w in "abcdef"]


@pytest.mark.parametrize(
    ("column", "told"), [("words", "no column called 'words'"), ("line", "line is not an array")]
)
def test_only_an_array_that_is_there_fans_out(in_lines, column, told):
    pipe = in_lines(lambda batch: {"words": reliability.fan_out(batch, column)})
    with pytest.raises(SchemaMismatch, match=told):
        pipe.process(1)


def totals_of_none(batch):
    none = batch.where("line = 'none'")
    totals = [reliability.aggregate(some, [], word=F.first("line")) for some in (none, batch)]
    return {"words": totals[0].union(totals[1])}


def test_a_total_of_no_rows_is_no_row(in_lines, connection):
    """V3: Spark makes a row of them, which would count as one."""
    in_lines(totals_of_none).transact(1)
    assert rows(connection, "SELECT count(*)::int FROM words") == [(1,)]
    assert rows(connection, ACCOUNTS) == [("words", 4, 4, 0, 0, 0)]


# --- what the quarantine shows -------------------------------------------------------------------


def contents_of(spark, rows, mask=()):
    """Return what the quarantine shows of a row."""
    frame = rows.selectExpr("*", "1L AS _x", "1L AS _n")
    with noting() as calls:
        reliability.quarantine(frame, "true", "all", mask=mask)
    [found] = evaluate(calls, 9)[1]
    return json.loads(found.contents)


USER = (
    "SELECT 'a@b' AS email, named_struct('Email', 'c@d', 'home', named_struct('zip', 7)) AS user, "
    "'x' AS `user.email`, 1 AS n, array(named_struct('email', 'e')) AS others"
)


@pytest.mark.parametrize(
    ("mask", "path"),
    [
        (["EMAIL"], ["email"]),
        ("email", ["email"]),
        (["user.home.ZIP"], ["user", "home", "zip"]),
        (["User.email"], ["user.email"]),
        (["user"], ["user"]),
    ],
)
def test_what_is_masked_is_not_shown(spark, mask, path):
    expected = contents_of(spark, spark.sql(USER))
    shown = contents_of(spark, spark.sql(USER), mask)
    *above, name = path
    masked = expected
    for step in above:
        masked = masked[step]
    masked[name] = "***"
    assert shown == expected


def test_a_field_of_a_struct_that_is_null_shows_nothing(spark):
    user = spark.sql("SELECT CAST(NULL AS STRUCT<email: STRING>) AS user")
    assert contents_of(spark, user, ["user.email"]) == {"user": None}


@pytest.mark.parametrize("name", ["emial", "user.emial", "others.email", "n.email", "email.", ""])
def test_what_cannot_be_masked_is_refused(spark, name):
    """A slip of the pen would show what must not be shown."""
    with pytest.raises(SchemaMismatch, match="called"):
        contents_of(spark, spark.sql(USER), [name])


def test_what_a_join_has_doubled_and_times_of_day_are_shown(spark):
    one = spark.sql("SELECT 1 AS g, 2 AS g_2, time'12:30:00' AS t")
    joined = one.join(spark.sql("SELECT 3 AS G"))
    assert contents_of(spark, joined) == {"g": 1, "g_2": 2, "t": "12:30:00", "G_3": 3}
    assert contents_of(spark, joined, ["g", "t"]) == {
        "g": "***",
        "g_2": 2,
        "t": "***",
        "g_3": "***",
    }


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
    left = reliability.drop(days, "day = DATE '1997-01-01'", "the first day")
    return {"per_year": left.selectExpr("cast(year(day) AS bigint) AS year", "orders")}


def second_step_of_a_checkpoint(days):
    """The plan of a checkpoint shows nothing of what was before it."""
    return second_step(reliability.show_accounting(days).localCheckpoint())


@pytest.mark.parametrize("second", [second_step, second_step_of_a_checkpoint])
def test_a_later_step_starts_from_what_an_earlier_one_has_left(
    folder, pipeline, connection, second
):
    revenue = {"orders": Count(), "revenue": Sum("price", "numeric(14,2)")}
    pipe = pipeline(
        Topology(
            "shop",
            spout=FileSpout(f"{folder}/{{data_interval_start:%Y-%m}}/*.parquet"),
            states=[
                State("per_day", key={"day": "date"}, values=revenue),
                State(
                    "per_year",
                    key={"year": "bigint"},
                    values={"orders": Sum("orders", "bigint")},
                ),
            ],
            steps=[
                Step("daily", first_step, feeds=["per_day"]),
                Step("yearly", second, feeds=["per_year"], reads=["per_day"]),
            ],
            module=__name__,
        )
    )
    pipe.emit(month(1997, 1))
    pipe.transact(1)
    assert rows(connection, ACCOUNTS) == [
        ("per_day", 20, 19, 1, 0, 0),
        ("per_year", 20, 15, 5, 0, 0),
    ]
    assert rows(connection, "SELECT orders::int FROM per_year") == [(15,)]


# --- outside -------------------------------------------------------------------------------------


def test_a_call_elsewhere_is_refused(spark):
    frame = spark.range(1).selectExpr("id", "1L AS _x", "1L AS _n")
    with pytest.raises(NotInProcessFunction):
        reliability.drop(frame, "true", "why")


@pytest.mark.parametrize("reason", ["", " ", "x" * 201])
def test_a_reason_is_a_short_text(spark, reason):
    from reliability.spark.frames.set_aside_rows import noting

    frame = spark.range(1).selectExpr("id", "1L AS _x", "1L AS _n")
    with noting(), pytest.raises(InvalidDefinition, match="a reason has 1 to 200 characters"):
        reliability.drop(frame, "true", reason)
