"""The processing graph of a topology: which step feeds which states, and which runs after which.

Each step is a spark-submit of its own, anchored in the attempt like a bolt in Storm's tuple tree:
the attempt is PROCESSED only when all steps' rows are acked. A step reads the batch, or the rows
that earlier steps of the same attempt have staged for the states in its `reads`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reliability.core.errors import InvalidDefinition
from reliability.core.types import as_spark_writes

THE_STEP = "process"  # the name of a topology's only step
RESERVED = frozenset({"emit", "commit", "close", "settle", "transaction"})


@dataclass(frozen=True)
class Step:
    """One processing step.

    :param name: its name, and that of its task in the DAG
    :param process: `(batch: DataFrame) -> {state name: DataFrame}`; a step that reads states gets
        one frame for each of `reads`, in that order, instead of the batch: the state's staged
        columns
    :param feeds: the states whose frames it returns; each state is fed by exactly one step
    :param reads: states that other steps feed
    :param types: "state.column" -> the Spark type in which it is read, `string` or, of a numeric,
        `decimal(p,s)`. By default a numeric without digits is a decimal(38,18)
    """

    name: str
    process: Callable[..., Mapping[str, Any]]
    feeds: Sequence[str]
    reads: Sequence[str] = field(default=())
    types: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "types", as_spark_writes(self.types))

    def types_of(self, state: str, columns: Collection[str]) -> dict[str, str]:
        """Return the types of a state's columns that are read in another type than their own."""
        named = {column: self.types.get(f"{state}.{column}") for column in columns}
        return {column: type_ for column, type_ in named.items() if type_ is not None}


def in_order(topology: str, steps: Sequence[Step], states: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps in an order in which each follows the steps that it reads from.

    :raises InvalidDefinition: a state is fed by no step or by two, a step feeds nothing or reads
        a state that no step feeds, or steps read from each other in a cycle
    """
    _check_steps(topology, steps, states)
    upstream = reads_from(steps)
    ordered: list[Step] = []
    while waiting := [step for step in steps if step not in ordered]:
        done = {step.name for step in ordered}
        ready = [step for step in waiting if done.issuperset(upstream[step.name])]
        if not ready:
            names = sorted(step.name for step in waiting)
            raise InvalidDefinition(
                f"topology {topology}: steps {names} read from each other in a cycle"
            )
        ordered += ready
    return tuple(ordered)


def reads_from(steps: Sequence[Step]) -> dict[str, tuple[str, ...]]:
    """Return for each step the steps whose rows it reads."""
    feeder = {state: step.name for step in steps for state in step.feeds}
    return {step.name: tuple(sorted({feeder[state] for state in step.reads})) for step in steps}


def needed_for(steps: Sequence[Step], *goals: str) -> dict[str, tuple[str, ...]]:
    """Return these steps and all steps that they read from, in order; `steps` must be in order."""
    upstream = reads_from(steps)
    needed = set(goals)
    for step in reversed(steps):
        if step.name in needed:
            needed.update(upstream[step.name])
    return {step.name: upstream[step.name] for step in steps if step.name in needed}


def _check_steps(topology: str, steps: Sequence[Step], states: Sequence[str]) -> None:
    names = [step.name for step in steps]
    if len(set(names)) < len(names):
        raise InvalidDefinition(f"topology {topology} has two steps with the same name")
    if taken := RESERVED.intersection(names):
        raise InvalidDefinition(f"topology {topology}: a step cannot be called {sorted(taken)}")
    fed = [state for step in steps for state in step.feeds]
    if sorted(fed) != sorted(states):
        raise InvalidDefinition(
            f"topology {topology}: its steps feed {sorted(fed)}, its states are {sorted(states)}",
            remedy="let each state be fed by exactly one step.",
        )
    for step in steps:
        if not step.feeds:
            raise InvalidDefinition(f"topology {topology}: step {step.name} feeds no state")
        if unknown := set(step.reads) - (set(states) - set(step.feeds)):
            raise InvalidDefinition(
                f"topology {topology}: step {step.name} reads {sorted(unknown)}, which no other "
                "step feeds"
            )
