"""H8, H9 on the real ledger: what becomes of rows that somebody has changed by hand."""

from __future__ import annotations

import re

import pytest
from psycopg2.sql import SQL

from reliability import Append, Count, Max, State, Sum, TransactionalState
from reliability.core.errors import RepairNotPossible, StateDefinitionChanged, UnexpectedAnswer
from reliability.states import attempt_table, kept_contributions
from reliability.states.kinds.append import StoredRows
from reliability.transaction.correct.repair import repair
from reliability.transaction.correct.rollback import release, roll_back
from reliability.transaction.inspect.verify import verify
from reliability.transaction.replay import ReplayRequest, ReplayRun
from tests.replay.shop import Shop, committed, made
from tests.support.fix_postgres import execute, statements_of
from tests.support.fix_shop import shop_with

WRONG = (
    "UPDATE public.recomputed SET n = n + 5 WHERE word = 'a';"
    "DELETE FROM public.recomputed WHERE word = 'b';"
    "INSERT INTO public.recomputed (word, n, _rows, _txid) VALUES ('z', 9, 9, 1)"
)

origin, shop = shop_with(3)


def of(differences, state):
    return next(one for one in differences if one.state == state)


def is_exact(connection):
    return [one.is_exact for one in verify(connection, "shop")]


# --- tables that somebody has altered ------------------------------------------------------------


REPLAYED = [  # a replay brings back what nothing else has; the more txids, the more there are
    "ALTER TABLE public.log DROP COLUMN price",
    "ALTER TABLE reliability_contribution.shop__exact DROP COLUMN n",
]
ALTERED = [
    *REPLAYED,
    "DROP TABLE public.exact",
    "ALTER TABLE public.exact DROP COLUMN n",
    "ALTER TABLE public.recomputed DROP COLUMN lowest",
    "ALTER TABLE public.recomputed DROP COLUMN _txid",
    'ALTER TABLE public.exact ALTER COLUMN word TYPE text COLLATE "C"',
    "ALTER TABLE public.recomputed ADD UNIQUE NULLS NOT DISTINCT (word) DEFERRABLE",
]


def test_what_an_error_says_of_an_altered_table_brings_every_row_back(shop, connection):
    """H8, H10: a replay left sums as they were, and doubled what its contribution lacked."""
    for txid, done in enumerate(ALTERED, start=4):
        before = shop.tables()
        execute(connection, done)
        with pytest.raises(StateDefinitionChanged) as refused:
            shop.deliver(made(txid))
        remedy = refused.value.what_to_do
        execute(connection, statements_of(refused.value))
        assert ("replay the txids" in remedy) is (done in REPLAYED), done
        if done in REPLAYED:
            told = [of(shop.replay(n), "log").by_hand for n in range(1, txid)]
            are_told = [done == REPLAYED[0]] * (txid - 1)  # the other lacks a contribution only
            assert [by_hand is not None for by_hand in told] == are_told
        if "`reliability verify shop --repair --yes --reason '…'`" in remedy:
            repair(connection, "shop", "x")
        assert shop.tables() == before, done
        assert shop.deliver() == [txid]
        shop.transact(txid)
        assert is_exact(connection) == [True] * 6, done


def test_a_look_at_an_altered_table_says_who_says_how_to_mend_it(shop, connection):
    """It said to run `reliability migrate`, or to change a constraint or the process function."""
    for done, undone in (
        ("TABLE public.exact RENAME TO gone", "TABLE public.gone RENAME TO exact"),
        ("TABLE public.exact RENAME n TO gone", "TABLE public.exact RENAME gone TO n"),
        (
            "TABLE reliability_contribution.shop__exact RENAME TO gone",
            "TABLE reliability_contribution.gone RENAME TO shop__exact",
        ),
        (
            "SCHEMA reliability_contribution RENAME TO gone",
            "SCHEMA gone RENAME TO reliability_contribution",
        ),
    ):
        execute(connection, f"ALTER {done}")
        with pytest.raises(UnexpectedAnswer, match="`reliability declare TOPOLOGY`"):
            verify(connection, "shop")
        execute(connection, f"ALTER {undone}")
    execute(connection, "DELETE FROM public.exact WHERE word <> 'a'")
    shop.source.sizes.append(len(made(4)))
    for type_ in ("char(9)", "bigint USING length(word)"):
        execute(connection, f"ALTER TABLE public.exact ALTER word TYPE {type_}")
        with pytest.raises(UnexpectedAnswer, match="`reliability declare TOPOLOGY`"):
            verify(connection, "shop")
        with pytest.raises(StateDefinitionChanged, match="column word is") as refused:
            shop.deliver()
        assert "COLLATE" not in refused.value.what_to_do


