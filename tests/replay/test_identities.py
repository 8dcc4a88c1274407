"""Replay, correction and rollback are identities where they have to be, over all aggregators.

A reader looks all the while: every snapshot is the state after some change (G3).
"""

from __future__ import annotations

import itertools
import threading
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from reliability.core.errors import (
    NothingToReplay,
    ReplayNotPossible,
    RollbackNotPossible,
    TxidHeld,
)
from reliability.core.request import TaskTry
from reliability.states import attempt_table, kept_contributions
from reliability.transaction import run as run_module
from reliability.transaction.correct.rollback import release, roll_back
from reliability.transaction.emit.requests import Run, TaskContact
from reliability.transaction.topology.read_standing import read_standing
from tests.replay.reader import Reader
from tests.replay.shop import Shop, made, opaque_states, states


@pytest.fixture
def origin(shop_databases, template, request):
    return shop_databases(5, min_rows=1) if "shop" in request.fixturenames else template


@pytest.fixture
def shop(connection, monkeypatch):
    """Five txids, committed; those that append stage in a table of their own."""
    monkeypatch.setattr(attempt_table, "MIN_ROWS", 1)
    return Shop(connection).with_first(5)


@pytest.fixture(autouse=True, params=[1, kept_contributions.MANY_KEYS], ids=["many", "few"])
def many_keys(request, monkeypatch):
    """The keys that a change reaches are few here; many read the headers another way."""
    monkeypatch.setattr(kept_contributions, "MANY_KEYS", request.param)


#: For what changes no row by its headers.
FEW_KEYS = pytest.mark.parametrize("many_keys", [kept_contributions.MANY_KEYS], indirect=True)


def corrected(seed):
    return made(seed + 100)


def test_correcting_twice_is_correcting_once_and_correcting_back_is_an_identity(shop):
    """H3: each correction replaces the one before it, which stays in the table of contributions."""
    before, original = shop.tables(), shop.makes[2]
    there = {one.state: one for one in shop.correct(2, corrected(2))}
    assert not all(one.is_nothing for one in there.values())
    once = shop.tables()
    assert once != before
    assert [str(one) for one in shop.correct(2, corrected(2))] == [
        "all_of_it: unchanged",
        "exact: unchanged",
        "log: unchanged",
        "newest: unchanged",
        "recomputed: unchanged",
        "viewed: unchanged",
    ]
    assert shop.tables() == once
    back = {one.state: one for one in shop.correct(2, original)}
    assert shop.tables() == before
    for state, one in there.items():
        assert back[state].rows_added == one.rows_removed
        assert back[state].rows_removed == one.rows_added
        assert back[state].rows_changed == one.rows_changed
        assert dict(back[state].moved) == {name: -by for name, by in one.moved.items()}


@pytest.mark.parametrize(
    "to_txid", [pytest.param(0, marks=pytest.mark.slow), 2, pytest.param(4, marks=pytest.mark.slow)]
)
def test_rolling_back_and_processing_again_is_the_original(shop, to_txid):
    """H4: what is held would otherwise commit at once with the next run.

    And a row's txid goes back, too, or the row would block the new commit of an earlier one.
    """
    before, later = shop.tables(), to_txid + 1
    told = roll_back(shop.connection, "shop", to_txid, "maybe", dry_run=True)
    assert (shop.tables(), told.commit_number) == (before, None)
    done = roll_back(shop.connection, "shop", to_txid, "a wrong delivery")
    assert done.differences == told.differences
    assert done.held == range(later, 6)
    assert not any(one.is_nothing for one in done.differences)
    held = "SELECT txid FROM reliability.transaction WHERE held_reason IS NOT NULL ORDER BY txid"
    assert [txid for (txid,) in shop.ask(held)] == list(range(later, 6))
    for again in (to_txid, later):
        why = r"already|committed txids are|none of its txids"
        with pytest.raises(RollbackNotPossible, match=why):
            roll_back(shop.connection, "shop", again, "back")
    shop.clear(later)
    with pytest.raises(TxidHeld, match=f"txid {later}: it is held: a wrong delivery"):
        shop.transact(later)
    [fresh] = shop.deliver(made(6))
    with shop.connection.transaction() as tx:
        blocked = read_standing(tx, "shop").snapshot(fresh).blocked
    assert blocked is not None
    assert "held: a wrong delivery" in blocked.describe()
    [run] = release(shop.connection, "shop")
    assert (run.run_id, run.txids) == ("run 1", tuple(range(later, 6)))
    shop.do_again(*run.txids)
    assert shop.tables() == before


