"""States on real Postgres: what commits, replays and compactions do (rules C3, H1 to H3, H5, H6).

Every test lives in one transaction that is rolled back; Spark is not needed, see test_frames.py.
"""

from __future__ import annotations

import json
import os
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg2.sql import SQL, Identifier

from reliability import (
    Append,
    Avg,
    Count,
    First,
    Latest,
    Max,
    Min,
    OpaqueState,
    State,
    Sum,
    TransactionalState,
    Upsert,
)
from reliability.core.errors import LedgerCorruption, ReplayNotPossible
from reliability.states.kinds.keyed import KeyedState
from reliability.transaction.inspect.different_rows import DifferentRows
from reliability.transaction.inspect.verify import verify_state
from reliability.transaction.maintain.compaction import MAX_ROWS, fold_step
from tests.support.fix_postgres import rolled_back
from tests.support.one_state import OneState, in_fixed_order, reduce_rows

# --- what a row can be, and a state of every aggregator ------------------------------------------

KEY = {"k": "bigint", "word": "text"}
EXACT = {
    "n": Count(),
    "prices": Count("price"),
    "total": Sum("price", "numeric(14,2)"),
    "points": Sum("point"),
    "mean": Avg("price"),
}
BY_DAY = {"day": "date"}
BY_TWO = {"grade": "smallint", "flag": "boolean"}
BY_THREE = {"word": "text", "grade": "smallint", "flag": "boolean"}
STATES = {
    "inverse": State("s", key=KEY, values=EXACT),
    "recompute": State(
        "s",
        key=KEY,
        values={
            **EXACT,
            "lowest": Min("price", "numeric(14,2)"),
            "longest": Max("note", "text"),
            "ever": Max("flag", "boolean"),
            "always": Min("flag", "boolean"),
            "weight": Sum("weight", "double precision"),
            "first_note": First("note", BY_DAY | {"point": "bigint"}, "text"),
            "last_price": Latest("price", BY_DAY, "numeric(14,2)"),
            "last_tags": Latest("tags", {"note": "text"}, "text[]"),
            "note": Upsert("note", BY_DAY, "text"),
            "price": Upsert("price", BY_DAY, "numeric(14,2)"),
            "tags": Upsert("tags", BY_DAY, "text[]"),
        },
    ),
    "orders": State(
        "s",
        key={"k": "bigint"},
        values={
            "first": First("note", BY_TWO, "text"),
            "last": Latest("note", BY_TWO, "text"),
            "first_of_three": First("note", BY_THREE, "text"),
            "last_of_three": Latest("note", BY_THREE, "text"),
            "upserted": Upsert("note", BY_THREE, "text"),
        },
    ),
    "one row": State("s", values={**EXACT, "note": Upsert("note", BY_DAY, "text")}),
    "append": State(
        "s",
        key={"k": "bigint"},
        values={"price": Append("price", "numeric(14,2)"), "tags": Append("tags", "text[]")},
    ),
}
KINDS = {
    **STATES,
    "opaque": OpaqueState("s", key=KEY, values=STATES["recompute"].values),
    "transactional": TransactionalState("s", key=KEY, values=STATES["recompute"].values),
}

COMPACTED = [name for name, state in STATES.items() if not state.is_append]

TEXTS = st.sampled_from([None, "", "a", "B", "ä", "Z", "a b", 'q"\\,{}'])
ROWS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "k": st.sampled_from([1, 2, None]),
        "word": st.sampled_from(["a", None]),
        "price": st.none() | st.decimals(-99, 99, places=2),
        "point": st.none() | st.integers(-9, 9),
        "grade": st.none() | st.integers(1, 2),  # NULL and ties are frequent
        "weight": st.none() | st.integers(-9, 9).map(float),  # sums of these are exact
        "note": TEXTS,
        "flag": st.none() | st.booleans(),
        "day": st.none() | st.integers(1, 3).map(lambda day: date(1997, 1, day)),
        "tags": st.none() | st.lists(TEXTS, max_size=2),
        "_x": st.integers(-(2**63), 2**63 - 1),
    }
)
BATCHES = st.lists(ROWS, max_size=6, unique_by=lambda row: row["_x"])
PARTS = st.integers(1, 3)