def test_a_table_that_cannot_take_what_is_right_is_not_repaired(shop, connection):
    """H9: it was repaired again and again, and the same rows differed."""
    execute(connection, "ALTER TABLE public.recomputed ALTER lowest TYPE numeric(14,0)")
    with pytest.raises(StateDefinitionChanged, match=r"lowest is numeric\(14,0\) instead of"):
        repair(connection, "shop", "x")


def test_a_replay_writes_into_no_table_that_rounds_its_values(shop, connection):
    """H8: only an emission had looked, and verify called what was rounded exact."""
    execute(connection, "ALTER TABLE public.log ALTER price TYPE numeric(14,1)")
    request = ReplayRequest(topology=shop.topology, txids=[1], by="a test", reason="x")
    with pytest.raises(StateDefinitionChanged, match=r"price is numeric\(14,1\) instead of"):
        ReplayRun(connection, request, lambda *_: None).run()


# --- H8: what a rollback and a replay meet -------------------------------------------------------


def test_a_rollback_says_what_it_overwrites_and_counts_its_own_effect_only(shop, connection):
    """H4, H8: it mended the row silently, and counted that as its own difference."""
    expected = of(roll_back(connection, "shop", 1, "x", dry_run=True).differences, "recomputed")
    assert expected.by_hand is None
    execute(connection, WRONG)
    would = of(roll_back(connection, "shop", 1, "x", dry_run=True).differences, "recomputed")
    done = of(roll_back(connection, "shop", 1, "x").differences, "recomputed")
    assert done == would
    assert str(done) == str(expected)
    found = done.by_hand
    assert (found.missing, found.surplus, found.different) == (1, 0, 1)
    assert any(one.startswith("word=a: expected n ") for one in found.examples)
    assert any(one.endswith("found no row") for one in found.examples)
    asked = "SELECT by_hand ->> 'missing' FROM reliability.difference WHERE state = 'recomputed'"
    assert shop.ask(asked) == [("1",)]
    left = connection.all("differences_of_txid", topology="shop", txid=None, commit_numbers=[4])
    assert [row["state"] for row in left if row["by_hand"]] == ["recomputed"]
    # nobody touched the row that is no txid's: it is still there, and verify finds it
    assert shop.ask("SELECT n FROM recomputed WHERE word = 'z'") == [(9,)]


def test_a_replay_that_recomputes_rows_says_what_it_overwrites(shop, connection):
    """H8: as a rollback does."""
    other = made(22)
    execute(connection, "UPDATE public.recomputed SET n = n + 5 WHERE word = 'a'")
    done = of(shop.correct(2, other), "recomputed")
    assert (done.by_hand.missing, done.by_hand.different) == (0, 1)
    assert "n" in done.moved or done.rows_changed
    assert is_exact(connection) == [True] * 6


def test_a_replay_that_adds_the_difference_carries_a_change_by_hand_along(shop, connection):
    """H8: it neither mends the row nor counts what somebody else did."""
    right = of(shop.correct(2, made(22)), "all_of_it")
    shop.correct(2, made(2))
    execute(connection, "UPDATE public.all_of_it SET total = total + 1000")
    done = of(shop.correct(2, made(22)), "all_of_it")
    assert (str(done), done.by_hand) == (str(right), None)
    assert is_exact(connection).count(False) == 1


