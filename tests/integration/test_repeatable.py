"""What may differ from one evaluation to the next: all of Spark's functions are classified (V5).

The functions of a row in `functions_of_a_row.txt` give the same for the same row, unless Spark
itself calls them not deterministic or takes them for a clock: their examples were evaluated twice.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reliability.spark.frames import repeatable
from reliability.spark.frames.jvm import Plan
from tests.support.functions import F


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


OF_A_ROW = _names(Path(__file__).with_name("functions_of_a_row.txt").read_text())
# All other aggregate functions of Spark, by what makes them differ
DIFFER = {
    "they keep the order of rows, or take what comes first": _names(
        """
        AnyValue CollectList CollectSet CollectTopK CollectUnion First Last LastNonNull ListAgg
        NthValue SchemaOfVariantAgg
        """
    ),
    "they choose among equal rows": _names(
        """
        MaxBy MaxMinByK MinBy Mode PandasMode
        """
    ),
    "they add floating-point numbers": _names(
        """
        Corr CovPopulation CovSample Kurtosis Median MetricsAggregate PandasCovar PandasKurtosis
        PandasProduct PandasSkewness PandasStddev PandasVariance Percentile PercentileCont
        PercentileDisc Product RegrAvgX RegrAvgY RegrIntercept RegrR2 RegrSXX RegrSXY RegrSYY
        RegrSlope Skewness StddevPop StddevSamp VariancePop VarianceSamp VectorAvg VectorSum
        """
    ),
    "their sketch differs with the order of rows, or has chosen at random": _names(
        """
        ApproxCountDistinctForIntervals ApproxTopK ApproxTopKAccumulate ApproxTopKCombine
        ApproximatePercentile CollectFrequentItems HistogramNumeric HllSketchAgg HllUnionAgg
        KllMergeAggBigint KllMergeAggDouble KllMergeAggFloat KllSketchAggBigint
        KllSketchAggDouble KllSketchAggFloat ThetaIntersectionAgg ThetaSketchAgg ThetaUnionAgg
        TupleIntersectionAggDouble TupleIntersectionAggInteger TupleSketchAggDouble
        TupleSketchAggInteger TupleUnionAggDouble TupleUnionAggInteger
        """
    ),
    "they call what a metric view defines, or a function of a user": _names(
        """
        ComplexTypedAggregateExpression HiveUDAFFunction Measure PythonUDAF ScalaAggregator
        ScalaUDAF SimpleTypedAggregateExpression V2Aggregator
        """
    ),
}
OF_GROUPS = repeatable.OF_ANY.union(repeatable.OF_EXACT, *DIFFER.values())
# only in a Window, which counts as not repeatable, or replaced when Spark analyses a query
ELSEWHERE = _names(
    """
    CounterDiff CumeDist DenseRank EWM Grouping GroupingID Lag Lead NTile NthValue NullIndex
    PercentRank Rank RowNumber
    """
)
CLASSIFIED = OF_GROUPS | ELSEWHERE | {*repeatable.RANDOM}
REGISTRIES = [
    ("FunctionRegistry", "builtin"),
    ("FunctionRegistry", "internal"),
    ("TableFunctionRegistry", "builtin"),
]
CATALYST = "org.apache.spark.sql.catalyst"


def registered(spark):
    """Return the name and class of every function that Spark has built in."""
    classes = spark._jvm.java.lang.Class
    for registry, kind in REGISTRIES:
        companion = classes.forName(f"{CATALYST}.analysis.{registry}$")
        functions = getattr(companion.getField("MODULE$").get(None), kind)()
        names = functions.listFunction()
        for name in map(names.apply, range(names.size())):
            yield name.funcName(), functions.lookupFunction(name).get().getClassName()


def test_every_function_of_spark_is_classified(spark):
    """V5: a new one must be read: what differs goes into `spark/frames/repeatable.py`."""
    assert not (repeatable.OF_ANY | repeatable.OF_EXACT) & frozenset().union(*DIFFER.values())
    unknown = {}
    for name, class_name in registered(spark):
        kind = re.sub(r"^Try|(Expression)?Builder$", "", class_name.rsplit(".", 1)[-1])
        if kind not in CLASSIFIED and name not in OF_A_ROW:
            unknown[name] = class_name
    assert not unknown


@pytest.fixture(scope="module")
def rows(spark):
    typed = "id AS n", "cast(id AS decimal(10,2)) AS d", "cast(id AS double) AS f"
    texts = "cast(id AS string) AS t", "cast(id AS string) COLLATE utf8_lcase AS c"
    return spark.range(9).selectExpr(*typed, *texts, "timestamp_seconds(id) AS ts")


def differs(frame):
    """Say whether any operator of a frame's plan may make other rows next time; sources may not."""
    nodes = (node for node in Plan.of(frame).nodes() if not node.is_leaf)
    return not all(map(repeatable.is_repeatable, nodes))


@pytest.mark.parametrize(
    "aggregate",
    [
        "count(*)",
        "count(DISTINCT f)",
        "sum(n)",
        "mean(d)",
        "sum(DISTINCT d) FILTER (WHERE f > 1)",
        "max(t)",
        "min(struct(n, ts))",
        "bit_xor(xxhash64(n))",
        "every(f > 1)",
        "count_if(f > 1)",
        "approx_count_distinct(f)",
    ],
)
def test_what_is_counted_or_added_exactly_does_not_differ(rows, aggregate):
    """V5: it is not evaluated apart, which would cost a job."""
    assert not differs(rows.groupBy("f").agg(F.expr(aggregate)))


