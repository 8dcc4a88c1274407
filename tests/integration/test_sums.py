"""Sums near the ends of their types: what fits is right, whatever lies on the way to it (H3)."""

from __future__ import annotations

from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg2.sql import SQL

from reliability import Avg, Count, Min, State, Sum
from reliability.core.errors import UnexpectedAnswer
from reliability.transaction.inspect.verify import verify_state
from reliability.transaction.maintain.compaction import fold_step
from tests.integration.test_states import examples
from tests.support.fix_postgres import rolled_back
from tests.support.one_state import OneState

LEAST, GREATEST = -(2**63), 2**63 - 1
FLOAT = "double precision"
TOO_LARGE = "out of range|overflow"  # as Postgres calls it


def state(type_, **more: Any):
    return State("s", key={"k": "bigint"}, values={"n": Count(), "total": Sum("v", type_), **more})


def row(value, k=1):
    return {"k": k, "v": value, "_x": k}


def totals(one):
    return [total for (total,) in one.select("total")]


def verified(one):
    return verify_state(one.tx, one.tables)


def percents(type_) -> Any:
    """A hundredth of the greatest value of a type, about; a numeric without digits has none."""
    return {
        "bigint": GREATEST // 100,
        "numeric(4,1)": Decimal("9.9"),
        "numeric": Decimal(10) ** 99,
    }[type_]


def processed(tx, type_, *parts, **more):
    """A state of one row, and what each txid has given to it, in percents."""
    one = OneState(tx, state(type_, **more))
    for part in parts:
        one.commit([row(part * percents(type_))])
    return one


# --- replays -------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["bigint", "numeric(4,1)", "numeric"])
def test_what_is_left_without_the_old_part_need_not_fit(tx, type_):
    """H3: 90 and 90 do not; with the new part in the place of the old one they do."""
    one = processed(tx, type_, 90, -95, 90)
    one.replay(2, [row(-94 * percents(type_))])
    assert totals(one) == [86 * percents(type_)]
    assert verified(one).is_exact


@pytest.mark.parametrize("type_", ["bigint", "numeric(4,1)"])
def test_what_does_not_fit_is_refused_and_never_cut(tx, type_):
    one = processed(tx, type_, 90, -95, 90)
    with pytest.raises(UnexpectedAnswer, match=TOO_LARGE), tried(tx):
        one.replay(2, [row(-70 * percents(type_))])
    assert totals(one) == [85 * percents(type_)]


@contextmanager
def tried(tx):
    """Try what may be refused, and go on."""
    tx.run(SQL("SAVEPOINT tried"))
    try:
        yield
    except UnexpectedAnswer:
        tx.run(SQL("ROLLBACK TO SAVEPOINT tried"))
        raise


# --- any history ---------------------------------------------------------------------------------

ENDS = {"bigint": (LEAST, GREATEST), "numeric(4,1)": (Decimal("-999.9"), Decimal("999.9"))}
WAYS: dict[str, Any] = {"inverse": {"mean": Avg("v")}, "recompute": {"lowest": Min("v", "numeric")}}


def operations(type_):
    least, greatest = ENDS[type_]
    most = 60 * percents(type_)  # one fits, two do not
    value = st.sampled_from([-most, most]) | st.sampled_from([least, None, greatest])
    commits = st.lists(st.tuples(st.just("commit"), st.just(0), value), min_size=3, max_size=4)
    others = st.tuples(st.sampled_from(["replay", "compact"]), st.integers(0, 3), value)
    return st.tuples(commits, st.lists(others, min_size=1, max_size=4)).map(lambda o: o[0] + o[1])


def committed(*percents_of_txids):
    return [("commit", 0, percent) for percent in percents_of_txids]