@FEW_KEYS
def test_a_rollback_gives_the_tables_of_that_txid(connection):
    shop = Shop(connection)
    tables = [shop_tables_after(shop, n) for n in range(1, 5)]
    for txid in (3, 2, 1):
        roll_back(connection, "shop", txid, "back")
        assert shop.tables() == tables[txid - 1]


def shop_tables_after(shop, n):
    for txid in shop.deliver(made(n)):
        shop.transact(txid)
    return shop.tables()


@FEW_KEYS
def test_a_dry_run_tells_what_a_replay_does_and_one_that_died_is_in_nobodys_way(shop):
    """R2: neither changes anything, and nobody commits it."""
    before, original = shop.tables(), shop.makes[2]
    shop.makes[2] = corrected(2)
    told = shop.dry_run(2)
    assert not all(one.is_nothing for one in told)
    assert shop.tables() == before
    assert shop.statuses(2) == ["COMMITTED", "DRY_RUN"]
    run = shop.run_of(2)
    assert shop.runner.settle(run, shop.txids_of(run)) == [t for t in shop.txids_of(run) if t != 2]
    shop.clear(2)
    died = patch.object(run_module, "dry_run_replay", side_effect=KeyboardInterrupt)
    with died, pytest.raises(KeyboardInterrupt):
        shop.transact(2, run, is_dry_run=True)
    assert shop.statuses(2) == ["COMMITTED", "DRY_RUN", "PROCESSED"]
    assert shop.runner.commit(2) == []
    assert shop.replay(2) == told
    assert shop.statuses(2) == ["REPLACED", "DRY_RUN", "FENCED", "COMMITTED"]
    assert shop.runner.settle(run, []) == shop.txids_of(run)
    shop.makes[2] = original
    shop.replay(2)
    assert shop.tables() == before


@FEW_KEYS
def test_a_dry_run_needs_what_has_committed(connection):
    shop = Shop(connection)
    shop.deliver(made(1))
    run = Run(dag_id="shop", run_id="another")
    who = TaskContact(run=run, task="emit", this_try=TaskTry(max_tries=0), is_dry_run=True)
    with pytest.raises(NothingToReplay):
        shop.runner.emit(None, who, max_batches=9)


@FEW_KEYS
def test_an_opaque_state_goes_back_one_txid_and_no_further(connection):
    """H5: a row remembers one step, and a second one would be wrong without a word."""
    shop = Shop(connection, kinds=opaque_states)
    tables = [shop_tables_after(shop, n) for n in range(1, 4)]
    with pytest.raises(RollbackNotPossible, match="can go back to txid 2 only"):
        roll_back(connection, "shop", 1, "back")
    roll_back(connection, "shop", 2, "back")
    assert shop.tables() == tables[1]
    with pytest.raises(RollbackNotPossible, match="compacted its history through txid 2"):
        roll_back(connection, "shop", 1, "back")
    with pytest.raises(ReplayNotPossible):
        shop.replay(2)
    release(connection, "shop")
    shop.clear(3)
    shop.transact(3)
    assert shop.tables() == tables[2]


# --- random orders, with fresh commits and a reader beside them -----------------------------------

