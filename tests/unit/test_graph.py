"""The processing graph: each state fed once, steps in an order in which they can run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reliability import Count, MemorySpout, State, Step, Topology
from reliability.core.coordinator import Goal
from reliability.core.errors import InvalidDefinition


def nothing(*frames):
    return {}


def graph(*steps, states=("clean", "rollup", "side")):
    return Topology(
        "shop",
        spout=MemorySpout(schema={"word": "string"}, partitions=[["cat"]], take=1),
        states=[State(name, values={"words": Count()}) for name in states],
        steps=steps,
    )


ROLLUP = Step("roll", nothing, feeds=["rollup"], reads=["clean"])
CLEAN = Step("clean", nothing, feeds=["clean"])
SIDE = Step("beside", nothing, feeds=["side"])


def test_a_step_comes_after_what_it_reads_from():
    topology = graph(ROLLUP, SIDE, CLEAN)
    names = [step.name for step in topology.steps]
    assert names.index("clean") < names.index("roll")
    assert topology.step_of("rollup") == "roll"


def test_a_tasks_work_is_its_step_and_what_that_reads_from():
    topology = graph(CLEAN, ROLLUP, SIDE)
    assert topology.work("t", "roll").steps == {"clean": (), "roll": ("clean",)}
    assert topology.work("t", "beside").steps == {"beside": ()}
    commit = topology.work("t")
    assert commit.goal is Goal.COMMITTED
    assert set(commit.steps) == {"clean", "roll", "beside"}


def test_a_step_reads_columns_in_the_types_that_it_names():
    step = replace(ROLLUP, types={"clean.n": "DECIMAL(10, 2)", "side.m": "string"})
    assert step.types_of("clean", ["n", "m"]) == {"n": "decimal(10,2)"}


def test_a_process_function_is_the_only_step():
    states = [State("words", values={"words": Count()})]
    spout = MemorySpout(schema={"word": "string"}, partitions=[["cat"]], take=1)
    topology = Topology("count", spout=spout, states=states, process=nothing)
    assert [(step.name, list(step.feeds)) for step in topology.steps] == [("process", ["words"])]
    assert replace(topology, max_spout_pending=2).steps == topology.steps
    for process, steps in ((None, ()), (str, (Step("count", nothing, feeds=["words"]),))):
        with pytest.raises(InvalidDefinition, match="either a process function or steps"):
            Topology("count", spout=spout, states=states, process=process, steps=steps)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("steps", "what"),
    [
        ([CLEAN, ROLLUP], "its steps feed"),
        ([CLEAN, ROLLUP, SIDE, Step("again", nothing, feeds=["side"])], "its steps feed"),
        ([CLEAN, ROLLUP, SIDE, Step("idle", nothing, feeds=[])], "feeds no state"),
        ([CLEAN, SIDE, Step("roll", nothing, feeds=["rollup"], reads=["x"])], "no other step"),
        ([CLEAN, SIDE, Step("roll", nothing, feeds=["rollup"], reads=["rollup"])], "no other step"),
        ([CLEAN, SIDE, Step("clean", nothing, feeds=["rollup"])], "two steps with the same name"),
        ([CLEAN, SIDE, Step("commit", nothing, feeds=["rollup"])], "cannot be called"),
        ([CLEAN, SIDE, Step("Roll Up", nothing, feeds=["rollup"])], "is not a valid name"),
        (
            [SIDE, ROLLUP, Step("clean", nothing, feeds=["clean"], reads=["rollup"])],
            "read from each other",
        ),
    ],
)
def test_a_graph_that_does_not_hold_together_is_refused(steps, what):
    with pytest.raises(InvalidDefinition, match=what):
        graph(*steps)
