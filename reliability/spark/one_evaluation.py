"""Evaluate volatile sub-plans once for all states of an attempt (V5).

Every state is a separate Spark job. A sub-plan is volatile if it is not deterministic (rand(), a
clock, a UDF marked so, a window whose order has ties) or reads anything but the batch (a JDBC table
that changes). If two states share one, Spark would evaluate it twice, and two tables of one txid
could contradict each other. So shared volatile sub-plans are evaluated before any state is staged,
and all states read the result.

The executors keep the result, without its lineage: otherwise Spark would replace what a lost
executor held by a second evaluation. So a lost result fails the attempt, and the next one starts
from the beginning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from reliability.core.errors import EvaluatedTwice
from reliability.spark import catalyst
from reliability.spark.carried import Asked, asked_by, carry, with_carried
from reliability.spark.repeatable import is_repeatable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

_REFERENCES = frozenset({"CTERelationRef", "UnionLoopRef"})  # to relations of a WITH
# What has an id of its own in each call, or a seed.
_WITH_ID = frozenset({"AggregateExpression", "PythonUDAF", "PythonUDF", "PythonUDTF"})
_WITH_SEED = frozenset({"Rand", "RandStr", "Randn", "Shuffle", "Uniform", "Uuid"})
_LEAST_DRAWN = 2**48  # Spark draws seeds of 64 bits; lesser ones are taken for written ones
_TOLD, _TOLD_FIELDS = 300, 25
_LOST = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"


def evaluate_once(inputs: Sequence[DataFrame], frames: Sequence[DataFrame]) -> list[DataFrame]:
    """Evaluate each volatile sub-plan that is used twice or more; return frames that read it.

    :param inputs: the step's input, the batch or staged rows, which Spark can read again unchanged
    :raises EvaluatedTwice: something volatile has another shape in each frame that uses it
    """
    uses = _uses(inputs, frames)
    asked = asked_by([*inputs, *frames]) if uses.are_several() else None
    if asked and uses.in_two_shapes(asked):
        uses.refuse_loaded()
        frames = [with_carried(frame, asked) for frame in frames]
        uses = _uses([*inputs, *(with_carried(frame, asked) for frame in inputs)], frames)
        if plan := uses.in_two_shapes(asked):
            raise EvaluatedTwice(f"states would read two evaluations of {_told(plan)}")
    uses.evaluate()
    return [*frames]


def persist_shared(inputs: Sequence[DataFrame], frames: Sequence[DataFrame]) -> int:
    """Evaluate each volatile sub-plan that is used twice or more; return how many there are."""
    return _uses(inputs, frames).evaluate()


def is_lost_evaluation(error: Exception) -> bool:
    """Say whether a job failed because a shared result was lost with its executor."""
    return _LOST in str(error)


# --- shared sub-plans ----------------------------------------------------------------------------


class _Found(NamedTuple):
    """What was found in a plan.

    :param volatile: whether anything in it is volatile
    :param open: whether it refers to a plan around it, and must be evaluated together with that
    """

    volatile: bool
    open: bool = False


def _uses(inputs: Sequence[DataFrame], frames: Sequence[DataFrame]) -> _Uses:
    uses = _Uses({key for frame in inputs for key in _repeatable(frame)})
    for frame in frames:
        uses.count(frame)
    return uses


def _repeatable(frame: DataFrame) -> Iterator[str]:
    for plan in catalyst.nodes(catalyst.analyzed(frame)):
        yield catalyst.identity(plan)
        if plan.metadataOutput().size() and not plan.children().size():
            yield catalyst.identity(plan.withMetadataColumns())


@dataclass(slots=True)
class _Uses:
    """How often each volatile sub-plan is used.

    A sub-plan uses each plan inside it once, however often it is used itself.

    :param repeatable: the sub-plans of the step's input
    """

    repeatable: set[str]
    _plans: dict[str, tuple[DataFrame, Any]] = field(default_factory=dict)
    _times: dict[str, int] = field(default_factory=dict)
    _groupings: dict[str, bool] = field(default_factory=dict)
    _has_clock: bool = False
    _volatile: dict[str, tuple[DataFrame, Any]] = field(default_factory=dict)

    def evaluate(self) -> int:
        """Evaluate those that are used twice or more, each after those inside it."""
        shared = [plan for identity, plan in self._plans.items() if self._times[identity] > 1]
        for frame, plan in shared:
            _evaluate(frame, plan)
        return len(shared)

    def are_several(self) -> bool:
        """Say whether two or more different plans are volatile."""
        return len(self._volatile) > 1

    def in_two_shapes(self, asked: Asked) -> Any | None:
        """Return a plan of two that differ only in what they carry, or come from one."""
        seen: dict[object, str] = {}
        for identity, (frame, plan) in self._volatile.items():
            shape = catalyst.identity(carry(plan, asked, frame.sparkSession))
            for same in (shape, *_made(plan), *_calls(plan)):
                if seen.setdefault(same, identity) != identity:
                    return plan
        return None

    def refuse_loaded(self) -> None:
        """Raise EvaluatedTwice if a frame was cached and then evaluated by the function itself."""
        for frame, plan in self._plans.values():
            if _is_cached(frame, plan) and _is_loaded(frame, plan):
                raise EvaluatedTwice(
                    "a frame was cached and a job was run on it, and states would read another "
                    f"evaluation of {_told(plan)}"
                )

    def count(self, frame: DataFrame) -> None:
        """Count the uses of one state's frame."""
        plain, timed = _without_clock(frame, catalyst.analyzed(frame))
        self._has_clock = not plain.fastEquals(timed)
        self._visit(frame, catalyst.analyzed(frame), in_with=False)

    def _visit(self, frame: DataFrame, plan: Any, *, in_with: bool) -> _Found:
        identity = catalyst.identity(plan)
        is_volatile, is_cached = self._is_volatile(frame, plan, identity), _is_cached(frame, plan)
        if is_volatile:
            self._volatile.setdefault(identity, (frame, plan))
        if (is_volatile or is_cached) and identity in self._times:
            self._times[identity] += 1
            return _Found(volatile=True)
        within = in_with or plan.nodeName() == "WithCTE"
        parts = [self._visit(frame, part, in_with=within) for part in catalyst.parts(plan)]
        found = is_volatile or any(part.volatile for part in parts)
        # A plan that the process function has cached is evaluated as a whole.
        is_unit = is_volatile or any(part.open for part in parts) or (is_cached and found)
        if not is_unit:
            return _Found(found)
        if _refers_outside(frame, plan, in_with=in_with):
            return _Found(volatile=True, open=True)
        self._plans.setdefault(identity, (frame, plan))
        self._times[identity] = self._times.get(identity, 0) + 1
        return _Found(volatile=True)

    def _is_volatile(self, frame: DataFrame, plan: Any, identity: str) -> bool:
        is_leaf = not plan.children().size() and plan.nodeName() not in _REFERENCES
        differs = (
            is_leaf
            or not self._is_repeatable(plan, identity)
            or (self._has_clock and _reads_clock(frame, plan))
        )
        return differs and identity not in self.repeatable

    def _is_repeatable(self, plan: Any, identity: str) -> bool:
        """Look only once at each grouping, which takes calls of the JVM for each function."""
        if plan.nodeName() != "Aggregate":
            return is_repeatable(plan)
        if identity not in self._groupings:
            self._groupings[identity] = is_repeatable(plan)
        return self._groupings[identity]