def expected(state, committed):
    """The target after an undisturbed run over what counts, by the meaning of the aggregators."""
    rows = [row | {"_txid": txid} for txid, batch in committed.items() for row in batch]
    found = []
    for reduced in reduce_rows(state, rows):
        own = [row for row in rows if all(row[name] == reduced[name] for name in state.key)]
        if state.is_append:
            found.append({n: reduced[n] for n in (*state.key, *state.values)})
            continue
        del reduced["_x"], reduced["_n"]
        for name in {"mean"} & state.values.keys():
            count = reduced[f"_{name}_count"]
            reduced[name] = Decimal(reduced[f"_{name}_sum"]) / count if count else None
        found.append(reduced | {"_txid": max(row["_txid"] for row in own)})
    return rounded(found)


def rounded(rows):
    """Means have sixteen digits in Postgres and twenty-eight here."""
    return in_fixed_order(
        {
            name: round(value, 10) if name == "mean" and value is not None else plain(value)
            for name, value in row.items()
        }
        for row in rows
    )


def plain(value):
    return round(value, 2) if isinstance(value, Decimal) else value


def found(one):
    if one.state.is_append:
        names = [*one.state.key, *one.state.values]
        return rounded({name: row[name] for name in names} for row in one.contents())
    return rounded(one.contents())


def examples(number):
    """Draw so many, or a multiple."""
    return settings(
        max_examples=number * int(os.environ.get("RELIABILITY_EXAMPLES", "1")),
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )


def fold_through(one, txid, max_rows=MAX_ROWS):
    """Fold everything up to a txid, as compact does once it is decided."""
    steps = []
    while step := fold_step(one.tx, one.tables, txid, max_rows):
        steps.append(step)
    return steps


def kept(one):
    """Return place and key of each row that counts; those of replaced attempts lie beside them."""
    names = ", ".join(one.tables.key)
    statement = SQL(
        f"SELECT _txid, _attempt_id, {names} FROM {{}} JOIN reliability.contribution"
        " ON txid = _txid AND attempt_id = _attempt_id ORDER BY 1, 2, 3"
    )
    return [tuple(row.values()) for row in one.tx.all(statement.format(one.tables.contribution))]


def assert_exact(one):
    verified = verify_state(one.tx, one.tables)
    assert verified.is_exact, verified
    assert verified.rows == len(one.contents())


# --- for every aggregator ------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
@examples(10)
@given(
    batches=st.lists(BATCHES, min_size=1, max_size=4),
    changes=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), BATCHES), min_size=1, max_size=3
    ),
    after=BATCHES,
    parts=PARTS,
    max_rows=st.sampled_from([1, 3, 1000]),
)
def test_txids_give_the_aggregate_of_all_rows_and_a_replay_that_with_its_new_ones(
    shared_connection, name, batches, changes, after, parts, max_rows
):
    """H1, H3: as if the new rows had been those of the txid from the start.

    Whatever has been compacted before. Of an opaque state, only the last txid is replaced, but
    whole: keys that the new batch lacks get their previous value, or go (Storm O1, O9).
    """
    with rolled_back(shared_connection) as tx:
        one = OneState(tx, KINDS[name])
        committed = {one.commit(batch, parts): batch for batch in batches}
        assert found(one) == expected(one.state, committed)
        through = 0
        for horizon, place, rows in changes:
            if name in COMPACTED:
                through = max(through, min(horizon, len(batches) - 1))
                fold_through(one, through, max_rows)
                assert found(one) == expected(one.state, committed)
                folded = [row[2:] for row in kept(one) if row[0] <= through]
                assert len(folded) == len(set(folded))
            last = len(batches)
            first = {"opaque": last, "transactional": last + 1}.get(name, through + 1)
            if replayable := range(first, last + 1):
                txid = replayable[place % len(replayable)]
                one.replay(txid, rows, parts)
                committed[txid] = rows
                assert found(one) == expected(one.state, committed)
            if name in STATES:
                assert_exact(one)
        committed[one.commit(after)] = after  # C3: no row is left with too great a txid
        if name in COMPACTED:
            fold_through(one, len(batches) + 1, max_rows)
        assert found(one) == expected(one.state, committed)
        if name in STATES:
            assert_exact(one)
        elif name == "opaque":  # the commit after a replay is replaced whole, too
            one.replay(len(batches) + 1, rows, parts)
            committed[len(batches) + 1] = rows
            assert found(one) == expected(one.state, committed)
        if name not in STATES:
            assert one.staged() == []


