"""What frames account for: of many of them in one Spark job, as planning each takes longest."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, TypeVar

from reliability import Topology, show_accounting
from reliability.core.acker import check_emitted
from reliability.core.errors import RowsUnaccounted
from reliability.core.fold import Fold
from reliability.core.set_aside import QuarantinedRow
from reliability.core.spout import BatchMeta, Interval, NoItems, Verdict
from reliability.spark.frames.set_aside_rows import on_the_way
from reliability.spark.frames.unaccounted import check_arrived
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
    return folds_and_counts(frames)[0]


def folds_and_counts(
    frames: Mapping[Name, Sequence[DataFrame]],
) -> tuple[dict[Name, Fold], dict[Name, int]]:
    """Return the same, and how many rows they have, by one job."""
    parts = [
        frame.select(F.lit(number).alias("number"), "_x", "_n")
        for number, of_name in enumerate(frames.values())
        for frame in of_name
    ]
    fold = F.expr("bit_xor(coalesce(_x, 0)) AS x"), F.expr("sum(coalesce(_n, 1)) AS n")
    folded = union_of(parts).groupBy("number").agg(*fold, F.expr("count(*) AS rows")).collect()
    found = {row.number: row for row in folded}
    names = {name: found.get(number) for number, name in enumerate(frames)}
    return (
        {name: Fold(row.x, row.n) if row else Fold() for name, row in names.items()},
        {name: row.rows if row else 0 for name, row in names.items()},
    )


def union_of(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all of them."""
    return reduce(lambda one, other: one.union(other), frames)


@dataclass(frozen=True)
class Called:
    """What the process function of a topology's one step makes of its one batch.

    It is called as the driver calls it, and nothing is staged.
    """

    meta: BatchMeta
    batch: DataFrame
    processed: Processed
    accounted: Mapping[str, Fold]

    @classmethod
    def of(
        cls, spark: SparkSession, topology: Topology, interval: Interval | None = None
    ) -> Called:
        meta, batch, processed = processed_batch(spark, topology, interval)
        frames, set_aside = processed.frames, processed.set_aside
        arrived = folds({state: [frame] for state, frame in frames.items()})
        accounted = {
            state: Fold.of([arrived[state], *(one.fold for one in on_the_way(frame, set_aside))])
            for state, frame in frames.items()
        }
        return cls(meta, batch, processed, accounted)

    def unaccounted(self) -> list[str]:
        """Return the states that do not account for all of the batch."""
        found = []
        for state, fold in self.accounted.items():
            try:
                check_emitted(state, self.meta.emitted, fold, Verdict.EXACT)
            except RowsUnaccounted:
                found.append(state)
        return found

    def check(self, state: str) -> None:
        """Raise what ends the attempt, if a state does not account for all of the batch."""
        frame, calls = self.processed.frames[state], self.processed.calls
        check_arrived(state, self.accounted[state], self.meta, self.batch, frame, calls)


def processed_batch(
    spark: SparkSession, topology: Topology, interval: Interval | None = None
) -> tuple[BatchMeta, DataFrame, Processed]:
    """Call the process function of the only step on the only batch, as the driver calls it."""
    [step] = topology.steps
    [items] = topology.spout.cut(topology.spout.plan(interval, NoItems()))
    meta = BatchMeta(items=items, emitted=topology.spout.count(items))
    batch = topology.spout.frame(spark, meta)
    return meta, batch, call_process(spark, topology, step, [batch], meta.emitted.count)


def staged(
    spark: SparkSession, topology: Topology, interval: Interval | None = None
) -> tuple[dict[str, DataFrame], list[QuarantinedRow]]:
    """Return what a driver stages for each state, and the rows that it quarantines."""
    prepare(spark)
    _, _, processed = processed_batch(spark, topology, interval)
    frames = {
        state.name: reduce_frame(processed.frames[state.name], stored_state(topology.name, state))
        for state in topology.states
    }
    return frames, processed.quarantined
