"""Which names are taken, and the names that are derived from them."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability import Avg, Count, Latest, MemorySpout, OpaqueState, State, Step, Sum, Topology
from reliability.core.errors import InvalidDefinition
from reliability.core.names import (
    LONGEST_NAME,
    check_id,
    check_name,
    contribution_table_of,
    fitted,
    name_of_table,
    parts_of,
    session_name,
)
from reliability.deployment.topologies import check_found

ANY_NAME = st.text(min_size=1, max_size=80).filter(str.isprintable)


@pytest.mark.parametrize("name", ["a", "A b", "rate_%", 'x"; drop table x; --', "ü" * 31, "x" * 63])
def test_what_postgres_takes_is_a_name(name):
    check_name("state", name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "is empty"),
        (" a", "begins or ends with a blank"),
        ("a ", "begins or ends with a blank"),
        ("a\0", "cannot be printed"),
        ("a\nb", "cannot be printed"),
        ("\ud800", "cannot be printed"),
        ("x" * 64, "has 64 bytes"),
        ("ü" * 32, "has 64 bytes"),
    ],
)
def test_what_postgres_would_change_is_refused(name, why):
    with pytest.raises(InvalidDefinition, match=why):
        State(name, values={"n": Count()})


@pytest.mark.parametrize("name", ["Shop.EU-1", "a__b", "_", "9", "Umsätze", "x" * 250])
def test_what_airflow_takes_is_the_name_of_a_topology(name):
    check_id("topology", name)


@pytest.mark.parametrize("name", ["", "-x", ".", "..", "a b", "a/b", "a%", "x" * 251, "a\n"])
def test_what_airflow_refuses_or_a_command_line_takes_for_an_option_is_none(name):
    with pytest.raises(InvalidDefinition, match="is not a valid name"):
        check_id("topology", name)


# --- columns -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "values"),
    [
        (["_txid"], {"n": Count()}),
        (["_X"], {"n": Count()}),
        (["ctid"], {"n": Count()}),
        (["_reliability_a"], {"n": Count()}),
        (["k", "K"], {"n": Count()}),
        (["N"], {"n": Count()}),
        (["_rows"], {"n": Count()}),
        (["_total_count"], {"total": Sum("v")}),
        ([], {"_total_count": Count(), "total": Sum("v")}),
        ([], {"total": Sum("v"), "_Total_Count": Count()}),
        (["_mean_sum"], {"mean": Avg("v")}),
        (["_last_by_1"], {"last": Latest("v", {"d": "date"})}),
    ],
)
def test_a_column_that_is_taken_is_refused(key, values):
    with pytest.raises(InvalidDefinition, match="would be taken for"):
        State("s", key=dict.fromkeys(key, "text"), values=values)


def test_a_column_is_taken_only_where_it_is_there():
    """Also by the values before an OpaqueState's last txid, which other kinds do not have."""
    State("s", key={"_n_previous": "text", "_id": "text"}, values={"n": Count()})
    State("s", key={"_total_count": "text", "rows": "text"}, values={"total": Count()})
    with pytest.raises(InvalidDefinition, match="would be taken for"):
        OpaqueState("s", key={"_n_previous": "text"}, values={"n": Count()})


def test_hidden_columns_of_long_names_fit_and_differ():
    names = ["x" * 63, "x" * 62 + "y"]
    state = State("s", values={name: Sum("v") for name in names})
    columns = [column.name for column in state.all_columns()]
    assert len(set(columns)) == len(columns) == 5
    assert all(len(name.encode()) <= LONGEST_NAME for name in columns)


# --- tables --------------------------------------------------------------------------------------


def test_a_table_is_named_as_it_is_written():
    named = {
        "days": ("public", "days"),
        "Mart.Days": ("Mart", "Days"),
        '"Sales.2026".days': ("Sales.2026", "days"),
        '"a ""b"""': ("public", 'a "b"'),
    }
    for table, target in named.items():
        state = State("s", values={"n": Count()}, table=table)
        assert state.target == target
        assert State.from_definition(state.definition()).target == target
    assert State("a.b", values={"n": Count()}).target == ("public", "a.b")


