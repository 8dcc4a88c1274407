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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from reliability.core.errors import EvaluatedTwice
from reliability.spark.frames.carried import Asked
from reliability.spark.frames.jvm import Plan
from reliability.spark.frames.repeatable import is_repeatable

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
    asked = Asked.by([*inputs, *frames]) if uses.are_several() else None
    if asked and uses.in_two_shapes(asked):
        uses.refuse_loaded()
        frames = [asked.within(frame) for frame in frames]
        uses = _uses([*inputs, *map(asked.within, inputs)], frames)
        if plan := uses.in_two_shapes(asked):
            raise EvaluatedTwice(f"states would read two evaluations of {_told(plan)}")
    uses.evaluate()
    return [*frames]


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
    uses = _Uses(
        {key for frame in inputs for key in _repeatable(frame)},
        {i for frame in inputs for i in Plan.of(frame).ids()},
    )
    for frame in frames:
        uses.count(frame)
    return uses


def _repeatable(frame: DataFrame) -> Iterator[str]:
    for plan in Plan.of(frame).nodes():
        yield plan.identity
        if plan.is_leaf and plan.reachable:
            yield plan.with_metadata().identity


@dataclass(slots=True)
class _Uses:
    """How often each volatile sub-plan is used.

    A sub-plan uses each plan inside it once, however often it is used itself.

    :param repeatable: the sub-plans of the step's input
    :param input_ids: the ids of its columns, which localCheckpoint() keeps
    """

    repeatable: set[str]
    input_ids: set[int]
    _plans: dict[str, Plan] = field(default_factory=dict)
    _times: dict[str, int] = field(default_factory=dict)
    _groupings: dict[str, bool] = field(default_factory=dict)
    _has_clock: bool = False
    _has_cache: bool = False
    _volatile: dict[str, Plan] = field(default_factory=dict)
    _frames_with: list[Plan] = field(default_factory=list)

    def evaluate(self) -> int:
        """Evaluate those that are used twice or more, each after those inside it.

        Spark plans a cached query when it is cached: it would compute again what is evaluated here.

        :raises EvaluatedTwice: the process function has computed a cached frame, and something
            inside it is evaluated once more for another use; or Spark would not find a result
        """
        shared = {name: plan for name, plan in self._plans.items() if self._times[name] > 1}
        self._refuse_unfound(shared)
        inside = {name: self._inside(name, shared) for name in self._cached()}
        for name, parts in inside.items():
            cached = self._plans[name]
            if cached.is_loaded and not all(map(cached.reads_result_of, parts)):
                raise EvaluatedTwice(_loaded(cached))
        for name, plan in self._plans.items():
            if inside.get(name) and not plan.is_loaded:
                plan.cache_again()
            if name in shared and not plan.evaluate():
                logger.warning(
                    "the process function has cached a frame and run a job on it: if an executor "
                    "is lost, Spark computes the frame again, and the states may come from two "
                    "evaluations"
                )
        return len(shared)

    def _refuse_unfound(self, shared: Mapping[str, Plan]) -> None:
        """Raise EvaluatedTwice if Spark would not find the result of a shared plan in a frame.

        It numbers the relations of a frame's WITHs: a WITH has other numbers after another one.
        """
        alone = {name: plan.numbered().identity for name, plan in shared.items() if plan.has_with}
        for frame in self._frames_with if alone else []:
            for plan, numbered in zip(frame.nodes(), frame.numbered().nodes(), strict=True):
                expected = alone.get(plan.identity)
                if expected and numbered.identity != expected:
                    raise EvaluatedTwice(
                        "after another query that begins with WITH, a state would read a second "
                        f"evaluation of {_told(plan)}"
                    )

    def _cached(self) -> list[str]:
        """Return the plans that the process function has cached."""
        return [name for name, plan in self._plans.items() if self._has_cache and plan.is_cached]

    def _inside(self, name: str, shared: Mapping[str, Plan]) -> list[Plan]:
        """Return which shared plans a plan has inside it."""
        parts = {part.identity for own in self._plans[name].parts for part in own.nodes()}
        return [plan for other, plan in shared.items() if other in parts]

    def are_several(self) -> bool:
        """Say whether two or more different plans are volatile."""
        return len(self._volatile) > 1

    def in_two_shapes(self, asked: Asked) -> Plan | None:
        """Return a plan of two that differ only in what they carry, or come from one."""
        seen: dict[object, str] = {}
        for identity, plan in self._volatile.items():
            shape = asked.carried(plan).identity
            for same in (shape, *(_made(plan) - self.input_ids), *_calls(plan)):
                if seen.setdefault(same, identity) != identity:
                    return plan
        return None

    def refuse_loaded(self) -> None:
        """Raise EvaluatedTwice if a frame was cached and then evaluated by the function itself."""
        for plan in self._plans.values():
            if plan.is_cached and plan.is_loaded:
                raise EvaluatedTwice(_loaded(plan))

    def count(self, frame: DataFrame) -> None:
        """Count the uses of one state's frame."""
        plan = Plan.of(frame)
        self._has_clock, self._has_cache = plan.has_clock, plan.may_be_cached
        if plan.has_with:
            self._frames_with.append(plan)
        self._visit(plan, in_with=False)

    def _visit(self, plan: Plan, *, in_with: bool) -> _Found:
        identity = plan.identity
        is_volatile = self._is_volatile(plan, identity)
        is_cached = self._has_cache and plan.is_cached
        if is_volatile:
            self._volatile.setdefault(identity, plan)
        if (is_volatile or is_cached) and identity in self._times:
            self._times[identity] += 1
            return _Found(volatile=True)
        within = in_with or plan.name == "WithCTE"
        parts = [self._visit(part, in_with=within) for part in plan.parts]
        found = is_volatile or any(part.volatile for part in parts)
        # A plan that the process function has cached is evaluated as a whole.
        is_unit = is_volatile or any(part.open for part in parts) or (is_cached and found)
        if not is_unit:
            return _Found(found)
        if _refers_outside(plan, in_with=in_with):
            return _Found(volatile=True, open=True)
        self._plans.setdefault(identity, plan)
        self._times[identity] = self._times.get(identity, 0) + 1
        return _Found(volatile=True)

    def _is_volatile(self, plan: Plan, identity: str) -> bool:
        differs = (
            (plan.is_leaf and plan.name not in _REFERENCES)
            or not self._is_repeatable(plan, identity)
            or (self._has_clock and plan.reads_clock)
        )
        return differs and identity not in self.repeatable

    def _is_repeatable(self, plan: Plan, identity: str) -> bool:
        """Look only once at each grouping, which takes calls of the JVM for each function.

        Other operators have no identity of their own: a Project that changes nothing has that of
        the plan below it.
        """
        if plan.name != "Aggregate":
            return is_repeatable(plan)
        if identity not in self._groupings:
            self._groupings[identity] = is_repeatable(plan)
        return self._groupings[identity]


def _made(plan: Plan) -> set[int]:
    """Return the ids of the columns that a plan makes; a copy in a self join has others.

    A lateral join shows columns of a subquery.
    """
    return plan.ids() - {i for part in plan.parts for i in part.ids()}


def _calls(plan: Plan) -> Iterator[tuple[str, int]]:
    """Return what is the same in every copy of a call: a function's id, a seed that was drawn."""
    for expression in (inner for own in plan.expressions for inner in own.nodes()):
        name = expression.class_name
        if name in _WITH_ID:
            yield "id", expression.result_id
        elif name in _WITH_SEED and abs(seed := expression.seed) >= _LEAST_DRAWN:
            yield name, seed


def _loaded(plan: Plan) -> str:
    return (
        "a frame was cached and a job was run on it, and states would read another evaluation of "
        f"{_told(plan)}"
    )


def _told(plan: Plan) -> str:
    return plan.described(_TOLD_FIELDS)[:_TOLD]


def _refers_outside(plan: Plan, *, in_with: bool) -> bool:
    """Say whether a plan refers to a column, or to a relation of a WITH, of the query around it."""
    if plan.has_outer_references:
        return True
    return in_with and any(leaf.name in _REFERENCES for leaf in plan.leaves)