# --- an order of one's own (H6) ------------------------------------------------------------------


def order_of(day, x, **values):
    return {"k": 1, "day": day and date(1997, day, 1), "_x": x, **values}


def by_month(aggregator):
    return State("s", key={"k": "bigint"}, values={"v": aggregator("v", BY_DAY, "text")})


@pytest.mark.parametrize(
    ("aggregator", "first", "second", "winner"),
    [
        pytest.param(Latest, (3, "march"), (1, "january"), "march", id="never overwrites march"),
        pytest.param(Upsert, (3, "march"), (1, "january"), "march", id="nor as an upsert"),
        pytest.param(First, (3, "march"), (1, "january"), "january", id="is still the first"),
        pytest.param(Latest, (1, "x"), (2, None), None, id="the winner's value counts, be it NULL"),
    ],
)
def test_a_late_january(tx, aggregator, first, second, winner):
    one = OneState(tx, by_month(aggregator))
    for x, (day, value) in enumerate((first, second)):
        one.commit([order_of(day, x, v=value)])
    assert one.select("v, _txid") == [(winner, 2)]


@pytest.mark.parametrize(
    ("aggregator", "winner"), [(Latest, "b, txid 2"), (Upsert, "b, txid 2"), (First, "a, txid 1")]
)
def test_ties_are_broken_by_txid_then_by_tuple_id(tx, aggregator, winner):
    """H6: whichever way the row was worked out, by a commit or by a replay."""
    one = OneState(tx, by_month(aggregator))
    one.commit([order_of(1, 7, v="b, txid 1"), order_of(1, 5, v="a, txid 1")], parts=2)
    one.commit([order_of(1, 3, v="b, txid 2"), order_of(1, -9, v="a, txid 2")], parts=2)
    assert one.select("v") == [(winner,)]
    one.replay(1, [order_of(1, 5, v="a, txid 1"), order_of(1, 7, v="c, txid 1")])
    assert one.select("v") == [(winner,)]


@pytest.mark.parametrize("aggregator", [First, Latest, Upsert])
def test_a_row_without_an_order_wins_only_alone(tx, aggregator):
    one = OneState(tx, by_month(aggregator))
    one.commit([order_of(None, 1, v="unknown")])
    assert one.select("v") == [("unknown",)]
    one.commit([order_of(2, 1, v="known"), order_of(None, 9, v="unknown")])
    assert one.select("v") == [("known",)]
    one.commit([order_of(None, 1, v="unknown again")])
    assert one.select("v") == [("known",)]


@pytest.mark.parametrize("aggregator", [First, Latest, Upsert])
@pytest.mark.parametrize("is_one_commit", [True, False])
def test_null_in_a_later_column_of_an_order_loses_to_a_row_without_null(
    tx, aggregator, is_one_commit
):
    """H6: whatever the first column says, and whichever of them commits first."""
    values = {"v": aggregator("v", {"day": "date", "point": "bigint"}, "text")}
    one = OneState(tx, State("s", key={"k": "bigint"}, values=values))
    day = 1 if aggregator is First else 3
    unknown = order_of(day, 1, point=None, v="unknown")
    known = order_of(2, 2, point=0, v="known")
    for rows in [[unknown, known]] if is_one_commit else [[unknown], [known], [unknown]]:
        one.commit(rows, parts=2)
    assert one.select("v") == [("known",)]
    one.replay(1, [unknown, order_of(2, 2, point=0, v="known")], parts=2)
    assert one.select("v") == [("known",)]
    if is_one_commit:
        one.replay(1, [unknown, order_of(None, 3, point=0, v="no day")], parts=2)
        assert one.select("v") == [("unknown",)]  # of rows with NULL, column by column