def test_a_rollback_that_subtracts_carries_a_change_by_hand_along(shop, connection):
    """H4, H8: it takes out what later txids added, and nothing else, as a replay does."""
    right = of(roll_back(connection, "shop", 1, "x", dry_run=True).differences, "all_of_it")
    [(n, txid)] = shop.ask("SELECT n, _txid FROM all_of_it")
    execute(connection, "UPDATE public.all_of_it SET total = total + 1000")
    done = of(roll_back(connection, "shop", 1, "x").differences, "all_of_it")
    assert (str(done), done.by_hand) == (str(right), None)
    assert is_exact(connection).count(False) == 1
    repair(connection, "shop", "x")
    assert is_exact(connection) == [True] * 6
    [(left, last)] = shop.ask("SELECT n, _txid FROM all_of_it")
    assert (txid, last) == (3, 1)
    assert 0 < left < n


def test_a_row_that_somebody_has_deleted_comes_back_by_a_repair(shop, connection):
    """H8, H9: what is added later is a row of its own, until more is taken out than it has.

    The rollback was refused because of a trigger, which nobody had made.
    """
    execute(connection, "DELETE FROM public.all_of_it; DELETE FROM public.exact WHERE k = 1")
    shop.commit(made(4))
    assert shop.ask("SELECT n FROM all_of_it") == [(6,)]
    would = roll_back(connection, "shop", 2, "x", dry_run=True)
    done = roll_back(connection, "shop", 2, "x")
    assert done.differences == would.differences
    assert shop.ask("SELECT n FROM all_of_it") == []
    repair(connection, "shop", "x")
    assert shop.ask("SELECT n FROM all_of_it") == [(12,)]
    assert is_exact(connection) == [True] * 6
    execute(connection, "DELETE FROM public.all_of_it")
    done = roll_back(connection, "shop", 0, "x")
    assert str(of(done.differences, "all_of_it")) == "all_of_it: unchanged"
    assert shop.ask("SELECT n FROM all_of_it") == []
    assert is_exact(connection) == [True] * 6


def test_a_row_that_a_replay_adds_is_there_already(shop, connection):
    """H8: with another new key beside it, the replay was refused because of a trigger."""
    row = "INSERT INTO public.recomputed (word, n, _rows, _txid) VALUES ('z', 9, 9, 1)"
    execute(connection, row)
    other = [{**row, "word": word} for row, word in zip(made(2), "yzyzyz", strict=True)]
    assert of(shop.correct(2, other), "recomputed").by_hand.surplus == 1
    assert is_exact(connection) == [True] * 6


def test_what_a_rollback_subtracts_may_exceed_the_type_of_the_sum(connection):
    """H4: the later contributions of a key add up to more than a bigint."""
    totals = State("totals", values={"total": Sum("price", "bigint")})
    shop = Shop(connection, kinds=lambda _: [totals])
    for price in (-9, 9, 9):
        shop.commit([{"price": price * 10**18}])
    assert shop.ask("SELECT total, _txid FROM totals") == [(9 * 10**18, 3)]
    roll_back(connection, "shop", 1, "x")
    assert shop.ask("SELECT total, _txid FROM totals") == [(-9 * 10**18, 1)]
    assert is_exact(connection) == [True]


def test_a_rollback_finds_the_last_txid_of_a_key_however_old_it_is(connection, monkeypatch):
    """H4: with many keys, it looks for the txids from the newest back."""
    values = {"n": Count(), "total": Sum("price", "bigint")}
    totals = State("totals", key={"k": "bigint", "word": "text"}, values=values)
    shop = Shop(connection, kinds=lambda _: [totals])
    keys = [(1, "a"), (2, None), (None, "b"), (4, "c"), (5, None), (6, "d")]
    came = {1: {*keys}, 2: {keys[1]}, 3: {keys[0]}, 5: {keys[2]}, 8: {keys[3]}, 9: {keys[4]}}
    for txid in range(1, 11):
        found = keys if txid == 10 else came.get(txid, {keys[5]})
        shop.commit([{"k": k, "word": word, "price": txid} for k, word in found])
    last = [max(txid for txid in came if key in came[txid]) for key in keys[:5]]
    for many in (1, 1_000):
        monkeypatch.setattr(kept_contributions, "MANY_KEYS", many)
        roll_back(connection, "shop", 9, "x")
        asked = "SELECT _txid FROM totals ORDER BY coalesce(k, 3)"
        assert shop.ask(asked) == [*((txid,) for txid in last), (7,)]
        assert is_exact(connection) == [True]
        release(connection, "shop")
        shop.do_again(10)


