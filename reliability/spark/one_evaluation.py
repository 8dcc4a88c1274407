"""All states of an attempt come from one evaluation of what may come out differently (V5).

Every state is a Spark job of its own. A sub-plan that two of them share and that is not
deterministic (rand(), a clock, a UDF marked so) or that reads anything beyond the batch (a JDBC
table that moves on) would be evaluated twice, and two tables of one txid would tell two stories.
Such shared sub-plans are persisted: the first job evaluates them, the others read the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_CLOCK = re.compile(
    r"\b(now|curdate|current_date|current_time|current_timestamp|localtimestamp)\(", re.IGNORECASE
)


def persist_shared(inputs: Sequence[DataFrame], frames: Sequence[DataFrame]) -> int:
    """Persist each volatile sub-plan that stands twice or more in the frames; return how many.

    :param inputs: what the step may read, the batch or staged rows; it reads the same when read
        twice, anything else may not
    """
    known_leaves = {_canonical(leaf) for frame in inputs for leaf in _leaves(_analyzed(frame))}
    seen: set[str] = set()
    persisted: set[str] = set()
    for frame in frames:
        for plan in _volatile(_analyzed(frame), known_leaves):
            identity = _canonical(plan)
            if identity in seen and identity not in persisted:
                _persist(frame, plan)
                persisted.add(identity)
            seen.add(identity)
    return len(persisted)


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _canonical(plan: Any) -> str:
    """Return what equal sub-plans have in common; expression ids differ, seeds do not."""
    return f"{plan.canonicalized().hashCode()}:{plan.canonicalized().toString()}"


def _volatile(plan: Any, known_leaves: set[str]) -> Iterator[Any]:
    children = [*_sequence(plan.children()), *_sequence(plan.subqueries())]
    is_foreign = not children and _canonical(plan) not in known_leaves
    if is_foreign or not _is_deterministic(plan) or _reads_clock(plan):
        yield plan
    for child in children:
        yield from _volatile(child, known_leaves)


def _is_deterministic(plan: Any) -> bool:
    """Look at the node's own expressions; LogicalPlan.deterministic would include its children."""
    return all(expression.deterministic() for expression in _sequence(plan.expressions()))


def _reads_clock(plan: Any) -> bool:
    # A clock counts as deterministic within one query, and we run several.
    return any(_CLOCK.search(expression.sql()) for expression in _sequence(plan.expressions()))


def _leaves(plan: Any) -> list[Any]:
    return _sequence(plan.collectLeaves())


def _sequence(scala: Any) -> list[Any]:
    return [scala.apply(index) for index in range(scala.size())]


def _persist(frame: DataFrame, plan: Any) -> None:
    jvm = frame.sparkSession._jvm
    assert jvm is not None
    dataset = jvm.org.apache.spark.sql.classic.Dataset
    dataset.ofRows(frame.sparkSession._jsparkSession, plan).persist()
