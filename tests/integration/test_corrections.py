"""H1 to H7 and C7 on the real ledger, without Spark: what a person can correct, and how far."""

from __future__ import annotations

from decimal import Decimal

import pytest

from reliability import Count, OpaqueState, State, Sum, TransactionalState
from reliability.core.errors import (
    LedgerCorruption,
    ParkNotPossible,
    RefreezeNotPossible,
    ReplayNotPossible,
    RequestClosed,
    RollbackNotPossible,
    TargetTableTaken,
    TxidHeld,
    TxidSkipped,
    UnexpectedAnswer,
)
from reliability.core.progress import TxidProgress
from reliability.core.spout import SpoutKind
from reliability.transaction.correct.park import park, skip
from reliability.transaction.correct.rollback import release, roll_back
from reliability.transaction.maintain.sweep import sweep
from reliability.transaction.own_run import RunFailed
from reliability.transaction.replay import ReplayRequest, ReplayRun
from tests.replay.shop import Shop, committed, made
from tests.support.fix_shop import shop_with

origin, shop = shop_with(3)


def row(word="a", price="1", day=None, k=1):
    return {
        "k": k,
        "word": word,
        "price": Decimal(price) if isinstance(price, str) else price,
        "day": day,
    }


# --- H1, H2 --------------------------------------------------------------------------------------


def test_a_replay_moves_the_pointer_and_the_contribution_together(shop, connection):
    """H1: and when its commit is refused, neither."""
    before = shop.tables()
    pointers = (
        "SELECT t.committed_attempt, array_agg(DISTINCT c.attempt_id)"
        " FROM reliability.transaction t JOIN reliability.contribution c USING (topology, txid)"
        " WHERE txid = 2 GROUP BY 1"
    )
    with connection.transaction() as tx:
        tx.cursor.execute("ALTER TABLE public.newest ADD CONSTRAINT poor CHECK (price < 1000)")
    with pytest.raises(UnexpectedAnswer, match="poor"):
        shop.correct(2, [{**one, "price": Decimal(5000)} for one in made(2)])
    assert shop.tables() == before
    assert shop.ask(pointers) == [(0, [0])]
    shop.correct(2, made(22))
    assert shop.tables() != before
    assert shop.ask(pointers) == [(2, [2])]


def test_rows_that_are_gone_are_never_taken_for_zero(shop, connection):
    """H2: a header says how many rows a txid has; without them nothing is replaced."""
    before = shop.tables()
    with connection.transaction() as tx:
        tx.cursor.execute("DELETE FROM reliability_contribution.shop__exact WHERE _txid = 2")
    with pytest.raises(LedgerCorruption, match="shop__exact"):
        shop.replay(2)
    assert shop.tables() == before


# --- H3 ------------------------------------------------------------------------------------------


def test_a_float_sum_is_recomputed_and_never_subtracted(connection):
    """H3: 0.3 + 1e16 - 1e16 is 0."""
    state = State("sums", key={"k": "bigint"}, values={"total": Sum("price", "double precision")})
    shop = committed(connection, [row(price=0.3)], [row(price=1e16)], kinds=lambda _: [state])
    shop.correct(2, [row(price=0.0)])
    assert shop.ask("SELECT total FROM sums") == [(0.3,)]


def test_a_key_goes_with_its_last_row_and_a_sum_turns_null_again(connection):
    """H3: hidden counts tell a row that is gone from one that says nothing."""
    state = State("sums", key={"word": "text"}, values={"total": Sum("price", "numeric(14,2)")})
    shop = committed(connection, [row("a"), row("b")], [row("b", None)], kinds=lambda _: [state])
    shop.correct(1, [row("c"), row("b", None)])
    assert shop.ask("SELECT word, total FROM sums ORDER BY word") == [("b", None), ("c", 1)]


# --- H4 ------------------------------------------------------------------------------------------


def test_a_rollback_fences_what_is_processed_and_holds_the_txids(connection):
    """H4: else whoever drains next would commit them at once.

    Their requests are closed, a satisfied one too, or its run would be told that it is done.
    """
    shop = Shop(connection)
    shop.deliver(made(1), made(2), made(3))
    for txid in (1, 2):
        shop.transact(txid)
    shop.process(3)
    roll_back(connection, "shop", 1, "a wrong delivery")
    assert [shop.statuses(txid) for txid in (1, 2, 3)] == [
        ["COMMITTED"],
        ["ROLLED_BACK"],
        ["FENCED"],
    ]
    asked = "SELECT txid, status FROM reliability.request ORDER BY txid"
    assert shop.ask(asked) == [(1, "SATISFIED"), (2, "CLOSED"), (3, "CLOSED")]
    assert shop.runner.commit(2) == []
    shop.clear(2)
    with pytest.raises(TxidHeld):
        shop.transact(2)
    assert shop.ask("SELECT curr_txid FROM reliability.topology") == [(2,)]
    [run] = release(connection, "shop")
    assert run.txids == (2, 3)