@pytest.mark.parametrize(
    "aggregate",
    [
        "first(n)",
        "max_by(n, d)",
        "collect_list(n)",
        "percentile_approx(n, 0.5)",
        "hll_sketch_agg(n)",
        "1 + coalesce(sum(f), 0)",
        "avg(n)",  # as doubles
        "stddev(n)",
        "max(f)",  # -0.0 or 0.0
        "max(c)",  # a or A
        "try_sum(d)",  # NULL, if the sum is too great in between
        "sort_array(collect_list(n))",  # at worst it is kept
    ],
)
def test_what_depends_on_the_order_of_rows_differs(rows, aggregate):
    """V5: Spark calls each of them deterministic."""
    made = rows.groupBy("t").agg(F.expr(aggregate))
    assert Plan.of(made).java.deterministic()
    assert differs(made)


def with_sums_that_are_null_if_too_great(rows):
    rows.sparkSession.conf.set("spark.sql.ansi.enabled", "false")
    try:
        return rows.agg(F.sum("d"))
    finally:
        rows.sparkSession.conf.unset("spark.sql.ansi.enabled")


def of_a_group():
    """Return a Python function that gets the values of a whole group, as its types say."""
    import pandas as pd

    def size(values):
        return len(values)

    size.__annotations__ = {"values": pd.Series, "return": int}
    return F.pandas_udf(size, "long")


def numbers():
    """Return a table function that numbers the rows that it gets, and is said to be repeatable."""

    class Numbers:
        def __init__(self):
            self.number = 0

        def eval(self, n):
            self.number += 1
            yield (self.number,)

    return F.udtf(Numbers, returnType="number long").asDeterministic()


def in_sql(rows, text):
    return rows.sparkSession.sql(text, rows=rows)


OPERATIONS = {
    "SELECT DISTINCT": (lambda r: in_sql(r, "SELECT DISTINCT n, f, t FROM {rows}"), False),
    "the same of texts of which some are equal": (
        lambda r: in_sql(r, "SELECT DISTINCT c FROM {rows}"),
        True,
    ),
    "groups of such": (lambda r: r.groupBy("c").count(), True),
    "intersect": (lambda r: r.select("t").intersect(r.select("t")), False),
    "subtract": (lambda r: r.select("t").subtract(r.select("t")), False),
    "intersect of such": (lambda r: r.select("c").intersect(r.select("c")), True),
    "distinct": (lambda r: r.drop("c").distinct(), True),  # at worst it is kept
    "dropDuplicates": (lambda r: r.dropDuplicates(["t"]), True),
    "dropDuplicatesWithinWatermark": (
        lambda r: r.withWatermark("ts", "1 day").dropDuplicatesWithinWatermark(["t"]),
        True,
    ),
    "limit": (lambda r: r.sort("n").limit(3), True),
    "offset": (lambda r: r.offset(3), True),
    "sample": (lambda r: r.sample(0.5, seed=1), True),
    "window": (lambda r: r.selectExpr("row_number() OVER (PARTITION BY t ORDER BY f)"), True),
    "place": (lambda r: r.withColumn("p", F.monotonically_increasing_id()), True),
    "order and partitions": (lambda r: r.repartition(3, "t").sort("f").coalesce(1), False),
    "join": (lambda r: r.join(r.select("t"), "t", "left").hint("broadcast"), False),
    "union": (lambda r: r.union(r).unionByName(r), False),
    "explode": (lambda r: r.select(F.explode(F.array("n"))), False),
    "unpivot": (lambda r: r.unpivot(["n"], ["d", "f"], "name", "value"), False),
    "pivot": (lambda r: r.groupBy("t").pivot("n", [1, 2]).sum("d"), False),
    "rollup": (lambda r: r.rollup("t").agg(F.sum("d"), F.grouping("t")), False),
    "windows of time": (
        lambda r: r.withWatermark("ts", "1 day").groupBy(F.window("ts", "1 day")).count(),
        False,
    ),
    "sessions": (lambda r: r.groupBy(F.session_window("ts", "1 hour")).agg(F.sum("n")), False),
    "a lateral join": (
        lambda r: in_sql(r, "SELECT * FROM {rows} r, LATERAL (SELECT r.n + 1 AS m)"),
        False,
    ),
    "WITH": (lambda r: in_sql(r, "WITH s AS (SELECT n FROM {rows}) SELECT * FROM s"), False),
    "a function of partitions": (
        lambda r: r.select("n").mapInPandas(lambda parts: parts, "n long"),
        True,
    ),
    "a function of groups": (lambda r: r.agg(of_a_group()("n")), True),
    "a Python table function": (lambda r: r.lateralJoin(numbers()(F.col("n").outer())), True),
    "an encrypted value": (lambda r: r.select(F.expr(ENCRYPTED)), True),
    "one of many in a struct": (
        lambda r: r.select(F.struct(*[F.lit(n) for n in range(30)], F.expr(ENCRYPTED))),
        True,
    ),
    "many values": (lambda r: r.select(F.struct(*[F.lit(n) for n in range(30)])), False),
    "merged sketches": (
        lambda r: r.selectExpr("kll_sketch_merge_bigint(cast(t AS binary), cast(t AS binary))"),
        True,
    ),
    "sums that are NULL if they are too great": (with_sums_that_are_null_if_too_great, True),
}
ENCRYPTED = "aes_encrypt(t, '0000111122223333')"


@pytest.mark.parametrize("name", OPERATIONS)
def test_which_operations_differ(rows, name):
    """V5: what chooses rows by their place, calls a function on many, or draws numbers."""
    make, expected = OPERATIONS[name]
    assert differs(make(rows)) == expected
