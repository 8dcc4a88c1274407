"""What two states share is evaluated once, whichever columns each of them reads of it (rule V5)."""

from __future__ import annotations

import random

import pytest

from reliability import (
    Append,
    FileSpout,
    State,
    Topology,
    aggregate,
    drop,
    fan_out,
    quarantine,
    show_accounting,
)
from reliability.core.errors import EvaluatedTwice
from reliability.core.fold import Fold
from reliability.deployment.lazy import pa, pq
from reliability.spark.frames.accounting import hide_accounting
from reliability.spark.frames.one_evaluation import _uses, evaluate_once
from reliability.spark.frames.repeatable import is_repeatable
from reliability.spark.frames.set_aside_rows import on_the_way
from tests.support.accounts import processed_batch
from tests.support.batches import fold_of_rows, meta_of
from tests.support.functions import F

ROWS = 60


@pytest.fixture(scope="module")
def spout(tmp_path_factory):
    folder = tmp_path_factory.mktemp("batch")
    numbers = range(ROWS)
    tags = [[n, n + 1, n + 2] for n in numbers]
    table = pa.table({"k": numbers, "g": [n % 3 for n in numbers], "tags": tags})
    pq.write_table(table, folder / "a.parquet")
    return FileSpout(f"{folder}/*.parquet")


@pytest.fixture(scope="module")
def batch(spout, spark):
    return spout.frame(spark, meta_of(spout))


@pytest.fixture
def processed(spout, spark, no_cache):
    """Return a function that processes the batch as a driver does, and reads the states' frames.

    It returns their values, by name and row. Every frame must account for the batch.
    """

    def run(process, names, values=()):
        states = [State(name, values={"k": Append("k", "bigint")}) for name in names]
        meta, _, found = processed_batch(spark, Topology("once", spout, states, process))
        read = {}
        for name, frame in found.frames.items():
            rows = frame.select("_x", "_n", "k", *values).collect()
            left = Fold.of(aside.fold for aside in on_the_way(frame, found.set_aside))
            assert fold_of_rows(rows) + left == meta.emitted, name
            read[name] = {row[2]: row[3:] for row in rows}
        return read

    return run


# --- what comes out differently ------------------------------------------------------------------


def rolled(pandas):
    for frame in pandas:
        yield frame.assign(r=[random.getrandbits(40) for _ in frame.k])


def rolled_in_arrow(batches):
    for batch in batches:
        yield batch.append_column("r", [random.getrandbits(40) for _ in range(batch.num_rows)])


def a_function_of_rows(batch):
    roll = F.udf(lambda k: random.getrandbits(40), "long").asNondeterministic()
    return batch.withColumn("r", roll("k"))


def a_function_of_partitions(batch):
    """Spark does not know whether its result differs, and it cannot be marked."""
    shown = show_accounting(batch.select("k", "g", "tags"))
    return shown.mapInPandas(rolled, "k long, g long, tags array<long>, _x long, _n long, r long")


def all_together(batch):
    """A join by a name hides a column too, and in a union Spark stops what is hidden."""
    names = [(n, str(n)) for n in range(3)]
    names = batch.sparkSession.createDataFrame(names, "g long, name string")
    whole = batch.where("k < 9").union(batch.where("k >= 9")).join(names, "g")
    tied = a_function_of_rows(whole).withColumn(
        "tied", F.expr("row_number() OVER (PARTITION BY g ORDER BY name)")
    )
    return tied.withColumn("r", F.expr("concat_ws(' ', r, tied, now(), timestamp 'now')"))


def with_own_total(frame):
    totals = frame.groupBy("k").agg(F.max("r").alias("total"))
    return frame.join(totals, "k").drop("r").withColumnRenamed("total", "r")