@pytest.mark.parametrize("value", [Max("note", "text"), Latest("note", {"note": "text"}, "text")])
def test_texts_compare_by_their_bytes_as_in_spark(tx, value):
    """By a database's own collation a < B: the result would depend on how rows were cut."""
    if not tx.all(SQL("SELECT FROM pg_collation WHERE collname = 'en-x-icu'")):
        pytest.skip("this Postgres was built without ICU")
    one = OneState(tx, State("s", values={"v": value}))
    for table in (one.tables.target, one.tables.contribution):
        for column in one.tables.value_names():
            if column != "_rows" and not column.endswith("_tuple"):
                change = 'ALTER TABLE {} ALTER COLUMN {} TYPE text COLLATE "en-x-icu"'
                tx.run(SQL(change).format(table, Identifier(column)))
    notes = [{"note": note, "_x": n} for n, note in enumerate(["a", "B"])]
    one.commit(notes[:1])
    one.commit(notes[1:])
    assert one.select("v") == [("a",)]
    one.replay(2, [*notes, {"note": "Z", "_x": 9}], parts=3)
    assert one.select("v") == [("a",)]


def test_upserted_values_come_from_one_row(tx):
    values = {name: Upsert(name, BY_DAY, "text") for name in ("v", "w")}
    one = OneState(tx, State("s", key={"k": "bigint"}, values=values))
    one.commit([order_of(1, 1, v="old", w="old")])
    one.commit([order_of(2, 2, v="new", w=None)])
    assert one.select("v, w") == [("new", None)]


# --- kinds (H5) ----------------------------------------------------------------------------------

COUNTS: dict[str, Any] = {"key": {"word": "text"}, "values": {"n": Count()}}
LOG = State("s", key={"word": "text"}, values={"x": Append("_x")})


def words(*texts):
    return [{"word": text, "_x": n} for n, text in enumerate(texts, start=1)]


def test_trident_s_worked_example(tx):
    """Storm's guide to Trident state: a replay of txid 3 with another batch."""
    one = OneState(tx, OpaqueState("s", **COUNTS))
    one.commit(words(*["man"] * 1, *["dog"] * 2))
    one.commit(words(*["man"] * 2, *["apple"] * 7))
    one.commit(words("man", "man", "dog"))
    columns = "word, n, _n_previous, _txid, __txid_previous"
    assert one.select(columns) == [
        ("apple", 7, None, 2, None),
        ("dog", 3, 2, 3, 1),
        ("man", 5, 3, 3, 2),
    ]
    one.replay(3, words("man", "cat"))
    assert one.select("word, n, _txid") == [
        ("apple", 7, 2),
        ("cat", 1, 3),
        ("dog", 2, 1),
        ("man", 4, 3),
    ]
    one.replay(3, [])
    assert one.select("word, n") == [("apple", 7), ("dog", 2), ("man", 3)]


@pytest.mark.parametrize(
    ("kind", "txid", "why"),
    [
        (TransactionalState, 2, "TransactionalState"),
        (OpaqueState, 1, "only the txid that has committed last"),
    ],
)
def test_what_cannot_be_replaced_is_refused_and_stays(tx, kind, txid, why):
    """H2: of what keeps no history, `compacted` is not `present` and not `empty`."""
    one = OneState(tx, kind("s", **COUNTS))
    one.commit(words("a", "a", "b"), parts=2)
    one.commit([])
    if kind is TransactionalState:
        assert one.headers() == [(1, "compacted", 2), (2, "empty", 0)]
    before = one.contents()
    with pytest.raises(ReplayNotPossible, match=why):
        one.replay(txid, words("c"))
    assert one.contents() == before


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (State("s", **COUNTS), "only 0 rows were older"),
        (OpaqueState("s", **COUNTS), "only 0 rows were older"),
        (TransactionalState("s", **COUNTS), "only 0 rows were older"),
        (LOG, "txid 1 cannot be appended after 2"),
    ],
    ids=["state", "opaque", "transactional", "append"],
)
def test_an_older_txid_is_an_error_and_never_applied(tx, state, said):
    """C3, Storm: TransactionalMap applies it and moves the txid backwards; `!=` lets a zombie in.

    Beside the commit number of a state, the last header of an appended one says so.
    """
    one = OneState(tx, state)
    one.commit(words("a"))
    one.commit(words("a"))
    one.attempts.clear()  # as if a restored ledger granted txid 1 again
    if not state.is_append:
        tx.run(SQL("DELETE FROM reliability.contribution"))
    one.stage(1, 1, words("a"))
    with pytest.raises(LedgerCorruption, match=said):
        one.change(1, 1, None)