def _made(plan: Any) -> set[int]:
    """Return the ids of the columns that a plan makes; a copy in a self join has others."""
    below = {i for child in catalyst.children(plan) for _, i in _pairs(child)}
    return {i for _, i in _pairs(plan)} - below


def _calls(plan: Any) -> Iterator[tuple[str, int]]:
    """Return what is the same in every copy of a call: a function's id, a seed that was drawn."""
    for expression in catalyst.expressions(plan):
        name = catalyst.class_name(expression)
        if name in _WITH_ID:
            yield "id", int(expression.resultId().id())
        elif name in _WITH_SEED and abs(seed := _seed(expression)) >= _LEAST_DRAWN:
            yield name, seed


def _seed(expression: Any) -> int:
    return int(expression.seedExpression().eval(None) or 0)  # of rand(NULL) it is NULL


def _pairs(plan: Any) -> list[tuple[str, int]]:
    return catalyst.names_and_ids(plan.output())


def _told(plan: Any) -> str:
    return str(plan.simpleString(_TOLD_FIELDS))[:_TOLD]


def _is_cached(frame: DataFrame, plan: Any) -> bool:
    session = frame.sparkSession._jsparkSession
    cache = session.sharedState().cacheManager()
    return not cache.isEmpty() and cache.lookupCachedData(session, plan).isDefined()