SHAPES = {
    "as_it_is": lambda frame: frame,
    "with_file": lambda frame: frame.withColumn("file", F.col("_metadata.file_name")),
    "quarantined": lambda frame: quarantine(drop(frame, "k = 7", "seven"), "k < 5", "low"),
    "with_own_total": with_own_total,
    "grouped": lambda frame: aggregate(drop(frame, "k = 8", "eight"), ["k"], r=F.max("r")),
    "fanned_out": lambda frame: fan_out(frame, "tags"),
}


@pytest.mark.parametrize(
    ("volatile", "names"),
    [
        (a_function_of_rows, ["with_file", "grouped"]),
        (a_function_of_partitions, ["quarantined", "with_own_total"]),
        pytest.param(
            all_together, ["quarantined", "with_own_total", "fanned_out"], marks=pytest.mark.slow
        ),
    ],
)
def test_every_state_reads_one_evaluation_whatever_columns_its_path_asks_for(
    processed, volatile, names
):
    def process(batch):
        common = volatile(batch)
        return {name: SHAPES[name](common) for name in ["as_it_is", *names]}

    found = processed(process, ["as_it_is", *names], ["r"])
    expected = found["as_it_is"]
    assert len(expected) == ROWS
    for name, values in found.items():
        assert len(values) > ROWS - 9
        assert values == {k: expected[k] for k in values}, name


def test_a_hint_of_how_to_join_hides_no_evaluation(processed):
    """Spark keeps it above what was evaluated: each attempt failed with an error of py4j."""

    def process(batch):
        below = batch.select("g").distinct().hint("broadcast").withColumn("r", F.rand())
        inside = batch.hint("shuffle_hash").groupBy("g").agg(F.expr("rand()").alias("r"))
        frames = [batch.join(drawn, "g", "left") for drawn in (below, inside)]
        return dict(zip(names, [*frames, *frames], strict=True))

    names = ["below", "inside", "also_below", "also_inside"]
    found = processed(process, names, ["r"])
    assert len(found["below"]) == len(found["inside"]) == ROWS
    assert (found["below"], found["inside"]) == (found["also_below"], found["also_inside"])


def functions_of_partitions(batch):
    shown = show_accounting(batch.select("k", "g"))
    types = "k long, g long, _x long, _n long, r long"
    others = batch.sparkSession.range(3).withColumnRenamed("id", "g").groupBy("g")
    return {
        "in_arrow": shown.mapInArrow(rolled_in_arrow, types),
        "applied": shown.groupBy("g").applyInPandas(lambda rows: next(rolled([rows])), types),
        "cogrouped": shown.groupBy("g")
        .cogroup(others)
        .applyInPandas(lambda rows, _: next(rolled([rows])), types),
    }


def test_every_function_of_partitions_or_groups_is_called_once(processed):
    names = ["in_arrow", "applied", "cogrouped"]

    def process(batch):
        common = functions_of_partitions(batch)
        return {**common, **{f"other_{name}": common[name].where("k >= 0") for name in names}}

    found = processed(process, [*names, *(f"other_{name}" for name in names)], ["r"])
    for name in names:
        assert found[name] == found[f"other_{name}"]


# --- what the order of rows decides --------------------------------------------------------------


def test_a_grouping_that_several_states_share_is_looked_at_once(batch, monkeypatch, no_cache):
    """Each look takes calls of the JVM for each of its functions."""
    looked = []

    def look(plan):
        looked.append(plan.name)
        return is_repeatable(plan)

    monkeypatch.setattr("reliability.spark.frames.one_evaluation.is_repeatable", look)
    grouped = batch.groupBy("g").agg(F.max("k").alias("k"))
    _uses([batch], [grouped.where(f"k > {n}") for n in range(5)]).evaluate()
    assert looked.count("Aggregate") == 1


def first_of_each(batch):
    """Return the first row of each group after a join, which orders the rows by its kind."""
    notes = batch.groupBy("g").agg(F.max(F.col("k").cast("string")).alias("note"))
    fives = batch.select(F.expr("k % 5 AS k"), "g", F.col("k").alias("row"), F.lit(1).alias("same"))
    first = {"first": F.first("row"), "top": F.max_by("row", "same"), "note": F.max("note")}
    return notes, aggregate(fives.join(notes, "g"), ["k"], **first)


