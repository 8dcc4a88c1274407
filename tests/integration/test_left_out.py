"""C8, C9 on the real ledger, without Spark: skipped txids and excluded items stay out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from reliability import Count, History, OpaqueState, State, TransactionalState
from reliability.core.errors import (
    AlterNotPossible,
    ExclusionNotPossible,
    LedgerBusy,
    NothingToEmit,
    ParkNotPossible,
    RightMissing,
    StateDefinitionChanged,
    TxidHeld,
    TxidNotSkipped,
    TxidSkipped,
    UnskipNotPossible,
)
from reliability.core.spout import SpoutKind
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.correct.exclude import exclude, find_item, include
from reliability.transaction.correct.park import park, skip, skip_again, unskip
from reliability.transaction.correct.replayable import Replayable
from reliability.transaction.correct.resume_runs import undone_runs
from reliability.transaction.correct.rollback import release, roll_back
from reliability.transaction.emit.requests import close
from reliability.transaction.maintain.compaction import compact
from reliability.transaction.topology import alter as altering
from reliability.transaction.topology.alter import alter
from reliability.transaction.topology.lifecycle import declare, fence_all
from tests.replay.shop import Shop, committed, made, opaque_states, states
from tests.support.command_line import say
from tests.support.fix_postgres import execute

SECOND = "memory:1:0"
ATTEMPTS = "SELECT count(*) FROM reliability.attempt WHERE txid = %(txid)s"
WHY = "a test file"


def three(connection, **parameters):
    """Three txids; the first has committed, the second was skipped, the third has committed."""
    shop = Shop(connection, **parameters)
    shop.deliver(made(1), made(2), made(3))
    shop.transact(1)
    shop.runner.contact(2, shop.who(2))  # its task came, and failed
    skip(connection, "shop", 2, WHY, "ann@etl")
    shop.transact(3)
    return shop


def without(connection, *left_out, **parameters):
    """Return the tables of a shop that never had these txids' rows."""
    other = Shop(connection, name="right", kinds=lambda _: renamed(parameters))
    other.deliver(*(made(n) for n in (1, 2, 3)))
    for txid in (1, 2, 3):
        if txid in left_out:
            park(connection, "right", txid, "never")
        else:
            other.transact(txid)
    return list(other.tables().values())


def renamed(parameters):
    kinds = parameters.get("kinds", states)
    return [
        type(state)(state.name, key=state.key, values=state.values, table=f"right_{state.name}")
        for state in kinds("")
    ]


def latest(shop, txid):
    return shop.ask(
        "SELECT kind, status FROM reliability.request WHERE txid = %(txid)s"
        " ORDER BY request_id DESC LIMIT 1",
        txid=txid,
    )


class Listening:
    """Records what a task logs."""

    def __init__(self, shop, monkeypatch):
        self.said: list[str] = []
        monkeypatch.setattr(
            "tests.replay.shop._Executor.report", lambda _, what, level=0: self.said.append(what)
        )


# --- C8: skip ------------------------------------------------------------------------------------


def test_a_clear_of_a_skipped_txid_is_green_and_changes_nothing(connection, monkeypatch):
    """C8: it brought the txid back, without a word; nor does a backfill or a dry run take it in.

    Once it is unskipped, it is processed when it is asked for, and only then.
    """
    shop = three(connection)
    before, attempts = shop.tables(), shop.ask(ATTEMPTS, txid=2)
    listening = Listening(shop, monkeypatch)
    shop.source.gone.add(1)
    assert shop.replay(2) == []
    assert latest(shop, 2) == [("REPLAY", "SATISFIED")]
    assert shop.runner.settle(shop.run_of(2), [2]) == [1, 2, 3]
    [said] = listening.said
    assert said.startswith("txid 2 was skipped on 2")
    assert said.endswith(
        "by ann@etl, because: a test file. `reliability unskip shop 2 --reason '…'` takes it back"
    )
    shop.source.gone.clear()
    assert shop.dry_run(2) == []
    shop.runner.emit(None, shop.who(2), max_batches=9, refreeze=True)
    assert (shop.tables(), shop.ask(ATTEMPTS, txid=2)) == (before, attempts)
    with pytest.raises(TxidSkipped, match="unskip shop 2"):
        shop.runner.refreeze(2, "why not")

    done = unskip(connection, "shop", 2, "it was no test file", "bob@etl")
    assert (done.has_committed, done.run.run_id, done.run.txids) == (True, "run 1", (2,))
    assert shop.tables() == before
    shop.replay(2)
    assert list(shop.tables().values()) == without(connection)
    asked = "SELECT skipped_by, reason, ended_by, ended_reason FROM reliability.skip"
    assert shop.ask(asked) == [("ann@etl", WHY, "bob@etl", "it was no test file")]
    with pytest.raises(TxidNotSkipped):
        unskip(connection, "shop", 2, "again")


