"""Random pipelines: whatever loses or doubles a row shows, and nothing else does (V1, V3, V8).

Each example is a number of pipelines whose accounts one Spark job computes.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import reliability
from reliability import show_accounting
from reliability.spark.frames.accounting import hide_accounting
from reliability.spark.frames.set_aside_rows import marks_of, noting
from tests.support.accounts import folds
from tests.support.functions import F

PIPELINES = 10  # an example
#: 10 wrong and 10 clean pipelines; 500 each in `make test-all`.
TIMES = int(os.environ.get("RELIABILITY_PIPELINES", "1"))
ROWS = 24
COLUMNS = ("id", "g", "v", "tags")


def select(frame, *columns):
    """Select as an author does who shows the accounting, or does not."""
    return frame.select(*columns, *(c for c in ("_x", "_n") if c in frame.columns))


def customers(frame):
    spark = frame.sparkSession
    return spark.createDataFrame([(n, f"g{n}") for n in range(5)], "g long, label string")


def by_condition(frame):
    there = F.col("l.g") == F.col("r.g")
    joined = frame.alias("l").join(customers(frame).alias("r"), there, "left")
    return select(joined, *(f"l.{c}" for c in COLUMNS))


def with_own_totals(frame):
    return select(frame.join(frame.groupBy("g").agg(F.max("v").alias("m")), "g"), *COLUMNS)


def in_a_window(frame):
    place = F.expr("row_number() OVER (PARTITION BY g ORDER BY id)")
    return select(frame.withColumn("place", place), *COLUMNS)


def fanned_out(frame, elements):
    return reliability.fan_out(frame.withColumn("e", elements), "e").drop("e")


CLEAN = {
    "select": lambda f: select(f, *reversed(COLUMNS)),
    "withColumn": lambda f: f.withColumn("w", F.col("v") * 2).drop("w"),
    "where": lambda f: f.where("v >= 0"),
    "join by name": lambda f: f.join(customers(f), "g", "left").drop("label"),
    "join on a condition": by_condition,
    "join with own totals": with_own_totals,
    "window": in_a_window,
    "order": lambda f: f.repartition(2).sortWithinPartitions("v"),
    "function": lambda f: f.withColumn("v", F.udf(lambda n: n, "long")("v")),
    "aggregate": lambda f: reliability.aggregate(f, ["g", "v", "tags"], id=F.min("id")),
    "union": lambda f: f.where("g < 2").union(f.where("g >= 2")),
    "drop": lambda f: reliability.drop(f, "v = 3", "three"),
    "quarantine": lambda f: reliability.quarantine(f, F.col("id") == 5, "five"),
    "fan_out": lambda f: fanned_out(f, F.array("v", "g")),
    "uneven fan_out": lambda f: fanned_out(f, F.col("tags")),
}


def last(frame):
    return frame.where(f"id = {ROWS - 1}")  # it is never set aside


def without_last(frame):
    return frame.where(f"id <> {ROWS - 1}")


WRONG = {
    "lose": without_last,
    "inner join": lambda f: f.join(customers(f).where("g < 3"), "g").drop("label"),
    "double": lambda f: f.union(last(f)),
    "double twice": lambda f: f.union(last(f)).union(last(f)),
    "lose one, double another": lambda f: without_last(f).unionByName(f.where("id = 0")),
    "doubling join": lambda f: f.join(customers(f).union(customers(f)), "g").drop("label"),
    "dropDuplicates": lambda f: f.dropDuplicates(["g"]),
    "limit": lambda f: f.limit(3),
    "explode": lambda f: f.withColumn("z", F.explode(F.array(F.lit(1), F.lit(2)))).drop("z"),
    "a branch twice": lambda f: f.union(f.where("g < 2")),
    "outer join": lambda f: f.join(customers(f).selectExpr("g + 9 AS g"), "g", "full").fillna(
        0, ["id", "v"]
    ),
    "array that is fanned out without saying so": lambda f: f.withColumn(
        "z", F.explode_outer("tags")
    ).drop("z"),
}

clean = st.lists(st.sampled_from(sorted(CLEAN)), min_size=1, max_size=3)
hidden = st.booleans()
pipelines: st.SearchStrategy[Any] = st.tuples(hidden, clean, st.just(None), st.just([]))
mutated: st.SearchStrategy[Any] = st.tuples(
    hidden, st.lists(st.sampled_from(sorted(CLEAN)), max_size=2), st.sampled_from(sorted(WRONG)),
    st.lists(st.sampled_from(sorted(CLEAN)), max_size=1),
)  # fmt: skip


def source(spark):
    return spark.range(ROWS).selectExpr(
        "id", "id % 5 AS g", "id % 7 AS v", "sequence(0, id % 3) AS tags", "xxhash64(id) AS _x",
        "1L AS _n",
    )  # fmt: skip


def run(spark, pipeline):
    """Return the frames that account for the batch: the result, and what was set aside."""
    is_hidden, before, fault, after = pipeline
    frame = hide_accounting(source(spark))
    steps = [CLEAN[name] for name in before]
    steps += [WRONG[fault]] if fault else []
    steps += [CLEAN[name] for name in after]
    with noting() as calls:
        for step in steps:
            frame = step(frame if is_hidden else show_accounting(frame))
    shown = show_accounting(frame)
    marks = marks_of(shown, [call.mark for call in calls])
    return [shown, *(call.rows for call in calls if call.mark in marks)]


def several(pipeline):
    return st.lists(pipeline, min_size=PIPELINES, max_size=PIPELINES)


examples = settings(
    max_examples=TIMES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def accounts(spark, tried):
    """Return what the batch has, and what each pipeline accounts for."""
    frames = {str(pipeline): run(spark, pipeline) for pipeline in tried}
    found = folds({"": [source(spark)], **frames})
    return found.pop(""), found


@examples
@given(tried=several(mutated))
def test_no_loss_and_no_doubling_is_missed(spark, tried):
    emitted, found = accounts(spark, tried)
    assert [pipeline for pipeline, fold in found.items() if fold == emitted] == []


@examples
@given(tried=several(pipelines))
def test_no_clean_pipeline_raises_an_alarm(spark, tried):
    emitted, found = accounts(spark, tried)
    assert [pipeline for pipeline, fold in found.items() if fold != emitted] == []