def join_by(notes, spark):
    """Let Spark broadcast the notes only where their texts are not read."""
    plan = notes.drop("note")._jdf.queryExecution().optimizedPlan()
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", plan.stats().sizeInBytes())


@pytest.fixture
def usual_joins(spark):
    """Choose joins as usual after the test."""
    yield
    spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def test_states_agree_on_first_rows_though_their_plans_join_differently(processed, usual_joins):
    """V5: Spark calls first() deterministic, and its result differs with the kind of join."""

    def process(batch):
        notes, per = first_of_each(batch)
        join_by(notes, batch.sparkSession)
        unread = per.withColumn("note", F.lit("none"))
        kinds = [kind_of_join(frame) for frame in (per, unread)]
        assert kinds == ["SortMergeJoin", "BroadcastHashJoin"]
        return {"one": per, "other": unread, "dropped": drop(per, "first < 5", "early")}

    read = processed(process, ["one", "other", "dropped"], ["first", "top", "note"])
    found = {name: {k: row[:2] for k, row in rows.items()} for name, rows in read.items()}
    assert len(found["one"]) == 5
    assert found["one"] == found["other"]
    assert found["dropped"].items() <= found["one"].items()


def kind_of_join(frame):
    plan = frame._jdf.queryExecution().executedPlan().toString()
    [kind] = {kind for kind in ("SortMergeJoin", "BroadcastHashJoin") if kind in plan}
    return kind


# --- what chooses rows, and has no id by which copies are known -----------------------------------


def chosen(frame):
    """Choose a row of each group; which one it is depends on the order of rows."""
    return frame.dropDuplicates(["g"]).select("k", F.lit(1).alias("chosen"))


def of_a_union(batch):
    """Spark stops what is hidden at a union, so the library makes another one of it."""
    whole = batch.where("k < 9").union(batch.where("k >= 9"))
    some = chosen(whole)
    return whole.join(some, "k", "left"), show_accounting(whole).join(some, "k", "left")


def of_exploded_rows(batch):
    each = batch.withColumn("one", F.explode(F.array(F.lit(1))))
    some = chosen(each)
    return each.join(some, "k", "left"), some.join(batch, "k")


def of_a_lateral_join(batch):
    ones = batch.sparkSession.range(1)
    each = batch.lateralJoin(ones.select((F.col("k").outer() + 1).alias("next")))
    some = chosen(each)
    return each.join(some, "k", "left"), some.join(batch, "k")


@pytest.mark.parametrize("make", [of_a_union, of_exploded_rows, of_a_lateral_join])
def test_rows_are_chosen_once_whatever_stands_below_the_choice(batch, no_cache, make):
    """V5: two copies that Spark had given other columns were evaluated each, without an error."""
    frames = [show_accounting(frame) for frame in make(hide_accounting(batch))]
    assert [choices(frame) for frame in frames] == [1, 1]
    assert [choices(frame) for frame in evaluate_once([batch], frames)] == [0, 0]


def choices(frame):
    """Return how often a frame's plan chooses rows, apart from what is kept already."""
    return str(frame._jdf.queryExecution().withCachedData()).count("Deduplicate")


# --- what leaves by chance -----------------------------------------------------------------------


def chance():
    return F.udf(lambda k: random.random() < 0.5, "boolean").asNondeterministic()("k")


def by_chance(batch):
    low = a_function_of_rows(batch)
    some = F.when(chance(), F.col("tags"))
    return {
        "twice": quarantine(drop(batch, chance(), "by chance"), chance(), "by chance"),
        "by_value": drop(low, "r % 2 = 0", "even"),
        "fanned_out": fan_out(batch.withColumn("tags", some), "tags"),
    }


def test_a_row_that_leaves_by_chance_is_counted_as_it_left(processed):
    """V8: of one state alone too, what is set aside and what stays are two frames."""
    processed(by_chance, ["twice", "by_value", "fanned_out"])