# --- H5 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [OpaqueState, TransactionalState])
def test_all_states_are_rolled_back_or_none(connection, kind):
    """H5: else two tables of one txid would come from two runs of the code."""

    def kinds(_):
        value = {"n": Count()}
        return [State("kept", key={"k": "bigint"}, values=value), kind("other", values=value)]

    shop = committed(connection, kinds=kinds)
    before = shop.tables()
    with pytest.raises(RollbackNotPossible, match="state other"):
        roll_back(connection, "shop", 1, "back")
    shop.clear(1)
    with pytest.raises(ReplayNotPossible, match="state other"):
        shop.transact(1)
    assert shop.tables() == before


def test_a_replay_that_a_state_elsewhere_cannot_do_does_not_begin(connection, elsewhere):
    """H5: it was refused at its commit, and a refreeze froze a batch that nothing can read."""

    def kinds(elsewhere):
        value = {"n": Count()}
        return [State("kept", values=value), OpaqueState("other", values=value, database=elsewhere)]

    shop = committed(connection, made(1), made(2), kinds=kinds, elsewhere=elsewhere)
    roll_back(connection, "shop", 1, "back")
    shop.source.sizes[0] += 1
    with pytest.raises(RefreezeNotPossible, match="compacted its history through txid 1"):
        shop.runner.refreeze(1, "delivered anew")
    shop.clear(1)
    with pytest.raises(ReplayNotPossible, match="compacted its history through txid 1"):
        shop.transact(1)
    assert shop.ask("SELECT count(*) FROM reliability.attempt WHERE txid = 1") == [(1,)]
    release(connection, "shop")
    shop.do_again(2)
    assert all(one.is_nothing for one in shop.replay(2))


def test_in_two_databases_all_states_are_rolled_back_or_none(connection, elsewhere):
    """H5, C6: every database tries it before it is decided."""
    shop = committed(connection, elsewhere=elsewhere)
    before = shop.tables()
    with Shop.connection_to(elsewhere) as other, other.transaction() as tx:
        tx.cursor.execute("UPDATE reliability.state SET compacted_through = 2")
    with pytest.raises(RollbackNotPossible, match="state recomputed"):
        roll_back(connection, "shop", 1, "back")
    assert shop.tables() == before
    with Shop.connection_to(elsewhere) as other, other.transaction() as tx:
        tx.cursor.execute("UPDATE reliability.state SET compacted_through = 0")
    told = roll_back(connection, "shop", 1, "back", dry_run=True)
    assert shop.tables() == before
    done = roll_back(connection, "shop", 1, "back")
    assert {str(one) for one in done.differences} == {str(one) for one in told.differences}
    assert len(done.differences) == len(shop.topology.states)
    release(connection, "shop")
    shop.do_again(2, 3)
    assert shop.tables() == before


@pytest.fixture
def elsewhere(add_database):
    add_database("elsewhere")
    return "elsewhere"


# --- H6, H7 --------------------------------------------------------------------------------------


def test_a_table_belongs_to_one_state_of_one_topology(connection):
    """H7: two would both believe that what is in it is theirs to take out."""
    committed(connection, kinds=lambda _: [State("totals", values={"n": Count()})])
    other = Shop(
        connection,
        name="other",
        kinds=lambda _: [State("mine", values={"n": Count()}, table="totals")],
    )
    with pytest.raises(TargetTableTaken, match=r"belongs to state totals of shop"):
        other.deliver(made(1))


# --- C7 ------------------------------------------------------------------------------------------


def poisoned(connection):
    """Three txids, of which the first cannot be processed and the others are."""
    shop = Shop(connection)
    shop.deliver(made(1), made(2), made(3))
    shop.runner.contact(1, shop.who(1))  # its task came, and failed
    for txid in (2, 3):
        shop.process(txid)
    return shop


def test_a_parked_txid_lets_order_go_on_satisfies_nobody_and_comes_back_as_a_replay(connection):
    """C7: a retry must not take it in again; a replay makes all as if it had never been parked."""
    shop = poisoned(connection)
    request_id = shop.runner.contact(1, shop.who(1)).request_id
    done = park(connection, "shop", 1, "a broken file")
    assert [str(one.attempt) for one in done] == ["1:0", "2:0", "3:0"]
    asked = "SELECT status FROM reliability.request WHERE request_id = %(request_id)s"
    assert shop.ask(asked, request_id=request_id) == [("PARKED",)]
    with pytest.raises(RequestClosed, match="parked: a broken file"):
        shop.transact(1)
    with pytest.raises(RequestClosed, match="parked: a broken file"):
        shop.process(1, task="a task that comes for the first time")
    asked = "SELECT verdict, verdict_reason FROM reliability.attempt WHERE txid = 1"
    assert shop.ask(asked) == [("PARKED", "a broken file")]
    asked = "SELECT DISTINCT presence FROM reliability.contribution WHERE txid = 1"
    assert shop.ask(asked) == [("empty",)]
    shop.replay(1)
    right = Shop(connection, name="right", kinds=lambda _: renamed(shop))
    right.commit_first(3)
    assert list(shop.tables().values()) == list(right.tables().values())