def test_an_interval_whose_txids_are_skipped_needs_no_source(connection):
    """C8: its files were deleted, and its run was red for ever."""
    shop = Shop(connection)
    shop.deliver(made(1))
    shop.source.gone.add(0)
    with pytest.raises(NothingToEmit):
        shop.runner.emit(None, shop.who(1), max_batches=9)
    skip(connection, "shop", 1, WHY)
    assert shop.runner.emit(None, shop.who(1), max_batches=9) == [1]


@pytest.mark.parametrize("kind", SpoutKind)
def test_a_skipped_txid_commits_as_empty_again_after_a_rollback(connection, kind):
    """C8: skip is for good, and a rollback is no unskip."""
    shop = three(connection, spout_kind=kind)
    before = shop.tables()
    roll_back(connection, "shop", 0, "once more")
    shop.clear(1, 2, 3)
    with pytest.raises(TxidHeld):
        shop.transact(2)
    release(connection, "shop")
    shop.clear(1, 2, 3)
    for txid in (1, 2, 3):
        shop.transact(txid)
    assert shop.tables() == before
    verdicts = "SELECT status, verdict FROM reliability.attempt WHERE txid = 2 ORDER BY attempt_id"
    assert shop.ask(verdicts) == [("ROLLED_BACK", "SKIPPED"), ("COMMITTED", "SKIPPED")]


def test_an_unskip_before_its_turn_ends_the_empty_attempt(connection):
    """C8: else it would commit as empty after all."""
    shop = Shop(connection)
    shop.deliver(made(1), made(2), made(3))
    skip(connection, "shop", 2, WHY)
    assert not unskip(connection, "shop", 2, "needed").has_committed
    for txid in (1, 2, 3):
        shop.transact(txid)
    assert list(shop.tables().values()) == without(connection)


def test_a_parked_txid_can_be_skipped_for_good_and_a_skipped_one_parked(connection):
    """C7, C8: park is for now, skip is for good; after an interruption, park was refused."""
    shop = Shop(connection)
    shop.deliver(made(1), made(2))
    for txid in (1, 2):
        shop.runner.contact(txid, shop.who(txid))
        close(connection, "shop", txid, shop.run_of(txid), "it failed")
        park(connection, "shop", txid, "broken")
    assert skip(connection, "shop", 1, "it never comes") == []
    assert latest(shop, 1) == [("COMMIT", "SATISFIED")]  # its run was undone for ever
    shop.replay(1)
    assert shop.ask("SELECT sum(n)::int FROM exact") == [(None,)]
    assert latest(shop, 1)[0][1] == "SATISFIED"
    for txid in (1, 2):
        assert park(connection, "shop", txid, "it comes on Monday") == []
    shop.clear(1, 2)
    for txid in (1, 2):
        shop.transact(txid)
    assert shop.ask("SELECT sum(n)::int FROM exact") == [(12,)]


@pytest.mark.parametrize("is_opaque", [True, False])
def test_what_no_replay_could_process_is_not_parked(connection, is_opaque):
    """C7, H5: it was empty "for now", and nothing could ever process it."""
    state = OpaqueState if is_opaque else TransactionalState
    shop = Shop(connection, kinds=lambda _: [state("total", values={"n": Count()})])
    shop.deliver(made(1), made(2))
    with pytest.raises(ParkNotPossible, match="nothing could process it later") as refused:
        park(connection, "shop", 1, "broken")
    assert "`reliability skip shop 1 --reason" in str(refused.value)
    assert len(skip(connection, "shop", 1, "broken")) == 1