# --- what cannot be one --------------------------------------------------------------------------


def in_a_subquery(common):
    common.createOrReplaceTempView("common_of_subquery")
    show_accounting(common).createOrReplaceTempView("shown_of_subquery")
    return common.sparkSession.sql(
        "SELECT k, (SELECT max(r) FROM common_of_subquery c WHERE c.k = s.k) AS r, _x, _n "
        "FROM shown_of_subquery s"
    )


def of_a_subquery(batch):
    common = a_function_of_rows(batch)
    return {"one": common, "other": in_a_subquery(common)}


def of_a_choice_in_a_subquery(batch):
    """A subquery keeps the union that it has, while that of the other frame becomes another."""
    whole = batch.where("k < 9").union(batch.where("k >= 9"))
    some = chosen(whole)
    show_accounting(whole).createOrReplaceTempView("whole")
    some.createOrReplaceTempView("some")
    told = batch.sparkSession.sql("SELECT *, k IN (SELECT k FROM some) AS chosen FROM whole")
    return {"one": whole.join(some, "k", "left"), "other": told}


def of_a_cached_frame(batch):
    common = a_function_of_rows(batch).cache()
    common.count()
    return {"one": drop(common, "k < 0", "none"), "other": with_own_total(common)}


def with_more(frame):
    return show_accounting(frame).withColumn("double", 2 * F.col("k"))


def below_a_cache(batch):
    """Spark plans a cached query when it is cached, and computes it at the first job."""
    common = a_function_of_rows(batch)
    return {"one": common, "other": with_more(common).cache()}


def below_two_caches(batch):
    common = a_function_of_partitions(batch)
    first = with_more(common).cache()
    second = first.withColumn("triple", 3 * F.col("k")).persist()
    return {"one": with_own_total(second), "other": drop(common, "k < 0", "none"), "third": first}


def below_a_cache_of_a_cache(batch):
    """The function has computed both, the second from the first."""
    common = show_accounting(a_function_of_rows(batch)).cache()
    common.count()
    above = with_more(common).cache()
    above.count()
    return {"one": common, "other": above}


def below_a_loaded_cache(batch):
    common = a_function_of_rows(batch)
    above = with_more(common).cache()
    above.count()
    return {"one": common, "other": above}


def below_a_cache_that_came_first(batch):
    """What was cached first has been planned without the other."""
    common = show_accounting(a_function_of_rows(batch))
    above = with_more(common).cache()
    above.count()
    common.cache()
    common.count()
    return {"one": common, "other": above}


def of_a_with(batch, columns="k, g, _x, _n"):
    """Return a frame of a query that refers to a relation of its WITH twice."""
    show_accounting(batch).createOrReplaceTempView("batch_of_with")
    return batch.sparkSession.sql(
        f"WITH w AS (SELECT * FROM batch_of_with) SELECT {columns} FROM w WHERE k < 9 "
        f"UNION ALL SELECT {columns} FROM w WHERE k >= 9"
    )


def after_another_with(batch):
    """Spark looks for what is cached by the numbers that the relations have in the whole plan."""
    common = a_function_of_rows(of_a_with(batch))
    return {"one": common, "other": of_a_with(batch, "k AS key").join(common, F.expr("key = k"))}


def cached_after_another_with(batch):
    """Here it is the cache of the process function that Spark does not find."""
    common = a_function_of_rows(of_a_with(batch)).cache()
    common.count()
    return {"one": common, "other": of_a_with(batch, "k AS key").join(common, F.expr("key = k"))}


def before_another_with(batch):
    common = a_function_of_rows(of_a_with(batch))
    return {"one": common, "other": common.join(of_a_with(batch, "k AS key"), F.expr("key = k"))}


def dropped_from_a_with_each(batch):
    """What both drops have left out is counted in one job, where one comes after the other."""
    return {
        name: drop(a_function_of_rows(of_a_with(batch)), "r % 2 = 0", name)
        for name in ("one", "other")
    }


