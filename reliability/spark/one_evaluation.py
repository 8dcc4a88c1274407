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
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from reliability.spark import catalyst

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

_CLOCK = re.compile(
    r"\b(now|curdate|current_date|current_time|current_timestamp|localtimestamp)\(", re.IGNORECASE
)
# Their result depends on the order of equal rows, which a shuffle does not keep.
_ORDER_DEPENDENT = frozenset(
    {"Deduplicate", "GlobalLimit", "LocalLimit", "Offset", "Sample", "Tail", "Window"}
)
_REFERENCES = frozenset({"CTERelationRef", "UnionLoopRef"})  # to relations of a WITH
_LOST = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"


def persist_shared(inputs: Sequence[DataFrame], frames: Sequence[DataFrame]) -> int:
    """Evaluate each volatile sub-plan that is used twice or more; return how many there are.

    :param inputs: the step's input, the batch or staged rows, which Spark can read again unchanged
    """
    repeatable = {
        _canonical(plan) for frame in inputs for plan in catalyst.nodes(catalyst.analyzed(frame))
    }
    uses = _Uses(repeatable)
    for frame in frames:
        uses.count(frame)
    shared = uses.shared()
    for frame, plan in shared:
        _evaluate(frame, plan)
    return len(shared)


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


@dataclass(slots=True)
class _Uses:
    """How often each volatile sub-plan is used.

    A sub-plan uses each plan inside it once, however often it is used itself.

    :param repeatable: the sub-plans of the step's input
    """

    repeatable: set[str]
    _plans: dict[str, tuple[DataFrame, Any]] = field(default_factory=dict)
    _times: dict[str, int] = field(default_factory=dict)

    def shared(self) -> list[tuple[DataFrame, Any]]:
        """Return the sub-plans that are used twice or more, each after those inside it."""
        return [plan for identity, plan in self._plans.items() if self._times[identity] > 1]

    def count(self, frame: DataFrame) -> None:
        """Count the uses of one state's frame."""
        self._visit(frame, catalyst.analyzed(frame), in_with=False)

    def _visit(self, frame: DataFrame, plan: Any, *, in_with: bool) -> _Found:
        identity = _canonical(plan)
        is_volatile, is_cached = self._is_volatile(plan, identity), _is_cached(frame, plan)
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

    def _is_volatile(self, plan: Any, identity: str) -> bool:
        name = plan.nodeName()
        is_leaf = not plan.children().size() and name not in _REFERENCES
        differs = (
            is_leaf or name in _ORDER_DEPENDENT or not _is_deterministic(plan) or _reads_clock(plan)
        )
        return differs and identity not in self.repeatable


def _is_cached(frame: DataFrame, plan: Any) -> bool:
    session = frame.sparkSession._jsparkSession
    cache = session.sharedState().cacheManager()
    return not cache.isEmpty() and cache.lookupCachedData(session, plan).isDefined()


def _refers_outside(frame: DataFrame, plan: Any, *, in_with: bool) -> bool:
    """Say whether a plan refers to a column, or to a relation of a WITH, of the query around it."""
    subquery = catalyst.jvm(
        frame.sparkSession
    ).org.apache.spark.sql.catalyst.expressions.SubExprUtils
    if subquery.hasOuterReferences(plan):
        return True
    return in_with and any(leaf.nodeName() in _REFERENCES for leaf in _leaves(plan))


def _is_deterministic(plan: Any) -> bool:
    """Check the node's own expressions; LogicalPlan.deterministic would include its children."""
    return all(expression.deterministic() for expression in catalyst.sequence(plan.expressions()))


def _reads_clock(plan: Any) -> bool:
    # Spark calls a clock deterministic within one query, but several queries run here.
    return any(
        _CLOCK.search(expression.sql()) for expression in catalyst.sequence(plan.expressions())
    )


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


def _canonical(plan: Any) -> str:
    """Return a key that is the same for equal sub-plans; it ignores expression ids, not seeds."""
    return f"{plan.canonicalized().hashCode()}:{plan.canonicalized().toString()}"


def _leaves(plan: Any) -> list[Any]:
    return catalyst.sequence(plan.collectLeaves())
