"""The accounting that a frame hides: which operations carry it, and what an error says (rule V3).

What is relied on here is Spark's, and has no name in Python. It holds in Spark 4.1, 4.2 and 4.3.
"""

from __future__ import annotations

import re

import pytest

from reliability import aggregate, show_accounting
from reliability.core.errors import FrameWithoutAccounting, RowsUnaccounted
from reliability.core.spout import BatchMeta
from reliability.spark.frames.accounting import hide_accounting
from reliability.spark.frames.unaccounted import check_arrived
from tests.support.accounts import fold_of, folds, folds_and_counts
from tests.support.batches import fold_of_rows
from tests.support.functions import F

ROWS = 100


@pytest.fixture(scope="module")
def batch(spark):
    rows = spark.range(ROWS).selectExpr(
        "id",
        "id % 7 AS customer",
        "cast(id AS double) AS amount",
        "timestamp_seconds(id) AS ts",
        "array(1, 2) AS tags",
        "xxhash64(id) AS _x",
        "1L AS _n",
    )
    return hide_accounting(rows)


@pytest.fixture(scope="module")
def customers(spark):
    return spark.createDataFrame([(n, n % 3) for n in range(7)], "customer long, region long")


@pytest.fixture(scope="module")
def emitted(batch):
    return fold_of(batch)


def by_customer(frame, other):
    return F.col(f"{frame}.customer") == F.col(f"{other}.customer")


def mean_of_a_group():
    """Return a Python function of a whole group, as its types say."""
    import pandas as pd

    def mean(values):
        return values.mean()

    mean.__annotations__ = {"values": pd.Series, "return": float}
    return F.pandas_udf(mean, "double")


# --- what carries it -----------------------------------------------------------------------------

CARRIES = {
    "select": lambda b, c: b.select("customer", "amount"),
    "names": lambda b, c: b.drop("ts").withColumnRenamed("amount", "a").alias("x").toDF(*"abcd"),
    "withColumn": lambda b, c: b.withColumn("twice", F.col("amount") * 2).select("twice"),
    "fillna, replace": lambda b, c: b.fillna(0).replace(1, 2),
    "a filter that meets all": lambda b, c: b.where("amount >= 0").dropna(),
    "a join on a condition": lambda b, c: (
        b.alias("l").join(c.alias("r"), by_customer("l", "r"), "left").select("region")
    ),
    "a join by a name": lambda b, c: b.select("customer", "amount").join(c, "customer", "left"),
    "joins by names": lambda b, c: (
        b.join(c, "customer").join(c.withColumnRenamed("region", "r2"), ["customer"]).select("r2")
    ),
    "a join by a name from the right": lambda b, c: c.join(b, "customer", "right"),
    "a join with its own total": lambda b, c: b.join(
        b.groupBy("customer").agg(F.sum("amount").alias("total")), "customer"
    ),
    "a semi join": lambda b, c: b.join(c, b.customer == c.customer, "left_semi"),
    "a subquery": lambda b, c: b.where("id >= (SELECT 0)"),
    "a window": lambda b, c: b.withColumn(
        "place", F.expr("row_number() OVER (PARTITION BY customer ORDER BY ts)")
    ).select("place"),
    "order and place": lambda b, c: b.repartition(3).sort("amount").coalesce(1).hint("rebalance"),
    "cache": lambda b, c: b.select("amount").cache(),
    "a limit above": lambda b, c: b.limit(ROWS),
    "a Python function": lambda b, c: b.select(F.udf(lambda n: n, "long")("customer")),
    "observe": lambda b, c: b.observe("seen", F.count("id").alias("n")).select("id"),
    "shown": lambda b, c: b.select("id", "_x", "_n"),
    "shown by the frame": lambda b, c: b.select("id", b["_x"], b["_n"]),
    "aggregate": lambda b, c: aggregate(b, ["customer"], total=F.sum("amount")).select("total"),
    "aggregate by a function of pandas": lambda b, c: aggregate(
        b, ["customer"], mean=mean_of_a_group()("amount")
    ),
    "aggregate by hand": lambda b, c: b.groupBy("customer").agg(
        F.expr("bit_xor(_x)").alias("_x"), F.expr("sum(_n)").alias("_n")
    ),
    "union": lambda b, c: b.where("id < 9").select("id").union(b.where("id >= 9").select("amount")),
    "unions": lambda b, c: (
        b.where("id < 9").union(b.where("id = 9").union(b.where("id > 9"))).where("id >= 0")
    ),
    "a join of a union": lambda b, c: (
        b.where("id < 9").union(b.where("id >= 9")).alias("u").join(c, "customer").select("u.id")
    ),
    "unionByName": lambda b, c: b.where("id < 9").unionByName(
        b.where("id >= 9").drop("ts"), allowMissingColumns=True
    ),
    "a column of files": lambda b, c: b.select("id", F.lit("_metadata").alias("_metadata")),
    # as the errors advise, in place of a union, of a full join, and of a join from the right
    "halves that show it": lambda b, c: show_accounting(b.where("id % 2 = 0")).unionByName(
        show_accounting(b.where("id % 2 = 1").withColumnRenamed("id", "odd")),
        allowMissingColumns=True,
    ),
    "aggregate of a union": lambda b, c: aggregate(
        b.where("id % 2 = 0")
        .unionByName(b.where("id % 2 = 1").withColumnRenamed("id", "odd"), allowMissingColumns=True)
        .withColumn("pair", F.expr("coalesce(id, odd) div 2")),
        ["pair"],
        id=F.max("id"),
        odd=F.max("odd"),
    ),
    "a join with what is distinct": lambda b, c: b.join(
        b.select("customer").distinct(), "customer"
    ),
}
FEWER = {
    "aggregate": 7,
    "aggregate by a function of pandas": 7,
    "aggregate by hand": 7,
    "aggregate of a union": ROWS // 2,
}