_numbers = itertools.count(1)
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["replay", "correct", "restore", "dry run", "roll back"]),
        st.integers(1, 4),
        st.integers(0, 2),
    ),
    min_size=2,
    max_size=4,
)


@pytest.mark.slow
@settings(
    max_examples=4,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(OPERATIONS, st.sampled_from([1, attempt_table.MIN_ROWS]))
def test_whatever_was_corrected_the_tables_are_those_of_the_code_that_ran_last(
    connection, operations, min_rows
):
    with patch.object(attempt_table, "MIN_ROWS", min_rows):
        correct_in_any_order(connection, operations)


def correct_in_any_order(connection, operations):
    name = f"shop_{next(_numbers)}"
    shop = Shop(connection, name=name, kinds=lambda _: _named(name))
    for txid in shop.deliver(*(made(n) for n in range(1, 5))):
        shop.transact(txid)
    # A rollback takes fresh txids along, so that nobody commits any beside one.
    fresh = [] if any(what == "roll back" for what, *_ in operations) else [5, 6, 7]
    with watched(shop), committing(shop, fresh):
        for what, txid, seed in operations:
            perform(shop, what, txid, seed)
    assert shop.tables() == right_tables(shop, f"{name}_r")


@contextmanager
def committing(shop, numbers):
    """Another process emits and commits fresh batches meanwhile."""
    other = shop.another_process()
    errors = []

    def fresh():
        try:
            for n in numbers:
                for txid in other.deliver(made(n)):
                    other.transact(txid)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=fresh)
    thread.start()
    yield
    thread.join()
    assert not errors


def perform(shop, what, txid, seed):
    match what:
        case "replay":
            assert all(one.is_nothing for one in shop.replay(txid))
        case "correct":
            shop.correct(txid, made(txid + 50 * seed))
        case "restore":
            shop.correct(txid, made(txid))
        case "dry run":
            told = shop.dry_run(txid)
            assert told == [] or {one.state for one in told} == set(shop.tables())
        case "roll back":
            roll_back(shop.connection, shop.name, txid - 1, "back")
            for run in release(shop.connection, shop.name):
                shop.do_again(*run.txids)


def right_tables(shop, name):
    """Return the tables of a topology of that name whose code was always as it is now."""
    right = Shop(shop.connection, name=name, kinds=lambda _: _named(name))
    for txid in right.deliver(*(shop.makes[n] for n in sorted(shop.makes))):
        right.transact(txid)
    return right.tables()


def _named(name):
    return [
        type(state)(state.name, key=state.key, values=state.values, table=f"{name}_{state.name}")
        for state in states()
    ]


def watched(shop):
    """As many rows are in each table, and as much money in two of them."""
    tables = {s.name: ".".join(s.target) for s in shop.topology.states}
    count = "(SELECT coalesce(sum(n), 0)::int FROM {})".format
    return Reader(
        shop.connection.dsn,
        f"SELECT {count(tables['exact'])}, {count(tables['recomputed'])},"
        f" {count(tables['all_of_it'])}, (SELECT count(*)::int FROM {tables['log']}),"
        f" (SELECT coalesce(sum(_rows), 0)::int FROM {tables['newest']}),"
        f" CASE WHEN (SELECT sum(total) FROM {tables['exact']}) IS NOT DISTINCT FROM"
        f" (SELECT sum(price) FROM {tables['log']}) THEN {count(tables['exact'])} END",
    )


@FEW_KEYS
def test_fresh_commits_and_replays_go_on_beside_each_other(connection):
    """G3, and both lanes: what is emitted meanwhile commits in order, replays swap in between."""
    shop = Shop(connection)
    for txid in shop.deliver(*(made(n) for n in range(1, 4))):
        shop.transact(txid)
    with watched(shop) as reader, committing(shop, range(4, 10)):
        for n in range(8):
            shop.correct(1 + n % 3, made(20 + n))
    assert len(reader.seen) > 2
    assert shop.tables() == right_tables(shop, "right")