def _is_loaded(frame: DataFrame, plan: Any) -> bool:
    dataset = catalyst.jvm(frame.sparkSession).org.apache.spark.sql.classic.Dataset
    relation = dataset.ofRows(frame.sparkSession._jsparkSession, plan).queryExecution()
    return bool(relation.withCachedData().cacheBuilder().isCachedColumnBuffersLoaded())


def _refers_outside(frame: DataFrame, plan: Any, *, in_with: bool) -> bool:
    """Say whether a plan refers to a column, or to a relation of a WITH, of the query around it."""
    subquery = catalyst.jvm(
        frame.sparkSession
    ).org.apache.spark.sql.catalyst.expressions.SubExprUtils
    if subquery.hasOuterReferences(plan):
        return True
    return in_with and any(leaf.nodeName() in _REFERENCES for leaf in _leaves(plan))


def _reads_clock(frame: DataFrame, plan: Any) -> bool:
    """Check the node's own expressions for a clock.

    Spark calls it deterministic within one query, but several queries run here.
    """
    plain, timed = _without_clock(frame, plan)
    return not plain.expressions().equals(timed.expressions())


def _without_clock(frame: DataFrame, plan: Any) -> tuple[Any, Any]:
    """Return a plan, and what Spark's optimizer makes of it, with the time instead of clocks."""
    rules = catalyst.jvm(frame.sparkSession).org.apache.spark.sql.catalyst.optimizer
    plain = rules.ReplaceExpressions.apply(plan)
    return plain, rules.SpecialDatetimeValues.apply(rules.ComputeCurrentTime.apply(plain))


# --- evaluation ----------------------------------------------------------------------------------


def _evaluate(frame: DataFrame, plan: Any) -> None:
    """Compute a plan, keep the result on the executors, and cut its lineage.

    If an executor is lost meanwhile, Spark computes its part again: nothing has read it yet.
    """
    jvm, session = catalyst.jvm(frame.sparkSession), frame.sparkSession._jsparkSession
    dataset = jvm.org.apache.spark.sql.classic.Dataset
    if not _is_cached(frame, plan):
        # Two tasks may compute one partition, by speculation or if a stage runs again. If results
        # are serialized, Spark keeps only one of them.
        level = jvm.org.apache.spark.storage.StorageLevel.MEMORY_AND_DISK_SER()
        dataset.ofRows(session, plan).persist(level)
    relation = dataset.ofRows(session, plan).queryExecution().withCachedData()
    rows = relation.cacheBuilder().cachedColumnBuffers()
    rows.localCheckpoint()
    rows.count()
    if not rows.isCheckpointed():
        logger.warning(
            "the process function has cached a frame and run a job on it: if an executor is lost, "
            "Spark computes the frame again, and the states may come from two evaluations"
        )


def _leaves(plan: Any) -> list[Any]:
    return catalyst.sequence(plan.collectLeaves())
