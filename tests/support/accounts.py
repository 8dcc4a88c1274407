"""What frames account for: of many of them in one Spark job, as planning each takes longest."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, TypeVar

from reliability import Topology, show_accounting
from reliability.core.acker import check_emitted
from reliability.core.errors import RowsUnaccounted
from reliability.core.fold import Fold
from reliability.core.set_aside import QuarantinedRow
from reliability.core.spout import BatchMeta, Interval, NoItems, Verdict
from reliability.spark.frames.set_aside_rows import on_the_way
from reliability.spark.process import Processed, call_process, prepare
from reliability.spark.stage.reduce import reduce_frame
from reliability.states.kinds import stored_state
from tests.support.functions import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Name = TypeVar("Name", bound=Hashable)


def fold_of(frame: DataFrame) -> Fold:
    """Fold what a frame accounts for."""
    return folds({"": [show_accounting(frame)]})[""]


def folds(frames: Mapping[Name, Sequence[DataFrame]]) -> dict[Name, Fold]:
    """Fold what the frames of each name account for together; they show it.

    A row without accounting, as an outer join makes, counts as one.
    """
    parts = [
        frame.select(F.lit(number).alias("number"), "_x", "_n")
        for number, of_name in enumerate(frames.values())
        for frame in of_name
    ]
    fold = F.expr("bit_xor(coalesce(_x, 0)) AS x"), F.expr("sum(coalesce(_n, 1)) AS n")
    folded = union_of(parts).groupBy("number").agg(*fold).collect()
    found = {row.number: Fold(row.x, row.n) for row in folded}
    return {name: found.get(number, Fold()) for number, name in enumerate(frames)}


def counts(frames: Mapping[Name, DataFrame]) -> dict[Name, int]:
    """Count the rows of each frame."""
    parts = [
        frame.select(F.lit(number).alias("number")) for number, frame in enumerate(frames.values())
    ]
    found = {
        row.number: row["count"] for row in union_of(parts).groupBy("number").count().collect()
    }
    return {name: found.get(number, 0) for number, name in enumerate(frames)}


def union_of(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all of them."""
    return reduce(lambda one, other: one.union(other), frames)


def unaccounted(
    spark: SparkSession, topologies: Mapping[str, Topology], interval: Interval | None = None
) -> dict[str, list[str]]:
    """Return, for each topology of one step, the states that do not account for all of its batch.

    The function is called as the driver calls it, and nothing is staged.
    """
    frames: dict[tuple[str, str], list[DataFrame]] = {}
    aside: dict[tuple[str, str], Fold] = {}
    emitted: dict[str, Fold] = {}
    for name, topology in topologies.items():
        meta, processed = processed_batch(spark, topology, interval)
        emitted[name] = meta.emitted
        for state, frame in processed.frames.items():
            frames[name, state] = [frame]
            left = on_the_way(frame, processed.set_aside)
            aside[name, state] = Fold.of(one.fold for one in left)
    found: dict[str, list[str]] = {name: [] for name in topologies}
    for (name, state), fold in folds(frames).items():
        try:
            check_emitted(state, emitted[name], fold + aside[name, state], Verdict.EXACT)
        except RowsUnaccounted:
            found[name].append(state)
    return found


def processed_batch(
    spark: SparkSession, topology: Topology, interval: Interval | None = None
) -> tuple[BatchMeta, Processed]:
    """Call the process function of the only step on the only batch, as the driver calls it."""
    [step] = topology.steps
    [items] = topology.spout.cut(topology.spout.plan(interval, NoItems()))
    meta = BatchMeta(items=items, emitted=topology.spout.count(items))
    batch = topology.spout.frame(spark, meta)
    return meta, call_process(spark, topology, step, [batch], meta.emitted.count)


def staged(
    spark: SparkSession, topology: Topology, interval: Interval | None = None
) -> tuple[dict[str, DataFrame], list[QuarantinedRow]]:
    """Return what a driver stages for each state, and the rows that it quarantines."""
    prepare(spark)
    _, processed = processed_batch(spark, topology, interval)
    frames = {
        state.name: reduce_frame(processed.frames[state.name], stored_state(topology.name, state))
        for state in topology.states
    }
    return frames, processed.quarantined