def test_a_row_goes_back_one_step_only(tx):
    """After a replay of 2 without the key, the row is at txid 1 and knows nothing before it."""
    one = OneState(tx, OpaqueState("s", **COUNTS))
    one.commit(words("a"))
    one.commit(words("a"))
    one.replay(2, [])
    assert one.select("n, _txid, __txid_previous") == [(1, 1, 1)]
    tx.run(SQL("DELETE FROM reliability.contribution WHERE txid = 2"))  # as if 2 were rolled back
    with pytest.raises(LedgerCorruption, match="0 rows of attempt 1:0"):
        one.replay(1, words("b"))


@pytest.mark.parametrize("state", [OpaqueState("s", **COUNTS), LOG], ids=["opaque", "append"])
def test_a_row_that_somebody_deleted_is_not_taken_for_zero(tx, state):
    """H2: what is taken out must be what went in."""
    one = OneState(tx, state)
    one.commit(words("a", "b"))
    tx.run(SQL("DELETE FROM public.s WHERE word = 'a'"))
    with pytest.raises(LedgerCorruption, match="2 rows, but 1 rows of attempt 1:0"):
        one.replay(1, words("b"))


class NonTransactional(OneState):
    """Storm's, for comparison: the same SQL without the check of a row's txid and history."""

    def change(self, txid, attempt_id, replaced):
        assert isinstance(self.tables, KeyedState)
        statement = self.tables.combine(self.tables.folded_attempt())
        self.tx.run(statement, txid=txid, attempt_id=attempt_id)
        self.tx.run(self.tables.clean(), txid=txid, attempt_id=attempt_id)
        self.attempts[txid] = attempt_id


def test_without_a_txid_a_repeated_batch_counts_twice(tx):
    """Storm O4, for comparison: why a state has to know what it has applied."""
    one = NonTransactional(tx, State("s", **COUNTS))
    one.commit(words("a", "a"))
    one.replay(1, words("a", "a"))
    assert one.select("word, n") == [("a", 4)]


@pytest.mark.parametrize("name", ["d", "_change", "change"])
def test_a_row_that_differs_is_told_whatever_its_columns_are_called(tx, name):
    """No --diff of a state with the column d came to an end."""
    told: list[Any] = []
    one = OneState(tx, State("s", key={name: "bigint"}, values={"n": Count()}))
    one.observer = DifferentRows("one", told.extend).observe
    one.commit([{name: 7, "_x": 1}])
    one.replay(1, [{name: 7, "_x": 1}, {name: 7, "_x": 2}])
    assert [json.loads(row["row"]) for row in told] == [{name: 7, "n_before": 1, "n_after": 2}]


# --- Append (H6) ---------------------------------------------------------------------------------


def test_appended_rows_are_the_contribution_and_are_kept_once(tx):
    one = OneState(tx, LOG)
    one.commit(words("a", "a"))
    one.commit(words("a"))
    columns = "word, x, _txid, _attempt_id"
    assert one.select(columns) == [("a", 1, 1, 0), ("a", 1, 2, 0), ("a", 2, 1, 0)]
    assert one.staged() == []
    one.replay(1, words("b"))
    assert one.select(columns) == [("a", 1, 2, 0), ("b", 1, 1, 1)]
    assert one.headers() == [(1, "present", 1), (2, "present", 1)]
