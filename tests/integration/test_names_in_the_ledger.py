"""Names that Postgres and Airflow take, of a topology, its states, tables and columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from psycopg2.sql import SQL, Identifier

from reliability import (
    Append,
    Avg,
    Count,
    Latest,
    MemorySpout,
    Min,
    OpaqueState,
    State,
    Step,
    Sum,
    Topology,
    TransactionalState,
)
from reliability.core.errors import InvalidDefinition
from reliability.core.names import LONGEST_NAME, check_name
from reliability.ledger.connection import LedgerConnection
from reliability.states import attempt_table
from reliability.transaction.correct.drop import drop_topology
from reliability.transaction.correct.rollback import release, roll_back
from reliability.transaction.inspect.explain import explain
from reliability.transaction.inspect.verify import verify
from tests.support.fix_pipeline import Pipeline, pipeline_of

HOSTILE = [
    *("order", "select", "user", "rate_%", "%s", "%(txid)s", "100 %", "a.b", "a b", "A", "a"),
    *('x"; drop table x; --', 'quo"ted', "it's", "{n}", "{target}", "{{", "}", "back\\slash"),
    *("`tick`", "umsatz_größe", "日本語", "ü" * 31, "x" * 63, "x" * 62 + "y", "$1"),
    *("?", "a=b", "*", "d", "_change"),
    *("before n", "old n", "key k", "expected n", "kept", "target", "staged", "excluded", "_id"),
    *("public", "attempt_1", "total_count", "a/b", "-x", "..", "#", "&amp;", "<b>", "~", ":name"),
]
TOPOLOGIES = ["Shop.EU-1", "a__b", "x" * 250, "x" * 249 + "y", "Umsätze", "_", "9", "order", "a.b"]
#: of topologies with random names; each takes about a second
EXAMPLES = int(os.environ.get("RELIABILITY_NAMES", "5"))


def is_name(text: str) -> bool:
    try:
        check_name("name", text)
    except InvalidDefinition:
        return False
    return True


printable = st.characters(exclude_categories=["C", "Z"], include_characters=" ")
names = st.sampled_from(HOSTILE) | st.text(printable, min_size=1, max_size=LONGEST_NAME).filter(
    is_name
)
ids = st.sampled_from(TOPOLOGIES) | st.from_regex(r"\A\w[\w.-]{0,60}\Z")


@dataclass(frozen=True)
class Named:
    """A topology of four states, and the names that it was given."""

    topology: Topology
    key: str
    schema: str
    tables: tuple[str, ...]


@st.composite
def topologies(draw: st.DrawFn) -> Named:
    key, price, count, total, mean, last = draw(
        st.lists(names, min_size=6, max_size=6, unique_by=str.lower)
    )
    states = draw(st.lists(names, min_size=4, max_size=4, unique=True))
    schema = draw(names.filter(lambda name: not name.startswith("pg_")))
    tables = draw(st.lists(names, min_size=4, max_size=4, unique=True))
    places = ['"{}"."{}"'.format(*(p.replace('"', '""') for p in (schema, t))) for t in tables]
    keyed = {key: "text"}
    try:
        made = [
            State(
                states[0],
                table=places[0],
                values={count: Count(), total: Sum(price, "numeric(14,2)")},
                key=keyed,
            ),
            State(
                states[1],
                table=places[1],
                values={mean: Avg(price, "numeric(9,4)"), last: Latest(price, {price: "bigint"})},
                key=keyed,
            ),
            State(states[2], table=places[2], values={total: Append(price)}, key=keyed),
            State(
                states[3], table=places[3], values={total: Append(price)}, as_view=True, key=keyed
            ),
        ]
        spout = MemorySpout({key: "string", price: "bigint"}, [[("a", 1), ("b", 2), ("a", 3)]], 1)
        topology = Topology(draw(ids), spout=spout, process=process_of(made), states=made)
    except InvalidDefinition as error:
        assume("would be taken for" not in error.what)
        raise
    return Named(topology, key, schema, tuple(tables))


def process_of(states: Sequence[State]) -> Any:
    return lambda batch: {state.name: batch for state in states}


def contents(connection: LedgerConnection, state: State) -> list[dict[str, Any]]:
    columns = [*state.key, *state.values]
    rows = connection.all(SQL("SELECT * FROM {}").format(Identifier(*state.target)))
    return sorted(({c: row[c] for c in columns} for row in rows), key=str)


def by_place(named: Named, connection: LedgerConnection) -> list[list[list[Any]]]:
    return [
        [list(row.values()) for row in contents(connection, state)]
        for state in named.topology.states
    ]


def live(named: Named, connection: LedgerConnection) -> None:
    """Emit three txids, commit, replay, roll back, release, verify, explain and drop."""
    topology, name = named.topology, named.topology.name
    pipeline = pipeline_of(topology, connection)
    assert pipeline.emit(None) == [1, 2, 3]
    for txid in (1, 2):
        pipeline.transact(txid)
    after_two = by_place(named, connection)
    pipeline.transact(3)
    after_three = by_place(named, connection)
    assert after_three[0] == [["a", 2, 4], ["b", 1, 2]]
    assert after_three[1] == [["a", 2, 3], ["b", 2, 2]]
    assert after_three[2] == after_three[3] == [["a", 1], ["a", 3], ["b", 2]]
    pipeline.replay(2)
    assert by_place(named, connection) == after_three
    own = topology.states[0]
    explained = explain(connection, name, own.name, {column: "a" for column in own.key})
    assert [one.attempt and one.attempt.txid for one in explained.contributions] == [1, 3]
    roll_back(connection, name, 2, "names")
    assert by_place(named, connection) == after_two
    release(connection, name)
    pipeline.replay(3)
    assert by_place(named, connection) == after_three
    assert [found.is_exact for found in verify(connection, name)] == [True] * 4
    count = next(iter(own.values))  # it is changed by hand
    connection.run(SQL("UPDATE {} SET {} = 9").format(Identifier(*own.target), Identifier(count)))
    assert [found.state for found in verify(connection, name) if not found.is_exact] == [own.name]
    drop_topology(connection, name)
    left = (
        "SELECT relname FROM pg_class WHERE relnamespace = 'reliability_contribution'::regnamespace"
    )
    assert connection.all(SQL(left)) == []


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink an example takes minutes
)
@given(topologies(), st.booleans())
def test_a_topology_of_any_names_does_all_that_one_of_plain_names_does(
    connection, monkeypatch, named, has_own_tables
):
    """With staged rows in the contributions' tables, and in tables of the attempts' own."""
    monkeypatch.setattr(attempt_table, "MIN_ROWS", 1 if has_own_tables else 100_000)
    try:
        live(named, connection)
    finally:
        for row in connection.all("topologies"):
            drop_topology(connection, row["topology"])
        schema = SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(Identifier(named.schema))
        if named.schema not in ("public", "reliability"):
            connection.run(schema)


def test_an_opaque_state_goes_back_whatever_its_values_are_called(connection):
    """The columns with the values before are called after these, and have no more than 63 bytes."""
    values = ["x" * 63, "rate_%", 'quo"ted', "ü" * 31]
    rows = [("a", n, 10 * n, 20 * n, 30 * n) for n in (1, 2)]
    spout = MemorySpout({"k {n}": "string", **dict.fromkeys(values, "bigint")}, [rows], 1)
    own: Any = {"key": {"k {n}": "text"}, "values": {value: Sum(value) for value in values}}
    states = [OpaqueState('opaque "%s"', **own)]
    topology = Topology("Opaque.1", spout=spout, process=process_of(states), states=states)
    pipeline = pipeline_of(topology, connection)
    pipeline.emit(None)
    for txid in (1, 2):
        pipeline.transact(txid)
    pipeline.replay(2)
    assert [list(row.values()) for row in contents(connection, states[0])] == [["a", 3, 30, 60, 90]]
    roll_back(connection, "Opaque.1", 1, "names")
    assert [list(row.values()) for row in contents(connection, states[0])] == [["a", 1, 10, 20, 30]]
    drop_topology(connection, "Opaque.1")


def test_a_transactional_state_commits_whatever_it_is_called(connection):
    spout = MemorySpout({"100 %": "bigint"}, [[(1,), (2,)]], 1)
    states = [TransactionalState("order", values={"100 %": Sum("100 %")})]
    topology = Topology("select", spout=spout, process=process_of(states), states=states)
    pipeline = pipeline_of(topology, connection)
    pipeline.emit(None)
    for txid in (1, 2):
        pipeline.transact(txid)
    assert contents(connection, states[0]) == [{"100 %": 3}]


# --- in Spark ------------------------------------------------------------------------------------

KEY, WHOLE, LARGE = "a.b `c` %", "it's \\ {n}", 'price "€" 100%'


@pytest.fixture
def in_spark(pipeline) -> Pipeline:
    """Two steps, the second of which reads what the first has staged, with names of all kinds."""
    made: Pipeline = pipeline(
        Topology(
            "In.Spark-1",
            spout=MemorySpout(
                {KEY: "string", WHOLE: "bigint", LARGE: "decimal(38,2)"},
                [[("x", 1, Decimal("1.25")), ("y", 2, Decimal("2.50")), ("x", 3, Decimal("0.25"))]],
                take=3,
            ),
            steps=[
                Step("one.step", lambda batch: {"first.step": batch}, feeds=["first.step"]),
                Step(
                    "two-steps",
                    lambda staged: {"order": staged},
                    feeds=["order"],
                    reads=["first.step"],
                    types={f"first.step.{LARGE}": "decimal(38,2)"},
                ),
            ],
            states=[
                State(
                    "first.step",
                    table='"Schema %"."first.step"',
                    key={KEY: "text"},
                    values={WHOLE: Sum(WHOLE, "bigint"), LARGE: Sum(LARGE, "numeric")},
                ),
                State(
                    "order",
                    key={KEY: "text"},
                    values={
                        "mean.of": Avg(LARGE, "numeric(9,4)"),
                        "last %s": Latest(WHOLE, {WHOLE: "bigint"}),
                        "x" * 63: Min(WHOLE),
                    },
                ),
            ],
        )
    )
    return made


def test_spark_reduces_stages_and_reads_columns_of_any_names(in_spark, connection):
    in_spark.take_in()
    first, order = in_spark.runner.topology.states
    assert [list(row.values()) for row in contents(connection, first)] == [
        ["x", 4, Decimal("1.50")],
        ["y", 2, Decimal("2.50")],
    ]
    assert [list(row.values()) for row in contents(connection, order)] == [
        ["x", Decimal("1.5000"), 4, 4],
        ["y", Decimal("2.5000"), 2, 2],
    ]
    assert [found.is_exact for found in verify(connection, "In.Spark-1")] == [True] * 2