def test_what_is_made_of_each_row_accounts_for_it(batch, customers, emitted):
    assert emitted.count == ROWS
    made = {name: make(batch, customers) for name, make in CARRIES.items()}
    shown = {name: show_accounting(frame) for name, frame in made.items()}
    found, rows = folds_and_counts({name: [frame] for name, frame in shown.items()})
    assert {name: fold for name, fold in found.items() if fold != emitted} == {}
    assert rows == dict.fromkeys(CARRIES, ROWS) | FEWER  # as without the accounting
    for name in CARRIES:
        assert [c for c in shown[name].columns if c not in ("_x", "_n")] == [
            c for c in made[name].columns if c not in ("_x", "_n")
        ], name


def test_a_function_of_pandas_aggregates_what_spark_would(batch, emitted):
    """Spark computes no aggregates of its own beside it, such as those of the accounting."""
    some = batch.where("id < 9").union(batch.where("id >= 9"))
    by_pandas = aggregate(some, ["customer"], mean=mean_of_a_group()("amount"))
    by_spark = aggregate(some, ["customer"], mean=F.mean("amount"))
    assert sorted(show_accounting(by_pandas).collect()) == sorted(
        show_accounting(by_spark).collect()
    )
    [total] = show_accounting(aggregate(batch, [], mean=mean_of_a_group()("amount"))).collect()
    assert (total.mean, fold_of_rows([total])) == ((ROWS - 1) / 2, emitted)
    assert aggregate(batch.limit(0), [], mean=mean_of_a_group()("amount")).collect() == []


# --- what loses or doubles rows ------------------------------------------------------------------

WRONG = {  # with how many rows there are then
    "an inner join": (lambda b, c: b.join(c.where("customer > 3"), "customer"), 42),
    "a join that doubles": (lambda b, c: b.join(c.union(c), "customer"), 200),
    "an outer join that makes rows": (
        lambda b, c: b.where("customer < 6").join(c, "customer", "full"),
        87,
    ),
    "a self join": (
        lambda b, c: b.alias("a").join(b.alias("b"), by_customer("a", "b")),
        2 * 15**2 + 5 * 14**2,
    ),
    "the wrong side": (
        lambda b, c: b.limit(1).crossJoin(b.select(F.col("id").alias("other"))),
        100,
    ),
    "distinct": (lambda b, c: b.select("customer").distinct(), 7),
    "explode": (lambda b, c: b.select(F.explode("tags")), 200),
    "offset": (lambda b, c: b.offset(5), 95),
    "lost here, doubled there": (
        lambda b, c: b.where("id <> 5").select("amount").union(b.where("id = 6").select("amount")),
        100,
    ),
    "three of one": (lambda b, c: b.union(b.where("id = 6")).union(b.where("id = 6")), 102),
    "an anti join": (lambda b, c: b.join(c.where("customer = 1"), "customer", "left_anti"), 85),
}


def test_what_loses_or_doubles_a_row_shows(batch, customers, emitted):
    shown = {name: [show_accounting(make(batch, customers))] for name, (make, _) in WRONG.items()}
    found, rows = folds_and_counts(shown)
    assert [name for name, fold in found.items() if fold == emitted] == []
    assert rows == {name: count for name, (_, count) in WRONG.items()}


# --- what loses it -------------------------------------------------------------------------------