def test_a_rollback_with_more_headers_than_are_read_at_once_folds_all_that_is_left(
    connection, monkeypatch
):
    """H4: it folded every key by the first headers alone, where it touched most keys."""
    monkeypatch.setattr(kept_contributions, "MANY_KEYS", 1)
    monkeypatch.setattr(kept_contributions, "MOST_HEADERS", 2)
    most = State("most", key={"k": "bigint"}, values={"n": Count(), "most": Max("price", "bigint")})
    shop = Shop(connection, kinds=lambda _: [most])
    for price in range(1, 7):
        shop.commit([{"k": 1, "price": price}, {"k": 2, "price": -price}])
    roll_back(connection, "shop", 5, "x")
    assert shop.ask("SELECT k, n, most, _txid FROM most ORDER BY k") == [
        (1, 5, 5, 5),
        (2, 5, -1, 5),
    ]


@pytest.mark.parametrize("many", [1, 1_000])
def test_floats_that_cancel_out_are_not_changed_by_hand(connection, monkeypatch, many):
    """H8: the digits of what is left say nothing of those that had been."""
    monkeypatch.setattr(kept_contributions, "MANY_KEYS", many)
    totals = State("totals", values={"total": Sum("price", "double precision")})
    shop = Shop(connection, kinds=lambda _: [totals])
    for price in (2e16, -1e16, 0.3, 0.4):
        shop.commit([{"price": price}])
    shop.correct(1, [{"price": 1e16}])  # it is added last now
    assert shop.ask("SELECT total FROM totals") == [(0,)]
    assert of(roll_back(connection, "shop", 3, "x").differences, "totals").by_hand is None


def appended(connection, *, as_view=False, **options):
    """Three txids of a state of appended rows, in order of `price`."""
    values = {"word": Append("word", "text"), "price": Append("price", "numeric")}
    log = State("log", key={"k": "bigint"}, values=values, as_view=as_view)
    return committed(connection, kinds=lambda _: [log], **options)


@pytest.mark.parametrize("min_rows", [2, 100])
@pytest.mark.parametrize("as_view", [True, False])
def test_a_replay_of_appended_rows_names_what_was_changed_by_hand(
    connection, monkeypatch, as_view, min_rows
):
    """H8: it said "unchanged" and put the old values back, without a word.

    H10: what nobody can have changed is not compared, as each row has the number of the
    transaction that wrote it for its attempt. After a `pg_restore --single-transaction`, all have
    the number of one.
    """
    monkeypatch.setattr(attempt_table, "MIN_ROWS", min_rows)
    compared, take = [], StoredRows._take_for_by_hand

    def take_noted(*arguments):
        compared.append(1)
        return take(*arguments)

    monkeypatch.setattr(StoredRows, "_take_for_by_hand", take_noted)
    shop = appended(connection, as_view=as_view)
    before = shop.tables()
    shop.replay(2)
    shop.replay(2)
    shop.dry_run(3)
    assert compared == []
    table = "reliability_contribution.shop__log" if as_view else "public.log"
    execute(connection, f"UPDATE {table} SET word = word WHERE _txid = 2")
    shop.replay(2)
    assert compared == [1]

    wrongly = f"UPDATE {table} SET word = 'zz' WHERE _txid = 2 AND word IN ('a', 'b')"
    execute(connection, wrongly)
    wrong = shop.tables()
    changed = len([row for row in wrong["log"] if "zz" in row])
    assert changed > 0
    [would] = shop.dry_run(2)
    assert (would.is_nothing, shop.tables()) == (True, wrong)
    [done] = shop.replay(2)
    assert done == would
    assert (done.by_hand.different, len(done.by_hand.examples)) == (changed, changed)
    for example in done.by_hand.examples:
        assert re.search(r"k=.*: expected word [ab], price .*; found word zz, price ", example)
    assert shop.tables() == before
    [again] = shop.replay(2)
    assert (again.is_nothing, again.by_hand) == (True, None)

    with connection.transaction() as tx:
        tx.run(SQL(wrongly))
        tx.run(SQL(f"UPDATE {table} SET word = word"))
        for one in ("migration SET number = number", "contribution SET rows = rows"):
            tx.run(SQL(f"UPDATE reliability.{one}"))
        tx.run(SQL("UPDATE reliability.ack SET rows = rows"))
    [done] = shop.replay(2)
    assert done.by_hand.different > 0


