"""A drop beside what others do: it takes what is this topology's, and nothing of another one's."""

from __future__ import annotations

import itertools
import re
import time
from contextlib import suppress
from dataclasses import replace

import pytest
from psycopg2.sql import SQL

from reliability import Count, State, Sum
from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import (
    AttemptFenced,
    DropNotPossible,
    LedgerBusy,
    ParticipantTaken,
    ReliabilityError,
    TopologyUnknown,
)
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.locks import holding
from reliability.transaction.commit.committer import drain
from reliability.transaction.correct import drop
from reliability.transaction.correct.adopt import adopt
from reliability.transaction.correct.drop import drop_topology, what_would_go
from reliability.transaction.correct.rollback import roll_back
from reliability.transaction.topology import participants
from reliability.transaction.topology.lifecycle import declare, fence_all
from tests.replay.shop import Shop, made
from tests.support.command_line import say
from tests.support.doomed import doomed
from tests.support.fix_postgres import execute, new_session, rows


def kinds(elsewhere):
    return [
        State("words", key={"word": "text"}, values={"n": Count()}, database=elsewhere),
        State("sums", key={"k": "bigint"}, values={"total": Sum("price", "numeric(5,2)")}),
    ]


def shop_of(connection, elsewhere="east"):
    return Shop(connection, elsewhere=elsewhere, kinds=kinds)


IN_THE_WAY = {
    r"public\.sums is no table any more": (
        "ALTER TABLE public.sums RENAME TO s; CREATE VIEW public.sums AS SELECT * FROM public.s",
        "DROP VIEW public.sums; ALTER TABLE public.s RENAME TO sums",
    ),
    r"used by function public\.own\(\)": (
        "CREATE FUNCTION public.own() RETURNS SETOF public.sums"
        " LANGUAGE sql AS 'TABLE public.sums'",
        "DROP FUNCTION public.own",
    ),
    r"used by table public\.own": (
        "CREATE TABLE public.own () INHERITS (public.sums)",
        "DROP TABLE public.own",
    ),
}


def test_what_is_in_the_way_of_a_drop_is_named(connection):
    """It said that other objects depend on it, or that a constraint refuses the rows."""
    shop = shop_of(connection, elsewhere="")
    shop.commit(made(1))
    for said, (done, undone) in IN_THE_WAY.items():
        execute(connection, done)
        with pytest.raises(DropNotPossible, match=said):
            drop_topology(connection, "shop")
        execute(connection, undone)
    execute(connection, "ALTER TABLE public.sums DROP _rows; DROP TABLE public.words")
    with pytest.raises(DropNotPossible, match=r"table public\.words does not exist"):
        drop_topology(connection, "shop", keep_tables=True)
    execute(connection, "CREATE TABLE public.words (word text)")
    drop_topology(connection, "shop", keep_tables=True)
    assert rows(connection, "SELECT count(total) > 0 FROM sums") == [(True,)]


def mirrors(east):
    return rows(east, "SELECT topology FROM reliability.topology")


def test_a_topology_whose_other_database_is_gone_is_dropped(
    connection, east, template, monkeypatch
):
    shop = shop_of(connection)
    shop.commit(made(1))
    shop.deliver(made(2), made(3))
    shop.process(3)  # for which nobody works: it was refused for ever behind a txid that is stuck
    with new_session(template) as empty:
        monkeypatch.setenv("RELIABILITY_DSN_EAST", empty.dsn)
        drop_topology(connection, "shop", keep_tables=True)
    assert rows(connection, "SELECT count(total) > 0 FROM sums") == [(True,)]


def test_a_topology_of_one_name_in_another_ledger_keeps_its_tables(connection, east, template):
    """C6: the other one's declaration was refused, but had recorded the database as its own."""
    shop = shop_of(connection)
    shop.commit(made(1))
    there = rows(east, "SELECT * FROM words ORDER BY 1")
    with new_session(template) as second:
        other = shop_of(second)
        with pytest.raises(ParticipantTaken):
            declare(second, other.topology)
        # an erasure or a sweep would have gone there by the topology's name
        assert rows(second, "SELECT * FROM reliability.participant") == []
        execute(second, "INSERT INTO reliability.participant VALUES ('shop', 'east')")
        assert {one.database for one in what_would_go(second, "shop").tables} <= {""}
        drop_topology(second, "shop")
    assert there == rows(east, "SELECT * FROM words ORDER BY 1") != []
    shop.commit(made(2))


def test_a_database_that_no_state_is_in_any_more_is_left(connection, east):
    """C10: before the first emission; the mirror there made the name useless."""
    declare(connection, shop_of(connection).topology)
    assert mirrors(east) == [("shop",)]
    home = shop_of(connection, "")
    declare(connection, home.topology)
    assert mirrors(east) == rows(east, "SELECT FROM reliability.state") == []
    assert rows(east, "SELECT to_regclass('public.words')") == [(None,)]
    home.commit(made(1))
    drop_topology(connection, "shop")
    shop_of(connection).commit(made(1))


def test_a_declaration_beside_a_drop_leaves_no_mirror(connection, east, monkeypatch):
    """C6: it had read the topology before, and recorded it there when it was gone."""
    record = participants._record

    def dropped_behind_it(tx, databases, leave):
        record(tx, databases, leave)
        tx.commit()
        drop_by_force(connection.dsn)

    with monkeypatch.context() as patch:
        patch.setattr(participants, "_record", dropped_behind_it)
        with pytest.raises(TopologyUnknown):
            declare(connection, shop_of(connection).topology)
    assert mirrors(east) == []
    shop_of(connection).commit(made(1))