LOST = {
    "union": (
        lambda b: b.select("id").union(b.sparkSession.range(3)),
        "a union with a frame that is not made from the step's input has lost",
        r"show_accounting\(\)",
    ),
    "groupBy": (
        lambda b: b.groupBy("customer").count(),
        r"groupBy\(\) or distinct\(\) has lost",
        r"reliability.aggregate\(\)",
    ),
    "mapInPandas": (
        lambda b: b.select("id").mapInPandas(lambda rows: rows, "id long").where("id > 0"),
        "MapInPandas has lost",
        r"show_accounting\(\) on the frame before it",
    ),
    "applyInPandas": (
        lambda b: b.groupBy("customer").applyInPandas(lambda r: r[["customer"]], "customer long"),
        "FlatMapGroupsInPandas has lost",
        r"show_accounting\(\)",
    ),
    "intersect": (
        lambda b: b.select("id").intersect(b.select("id")),
        r"intersect\(\) has lost",
        r"show_accounting\(\)",
    ),
    "rollup": (lambda b: b.rollup("customer").count(), "has lost", "reliability"),
    "unpivot": (
        lambda b: b.unpivot(["id"], ["customer"], "name", "value"),
        r"unpivot\(\) has lost",
        r"show_accounting\(\)",
    ),
    "SQL": (
        lambda b: b.sparkSession.sql("SELECT DISTINCT customer FROM {b}", b=b),
        "SQL on a view has lost",
        r"show_accounting\(\)",
    ),
    "SQL without the columns": (
        lambda b: b.sparkSession.sql("SELECT id FROM {b}", b=show_accounting(b)),
        "SQL without `_x` and `_n` has lost",
        r"keep `_x` and `_n`",
    ),
    "a frame from elsewhere": (
        lambda b: b.sparkSession.range(3),
        "not made from the step's input",
        "process function's arguments",
    ),
}


@pytest.mark.parametrize("name", LOST)
def test_an_error_names_what_lost_it(batch, name):
    made, what, remedy = LOST[name]
    with pytest.raises(FrameWithoutAccounting, match=what) as caught:
        show_accounting(made(batch))
    assert re.search(remedy, caught.value.what_to_do)


@pytest.mark.parametrize("name", ["_X", "_N"])
@pytest.mark.parametrize("shown", [False, True])
def test_a_joined_column_that_spark_takes_for_the_accounting_is_refused(
    batch, customers, name, shown
):
    """V3: bit_xor(_x) would be ambiguous, or be the XOR of something else."""
    others = customers.withColumn(name, F.lit(5))
    joined = (show_accounting(batch) if shown else batch).join(others, "customer", "left")
    with pytest.raises(FrameWithoutAccounting, match=f"the frame has the columns .'{name}'"):
        show_accounting(joined)


def test_the_accounting_of_both_sides_of_a_join_is_refused(batch):
    one, other = show_accounting(batch), show_accounting(batch.select("id"))
    with pytest.raises(FrameWithoutAccounting, match=r"the columns .'_x', '_n', '_x', '_n'"):
        show_accounting(one.join(other, "id"))


LEFT = "only the left one's rows count: put the frame on the left"
FILLED = "a union has filled `_x` and `_n` .* on all parts of it, or on none"
MISTAKES = {
    "a full join of halves": (
        lambda b: (
            b.where("id % 2 = 0")
            .selectExpr("id div 2 AS pair")
            .join(b.where("id % 2 = 1").selectExpr("id div 2 AS pair"), "pair", "full")
        ),
        LEFT,
    ),
    "distinct on the left": (lambda b: b.select("customer").distinct().join(b, "customer"), LEFT),
    "all rows on the right": (
        lambda b: b.where("id < 7").select("customer").join(b, "customer", "right"),
        LEFT,
    ),
    "a cogroup of which both sides show the accounting": (
        lambda b: (
            show_accounting(b.where("id < 9").select("customer"))
            .groupBy("customer")
            .cogroup(show_accounting(b.select("customer")).groupBy("customer"))
            .applyInPandas(lambda left, right: left, "customer long, _x long, _n long")
        ),
        "only on the frames whose rows the function returns",
    ),
    "duplicates that are left out": (
        lambda b: b.dropDuplicates(["customer"]),
        "dropDuplicates.. l",
    ),
    "a limit": (lambda b: b.limit(3), r"limit\(\) leaves rows out: number them"),
    "a sample of another": (
        lambda b: b.sample(0.5, seed=1).limit(1),
        r"limit\(\) or sample\(\) leaves",
    ),
    "a union of which one part shows the accounting": (
        lambda b: show_accounting(b.where("id < 9")).unionByName(
            b.where("id >= 9"), allowMissingColumns=True
        ),
        FILLED,
    ),
}


def test_an_error_says_what_is_likely_to_have_lost_rows(batch, customers, emitted):
    """V3: of two frames, nothing tells which one is to have all rows.

    A lookup table without duplicates is not blamed for what a join with it loses.
    """
    made = {name: show_accounting(make(batch)) for name, (make, _) in MISTAKES.items()}
    few = customers.where("customer > 3").dropDuplicates(["customer"])
    made["a lookup table"] = show_accounting(batch.join(few, "customer"))
    found = folds({name: [frame] for name, frame in made.items()})
    meta = BatchMeta(items=(), emitted=emitted)
    told = {}
    for name, frame in made.items():
        with pytest.raises(RowsUnaccounted) as raised:
            check_arrived("s", found[name], meta, None, frame, [])
        told[name] = str(raised.value)
    for name, (_, why) in MISTAKES.items():
        assert re.search(why, told[name]), told[name]
    assert "leaves rows out" not in told["a lookup table"]


def test_one_of_the_two_columns_is_not_enough(batch):
    with pytest.raises(FrameWithoutAccounting, match="has the column _x, but not _n"):
        show_accounting(batch.select("id", "_x"))