def test_rows_that_a_trigger_may_have_changed_are_compared(connection):
    """H8: the rows of a commit need not be those that it wrote."""
    shop = appended(connection)
    execute(
        connection,
        "CREATE FUNCTION public.shout() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.word := upper(NEW.word); RETURN NEW; END $$;"
        "CREATE TRIGGER shout BEFORE INSERT ON public.log FOR EACH ROW"
        " EXECUTE FUNCTION public.shout()",
    )
    [done] = shop.replay(2)
    assert done.by_hand.different == 6
    assert shop.ask("SELECT count(*) FROM log WHERE word = upper(word)") == [(6,)]


# --- H9: repair ----------------------------------------------------------------------------------


def test_a_repair_brings_changed_missing_and_surplus_rows_back(shop, connection):
    """H9: as one change with a commit number, a reason and its differences."""
    before = shop.tables()
    done = repair(connection, "shop", "why not")  # there is nothing to do
    assert (done.commit_number, done.differences) == (None, ())
    execute(connection, WRONG + "; UPDATE public.exact SET total = 1 WHERE k = 1")
    wrong = shop.tables()
    would = repair(connection, "shop", "an UPDATE by hand", dry_run=True)
    assert (would.commit_number, shop.tables()) == (None, wrong)
    done = repair(connection, "shop", "an UPDATE by hand")
    assert done.differences == would.differences
    assert shop.tables() == before
    assert is_exact(connection) == [True] * 6
    found = of(done.differences, "recomputed")
    assert (found.rows_added, found.rows_changed, found.rows_removed) == (1, 1, 1)
    log = "SELECT commit_number, txid, reason FROM reliability.commit_log WHERE kind = 'REPAIR'"
    assert shop.ask(log) == [(4, 3, "an UPDATE by hand")]
    assert done.commit_number == 4
    shop.correct(2, made(22))
    roll_back(connection, "shop", 1, "the topology goes on")
    assert is_exact(connection) == [True] * 6


def test_contributions_that_are_wrong_themselves_repair_nothing(shop, connection):
    """H9, H2: the table may be what is right."""
    execute(
        connection,
        "DELETE FROM reliability_contribution.shop__recomputed WHERE _txid = 2 AND word = 'a'",
    )
    before = shop.tables()
    with pytest.raises(RepairNotPossible, match="attempt 2:0 is recorded with"):
        repair(connection, "shop", "no")
    assert shop.tables() == before


def test_a_state_that_keeps_nothing_cannot_be_repaired(connection):
    """H9: there is nothing to compare it with."""
    log = State("log", values={"k": Append("k", "bigint")})
    kinds = [TransactionalState("t", values={"n": Count()}), log]
    committed(connection, kinds=lambda _: kinds)
    with pytest.raises(RepairNotPossible, match="keeps contributions"):
        repair(connection, "shop", "no")


def test_two_databases_are_repaired_as_one_change(connection, add_database):
    """H9, C6."""
    add_database("elsewhere")
    shop = committed(connection, elsewhere="elsewhere")
    before = shop.tables()
    with Shop.connection_to("elsewhere") as other:
        execute(other, WRONG)
    execute(connection, "UPDATE public.exact SET total = 1 WHERE k = 1")
    done = repair(connection, "shop", "by hand")
    assert {one.state for one in done.differences} == {"exact", "recomputed"}
    assert shop.tables() == before
    with Shop.connection_to("elsewhere") as other, other.transaction() as tx:
        assert tx.one("topology_position", topology="shop")["curr_txid"] == 4
        assert tx.one("locked_topology", topology="shop")["checkpoint_number"] == 4