def test_a_grant_of_the_topology_that_was_dropped_is_too_late_for_the_new_one(connection, east):
    """A1: its message slept, and would have fenced what has been processed since."""
    old = shop_of(connection)
    old.deliver(made(1))
    with connection.transaction() as tx:
        fence_all(tx, "shop")
    grant = old.begin(1)
    row = connection.one("attempt_to_mirror", **grant)
    drop_by_force(connection.dsn)
    new = shop_of(connection)
    new.deliver(made(1))
    new.process(1)
    with pytest.raises(AttemptFenced, match="was dropped"), east.transaction() as tx:
        participants.take_grant(tx, replace(grant, attempt=TransactionAttempt(1, 5)), row)
    assert len(drain(connection, "shop")) == 1


def test_an_adoption_waits_for_a_decided_commit(connection, east):
    """H7, C3: all databases had voted for a table without the adopted rows."""
    execute(connection, "CREATE TABLE public.before AS SELECT 1::bigint k, 999::numeric(5,2) total")
    shop = shop_of(connection)
    shop.deliver([{**made(1)[0], "k": 1, "price": 5}])
    shop.process(1)
    with doomed(after="SET phase = 'COMMITTING'"):
        drain(LedgerConnection(connection.dsn), "shop")
    with pytest.raises(LedgerBusy, match="a change of its states is in progress"):
        adopt(connection, shop.topology, "sums", "public.before")
    drain(connection, "shop")
    assert rows(connection, "SELECT k, total FROM sums") == [(1, 5)]


def test_tables_stay_only_where_no_change_of_them_is_decided(connection, east, monkeypatch):
    """C6, S2: one was rolled back, and the other's table stayed as it was, for good.

    While the other's is changed, the ledger idles: after a minute, its session ended.
    """
    shop = shop_of(connection)
    shop.commit(made(1))
    with doomed(after="SET phase = 'COMMITTING'"):
        roll_back(LedgerConnection(connection.dsn), "shop", 0, "wh\udcff\0")
    with pytest.raises(LedgerBusy, match="a change of its states is in progress"):
        drop_topology(connection, "shop", keep_tables=True)
    drain(connection, "shop")
    check, drop_in = drop._check_idle, drop._drop_in

    def check_and_hurry(tx, *more):
        check(tx, *more)
        tx.run(SQL("SET LOCAL idle_in_transaction_session_timeout = '100ms'"))

    def drop_slowly(*arguments, **options):
        time.sleep(0.3)
        drop_in(*arguments, **options)

    monkeypatch.setattr(drop, "_check_idle", check_and_hurry)
    monkeypatch.setattr(drop, "_drop_in", drop_slowly)
    drop_topology(connection, "shop", keep_tables=True)
    assert rows(connection, "SELECT FROM sums") == rows(east, "SELECT FROM words") == []


# --- what others are told ------------------------------------------------------------------------


def drop_by_force(dsn):
    """Drop it whatever is live, unless somebody holds it."""
    with suppress(LedgerBusy, TopologyUnknown), LedgerConnection(dsn, "person") as person:
        with holding(person, "shop", 1) as (tx, _):
            fence_all(tx, "shop")
        drop_topology(person, "shop")


def test_whoever_finds_nothing_is_told_that_the_topology_is_gone(connection, monkeypatch):
    """R2: LEDGER_CORRUPTION sent people to examine a ledger that is sound."""
    first, said = DatabaseTransaction.first, set()
    for at in range(1, 30):
        shop, looks = shop_of(connection, ""), itertools.count(1)
        shop.deliver(made(1))

        def first_beside_a_drop(tx, statement, _at=at, _looks=looks, **parameters):
            if next(_looks) == _at:
                drop_by_force(connection.dsn)
            return first(tx, statement, **parameters)

        with monkeypatch.context() as patch, suppress(ReliabilityError):
            patch.setattr(DatabaseTransaction, "first", first_beside_a_drop)
            try:
                shop.process(1)
            except ReliabilityError as error:
                said.add(error.code)
        drop_by_force(connection.dsn)
        if next(looks) <= at:
            break
    assert "TOPOLOGY_UNKNOWN" in said
    assert said <= {"TOPOLOGY_UNKNOWN", "ATTEMPT_FENCED", "NO_REQUEST"}


@pytest.mark.parametrize("verb", ["verify shop", "verify"])
def test_a_verb_beside_a_drop_says_so_and_goes_on_with_the_others(connection, monkeypatch, verb):
    """R2: it said that a relation does not exist, and looked at no other topology."""
    session, said = LedgerConnection._session, set()
    for at in itertools.count(1):
        shop_of(connection, "").commit(made(1))
        looks = itertools.count(1)

        def session_beside_a_drop(ledger, _at=at, _looks=looks):
            if ledger.application_name == "reliability cli" and next(_looks) == _at:
                drop_by_force(connection.dsn)
            return session(ledger)

        with monkeypatch.context() as patch:
            patch.setattr(LedgerConnection, "_session", session_beside_a_drop)
            done = say(*verb.split(), code=None)
        said |= {done.exit_code, *re.findall("[A-Z]+_[A-Z_]+", done.stderr)}
        if next(looks) <= at:
            break
        drop_by_force(connection.dsn)
    assert said == ({0, 1, "TOPOLOGY_UNKNOWN"} if "shop" in verb else {0})
