"""init_states: a state's tables are made and checked, and never changed behind one's back (H7)."""

from __future__ import annotations

from datetime import date

import pytest
from psycopg2.sql import SQL

from reliability import (
    Append,
    Avg,
    Count,
    Latest,
    Max,
    OpaqueState,
    State,
    Sum,
    TransactionalState,
    Upsert,
)
from reliability.core.errors import StateDefinitionChanged, TargetTableTaken
from reliability.core.texts import as_json
from reliability.states.alteration import StateChange
from reliability.states.kinds import stored_state
from reliability.transaction.topology.declare import init_states
from tests.support.fix_postgres import statements_of
from tests.support.one_state import TOPOLOGY, OneState

KEY = {"k": "bigint"}
OLD = {"n": Count(), "total": Sum("v", "numeric(10,2)")}


def declare(tx, state):
    init_states(tx, TOPOLOGY, [stored_state(TOPOLOGY, state)])


def rows(*values):
    return [
        {"k": n % 2, "v": v, "note": f"note {v}", "day": date(1997, 1, 1 + n), "_x": n}
        for n, v in enumerate(values)
    ]


@pytest.mark.parametrize("kind", [State, OpaqueState, TransactionalState])
def test_what_was_created_is_what_is_checked(tx, kind):
    state = kind(
        "s",
        key={"k": "bigint", "tags": "text[]", "id": "uuid"},
        values={**OLD, "mean": Avg("v"), "note": Latest("note", {"day": "date"}, "text")},
    )
    OneState(tx, state)
    declare(tx, state)


def test_appended_tables_are_checked_too(tx):
    log = State("s", key=KEY, values={"v": Append("v", "jsonb")})
    OneState(tx, log)
    declare(tx, log)


def test_a_schema_that_is_not_there_is_created(tx):
    """Also by what an error says to run when it is gone again."""
    state = State("s", values=OLD, table="mart.s")
    one = OneState(tx, state)
    one.commit(rows(1))
    assert one.select("n") == [(1,)]
    tx.run(SQL("DROP SCHEMA mart CASCADE"))
    with pytest.raises(StateDefinitionChanged, match="it does not exist") as refused:
        declare(tx, state)
    run_remedy(tx, refused.value)
    declare(tx, state)


def test_a_table_that_was_there_belongs_to_nobody(tx):
    tx.run(SQL("CREATE TABLE public.s (k bigint)"))
    with pytest.raises(TargetTableTaken, match="belongs to no state"):
        OneState(tx, State("s", key=KEY, values=OLD))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("ALTER TABLE public.s DROP COLUMN n", "table public.s: column n is missing"),
        (
            "ALTER TABLE public.s ALTER COLUMN n TYPE integer",
            "column n is integer instead of bigint",
        ),
        ("ALTER TABLE public.s ALTER COLUMN total TYPE numeric(10,1)", r"numeric\(10,1\) instead"),
        ("ALTER TABLE public.s ALTER COLUMN mean DROP EXPRESSION", "column mean is not generated"),
        ("ALTER TABLE public.s DROP CONSTRAINT s_k_key", r"no unique key over \['k'\]"),
        (
            "ALTER TABLE public.s DROP CONSTRAINT s_k_key, ADD UNIQUE NULLS DISTINCT (k)",
            r"no unique key over \['k'\]",
        ),
        ("ALTER TABLE public.s ADD COLUMN own text NOT NULL", "column own is unknown"),
        ("ALTER TABLE public.s SET UNLOGGED", "table public.s is unlogged: a crash"),
        (
            "ALTER TABLE reliability_contribution.one__s DROP COLUMN _n",
            "table reliability_contribution.one__s: column _n is missing",
        ),
    ],
)
def test_a_table_that_was_altered_is_refused_with_what_repairs_it(tx, change, said):
    state = State("s", key=KEY, values={**OLD, "mean": Avg("v")})
    one = OneState(tx, state)
    tx.run(SQL(change))
    with pytest.raises(StateDefinitionChanged, match=said) as refused:
        declare(tx, state)
    run_remedy(tx, refused.value)
    declare(tx, state)
    one.commit(rows(1, 2))
    assert one.select("n, total, mean") == [(1, 1, 1), (1, 2, 2)]


def run_remedy(tx, error):
    """Run the statements of the remedy, as a person would."""
    tx.run(SQL(statements_of(error)))


@pytest.mark.parametrize(
    ("table", "values"),
    [("reliability_contribution.one__s", OLD), ("public.s", {"v": Append("v", "numeric(14,2)")})],
)
def test_a_table_whose_rows_nothing_else_has_is_not_made_anew(tx, table, values):
    """The remedy was to run BEGIN and COMMIT."""
    state = State("s", key=KEY, values=values)
    OneState(tx, state)
    tx.run(SQL(f"DROP TABLE {table}"))
    with pytest.raises(StateDefinitionChanged, match="it does not exist") as refused:
        declare(tx, state)
    assert refused.value.what_to_do.startswith(f"{table}: rename it back, or restore it from a")