def test_a_task_does_not_lift_a_hold(connection):
    """H4, C8: it skipped again what a person had rolled back after it had looked."""
    shop = three(connection)
    roll_back(connection, "shop", 1, "all wrong")
    with pytest.raises(LedgerBusy, match="rolled back meanwhile"):
        skip_again(connection, "shop", 2)
    held = "SELECT count(*) FROM reliability.transaction WHERE held_reason IS NOT NULL"
    assert shop.ask(held) == [(2,)]
    said = say("unskip", "shop", "2", "--reason", "needed").stdout
    assert "Run `reliability release shop`, and then:" in said


def test_what_cannot_be_replayed_any_more_stays_skipped(connection):
    """C8, H2: it would be neither skipped nor processed."""

    def kinds(_):
        [exact, *_rest] = states()
        return [type(exact)("exact", key=exact.key, values=exact.values, keep=History(txids=1))]

    shop = three(connection, kinds=kinds)
    compact(connection, "shop")
    with pytest.raises(UnskipNotPossible, match="compacted"):
        unskip(connection, "shop", 2, "needed")
    assert shop.replay(2) == []


# --- C9: exclude ---------------------------------------------------------------------------------


def test_an_excluded_item_stays_out_of_replays_until_it_is_included(connection):
    """C9: a file is taken out of its txid, not the whole txid's place in the order."""
    shop = committed(connection)
    before = shop.tables()
    found = exclude(connection, "shop", SECOND, "a broken file", "ann@etl")
    assert (found.to_replay, found.to_clear) == ((2,), ())
    assert shop.tables() == before
    shop.replay(2)
    assert list(shop.tables().values()) == without(connection, 2)
    asked = (
        "SELECT emitted_count FROM reliability.attempt WHERE topology = %(topology)s AND txid = 2"
        " ORDER BY attempt_id"
    )
    assert shop.ask(asked) == [(None,), (0,)]
    now = shop.tables()
    shop.source.gone.add(1)
    shop.replay(2)
    assert shop.tables() == now
    shop.source.gone.clear()
    assert include(connection, "shop", SECOND, "mended", "bob@etl").to_replay == (2,)
    shop.replay(2)
    assert shop.tables() == before


def test_an_excluded_item_is_emitted_by_no_run(connection):
    """C9: nor under another txid."""
    shop = Shop(connection)
    shop.deliver(made(1))
    shop.source.sizes += [6, 6]
    shop.makes |= {2: made(3)}
    found = exclude(connection, "shop", SECOND, "not to be read")
    assert (found.to_replay, found.to_clear) == ((), ())
    assert shop.deliver() == [2]
    asked = "SELECT item FROM reliability.source_item ORDER BY txid"
    assert shop.ask(asked) == [("memory:0:0",), ("memory:2:0",)]
    include(connection, "shop", SECOND, "wanted after all")
    shop.source.sizes.append(6)
    assert shop.deliver() == [3, 4]


def test_an_uncommitted_txid_is_processed_without_an_excluded_item(connection):
    """C9."""
    shop = Shop(connection)
    shop.deliver(made(1), made(2), made(3))
    shop.transact(1)
    shop.runner.contact(2, shop.who(2))
    shop.runner.close(2, shop.run_of(2), "it ended without it")
    [run] = exclude(connection, "shop", SECOND, "a broken file").to_clear
    assert (run.run_id, run.txids) == ("run 1", (2,))
    shop.source.gone.add(1)
    shop.clear(2)
    for txid in (2, 3):
        shop.transact(txid)
    now = shop.tables()
    assert list(now.values()) == without(connection, 2)
    roll_back(connection, "shop", 1, "once more")
    release(connection, "shop")
    shop.clear(2, 3)
    for txid in (2, 3):
        shop.transact(txid)
    assert shop.tables() == now