def test_who_asks_for_a_parked_txid_before_its_turn_is_not_satisfied_by_it(connection):
    """C7."""
    shop = Shop(connection)
    shop.deliver(made(1), made(2))
    shop.runner.contact(2, shop.who(2))  # else its clear would not be told from a first start
    assert park(connection, "shop", 2, "not yet") == []
    shop.clear(2)
    request_id = shop.runner.contact(2, shop.who(2)).request_id
    shop.transact(1)
    assert shop.ask("SELECT curr_txid FROM reliability.topology") == [(3,)]
    asked = "SELECT status, reason FROM reliability.request WHERE request_id = %(request_id)s"
    assert shop.ask(asked, request_id=request_id) == [("PARKED", "parked: not yet")]


def renamed(shop):
    return [
        type(state)(state.name, key=state.key, values=state.values, table=f"right_{state.name}")
        for state in shop.topology.states
    ]


def test_a_skipped_txid_satisfies_who_asked_for_it(connection):
    """C7."""
    shop = poisoned(connection)
    request_id = shop.runner.contact(1, shop.who(1)).request_id
    skip(connection, "shop", 1, "nobody needs it")
    asked = "SELECT status FROM reliability.request WHERE request_id = %(request_id)s"
    assert shop.ask(asked, request_id=request_id) == [("SATISFIED",)]
    assert shop.transact(1) == []


@pytest.mark.parametrize("verb", [park, skip])
def test_a_restored_server_leaves_what_is_empty_to_its_turn(connection, verb):
    """C7, A1: fenced, it blocked, and was processed by the advised resume-runs."""
    shop = Shop(connection, elsewhere="")
    shop.deliver(made(1), made(2), made(3))
    verb(connection, "shop", 2, "a broken file")
    connection.run("record_timeline", timeline=0)
    sweep(connection, "shop")
    shop.transact(1)
    assert shop.ask("SELECT curr_txid FROM reliability.topology") == [(3,)]


def test_a_replay_by_hand_of_what_is_skipped_meanwhile_says_so(connection):
    """C8: it said that the ledger is corrupt."""
    shop = Shop(connection, elsewhere="")
    shop.deliver(made(1))
    park(connection, "shop", 1, "later")
    shop.runner.pause("a test")
    other = shop.another_process()

    class Progress(TxidProgress):
        def say(self, text, txid):
            if other.ask("SELECT count(*) FROM reliability.skip") == [(0,)]:
                skip(other.connection, "shop", 1, "for good")

    request = ReplayRequest(topology=shop.topology, txids=[1], by="ann", patience=20)
    with pytest.raises(RunFailed) as failed:
        ReplayRun(connection, request, lambda *_: None, Progress()).run()
    assert isinstance(failed.value.first, TxidSkipped)


def test_only_what_was_emitted_and_has_not_committed_can_be_parked(connection):
    """C7: what is processed of it is fenced."""
    shop = committed(connection, made(1))
    before = shop.tables()
    with pytest.raises(ParkNotPossible, match="has already committed"):
        park(connection, "shop", 1, "no")
    with pytest.raises(ParkNotPossible, match="never emitted"):
        park(connection, "shop", 2, "no")
    shop.deliver(made(2))
    shop.process(2)
    park(connection, "shop", 2, "wrong, though it can be processed")
    assert shop.statuses(2) == ["FENCED", "COMMITTED"]
    assert shop.tables() == before


def test_a_txid_is_parked_in_every_database(connection, elsewhere):
    """C7, C6."""
    shop = Shop(connection, elsewhere=elsewhere)
    shop.deliver(made(1), made(2))
    shop.runner.contact(1, shop.who(1))
    shop.process(2)
    done = park(connection, "shop", 1, "a broken file")
    assert [str(one.attempt) for one in done] == ["1:0", "2:0"]
    shop.replay(1)
    assert shop.ask("SELECT n, (SELECT count(*) FROM log) FROM all_of_it") == [(12, 12)]


def test_the_next_batch_of_an_opaque_spout_starts_behind_the_parked_one(connection):
    """C7, E4: it keeps the batch that was cut for it, which a replay reads."""
    shop = Shop(connection, spout_kind=SpoutKind.OPAQUE)
    shop.deliver(made(1), made(2))
    shop.process(1)
    shop.process(2)
    done = park(connection, "shop", 1, "a broken file")
    assert [str(one.attempt) for one in done] == ["1:1"]  # 2:0 fell with what it followed
    shop.transact(2)
    asked = "SELECT txid, batch_meta -> 0 ->> 'partition' FROM reliability.transaction"
    assert shop.ask(f"{asked} ORDER BY txid") == [(1, "0"), (2, "1")]
    shop.replay(1)
    assert shop.ask("SELECT n FROM all_of_it") == [(12,)]