@pytest.mark.parametrize("kind", ["VIEW", "MATERIALIZED VIEW"])
def test_a_table_that_a_view_has_taken_the_place_of_is_to_be_brought_back(tx, kind):
    """The remedy was to alter the view, as if it were a table."""
    state = State("s", key=KEY, values=OLD)
    OneState(tx, state)
    tx.run(SQL(f"ALTER TABLE public.s RENAME TO t; CREATE {kind} public.s AS TABLE public.t"))
    with pytest.raises(StateDefinitionChanged, match=r"public\.s is no table") as refused:
        declare(tx, state)
    assert "BEGIN" not in refused.value.what_to_do


def test_columns_and_indexes_of_ones_own_are_nobody_elses_business(tx):
    state = State("s", key=KEY, values=OLD)
    one = OneState(tx, state)
    tx.run(SQL("ALTER TABLE public.s ADD COLUMN own text DEFAULT 'x'"))
    tx.run(SQL("CREATE INDEX ON public.s (total)"))
    declare(tx, state)
    one.commit(rows(1))
    assert one.select("own") == [("x",)]


# --- a changed definition ------------------------------------------------------------------------


def changed(tx, old, new, *batches):
    """Commit batches under one definition, alter the tables, and go on; return what differs."""
    one = OneState(tx, old)
    for batch in batches:
        one.commit(batch)
    with pytest.raises(StateDefinitionChanged, match="has changed") as refused:
        declare(tx, new)
    assert "`reliability alter one`" in refused.value.what_to_do
    change = StateChange(one.tables, stored_state(TOPOLOGY, new))
    assert change.obstacle() is None
    for statement in change.statements():
        tx.run(statement)
    tx.one(
        "redefine_state",
        topology=TOPOLOGY,
        state="s",
        definition=as_json(new.definition()),
        definition_digest=new.digest(),
        digest_before=old.digest(),
    )
    declare(tx, new)
    one.state, one.tables = new, stored_state(TOPOLOGY, new)
    return one, change


NEW = {
    **OLD,
    "mean": Avg("v"),
    "greatest": Max("v", "numeric"),
    "note": Latest("note", {"day": "date"}, "text"),
    "known": Count("note"),
}


def test_an_appended_value_is_unknown_until_its_txid_is_replayed(tx):
    old, new = (
        State("s", key=KEY, values={name: Append(name, type_) for name, type_ in values.items()})
        for values in ({"v": "bigint"}, {"v": "bigint", "note": "text"})
    )
    one, _ = changed(tx, old, new, rows(1), rows(2))
    one.replay(2, rows(2))
    assert one.select("v, note") == [(1, None), (2, "note 2")]


def test_a_value_that_goes_takes_its_hidden_columns_along(tx):
    old, new = (OpaqueState("s", key=KEY, values=v) for v in (NEW, OLD))
    one, change = changed(tx, old, new, rows(1, 2))
    assert change.dropped_values() == ["mean", "greatest", "note", "known"]
    one.replay(1, rows(7))
    assert one.select("k, n, total") == [(0, 1, 7)]


def test_a_mean_of_more_digits_is_generated_anew(tx):
    old, new = (
        State("s", values={"mean": Avg("v", type_)}) for type_ in ("numeric(6,1)", "numeric(8,3)")
    )
    one, change = changed(tx, old, new, rows(1, 2, 2))
    assert one.select("mean::text") == [("1.667",)]
    assert change.dropped_columns() == ["mean"]


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (State("s", key={"j": "bigint"}, values=OLD), "key differs"),
        (State("s", key=KEY, values=OLD, table="t"), "table"),
        (OpaqueState("s", key=KEY, values=OLD), "kind"),
        (State("s", key=KEY, values=OLD, database="other"), "database"),
        (State("s", key={"k": "integer"}, values=OLD), "key differs"),
        (State("s", key=KEY, values={**OLD, "n": Count("v")}), "aggregated in another way"),
        (State("s", key=KEY, values={"n": Append("v")}), "differs"),
        (
            State("s", key=KEY, values={**OLD, "total": Sum("v", "numeric(8,2)")}),
            r"not every numeric(10,2) value is the same as numeric(8,2)",
        ),
        (State("s", key=KEY, values={**OLD, "total": Sum("v", "numeric(12,4)")}), "the same as"),
    ],
)
def test_where_no_alter_table_leads_there_is_an_obstacle(new, why):
    """C11: what is stored would get another meaning, or another text."""
    old = State("s", key=KEY, values=OLD)
    change = StateChange(*(stored_state(TOPOLOGY, state) for state in (old, new)))
    assert why in str(change.obstacle())
    assert change.differences()


def test_another_order_is_another_aggregate():
    old, new, other = (
        stored_state(TOPOLOGY, State("s", values={name: Upsert("note", {by: "date"}, "text")}))
        for name, by in (("note", "day"), ("note", "night"), ("text", "night"))
    )
    assert "aggregated in another way" in str(StateChange(old, new).obstacle())
    assert "chosen by another order" in str(StateChange(old, other).obstacle())


def test_only_another_order_of_the_values_changes_no_table():
    one, other = (
        stored_state(TOPOLOGY, State("s", values=dict(items)))
        for items in (OLD.items(), reversed(OLD.items()))
    )
    change = StateChange(one, other)
    assert change.differences() == ["the values have another order"]
    assert change.statements() == []