def test_in_two_databases_an_excluded_item_is_out_of_both(connection, add_database):
    """C9, C6."""
    add_database("elsewhere")
    shop = committed(connection, elsewhere="elsewhere")
    exclude(connection, "shop", SECOND, "a broken file")
    shop.replay(2)
    assert shop.ask("SELECT n FROM all_of_it") == [(12,)]
    recomputed = next(state for state in shop.topology.states if state.name == "recomputed")
    assert sum(row[1] for row in shop.contents(recomputed)) == 12


def test_an_opaque_batch_is_cut_without_an_excluded_item(connection):
    """C9, E4: of what an attempt reads that is not frozen, the verb said that no txid has it."""
    shop = Shop(connection, spout_kind=SpoutKind.OPAQUE)
    shop.deliver(made(1), made(2))
    shop.process(1)
    concerned = exclude(connection, "shop", "memory:0:0", "broken")
    assert (concerned.at_work, concerned.is_nobodys) == ((1,), False)
    include(connection, "shop", "memory:0:0", "it is not")
    shop.transact(1)
    exclude(connection, "shop", SECOND, "a broken file")
    shop.transact(2)
    assert shop.ask("SELECT n FROM all_of_it") == [(6,)]
    exclude(connection, "shop", "memory:0:0", "broken, too")
    shop.replay(1)
    assert shop.ask("SELECT n FROM all_of_it") == []


def test_an_attempt_that_reads_an_excluded_item_is_fenced_and_begins_again_without_it(connection):
    """C9: it would bring it in after all. Behind a blocked txid, no exclusion was ever possible."""
    shop = Shop(connection)
    shop.deliver(made(1), made(2))
    shop.process(2)
    shop.runner.close(1, shop.run_of(1), "it ended without it")
    excluded = exclude(connection, "shop", SECOND, "broken")
    assert (excluded.at_work, excluded.to_clear, excluded.to_replay) == ((2,), (), ())
    shop.clear(1)
    for txid in (1, 2):
        shop.transact(txid)
    assert shop.ask("SELECT sum(n)::int FROM exact") == [(6,)]
    ended = "SELECT status FROM reliability.attempt WHERE txid = 2 ORDER BY attempt_id"
    assert shop.ask(ended) == [("FENCED",), ("COMMITTED",)]
    with pytest.raises(ExclusionNotPossible, match=r"already.*`reliability replay \w+ TXIDS`"):
        exclude(connection, "shop", SECOND, "twice")
    with pytest.raises(ExclusionNotPossible, match="not excluded"):
        include(connection, "shop", "memory:9:0", "no")


def test_what_an_attempt_has_left_out_is_known_whatever_the_clock_said(connection):
    """C9: once a server's clock was set back, what was included again was lost."""
    shop = Shop(connection, kinds=opaque_states)
    shop.deliver(made(1), made(2), made(3))
    exclude(connection, "shop", SECOND, "broken")
    later = "UPDATE reliability.exclusion SET excluded_at = excluded_at + interval '1 hour'"
    execute(connection, later)
    for txid in (1, 2, 3):
        shop.transact(txid)
    assert connection.all("items_to_replay", topology="shop") == []
    with pytest.raises(ExclusionNotPossible, match="stays excluded: txid 2"):
        include(connection, "shop", SECOND, "it was right")


def total(kind):
    return lambda _: [kind("total", values={"n": Count()})]


@pytest.mark.parametrize("verb", ["exclude", "include", "unskip"])
def test_what_commits_while_a_correction_waits_for_the_lock_is_seen(connection, monkeypatch, verb):
    """C8, C9: it was checked before, and no replay could mend what was recorded then."""
    shop = Shop(connection, kinds=total(TransactionalState))
    shop.deliver(made(1), made(2))
    shop.transact(1)
    if verb == "include":
        exclude(connection, "shop", SECOND, "broken")
    shop.process(2)
    of = Replayable.of

    def commit_meanwhile(ledger, topology):
        found = of(ledger, topology)
        if verb == "unskip":
            skip(LedgerConnection(connection.dsn), "shop", 2, "not wanted")
        shop.runner.commit(0)
        return found

    monkeypatch.setattr(Replayable, "of", commit_meanwhile)
    does: dict[str, Any] = {
        "exclude": partial(exclude, connection, "shop", SECOND),
        "include": partial(include, connection, "shop", SECOND),
        "unskip": partial(unskip, connection, "shop", 2),
    }
    with pytest.raises((ExclusionNotPossible, UnskipNotPossible), match="keeps no history"):
        does[verb](reason="it is needed")
    assert connection.all("items_to_replay", topology="shop") == []


