"""What a pipeline author writes is checked when it is made."""

from __future__ import annotations

import pytest

from reliability import Count, Max, MemorySpout, Min, State, Sum, Topology
from reliability.core.errors import InvalidDefinition, LedgerCorruption

SPOUT = MemorySpout(schema={"word": "string"}, partitions=[["a"]], take=1)


def process(batch):
    return {"words": batch}


def topology(**changes):
    arguments = {
        "name": "words",
        "spout": SPOUT,
        "process": process,
        "states": [State("words", values={"n": Count()})],
    }
    return Topology(**{**arguments, **changes})


@pytest.mark.parametrize(
    "make",
    [
        lambda: topology(name="Bad Name"),
        lambda: topology(name="a__b"),
        lambda: topology(name="x" * 29),
        lambda: topology(states=[]),
        lambda: topology(max_spout_pending=0),
        lambda: topology(lease_seconds=0),
        lambda: topology(states=[State("a", values={"n": Count()})] * 2),
        lambda: State("a"),
        lambda: State("a", key={"k": "text"}, values={"k": Count()}),
        lambda: State("a", key={"_k": "text"}, values={"n": Count()}),
        lambda: State("a", key={"k": "text; DROP TABLE x"}, values={"n": Count()}),
        lambda: State("a", values={"n": Sum("v", "numeric(1,2)) --")}),
        lambda: State("a", key={"k": "int"}, values={"n": Count()}),
        lambda: State("a", key={"k": "uuid"}, values={"n": Count()}),
        lambda: MemorySpout(schema={}, partitions=[], take=0),
    ],
)
def test_nonsense_is_refused(make):
    with pytest.raises(InvalidDefinition):
        make()


def test_a_state_survives_the_ledger():
    state = State(
        "totals",
        key={"customer": "bigint", "shop": "text"},
        values={
            "orders": Count(),
            "named": Count("name"),
            "revenue": Sum("price", "numeric(14,2)"),
            "first": Min("day", "date"),
            "last": Max("day", "date"),
        },
        table="mart.totals",
    )
    assert State.from_definition(state.definition()) == state
    assert State.from_definition(state.definition()).digest() == state.digest()


def test_an_unreadable_definition_is_corruption_and_never_empty():
    with pytest.raises(LedgerCorruption):
        State.from_definition({"name": "totals", "key": [], "values": [["n", {"x": "y"}]]})


def test_every_change_of_shape_changes_the_digest():
    shapes = [
        State("t", key={"k": "text"}, values={"n": Count()}),
        State("t", key={"k": "bigint"}, values={"n": Count()}),
        State("t", key={"k": "text"}, values={"n": Count("v")}),
        State("t", key={"k": "text"}, values={"n": Sum("v")}),
        State("t", key={"k": "text"}, values={"n": Sum("v", "numeric")}),
        State("t", key={"k": "text"}, values={"n": Min("v")}),
        State("t", key={"k": "text"}, values={"n": Max("v")}),
        State("t", key={"k": "text"}, values={"m": Count()}),
        State("t", key={"k": "text"}, values={"n": Count()}, table="other.t"),
    ]
    assert len({shape.digest() for shape in shapes}) == len(shapes)