KNOWN = {
    "others that are beyond": [*committed(60, -60, 60), ("replay", 1, -70)],
    "a horizon that is beyond": [*committed(60, -60, -60), ("replay", 1, 60), ("compact", 1, 0)],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("type_", ENDS)
def test_in_any_history_all_that_fits_is_exact_and_all_else_refused(shared_connection, type_, way):
    """H2, H3: by commits, replays and compactions of one key, against Python's own numbers."""

    @examples(12)
    @given(operations=operations(type_))
    def holds(operations):
        with rolled_back(shared_connection) as tx:
            play(OneState(tx, state(type_, **WAYS[way])), ENDS[type_], operations)

    holds()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("type_", ENDS)
@pytest.mark.parametrize("known", KNOWN)
def test_in_known_histories_too(tx, type_, way, known):
    percent = percents(type_)
    operations = [(what, number, value * percent) for what, number, value in KNOWN[known]]
    play(OneState(tx, state(type_, **WAYS[way])), ENDS[type_], operations)


def play(one, ends, operations):
    parts: dict[int, Any] = {}
    compacted = 0
    for what, number, value in operations:
        left = len(parts) - compacted
        txid = compacted + 1 + number % max(left, 1)
        if what == "compact" and left > 1:
            fold_step(one.tx, one.tables, txid)
            compacted = txid
        elif what == "replay" and left > 0:
            parts = given_part(one, partial(one.replay, txid), parts, {txid: value}, ends)
        else:
            parts = given_part(one, one.commit, parts, {len(parts) + 1: value}, ends)
        assert totals(one) == ([total(parts)] if parts else [])
        assert verified(one).is_exact


def given_part(one, change, parts, part, ends):
    """Give a txid its part, or see it refused if all of them do not fit together."""
    after = {**parts, **part}
    [value] = part.values()
    if fits(after, ends):
        change([row(value)])
        return after
    with pytest.raises(UnexpectedAnswer, match=TOO_LARGE), tried(one.tx):
        change([row(value)])
    return parts


def total(parts):
    known = [value for value in parts.values() if value is not None]
    return sum(known) if known else None


def fits(parts, ends):
    found = total(parts)
    return found is None or ends[0] <= found <= ends[1]


# --- compaction ----------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["bigint", "numeric(4,1)"])
def test_what_does_not_fit_into_one_row_is_folded_when_it_does(tx, type_):
    """H2: else a part that was replayed would keep all others from being folded, for ever."""
    percent = percents(type_)
    one = OneState(tx, state(type_))
    for part in (50, -50, -40, 1):
        one.commit([row(part * percent), row(percent, k=2)])
    one.replay(2, [row(60 * percent), row(percent, k=2)])
    before = one.contents()
    fold_step(tx, one.tables, 2)
    kept = SQL(
        "SELECT k, _txid, total FROM {} JOIN reliability.contribution"
        " ON txid = _txid AND attempt_id = _attempt_id ORDER BY k, _txid"
    ).format(one.tables.contribution)
    left = [tuple(found.values()) for found in tx.all(kept)]
    assert left == [
        (1, 1, 50 * percent),  # 110 with the next
        (1, 2, 60 * percent),
        (1, 3, -40 * percent),
        (1, 4, percent),
        (2, 2, 2 * percent),
        (2, 3, percent),
        (2, 4, percent),
    ]
    fold_step(tx, one.tables, 3)
    left = [tuple(found.values()) for found in tx.all(kept)]
    assert left == [(1, 3, 70 * percent), (1, 4, percent), (2, 3, 3 * percent), (2, 4, percent)]
    assert one.contents() == before
    assert verified(one).is_exact


# --- what is told of them ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        ("0.1 0.7", "0.3 0.6", "0.1"),
        ("1.7e308 1.7e308", "1.6e308 1.5e308", "-3e307"),
        ("1.7e308 1", "inf 1", "Infinity"),
        ("inf 1", "inf 5", "4"),
        ("nan 1", "nan 5", "4"),
    ],
)
def test_by_how_much_a_sum_of_floats_moved_is_told(tx, before, after, moved):
    """Without noise; if all together are no float; beside one that stays without an end."""
    one = OneState(tx, state(FLOAT))
    one.commit([row(float(value), k) for k, value in enumerate(before.split())])
    told = one.replay(1, [row(float(value), k) for k, value in enumerate(after.split())])
    assert told
    assert told.moved == {"total": Decimal(moved)}


def test_by_how_much_each_of_many_sums_moved_is_told(tx):
    """A function has at most 100 arguments: no replay and no rollback of 51 sums came to an end."""
    made = {f"v{number}": 1 for number in range(51)}
    one = OneState(tx, State("s", key={"k": "bigint"}, values={name: Sum(name) for name in made}))
    one.commit([{"k": 1, "_x": 1, **made}])
    told = one.replay(1, [{"k": 1, "_x": 1, **made, "v50": 3}])
    assert told
    assert told.moved == {"v50": 2}


def test_verify_tells_of_floats_that_are_too_far_apart_to_subtract(tx):
    one = OneState(tx, state(FLOAT))
    for value in (0.8e308, -0.8e308, 0.8e308):  # without a sign they are no float together
        one.commit([row(value)])
    assert verified(one).is_exact
    tx.run(SQL("UPDATE public.s SET total = -1.7e308"))
    assert verified(one).different == 1


def test_verify_tells_of_contributions_that_do_not_fit_together(tx):
    one = processed(tx, "bigint", 90, -90, 90)
    tx.run(SQL("DELETE FROM reliability.contribution WHERE txid = 2"))
    found = verified(one)
    assert found.different == 1
    [example] = found.examples
    total = 180 * percents("bigint")
    assert example.expected == dict(n=2, total=total, _total_count=2, _rows=2, _txid=3)
    assert {type(value) for value in example.expected.values()} == {int}