def test_no_correction_waits_for_a_replay_that_the_next_commit_makes_impossible(connection):
    """C8, C9, H5: an OpaqueState replaces the last txid only; the item was lost, and no way out."""
    shop = Shop(connection, kinds=total(OpaqueState))
    shop.deliver(made(1), made(2), made(3), made(4))
    shop.transact(1)
    with pytest.raises(ExclusionNotPossible, match="has counted"):
        exclude(connection, "shop", "memory:0:0", "broken")
    exclude(connection, "shop", SECOND, "broken")
    shop.transact(2)
    with pytest.raises(ExclusionNotPossible, match="OpaqueState"):  # the tables would keep it
        exclude(connection, "shop", "memory:0:0", "broken")
    with pytest.raises(ExclusionNotPossible, match="has left it out"):
        include(connection, "shop", SECOND, "it was right")
    skip(connection, "shop", 3, "not wanted")
    with pytest.raises(UnskipNotPossible):
        unskip(connection, "shop", 3, "needed")
    with pytest.raises(ParkNotPossible, match="nothing could process it later"):
        park(connection, "shop", 3, "later")
    with pytest.raises(ParkNotPossible, match="already committed"):
        park(connection, "shop", 1, "later")
    with pytest.raises(TxidNotSkipped):  # it was to be delivered under another name
        unskip(connection, "shop", 1, "needed")


def test_a_parked_txid_has_counted_no_item(connection):
    """C7, C9: an exclusion replayed it, and so took it in."""
    shop = Shop(connection)
    shop.deliver(made(1), made(2))
    shop.transact(1)
    shop.runner.contact(2, shop.who(2))
    park(connection, "shop", 2, "it comes on Monday")
    for verb in (exclude, include):
        concerned = verb(connection, "shop", SECOND, "its prices")
        assert (concerned.to_replay, concerned.at_work, concerned.to_clear) == ((), (), ())
        assert not concerned.is_nobodys


def test_to_park_again_ends_a_replay(connection):
    """C7: it committed the rows after the verb had said that nothing counts."""
    shop = Shop(connection)
    shop.deliver(made(1))
    shop.runner.contact(1, shop.who(1))
    park(connection, "shop", 1, "broken")
    shop.clear(1)
    shop.process(1)
    assert park(connection, "shop", 1, "it is broken still") == []
    assert shop.runner.commit(0) == []
    assert shop.ask("SELECT sum(n)::int FROM exact") == [(None,)]
    assert latest(shop, 1)[0][1] == "PARKED"


def test_an_item_is_found_by_its_last_parts(connection):
    """C9: rows of a table have no name that a person could write."""
    shop = Shop(connection)
    shop.deliver(made(1))
    with connection.transaction() as tx:
        tx.cursor.execute(
            "INSERT INTO reliability.source_item (topology, item, txid, part) VALUES"
            " ('shop', 'in/2013-01/a.csv', 1, '{(,)}'), ('shop', 'in/2013-02/a.csv', 1, '{(,)}')"
        )
    assert find_item(connection, "shop", "2013-02/a.csv", "x/2013-02/a.csv") == "in/2013-02/a.csv"
    with pytest.raises(ExclusionNotPossible, match=r"in/2013-01/a.csv, in/2013-02/a.csv"):
        find_item(connection, "shop", "a.csv", "x/a.csv")
    assert find_item(connection, "shop", "b.csv", "x/b.csv") == "x/b.csv"
    with pytest.raises(ExclusionNotPossible, match="rows of a table"):
        find_item(connection, "shop", "table:/public.orders", "table:/public.orders")