@pytest.mark.parametrize(
    "table", ["a.b.c", ".a", "a.", '"a', 'a"b', "pg_catalog.x", "reliability.x"]
)
def test_what_is_no_table_is_refused(table):
    with pytest.raises(InvalidDefinition):
        State("s", values={"n": Count()}, table=table)


@given(ANY_NAME, ANY_NAME)
def test_a_quoted_table_is_read_back(schema, table):
    assert parts_of(name_of_table(schema, table)) == [schema, table]


@given(st.lists(st.tuples(ANY_NAME, ANY_NAME), min_size=2, max_size=2, unique=True))
def test_each_state_has_a_table_of_contributions_of_its_own(states):
    tables = {contribution_table_of(*state) for state in states}
    assert len(tables) == 2
    assert all(table.isascii() and len(table) <= LONGEST_NAME for table in tables)


def test_contributions_of_names_that_begin_alike_or_differ_in_case_lie_apart():
    long = "x" * 60
    pairs = [("shop", "days"), ("Shop", "days"), ("shop", "Days"), ("shop__days", "n"),
             ("shop", "days__n"), (long, long + "a"), (long, long + "b"), ("a_b", "c"),
             ("a-b", "c"), ("日本", "語")]  # fmt: skip
    assert len({contribution_table_of(*pair) for pair in pairs}) == len(pairs)
    assert contribution_table_of("shop", "days") == "shop__days"


@given(st.text(), st.integers(12, LONGEST_NAME))
def test_what_is_fitted_fits(text, longest):
    assert len(fitted(text.encode(errors="ignore").decode(), longest).encode()) <= longest


def test_sessions_of_two_attempts_have_two_names():
    """The one of an ended attempt is ended by its name, which Postgres would cut."""
    names = {session_name(f"reliability {'ü' * 250} 1:{n}") for n in range(2)}
    assert len(names) == 2
    assert all(name.isascii() and len(name) <= LONGEST_NAME for name in names)


def test_two_databases_that_one_variable_would_find_are_refused():
    states = [State(n, values={"n": Count()}, database=d) for n, d in (("a", "M-x"), ("b", "m_x"))]
    with pytest.raises(InvalidDefinition, match="would both be found by RELIABILITY_DSN_M_X"):
        _topology(states=states)


def test_states_whose_names_begin_alike_are_read_each_by_its_own_types():
    step = Step("reads", _process, feeds=["c"], reads=["a", "a.b"], types={"a.b.v": "string"})
    assert step.types_of("a.b", ["v", "w"]) == {"v": "string"}
    assert step.types_of("a", ["v", "w"]) == {}


# --- where others find a topology ----------------------------------------------------------------


def _process(batch):
    return {"s": batch}


def _topology(name="found", **own):
    states = own.pop("states", [State("s", values={"n": Count()})])
    spout = MemorySpout({"v": "bigint"}, [[1]], 1)
    return Topology(name, spout=spout, process=_process, states=states, **own)


found = _topology()


def test_a_topology_is_a_variable_of_its_module():
    check_found(found)
    with pytest.raises(InvalidDefinition, match="defines no topology called lost") as raised:
        check_found(_topology("lost"))
    assert "a module that they can import" in str(raised.value)


def module_with(monkeypatch, name, topology):
    """Make a module with a topology in a variable."""
    module = ModuleType(name)
    vars(module)["topology"] = topology
    monkeypatch.setitem(sys.modules, name, module)
    return topology


def test_a_topology_that_a_function_of_another_module_has_made_is_told_where_it_is(monkeypatch):
    made = module_with(monkeypatch, "made_elsewhere", _topology("made"))
    with pytest.raises(InvalidDefinition, match="defines no topology called made") as raised:
        check_found(made)
    assert "a variable of made_elsewhere, and pass module=__name__" in raised.value.what_to_do
    check_found(module_with(monkeypatch, "named", _topology("made", module="named")))


def test_a_topology_in_the_file_of_a_dag_is_refused(monkeypatch):
    name = "unusual_prefix_0123_shop"
    here = module_with(monkeypatch, name, _topology("here", module=name))
    with pytest.raises(InvalidDefinition, match="defined in the file of its DAG"):
        check_found(here)
