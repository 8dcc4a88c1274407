"""Frames: tuple ids as the spout counts them, and one evaluation for all (rules E6, V2, V5)."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from reliability import Count, Csv, FileSpout, Max, MemorySpout, State, Sum, Topology, Upsert
from reliability.core.errors import FileRefused, InvalidDefinition, SchemaMismatch
from reliability.core.fold import Fold
from reliability.core.graph import THE_STEP
from reliability.deployment.lazy import pa, pq
from reliability.spark.frames.jvm import Plan, always
from reliability.spark.frames.one_evaluation import _uses, is_lost_evaluation
from reliability.spark.submission import Submission
from reliability.spouts.tuple_ids import fold_rows
from tests.support import lost_executor
from tests.support.accounts import folds, union_of
from tests.support.batches import batches_of, fold_of_rows, meta_of, write_numbers
from tests.support.fix_pipeline import in_both_engines
from tests.support.fix_postgres import rows
from tests.support.functions import F
from tests.support.texts import TEXTS

FILES = {
    "one file": ["a.parquet"],
    "one base name, two files": ["x/part-0.parquet", "y/part-0.parquet"],
    "odd names": ["od d+é@~,%20x/a b+c%41.parquet", "b[1]{2}*.parquet", "ü'&=;#.parquet"],
}


def test_what_spark_reads_is_what_the_spouts_promise_however_it_cuts_the_files(tmp_path, spark):
    spouts: dict[str, Any] = {}
    for number, (case, names) in enumerate(FILES.items()):
        for size, name in enumerate(names, start=9):
            write_numbers(tmp_path / str(number) / name, range(size))
        spouts[case] = FileSpout(f"{tmp_path}/{number}/**/*.parquet", max_files_per_batch=9)
        assert len(meta_of(spouts[case]).items) == len(names)
    write_numbers(tmp_path / "none.parquet", [])
    spouts["an empty file"] = FileSpout(f"{tmp_path}/*.parquet")
    write_numbers(tmp_path / "cut" / "a.parquet", range(1000), group=10)
    spouts["a file that is cut"] = FileSpout(f"{tmp_path}/cut/*.parquet")
    spouts["memory"] = MemorySpout(schema={"n": "bigint"}, partitions=[[1] * 5], take=2)
    metas = {case: batches_of(spout)[0] for case, spout in spouts.items()}
    frames = {case: spout.frame(spark, metas[case]) for case, spout in spouts.items()}
    assert {tuple(frame.columns) for frame in frames.values()} == {("n", "_x", "_n")}
    spark.conf.set("spark.sql.files.maxPartitionBytes", "1000")
    try:
        assert frames["a file that is cut"].rdd.getNumPartitions() > 1
        found = folds({case: [frame] for case, frame in frames.items()})
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert found == {case: meta.emitted for case, meta in metas.items()}
    assert (found["an empty file"], found["memory"].count) == (Fold(), 2)


def test_columns_of_a_memory_batch_may_have_any_name(spark):
    names = ["_row", "_ordinal", "a`b", "a.b", "50%", "Upper"]
    spout = MemorySpout(
        schema=dict.fromkeys(names, "int"), partitions=[[(1, 2, 3, 4, 5, 6)]], take=1
    )
    frame = spout.frame(spark, meta_of(spout))
    assert frame.columns == [*names, "_x", "_n"]
    read = frame.collect()
    assert fold_of_rows(read) == meta_of(spout).emitted
    assert [tuple(row)[:-2] for row in read] == [(1, 2, 3, 4, 5, 6)]


# Spark ignores the case
TAKEN = ["_x", "_N", "_reliability_malformed", "_Reliability_set_aside_0"]


def test_column_names_of_ours_or_of_sparks_are_refused(tmp_path):
    """Spark fails on the last two of a source if it is asked for the numbers of rows."""
    spout = FileSpout(f"{tmp_path}/*.parquet")
    for name in [*TAKEN, "_tmp_metadata_row_index", "_TMP_metadata_row_index"]:
        pq.write_table(pa.table({name: [1]}), tmp_path / "a.parquet")
        with pytest.raises(FileRefused, match=name):
            meta_of(spout)
    for name in TAKEN:
        with pytest.raises(InvalidDefinition, match=name):
            FileSpout("in/*", format=Csv(), schema=f"a int, {name} int")
        with pytest.raises(InvalidDefinition, match=name):
            MemorySpout(schema={name: "int"}, partitions=[], take=1)
    for name in ("_line", "_Why", "_RECORD"):  # which tell of a malformed record
        with pytest.raises(InvalidDefinition, match=name):
            FileSpout("in/*", format=Csv(malformed="quarantine"), schema=f"{name} int")
        FileSpout("in/*", format=Csv(), schema=f"{name} int")


# --- V5 ------------------------------------------------------------------------------------------


@pytest.fixture
def batch(tmp_path, spark):
    write_numbers(tmp_path / "a.parquet", range(100))
    spout = FileSpout(f"{tmp_path}/*.parquet")
    return spout.frame(spark, meta_of(spout))


EXPRESSIONS = {  # with how many plans are evaluated for two states that share one
    "n + 1": 0,
    "rand()": 1,
    "uuid()": 1,
    "current_timestamp()": 1,
    "curdate()": 1,
    # no functions, but the optimizer replaces them by the time
    "cast('now' AS timestamp)": 1,
    "cast(' Tomorrow ' AS date)": 1,
    "to_date('yesterday')": 1,
    "try_cast(concat('to', 'day') AS timestamp_ntz)": 1,
    "cast('epoch' AS timestamp)": 1,  # at worst it is kept
    "cast('2024-01-01' AS timestamp)": 0,
    "'now'": 0,
    "xxhash64(n)": 0,
    "row_number() OVER (PARTITION BY n % 2 ORDER BY n % 3)": 1,
}


@pytest.fixture
def shared(monkeypatch):
    """Count the plans that would be evaluated once for several frames of a batch."""
    monkeypatch.setattr(Plan, "evaluate", lambda plan: True)
    return lambda batch, *frames: _uses([batch], frames).evaluate()


def test_what_two_states_share_and_may_come_out_differently_is_persisted(batch, shared):
    def of_two(expression):
        common = batch.selectExpr("*", f"{expression} AS value")
        return shared(batch, common, common.where("n >= 0"))

    assert {expression: of_two(expression) for expression in EXPRESSIONS} == EXPRESSIONS


def test_only_what_is_shared_is_kept(batch, spark, tmp_path, shared):
    """A table beyond the batch is read once; what only a shared part uses is not kept beside it."""
    assert shared(batch, batch.selectExpr("*", "rand() AS value"), batch) == 0
    write_numbers(tmp_path / "other" / "o.parquet", range(100))
    other = spark.read.parquet(str(tmp_path / "other")).withColumnRenamed("n", "m")
    joined = batch.join(other, batch.n == other.m)
    assert shared(batch, joined, joined.where("m >= 0")) >= 1
    whole = dice(dice(batch, "roll"), "second")
    assert shared(batch, whole, whole.where("n >= 0")) == 1


def test_a_text_batch_reads_the_same_twice_and_is_not_kept(tmp_path, spark, shared):
    """Its tuple ids come from a function that Spark calls not deterministic."""
    (tmp_path / "a.csv").write_text("n\n1\n2\n")
    spout = FileSpout(f"{tmp_path}/*.csv", format=Csv(), schema="n bigint")
    text = spout.frame(spark, meta_of(spout))
    assert shared(text, text.where("n > 0"), text) == 0


def dice(frame, name):
    """Add numbers that come out differently each time; rand() would repeat those of its seed."""
    roll = F.udf(lost_executor.one_roll, "bigint").asNondeterministic()
    return frame.withColumn(name, roll())


def rolls(frame, *names):
    return {row.n: tuple(row)[1:] for row in frame.select("n", *(names or ["roll"])).collect()}


def test_a_part_of_what_is_shared_is_evaluated_once_where_it_is_used_alone(batch, no_cache):
    """What reads it would have been evaluated before it, from another roll of the same dice."""
    part = dice(batch, "roll")
    whole = dice(part, "second")
    frames = [whole, whole.where("n >= 0"), part]
    assert _uses([batch], frames).evaluate() == 2
    first, *others = map(rolls, frames)
    assert others == [first, first]


AS_A_WHOLE = {
    # Its parts refer to each other: Spark cannot evaluate one alone.
    "a WITH": "WITH r AS (SELECT *, uuid() AS u FROM rolled), s AS (SELECT n AS m, u FROM r)"
    " SELECT r.*, row_number() OVER (ORDER BY s.u) AS place FROM r JOIN s ON n = m",
    "a WITH that refers to itself": "WITH RECURSIVE r(n, roll) AS (SELECT n, uuid() FROM batch"
    " WHERE n < 3 UNION ALL SELECT n + 1000, uuid() FROM r WHERE n < 1000)"
    " SELECT *, 0 AS place FROM r",
    # A subquery that reads the outer query's columns is none that Spark can evaluate alone.
    "a clock in a subquery": "SELECT *, (SELECT max(current_timestamp()) FROM batch b WHERE b.n"
    " = a.n AND b.n < unix_millis(now())) AS roll, 0 AS place FROM batch a",
}


@pytest.mark.parametrize("name", AS_A_WHOLE)
def test_what_refers_to_the_query_around_it_is_evaluated_with_that(batch, spark, no_cache, name):
    batch.createOrReplaceTempView("batch")
    dice(batch, "roll").createOrReplaceTempView("rolled")
    common = spark.sql(AS_A_WHOLE[name])
    frames = [common, common.where("n >= 0")]
    assert _uses([batch], frames).evaluate() >= 1
    one, other = (rolls(frame, "roll", "place") for frame in frames)
    assert one == other
    assert len(one) == (6 if "itself" in name else 100)
    assert not any(None in row for row in one.values())


@pytest.mark.parametrize("cached", [False, True])
def test_what_was_evaluated_once_is_never_computed_again(batch, spark, no_cache, cached):
    """An executor that is lost takes its part along; Spark has to fail the job then."""
    common = dice(batch, "roll")
    if cached:
        common = common.selectExpr("*", "roll + 1 AS next").cache()
    assert _uses([batch], [common, common.where("n >= 0")]).evaluate() >= 1
    seen = rolls(common)
    context = spark.sparkContext._jsc.sc()
    for rdd in context.getPersistentRDDs().keys().mkString(" ").split():
        context.unpersistRDD(int(rdd), True)
    with pytest.raises(Exception, match="CHECKPOINT") as lost:
        assert rolls(common.where("n >= 0")) == seen
    assert is_lost_evaluation(lost.value)


def roll_the_dice(batch):
    rolled = batch.withColumn("roll", (F.rand() * 1_000_000).cast("int"))
    rolled = rolled.withColumn("stamp", F.expr("uuid()"))
    return {"one_table": rolled, "other_table": rolled, "shapes": batch}


SHAPES = {
    "word": "string",
    "price": "decimal(30,2)",
    "even": "boolean",
    "words": "array<string>",
    "raw": "binary",
}


@in_both_engines
def test_two_states_of_one_txid_never_tell_two_stories(pipeline, connection, no_cache):
    """V5: both states see the same dice.

    And values arrive as they left, by CSV on the way to COPY: NULL, empty, quotes, line ends,
    other alphabets, exact numbers.
    """
    partition = [
        (text, Decimal(f"{n}.10"), n % 2 == 0, [text, "x"], bytes([n, 255]))
        for n, text in enumerate([None, *TEXTS])
    ]
    dice_seen = {"n": Count(), "rolls": Sum("roll"), "stamp": Max("stamp", "text")}
    shapes_seen = {
        "n": Count(),
        "named": Count("word"),
        "price": Sum("price", "numeric"),
        "words": Upsert("words", {"price": "numeric"}, "text[]"),
        "raw": Upsert("raw", {"price": "numeric"}, "bytea"),
    }
    tables = ("one_table", "other_table")
    topology = Topology(
        "dice",
        spout=MemorySpout(SHAPES, [partition], take=100),
        process=roll_the_dice,
        states=[
            *(State(table, values=dice_seen) for table in tables),
            State("shapes", key={"word": "text", "even": "boolean"}, values=shapes_seen),
        ],
    )
    dice = pipeline(topology)
    dice.emit(None)
    dice.transact(1)
    one, other = (rows(connection, f"SELECT n, rolls, stamp FROM {table}") for table in tables)
    assert one == other
    assert one[0][0] == len(partition)
    found = rows(connection, "SELECT word, price, even, words, raw FROM shapes ORDER BY price")
    assert [(*rest, bytes(raw)) for *rest, raw in found] == partition
    assert rows(connection, "SELECT sum(n), sum(named) FROM shapes") == [
        (len(TEXTS) + 1, len(TEXTS))
    ]


@pytest.mark.slow
def test_a_lost_executor_does_not_make_two_stories_of_one_txid(
    pipeline, connection, tmp_path, no_cache
):
    """V5: a real cluster of two executors; one is killed when the first state is staged.

    Not in the warm engine: it evaluates in the same session code, and its cluster would be shared.
    """
    shop = pipeline(lost_executor.topology)
    shop.emit(None)
    submission = Submission(module=lost_executor.__name__, grant=shop.begin(1), step=THE_STEP)
    subprocess.run(
        [sys.executable, "-m", lost_executor.__name__, *submission.arguments()],
        env=lost_executor.cluster_environment(os.environ, tmp_path),
        check=False,
    )
    status = "SELECT status, reason_code FROM reliability.attempt ORDER BY attempt_id"
    assert rows(connection, status) == [("FAILED", "EVALUATION_LOST")]
    shop.transact(1)
    one, other = (
        rows(connection, f"SELECT n, roll FROM {table} ORDER BY n")
        for table in ("one_table", "other_table")
    )
    assert one == other


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("decimal(5,2)", Decimal("1.239")),
        ("array<decimal(5,2)>", [Decimal("1.20"), Decimal("1.239")]),
        ("float", 1e300),
        ("date", datetime(2024, 1, 1, 23)),
        ("timestamp_ntz", datetime(2024, 1, 1, tzinfo=timezone.utc)),
        ("string", b"ab"),
    ],
)
def test_a_row_in_memory_that_spark_would_change_is_refused(spark, type_, value):
    """It rounds, cuts and spells without a word."""
    spout = MemorySpout(schema={"v": type_}, partitions=[[(value,)]], take=1)
    with pytest.raises(SchemaMismatch, match="column v"):
        spout.frame(spark, meta_of(spout))


def test_a_row_in_memory_with_all_the_digits_that_there_are_is_read(spark):
    values = [Decimal(text) for text in ("9" * 36 + ".99", "-1.5000", "12E+30", "0E-9", "0.01")]
    spout = MemorySpout(schema={"v": "decimal(38,2)"}, partitions=[values], take=9)
    frame = spout.frame(spark, meta_of(spout))
    assert sorted(row.v for row in frame.collect()) == sorted(values)


def test_a_row_has_the_id_of_its_file_and_place(tmp_path, spark):
    """A few files of different sizes are told by these, others by their paths."""
    frames, wanted = [], {}
    for count, alike in itertools.product([1, 3, 20], [False, True]):
        case = f"{count} files, {'all' if alike else 'none'} alike"
        (tmp_path / case).mkdir()
        for file in range(count):
            table = pa.table({"n": [file] * 3, "t": ["x" * (1 if alike else file + 1)] * 3})
            pq.write_table(table, tmp_path / case / f"{file:02}.parquet")
        spout = FileSpout(f"{tmp_path}/{case}/*.parquet", count)
        frame = spout.frame(spark, meta_of(spout))
        frames.append(frame.withColumn("case", F.lit(case)))
        places = itertools.product(range(count), range(3))
        wanted[case] = {(file, fold_rows(file, 1, first=row).xor) for file, row in places}
        assert always(frame, "_n", "1")
    read = union_of(frames).collect()
    assert {
        case: {(r["n"], r["_x"]) for r in read if r["case"] == case} for case in wanted
    } == wanted
    assert not always(frame.join(frame.select("n"), "n", "right"), "_n", "1")
    assert not always(frame.selectExpr("_n + 1 AS _n"), "_n", "1")
