"""What a pipeline author writes is checked when it is made."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import pytest

from reliability import (
    Append,
    Avg,
    Count,
    First,
    History,
    Latest,
    Max,
    MemorySpout,
    Min,
    OpaqueState,
    State,
    Sum,
    Topology,
    TransactionalState,
    Upsert,
)
from reliability.core.errors import InvalidDefinition, LedgerCorruption
from reliability.core.state import StateKind, replay_refusal

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
    "value", [Max("day", "int"), Latest("price", by={"day": "datetime"}, type="bigint")]
)
def test_a_type_that_postgres_spells_otherwise_is_said_to_be_unsupported(value):
    """It was said that Spark and Postgres order an int differently."""
    with pytest.raises(InvalidDefinition, match="is not supported") as caught:
        State("a", key={"k": "bigint"}, values={"v": value})
    assert "use a Postgres type" in caught.value.what_to_do


@pytest.mark.parametrize(
    "make",
    [
        lambda: topology(name="Bad Name"),
        lambda: topology(name="-a"),
        lambda: topology(name="words\n"),
        lambda: State("a", key={"k": "bigint\n"}, values={"n": Count()}),
        lambda: topology(name="x" * 251),
        lambda: topology(states=[]),
        lambda: topology(states=[State("a", values={"n": Count()})] * 2),
        lambda: State("a"),
        lambda: State("a", key={"k": "text"}, values={"k": Count()}),
        lambda: State("a", key={"_X": "text"}, values={"n": Count()}),
        lambda: State("a", key={"k": "text; DROP TABLE x"}, values={"n": Count()}),
        lambda: State("a", values={"n": Sum("v", "numeric(1,2)) --")}),
        lambda: State("a", key={"k": "int"}, values={"n": Count()}),
        lambda: State("a", key={"k": "varchar(10)"}, values={"n": Count()}),
        lambda: State("a", key={"k": "timestamptz(3)"}, values={"n": Count()}),
        lambda: State("a", key={"k": "text[][]"}, values={"n": Count()}),
        lambda: State("a", key={"k": "jsonb[]"}, values={"n": Count()}),
        lambda: State("a", key=dict.fromkeys(map(str, range(33)), "text"), values={"n": Count()}),
        lambda: State("a", values={"n": Count()}, database="no name"),
        lambda: Sum("v", "text"),
        lambda: Sum("v", "integer"),
        lambda: Avg("v", "bigint"),
        lambda: Min("v", "jsonb"),
        lambda: Max("v", "bigint[]"),
        lambda: First("v", {}),
        lambda: Latest("v", {"id": "uuid"}),
        lambda: State("a", values={"n": Count(), "v": Append("v")}),
        lambda: OpaqueState("a", values={"v": Append("v")}),
        lambda: TransactionalState("a", values={"v": Append("v")}),
        lambda: State(
            "a", values={"v": Upsert("v", {"d": "date"}), "w": Upsert("w", {"e": "date"})}
        ),
        lambda: MemorySpout(schema={}, partitions=[], take=0),
        lambda: topology(engine="connect"),
        lambda: History(),
        lambda: History(txids=0),
        lambda: History(days=0),
        lambda: History(days=float("nan")),
        lambda: History(days=1e7),
        lambda: State("a", values={"v": Append("v")}, keep=History(txids=1)),
        lambda: OpaqueState("a", values={"n": Count()}, keep=History(txids=1)),
        lambda: TransactionalState("a", values={"n": Count()}, keep=History(txids=1)),
    ],
)
def test_nonsense_is_refused(make):
    with pytest.raises(InvalidDefinition):
        make()


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("max_spout_pending", 1),
        ("max_replay_pending", 1),
        ("lease_seconds", 1),
        ("max_staging_sessions", 1),
        ("blocked_timeout_seconds", 0),
        ("emit_interval_seconds", 0),
    ],
)
def test_a_number_that_is_too_small_or_too_large_is_named(name, least):
    """Without an end, Postgres or Spark refused it later, and the advice was about sums."""
    assert getattr(topology(**{name: least}), name) == least
    for number in (least - 1, 10**9 + 1, float("inf"), float("nan")):
        with pytest.raises(InvalidDefinition, match=f"{name} must be at least {least}"):
            topology(**{name: number})


BY = {"day": "date", "id": "bigint"}
ALL = {
    "orders": Count(),
    "named": Count("name"),
    "revenue": Sum("price", "numeric(14,2)"),
    "mean": Avg("price", "numeric(10,3)"),
    "first": Min("day", "date"),
    "last": Max("day", "date"),
    "first_price": First("price", BY, "numeric(14,2)"),
    "last_price": Latest("price", BY, "numeric(14,2)"),
    "name": Upsert("name", BY, "text"),
    "tags": Upsert("tags", BY, "text[]"),
}
KEY = {"customer": "bigint", "shop": "text"}


@pytest.mark.parametrize(
    "state",
    [
        State("totals", key=KEY, values=ALL, table="mart.totals"),
        OpaqueState("totals", key=KEY, values=ALL, table="mart.totals"),
        TransactionalState("totals", values=ALL, table="mart.totals", database="warehouse"),
        State("log", key=KEY, values={"v": Append("v", "jsonb")}, table="mart.log"),
    ],
)
def test_a_state_survives_the_ledger(state):
    data = json.loads(json.dumps(state.definition()))
    assert State.from_definition(data) == state
    assert State.from_definition(data).digest() == state.digest()


def test_the_digest_of_what_ledgers_already_hold_does_not_change():
    known = ("orders", "named", "revenue", "first", "last")
    values = {name: ALL[name] for name in known}
    state = State("totals", key=KEY, values=values, table="mart.totals")
    assert state.digest().startswith("98d63acf403351bb")


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
        State("t", key={"k": "text"}, values={"n": Count()}, database="other"),
        State("t", key={"k": "text"}, values={"n": Latest("v", BY)}),
        State("t", key={"k": "text"}, values={"n": First("v", BY)}),
        State("t", key={"k": "text"}, values={"n": Latest("v", dict(reversed(BY.items())))}),
        OpaqueState("t", key={"k": "text"}, values={"n": Count()}),
        TransactionalState("t", key={"k": "text"}, values={"n": Count()}),
    ]
    assert len({shape.digest() for shape in shapes}) == len(shapes)


# --- kinds (H5) ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "database", "groups"),
    [(OpaqueState, "", True), (OpaqueState, "west", False), (State, "west", True)],
)
def test_txids_share_a_commit_unless_an_opaque_state_may_have_to_undo_it(kind, database, groups):
    states = [
        kind("a", values={"n": Count()}),
        State("b", values={"n": Count()}, database=database),
    ]
    assert topology(states=states).groups_commits is groups


def of(kind):
    classes = {
        StateKind.CONTRIBUTION: State,
        StateKind.OPAQUE: OpaqueState,
        StateKind.TRANSACTIONAL: TransactionalState,
    }
    return classes[kind](kind.value.lower(), values={"n": Count()})


@pytest.mark.parametrize(
    ("kinds", "txid", "refused_by"),
    [
        ([StateKind.CONTRIBUTION], 1, None),
        ([StateKind.OPAQUE], 6, None),
        ([StateKind.OPAQUE], 5, "opaque"),
        ([StateKind.TRANSACTIONAL], 6, "transactional"),
        ([StateKind.CONTRIBUTION, StateKind.OPAQUE], 5, "opaque"),
        ([StateKind.CONTRIBUTION, StateKind.TRANSACTIONAL], 6, "transactional"),
        ([StateKind.TRANSACTIONAL, StateKind.OPAQUE], 7, None),  # a first commit is no replay
        ([StateKind.TRANSACTIONAL, StateKind.OPAQUE], 8, None),
    ],
)
def test_a_replay_is_granted_for_all_states_or_for_none(kinds, txid, refused_by):
    """H5: else two tables of one txid come from two runs of the code."""
    refusal = replay_refusal([of(kind) for kind in kinds], txid, curr_txid=7)
    assert (refusal.split()[1] if refusal else None) == refused_by


# --- what the docs show --------------------------------------------------------------------------


def test_the_examples_of_the_page_on_states_are_true():
    page = Path(__file__).resolve().parents[2] / "docs" / "states.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert (result.failed, result.attempted > 0) == (0, True)