def of_two_calls(batch):
    """A long number, a seed that is written and a function are in both, but no draw is."""
    both = ["*", "timestamp_millis(1700000000000) AS time", "rand(1700000000000) AS written"]
    double = F.udf(lambda k: 2 * k, "long")
    return {
        name: batch.selectExpr(*both, f"{draw} AS r").withColumn("double", double("k"))
        for name, draw in {"one": "uuid()", "other": "randn()"}.items()
    }


def of_the_remedy(batch):
    common = show_accounting(a_function_of_rows(batch)).localCheckpoint()
    return {"one": drop(common, "k < 0", "none"), "other": in_a_subquery(common)}


def of_two_checkpoints(batch):
    common = show_accounting(a_function_of_rows(batch))
    return {"one": common.localCheckpoint(), "other": common.where("k >= 0").localCheckpoint()}


def of_a_checkpoint_each(batch):
    """All that they have in common is the batch."""
    one, other = (
        batch.withColumn("double", 2 * F.col("k")),
        batch.selectExpr("k", "k * 2 AS double"),
    )
    return {
        "one": show_accounting(one).localCheckpoint(),
        "other": show_accounting(other).localCheckpoint(),
    }


@pytest.mark.parametrize(
    "process",
    [
        *(of_a_subquery, of_a_choice_in_a_subquery, of_a_cached_frame, of_two_checkpoints),
        *(below_a_loaded_cache, below_a_cache_that_came_first),
        *(after_another_with, cached_after_another_with),
    ],
)
def test_two_evaluations_are_refused(processed, process):
    with pytest.raises(EvaluatedTwice, match="evaluation") as caught:
        processed(process, ["one", "other"])
    assert "localCheckpoint()" in caught.value.what_to_do


@pytest.mark.parametrize(
    ("process", "names"),
    [
        (below_a_cache, ["one", "other"]),
        (below_two_caches, ["one", "other", "third"]),
        (below_a_cache_of_a_cache, ["one", "other"]),
    ],
)
def test_a_cached_frame_reads_the_one_evaluation_below_it(processed, process, names):
    """V5: Spark had planned it with an evaluation of its own, so two tables differed silently."""
    found = processed(process, names, ["r"])
    for name in names[1:]:
        assert found[name] == found[names[0]]


def test_one_evaluation_above_a_with_is_read_before_another(processed):
    found = processed(before_another_with, ["one", "other"], ["r"])
    assert found["one"] == found["other"]
    assert len(found["one"]) == ROWS


def test_what_is_dropped_above_a_with_is_counted_as_it_left(processed):
    """V8: the other state's was evaluated once more for the count."""
    processed(dropped_from_a_with_each, ["one", "other"])


def with_a_table_function(batch):
    """A lateral join shows what its subquery makes."""
    rolled_rows = F.udtf(Rolled, returnType="r long")
    joined = batch.lateralJoin(rolled_rows(F.col("k").outer()))
    return {"one": joined, "other": batch.withColumn("r", F.lit(0))}


class Rolled:
    def eval(self, k):
        yield (random.getrandbits(40),)


@pytest.mark.parametrize(
    ("process", "values"),
    [
        (of_two_calls, ["time", "double"]),  # two draws with a number in common are no copies
        # It keeps the ids of the batch's columns, so these two seemed to be one frame.
        (of_a_checkpoint_each, ["double"]),
        (of_the_remedy, ["r"]),
    ],
)
def test_what_is_one_evaluation_or_has_only_the_batch_in_common_is_read(processed, process, values):
    found = processed(process, ["one", "other"], values)
    assert found["one"] == found["other"]
    assert len(found["one"]) == ROWS


def test_a_lateral_join_of_one_state_is_no_second_evaluation_of_its_subquery(processed):
    assert len(processed(with_a_table_function, ["one", "other"], ["r"])["one"]) == ROWS
