"""All states of an attempt come from one evaluation of what may come out differently (V5).

Every state is a Spark job of its own. A sub-plan that two of them share and that is not
deterministic (rand(), a clock, a UDF marked so, a window whose order has ties) or that reads
anything beyond the batch (a JDBC table that moves on) would be evaluated twice, and two tables of
one txid would tell two stories. Such shared sub-plans are evaluated before any state is staged,
and all states read the result.

The result lies with the executors. Its lineage is cut: Spark would replace what a lost executor
held by another evaluation. So a lost result fails the attempt, and the next one starts afresh.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

_CLOCK = re.compile(
    r"\b(now|curdate|current_date|current_time|current_timestamp|localtimestamp)\(", re.IGNORECASE
)
# What they do to a row depends on its place among its equals, which no shuffle keeps.
_ORDER_DEPENDENT = frozenset(
    {"Deduplicate", "GlobalLimit", "LocalLimit", "Offset", "Sample", "Tail", "Window"}
)
_REFERENCES = frozenset({"CTERelationRef", "UnionLoopRef"})  # to what a WITH names
_LOST = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"


def persist_shared(inputs: Sequence[DataFrame], frames: Sequence[DataFrame]) -> int:
    """Evaluate each volatile sub-plan that is used twice or more; return how many there are.

    :param inputs: what the step may read, the batch or staged rows; it reads the same when read
        twice, anything else may not
    """
    same_again = {_canonical(plan) for frame in inputs for plan in _nodes(_analyzed(frame))}
    uses = _Uses(same_again)
    for frame in frames:
        uses.count(frame)
    shared = uses.shared()
    for frame, plan in shared:
        _evaluate(frame, plan)
    return len(shared)


def is_lost_evaluation(error: Exception) -> bool:
    """Say whether a job failed because a shared result was lost with its executor."""
    return _LOST in str(error)


# --- what is shared ------------------------------------------------------------------------------


class _Found(NamedTuple):
    """What was found in a plan.

    :param volatile: whether anything in it may come out differently
    :param open: whether that has to be evaluated further outside, together with what it refers to
    """

    volatile: bool
    open: bool = False


@dataclass(slots=True)
class _Uses:
    """How often each volatile sub-plan is used.

    What is inside of one is used by it once, however often that one is used itself.

    :param same_again: the sub-plans of the step's input
    """

    same_again: set[str]
    _plans: dict[str, tuple[DataFrame, Any]] = field(default_factory=dict)
    _times: dict[str, int] = field(default_factory=dict)

    def shared(self) -> list[tuple[DataFrame, Any]]:
        """Return what is used twice or more; what is inside of another one comes before it."""
        return [plan for identity, plan in self._plans.items() if self._times[identity] > 1]

    def count(self, frame: DataFrame) -> None:
        """Count the uses of one state's frame."""
        self._visit(frame, _analyzed(frame), in_with=False)

    def _visit(self, frame: DataFrame, plan: Any, *, in_with: bool) -> _Found:
        is_volatile, is_cached = self._is_volatile(plan), _is_cached(frame, plan)
        if (is_volatile or is_cached) and (identity := _canonical(plan)) in self._times:
            self._times[identity] += 1
            return _Found(volatile=True)
        within = in_with or plan.nodeName() == "WithCTE"
        parts = [self._visit(frame, part, in_with=within) for part in _parts(plan)]
        found = is_volatile or any(part.volatile for part in parts)
        # What the process function has cached was evaluated by itself, and not from its parts.
        is_unit = is_volatile or any(part.open for part in parts) or (is_cached and found)
        if not is_unit:
            return _Found(found)
        if _refers_outside(frame, plan, in_with=in_with):
            return _Found(volatile=True, open=True)
        identity = _canonical(plan)
        self._plans.setdefault(identity, (frame, plan))
        self._times[identity] = self._times.get(identity, 0) + 1
        return _Found(volatile=True)

    def _is_volatile(self, plan: Any) -> bool:
        name = plan.nodeName()
        is_leaf = not plan.children().size() and name not in _REFERENCES
        differs = (
            is_leaf or name in _ORDER_DEPENDENT or not _is_deterministic(plan) or _reads_clock(plan)
        )
        return differs and _canonical(plan) not in self.same_again


def _is_cached(frame: DataFrame, plan: Any) -> bool:
    session = frame.sparkSession._jsparkSession
    cache = session.sharedState().cacheManager()
    return not cache.isEmpty() and cache.lookupCachedData(session, plan).isDefined()


def _refers_outside(frame: DataFrame, plan: Any, *, in_with: bool) -> bool:
    """Say whether a plan needs the query around it: its columns, or a relation of its WITH."""
    subquery = _jvm(frame).org.apache.spark.sql.catalyst.expressions.SubExprUtils
    if subquery.hasOuterReferences(plan):
        return True
    return in_with and any(leaf.nodeName() in _REFERENCES for leaf in _leaves(plan))


def _is_deterministic(plan: Any) -> bool:
    """Look at the node's own expressions; LogicalPlan.deterministic would include its children."""
    return all(expression.deterministic() for expression in _sequence(plan.expressions()))


def _reads_clock(plan: Any) -> bool:
    # A clock counts as deterministic within one query, and we run several.
    return any(_CLOCK.search(expression.sql()) for expression in _sequence(plan.expressions()))


# --- its one evaluation --------------------------------------------------------------------------


def _evaluate(frame: DataFrame, plan: Any) -> None:
    """Compute a plan, keep the result on the executors, and cut its lineage.

    An executor that is lost meanwhile does no harm: nothing has read the result yet.
    """
    jvm, session = _jvm(frame), frame.sparkSession._jsparkSession
    dataset = jvm.org.apache.spark.sql.classic.Dataset
    if not _is_cached(frame, plan):
        # Serialized, Spark knows the copies of a partition apart, and keeps one: two tasks may
        # compute it, by speculation or by a stage that runs again.
        level = jvm.org.apache.spark.storage.StorageLevel.MEMORY_AND_DISK_SER()
        dataset.ofRows(session, plan).persist(level)
    relation = dataset.ofRows(session, plan).queryExecution().withCachedData()
    rows = relation.cacheBuilder().cachedColumnBuffers()
    rows.localCheckpoint()
    rows.count()
    if not rows.isCheckpointed():
        logger.warning(
            "the process function has cached a frame and run a job on it, so that Spark can "
            "compute it again: if an executor is lost, the states may come from two evaluations"
        )


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _canonical(plan: Any) -> str:
    """Return what equal sub-plans have in common; expression ids differ, seeds do not."""
    return f"{plan.canonicalized().hashCode()}:{plan.canonicalized().toString()}"


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for part in _parts(plan):
        yield from _nodes(part)


def _parts(plan: Any) -> list[Any]:
    return [*_sequence(plan.children()), *_sequence(plan.subqueries())]


def _leaves(plan: Any) -> list[Any]:
    return _sequence(plan.collectLeaves())


def _sequence(scala: Any) -> list[Any]:
    return [scala.apply(index) for index in range(scala.size())]


def _jvm(frame: DataFrame) -> Any:
    jvm = frame.sparkSession._jvm
    assert jvm is not None
    return jvm