def test_an_item_that_is_excluded_while_its_opaque_batch_is_cut_is_not_read(
    connection, monkeypatch
):
    """C9, E4: the batch is cut without the lock."""
    shop = Shop(connection, spout_kind=SpoutKind.OPAQUE)
    shop.deliver(made(1))
    cut = shop.source.cut

    def cut_slowly(items):
        monkeypatch.setattr(shop.source, "cut", cut)
        exclude(LedgerConnection(connection.dsn), "shop", "memory:0:0", "broken")
        return cut(items)

    monkeypatch.setattr(shop.source, "cut", cut_slowly)
    shop.transact(1)
    assert shop.ask("SELECT n FROM all_of_it") == []


def keeping(_):
    [exact, *_rest] = states()
    return [replace(exact, keep=History(txids=1))]


@pytest.mark.parametrize("second", [[], made(9, rows=4)], ids=["excluded", "refrozen"])
def test_compaction_waits_for_the_replay_of_what_was_excluded_or_refrozen(connection, second):
    """C9, H2: a sweep came before it, and the broken file or the old batch counted for ever."""
    shop = committed(connection, kinds=keeping)
    if second:
        shop.source.sizes[1], shop.makes[2] = len(second), second
        shop.runner.refreeze(2, "exchanged")
    else:
        exclude(connection, "shop", SECOND, "broken")
    shop.deliver(made(4))
    shop.transact(4)
    compact(connection, "shop")
    assert shop.ask("SELECT compacted_through FROM reliability.topology") == [(1,)]
    shop.replay(2)
    rows = [*made(1), *second, *made(3), *made(4)]
    assert shop.ask("SELECT sum(n)::int FROM exact") == [(len(rows),)]
    compact(connection, "shop")
    assert shop.ask("SELECT compacted_through FROM reliability.topology") == [(3,)]


def test_an_item_that_could_never_be_counted_again_stays_excluded(connection):
    """C9: the answer named a replay that is refused, and the item was forgotten."""
    shop = Shop(connection, kinds=keeping)
    shop.deliver(made(1), made(2), made(3))
    exclude(connection, "shop", SECOND, "broken")
    for txid in (1, 2, 3):
        shop.transact(txid)
    compact(connection, "shop")
    shop.deliver(made(4))
    shop.transact(4)
    compact(connection, "shop")
    with pytest.raises(ExclusionNotPossible, match="txid 2 of shop has left it out, and a later"):
        include(connection, "shop", SECOND, "it is whole again")
    assert shop.ask("SELECT ended_at FROM reliability.exclusion") == [(None,)]


def test_no_definition_changes_while_a_txid_waits_to_commit_as_empty(connection):
    """C8, C10, C11: its attempt would be fenced, and nobody would begin another."""
    shop = Shop(connection)
    shop.deliver(made(1), made(2), made(3))
    park(connection, "shop", 2, "broken")
    changed = [
        replace(one, values={**one.values, "more": Count("k")}) if one.name == "exact" else one
        for one in shop.topology.states
    ]
    other = replace(shop.topology, states=changed)
    with pytest.raises(StateDefinitionChanged, match=r"txid 2 \(.*broken\) still has to commit"):
        declare(connection, other)
    shop.transact(1)
    skip(connection, "shop", 3, "broken too")
    shop.deliver(made(4), made(5))
    skip(connection, "shop", 5, "broken as well")
    with pytest.raises(AlterNotPossible, match=r"txid 5 .* still has to commit as empty"):
        alter(connection, other, "more")
    shop.transact(4)
    assert shop.ask("SELECT curr_txid FROM reliability.topology") == [(6,)]


def test_no_definition_changes_where_a_txid_becomes_empty_meanwhile(connection, monkeypatch):
    """C11: two persons: the one parks after the other's alter has looked, before it fences."""
    shop = Shop(connection, kinds=counted)
    shop.deliver(made(1), made(2), made(3))
    shop.transact(1)
    (state,) = shop.topology.states
    more = replace(state, values={**state.values, "more": Count("k")})
    plan = altering.plan_alteration

    def plan_and_meet(*arguments):
        planned = plan(*arguments)
        park(connection, "shop", 3, "broken")
        return planned

    monkeypatch.setattr(altering, "plan_alteration", plan_and_meet)
    with pytest.raises(AlterNotPossible, match=r"txid 3 .* still has to commit as empty"):
        alter(connection, replace(shop.topology, states=[more]), "more")
    shop.transact(2)
    assert shop.ask("SELECT curr_txid FROM reliability.topology") == [(4,)]


# --- what a park or a skip leads to --------------------------------------------------------------


def test_of_several_txids_that_are_left_out_none_commits_its_batch_meanwhile(connection):
    """C7: the first one was empty, and the next one, which waited behind it, committed its rows."""
    shop = Shop(connection, kinds=counted)
    shop.deliver(*(made(n) for n in range(1, 6)))
    shop.transact(1)
    before = shop.tables()
    for verb, last in (("park", 3), ("skip", 5)):
        shop.process(last)
        txids = f"{last - 1}..{last}"
        said = say(verb, "shop", txids, "--reason", "both are wrong", "--yes").stdout
        assert said.count("It has committed as empty") == 2
        assert shop.tables() == before


@pytest.mark.parametrize("closed_first", [True, False])
def test_a_parked_batch_is_left_to_a_replay_unless_its_empty_attempt_is_lost(
    connection, closed_first
):
    """C7: resume-runs brought it back if its run had ended, and left what was lost, and blocked."""
    shop = Shop(connection, kinds=counted)
    shop.deliver(made(1), made(2))
    shop.runner.contact(2, shop.who(2))
    if closed_first:
        shop.runner.close(2, shop.run_of(2), "its tasks ended")
    park(connection, "shop", 2, "its supplier sends another file")
    assert undone(shop) == []
    with connection.transaction() as tx:
        fence_all(tx, "shop")
    shop.transact(1)
    assert undone(shop) == [(2,)]
    park(connection, "shop", 2, "once more")
    assert undone(shop) == []


@pytest.mark.timeout(60)
def test_an_empty_commit_that_is_refused_is_told(connection):
    """C8: a task began one empty attempt after the other, without an end or a word."""
    shop = Shop(connection, kinds=counted)
    shop.deliver(made(1), made(2))
    shop.transact(1)
    shop.runner.contact(2, shop.who(2))
    skip(connection, "shop", 2, "a test file")
    roll_back(connection, "shop", 1, "again")
    release(connection, "shop")
    shop.clear(2)
    execute(connection, "REVOKE INSERT ON public.counted FROM CURRENT_USER")
    with pytest.raises(RightMissing):
        shop.transact(2)
    said = say("park", "shop", "2", "--reason", "broken", "--yes", code=1).stderr
    assert "RIGHT_MISSING" in said
    execute(connection, "GRANT INSERT ON public.counted TO CURRENT_USER")
    assert [one.attempt.txid for one in park(connection, "shop", 2, "broken")] == [2]


def test_an_item_that_is_included_again_fences_the_attempt_that_has_left_it_out(connection):
    """C9: it committed without the item, which a TransactionalState could never count then."""
    shop = Shop(connection, kinds=lambda _: [TransactionalState("t", values={"n": Count()})])
    shop.deliver(made(1), made(2))
    exclude(connection, "shop", SECOND, "broken")
    shop.process(2)  # sealed without it; waits behind 1
    assert include(connection, "shop", SECOND, "it was right").at_work == (2,)
    for txid in (1, 2):
        shop.transact(txid)
    [(n, *_)] = shop.tables()["t"]
    assert n == len(made(1)) + len(made(2))


def counted(_: str = "") -> list[State]:
    return [State("counted", key={"k": "bigint"}, values={"n": Count()})]


def undone(shop: Shop) -> list[tuple[int, ...]]:
    with shop.connection.transaction() as tx:
        return [run.txids for run in undone_runs(tx, shop.name)]
