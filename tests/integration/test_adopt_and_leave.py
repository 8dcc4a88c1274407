"""H7 on the real ledger, without Spark: a table becomes a state's, and a state's an ordinary one.

What comes out is compared with a topology that has committed the adopted rows as a batch.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import date
from decimal import Decimal
from types import SimpleNamespace

import pytest
from psycopg2.sql import SQL

from reliability import (
    Append,
    Avg,
    Count,
    First,
    History,
    Latest,
    Max,
    Min,
    OpaqueState,
    State,
    Sum,
    TransactionalState,
    Upsert,
    in_range,
)
from reliability.core.errors import (
    AdoptNotPossible,
    AlterNotPossible,
    AuditFailed,
    DropNotPossible,
    LedgerBusy,
    StateDefinitionChanged,
    TargetTableTaken,
)
from reliability.ledger.connection import LedgerConnection
from reliability.states.adoption import AdoptedTable
from reliability.transaction.correct.adopt import adopt
from reliability.transaction.correct.drop import drop_topology
from reliability.transaction.correct.erase import erase
from reliability.transaction.correct.repair import repair
from reliability.transaction.correct.rollback import release, roll_back
from reliability.transaction.inspect.explain import explain
from reliability.transaction.inspect.verify import verify
from reliability.transaction.maintain.compaction import compact
from reliability.transaction.topology.alter import alter
from reliability.transaction.topology.lifecycle import declare
from tests.replay.shop import BY, Shop, made, shown
from tests.support.command_line import read, say
from tests.support.doomed import doomed
from tests.support.fix_postgres import (
    database_of,
    execute,
    new_database,
    own_session,
    rows,
    wait_until_it_waits,
)

MONEY = "numeric(14,2)"
PRICES = {"n": Count(), "known": Count("price"), "total": Sum("price", MONEY)}


def do(connection, statement):
    """Do what a person does by hand, in the schema public."""
    execute(connection, f"SET LOCAL search_path = public; {statement}".replace("%", "%%"))


def kinds(prefix="", **options):
    """One state for each way in which a value is combined."""

    def state(name, kind=State, **parts):
        return kind(name, table=f"{prefix}{name}", **parts)

    return [
        state("sums", key={"k": "bigint", "word": "text"}, values=PRICES, **options),
        state(
            "extremes",
            key={"word": "text"},
            values={
                "n": Count(),
                "lowest": Min("price", MONEY),
                "highest": Max("price", MONEY),
                "opened": First("price", BY, MONEY),
                "closed": Latest("price", BY, MONEY),
                "first_day": Min("day", "date"),
                "day": Max("day", "date"),
            },
        ),
        state(
            "newest",
            key={"k": "bigint"},
            values={"word": Upsert("word", BY, "text"), "changed": Upsert("day", BY, "date")},
        ),
        state("log", values={"word": Append("word", "text"), "price": Append("price", MONEY)}),
        state("whole", values={"n": Count(), "total": Sum("price", MONEY)}),
        state("floats", key={"word": "text"}, values={"total": Sum("weight", "double precision")}),
    ]


def batch(seed):
    """Return rows whose keys are known; a day has one batch."""
    return [
        {**row, "k": row["k"] or 0, "day": date(2026, 1, seed), "weight": float(n) / 4}
        for n, row in enumerate(made(seed))
    ]


@pytest.fixture(scope="module")
def old_ledger(template):
    """A database in which a topology committed three batches, and what was seen after the first."""
    with new_database(template) as dsn:
        with closing(LedgerConnection(dsn)) as connection:
            shop = old_shop(connection)
            shop.commit(batch(1))
            first = shown(shop)
            for state in shop.topology.states:  # as another tool would have left them
                columns = ", ".join((*state.key, *state.values))
                do(
                    connection,
                    f"CREATE TABLE before_{state.name} AS SELECT {columns} FROM {state.target[1]}",
                )
            shop.commit(batch(2), batch(3))
        yield database_of(dsn), first


def old_shop(connection):
    return Shop(connection, kinds=lambda _: kinds("old_"), name="old")


@pytest.fixture
def origin(request, template):
    return request.getfixturevalue("old_ledger")[0] if "old" in request.fixturenames else template


@pytest.fixture
def old(connection, old_ledger):
    """Go on there; and what a reader saw after the first batch."""
    shop = old_shop(connection)
    shop.source.sizes += [len(batch(n)) for n in (1, 2, 3)]
    shop.makes.update({n: batch(n) for n in (1, 2, 3)})
    return shop, old_ledger[1]


def adopting(connection, old, *, in_place, **options):
    """Return a topology whose states adopt what was there after the first batch."""
    shop = Shop(
        connection, kinds=lambda _: kinds("before_" if in_place else "new_", **options), name="new"
    )
    for state in shop.topology.states:
        adopt(connection, shop.topology, state.name, f"public.before_{state.name}")
    assert shown(shop) == old[1]
    return shop


def is_exact(shop):
    return all(state.is_exact for state in verify(shop.connection, shop.name))


def test_what_follows_an_adoption_is_exact(connection, old):
    """H7: commits, replays and rollbacks do as if the rows had come as a batch."""
    shop = adopting(connection, old, in_place=True)
    assert is_exact(shop)
    shop.commit(batch(2), batch(3))
    assert shown(shop) == shown(old[0])
    assert is_exact(shop)
    wrong = [{**row, "price": Decimal("-7.25")} for row in batch(2)]
    shop.correct(1, wrong)
    old[0].correct(2, wrong)
    assert shown(shop) == shown(old[0])
    assert is_exact(shop)
    roll_back(connection, "new", 1, "too far")
    roll_back(connection, "old", 2, "too far")
    assert shown(shop) == shown(old[0])
    roll_back(connection, "new", 0, "to the beginning")
    assert shown(shop) == old[1]
    assert is_exact(shop)
    release(connection, "new")
    shop.makes[1] = batch(2)
    shop.do_again(1, 2)
    old[0].correct(2, batch(2))
    release(connection, "old")
    old[0].replay(3)
    assert shown(shop) == shown(old[0])
    do(connection, "UPDATE before_sums SET total = total + 1; DELETE FROM before_extremes")
    repair(connection, "new", "by hand")
    assert shown(shop) == shown(old[0])
    assert is_exact(shop)


def test_copied_rows_are_explained_and_survive_a_compaction_and_a_repair(connection, old):
    """H7: nobody looks for a txid 0 in the ledger; they are folded with later txids."""
    shop = adopting(connection, old, in_place=False, keep=History(txids=1))
    assert is_exact(shop)
    shop.commit(batch(2))
    found = explain(connection, "new", "extremes", {"word": "c"}).contributions
    assert [(one.attempt and str(one.attempt), one.presence) for one in found] == [
        (None, "adopted"),
        ("1:0", "present"),
    ]
    assert found[0].committed_at is not None
    assert (
        found[0].values["n"] + found[1].values["n"]
        == dict((word, n) for word, n, *_ in shown(shop)["extremes"])["c"]
    )
    assert "adopted" in say("explain", "new", "extremes", "word=c").stdout
    shop.commit(batch(3))
    assert [state.txids for state in compact(connection, "new")] == [1]
    assert shown(shop) == shown(old[0])
    assert is_exact(shop)
    shop.replay(2)
    assert shown(shop) == shown(old[0])
    do(connection, "UPDATE new_sums SET total = total + 1")
    do(connection, "DELETE FROM new_extremes")
    repair(connection, "new", "by hand")
    assert shown(shop) == shown(old[0])


def test_states_without_history_adopt_too(connection):
    values = {"n": Count(), "total": Sum("price", MONEY)}
    for kind in (OpaqueState, TransactionalState):
        do(connection, "CREATE TABLE totals (k bigint, n bigint, total numeric(14,2))")
        do(connection, "INSERT INTO totals VALUES (1, 2, 5), (3, 1, NULL)")
        shop = shop_of(connection, kind("totals", key={"k": "bigint"}, values=values))
        adopt(connection, shop.topology, "totals", "totals")
        shop.commit([{"k": k, "price": Decimal(4)} for k in (1, 2)])
        assert shown(shop) == {"totals": [(1, 3, 9), (2, 1, 4), (3, 1, None)]}
        if kind is OpaqueState:
            shop.correct(1, [{"k": k, "price": Decimal(6)} for k in (3, 2)])
            assert shown(shop) == {"totals": [(1, 2, 5), (2, 1, 6), (3, 2, 6)]}
            roll_back(connection, "shop", 0, "all of it")
            assert shown(shop) == {"totals": [(1, 2, 5), (3, 1, None)]}
        drop_topology(connection, "shop")


def test_rows_are_copied_below_a_view(connection):
    do(connection, "CREATE TABLE words (word varchar(20), price numeric(10,2))")
    do(connection, "INSERT INTO words VALUES ('a', 1), ('a', 1), (NULL, 2)")
    values = {"word": Append("word", "text"), "price": Append("price", MONEY)}
    shop = shop_of(connection, State("seen", values=values, as_view=True))
    done = adopt(connection, shop.topology, "seen", "words")
    assert (done.rows, done.is_in_place) == (3, False)
    shop.commit([{"word": "b", "price": Decimal(3)}])
    assert len(shown(shop)["seen"]) == 4
    assert is_exact(shop)
    roll_back(connection, "shop", 0, "all of it")
    assert shown(shop)["seen"] == [("a", 1), ("a", 1), (None, 2)]


AT = {"at": "date"}
CANDLE = {
    "opened_at": First("at", by=AT, type="date"),
    "opened": First("price", by=AT),
    "closed_at": Latest("at", by=AT, type="date"),
    "closed": Latest("price", by=AT),
}


def candles(connection, values):
    """Return a topology that has adopted a candle: opened on day 2 at 10, closed on day 20 at 90.

    The table also has a column `at`, of the row that was written last.
    """
    columns = "k bigint, opened_at date, opened bigint, closed_at date, closed bigint, at date"
    do(connection, f"CREATE TABLE small ({columns})")
    do(connection, "INSERT INTO small VALUES (1, '2026-01-02', 10, '2026-01-20', 90, '2026-01-09')")
    shop = small(connection, values=values)
    adopt(connection, shop.topology, "small", "small")
    return shop


def test_a_value_is_ordered_by_the_row_that_it_is_of(connection):
    """H7: the last price had got the first day, and an older row overwrote it."""
    for order in (1, -1):
        shop = candles(connection, dict([*CANDLE.items()][::order]))
        shop.commit([{"k": 1, "at": date(2026, 1, 10), "price": 50}])
        assert rows(connection, f"SELECT {', '.join(CANDLE)} FROM small") == [
            (date(2026, 1, 2), 10, date(2026, 1, 20), 90)
        ]
        drop_topology(connection, "shop")
    # a column of the table's own is of the row that the other tool kept, whatever values show
    shop = candles(connection, {"opened_at": CANDLE["opened_at"], "closed": CANDLE["closed"]})
    for day, closed in ((8, 90), (10, 10)):
        shop.commit([{"k": 1, "at": date(2026, 1, day), "price": day}])
        assert rows(connection, "SELECT closed FROM small") == [(closed,)]
    drop_topology(connection, "shop")
    # the state's own `at` is the greatest; nothing in the table says when the first was
    do(connection, "CREATE TABLE small (k bigint, opened bigint, at date)")
    shop = small(connection, values={"opened": CANDLE["opened"], "at": Max("at", "date")})
    refused(connection, shop, "at, by which opened is ordered, is missing, and value at may be of")


ROUNDED = [  # the type in the table, and the one that the state orders by
    ("numeric", "bigint"),
    ("numeric(14,4)", "numeric(14,2)"),
    ("timestamptz", "date"),
    ("timestamp", "timestamptz"),
    ("text", "date"),
    ("jsonb", "bigint"),
    ("bigint", "integer"),
]


def test_an_order_is_widened_and_one_that_would_be_rounded_is_refused(connection):
    """H7: 1.4 became 1, and an older row won. A text that is no date raised a raw error."""
    for type_, by in ROUNDED:
        do(connection, f"CREATE TABLE small (k bigint, price bigint, at {type_})")
        shop = small(connection, values={"price": Latest("price", by={"at": by})})
        refused(connection, shop, "column at, by which price is ordered, is .* instead of ")
        do(connection, "DROP TABLE small")
    do(connection, "CREATE TABLE small (k bigint, price bigint, at integer)")
    do(connection, "INSERT INTO small VALUES (1, 5, 4)")
    shop = small(connection, values={"price": Latest("price", by={"at": "bigint"})})
    adopt(connection, shop.topology, "small", "small")
    for at, price in ((3, 5), (2**40, 2)):
        shop.commit([{"k": 1, "at": at, "price": 2}])
        assert rows(connection, "SELECT price FROM small") == [(price,)]


# --- what does not fit ---------------------------------------------------------------------------

FITS = "k bigint PRIMARY KEY, n bigint, total numeric(14,2)"
MISFITS = {
    "n bigint, total numeric(14,2)": "column k is missing",
    "k text, n bigint, total numeric(14,2)": "column k is text instead of bigint",
    "k bigint, n bigint, total numeric(14,4)": r"total is numeric\(14,4\) instead of numeric",
    "k bigint, n bigint, total numeric(14,2), by text NOT NULL": "column by is not the state's",
    "k bigint, n bigint, total numeric(14,2), _rows bigint": "column _rows is there",
    "k bigint GENERATED ALWAYS AS IDENTITY, n bigint, total numeric(14,2)": "k is generated",
    "k bigint PRIMARY KEY DEFERRABLE, n bigint, total numeric(14,2)": "unique key is deferrable",
}
ROWS = {
    "(NULL, 1, 1)": "1 rows have NULL in the key",
    "(1, 1, 1), (1, 1, 1), (2, 1, 1)": "1 rows have the key of another row",
    "(1, NULL, 1)": "1 rows have NULL in a count",
}


def shop_of(connection, state):
    return Shop(connection, kinds=lambda _: [state])


def small(connection, **parts):
    values = {"n": Count(), "total": Sum("price", MONEY)}
    parts = {"key": {"k": "bigint"}, "values": values, **parts}
    return shop_of(connection, State("small", **parts))


def what_there_is(connection):
    """Return the tables and columns of the database, and the ledger's rows of topologies."""
    columns = (
        "SELECT attrelid::regclass::text, attname, atttypid, attnotnull FROM pg_attribute"
        " JOIN pg_class c ON c.oid = attrelid"
        " WHERE relnamespace IN ('public'::regnamespace, 'reliability_contribution'::regnamespace)"
        " AND attnum > 0 AND NOT attisdropped ORDER BY 1, 2"
    )
    return rows(connection, columns), rows(connection, "SELECT topology FROM reliability.topology")


def refused(connection, shop, said, table="small", error=AdoptNotPossible):
    before = what_there_is(connection)
    with pytest.raises(error, match=said):
        adopt(connection, shop.topology, "small", table)
    assert what_there_is(connection) == before


def test_a_table_of_another_shape_is_refused(connection):
    """H7: also one by whose collation two keys in Spark make one row."""
    for columns, said in MISFITS.items():
        do(connection, f"CREATE TABLE small ({columns})")
        refused(connection, small(connection), said)
        do(connection, "DROP TABLE small")
    made_of = "provider = icu, locale = 'und-u-ks-level2', deterministic = false"
    do(connection, f"CREATE COLLATION public.any_case ({made_of})")
    columns = "k text COLLATE public.any_case, n bigint, total numeric(14,2)"
    do(connection, f"CREATE TABLE small ({columns})")
    refused(connection, small(connection, key={"k": "text"}), "texts that differ may be equal")


PERSONS = {
    "bigint": (17, "17"),
    "text": ("Ann's", "Ann's"),
    "uuid": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "{A0EEBC999C0B4EF8BB6D6BB9BD380A11}"),
}


def test_a_person_who_was_erased_does_not_come_back(connection):
    """H12: the table had been written before the person asked."""
    for type_, (value, written) in PERSONS.items():
        known = State("known", key={"k": type_}, values={"n": Count()})
        declare(connection, shop_of(connection, known).topology)
        erase(connection, "shop", [("k", written)], reason="request 4711")
        columns = f"k {type_.replace('bigint', 'integer')}, n bigint, total numeric(14,2)"
        do(connection, f"CREATE TABLE small ({columns})")
        execute(connection, "INSERT INTO public.small VALUES (%(k)s, 1, 1)", k=value)
        for table in ("other", "small"):
            shop = small(connection, key={"k": type_}, table=table)
            refused(connection, shop, r"1 rows of public\.small are of persons who were erased")
        do(connection, "DELETE FROM small")
        assert adopt(connection, shop.topology, "small", "small").rows == 0
        drop_topology(connection, "shop")
    # by any of their columns, below a view too
    seen = {"word": Append("word", "text"), "name": Append("who", "text")}
    shop = small(connection, key={}, values=seen, table="seen", as_view=True)
    declare(connection, shop.topology)
    erase(connection, "shop", [("name", "Ann")], reason="request 4711")
    do(connection, "CREATE TABLE small AS SELECT 'Bob' AS word, 'Ann' AS name")
    refused(connection, shop, "erased from shop by their name")


def test_a_table_whose_rule_would_swallow_rows_is_refused(connection):
    """H7: a commit wrote nothing, and nobody heard of it."""
    do(connection, f"CREATE TABLE small ({FITS})")
    for event in ("INSERT", "UPDATE", "DELETE"):
        do(connection, f"CREATE RULE {event} AS ON {event} TO small DO INSTEAD NOTHING")
        refused(connection, small(connection), f"its rule {event.lower()} does something instead")
        do(connection, f"ALTER TABLE small DISABLE RULE {event}")
    adopt(connection, small(connection).topology, "small", "small")


def test_rows_that_are_no_rows_of_the_state_are_refused(connection):
    """C12: and those that an audit would refuse, so that nothing could ever commit."""
    do(connection, "CREATE TABLE small (k bigint, n bigint, total numeric(14,2))")
    for values, said in ROWS.items():
        do(connection, f"TRUNCATE small; INSERT INTO small VALUES {values}")
        refused(connection, small(connection), said)
    do(connection, "TRUNCATE small; INSERT INTO small VALUES (1, 1, -1)")
    audits = [in_range("total", least=0, of="table")]
    refused(connection, small(connection, audits=audits), "in_range", error=AuditFailed)


def test_what_has_no_parts_in_the_table_is_refused(connection):
    do(connection, f"CREATE TABLE small ({FITS}, mean numeric)")
    mean = small(connection, values={"mean": Avg("price")})
    refused(connection, mean, "value mean is a mean, and a table of means lacks")
    ordered = small(connection, values={"n": Latest("price", by=BY)})
    refused(connection, ordered, "column day, by which n is ordered, is missing")
    viewed = small(connection, key={}, values={"n": Append("n")}, as_view=True)
    refused(connection, viewed, "read through a view")
    do(connection, "CREATE VIEW seen AS SELECT * FROM small")
    refused(connection, small(connection, table="seen"), "no ordinary table", table="seen")
    refused(connection, small(connection, table="other"), "there is no table", table="nothing")
    with pytest.raises(AdoptNotPossible, match="has no state nothing"):
        adopt(connection, small(connection).topology, "nothing", "small")


def test_it_is_too_late_after_the_first_commit(connection):
    do(connection, f"CREATE TABLE old ({FITS})")
    shop = small(connection)
    shop.commit([{"k": 1, "price": Decimal(1)}])
    refused(connection, shop, "committed txids", table="old")
    roll_back(connection, "shop", 0, "to adopt")
    do(connection, "INSERT INTO old VALUES (1, 5, 5)")
    adopt(connection, shop.topology, "small", "old")
    assert shown(shop) == {"small": [(1, 5, 5)]}
    refused(connection, shop, r"has adopted public\.old already", table="old")
    release(connection, "shop")
    shop.replay(1)
    assert shown(shop) == {"small": [(1, 6, 6)]}
    assert is_exact(shop)


def test_who_adopts_again_is_told_what_was_adopted_and_the_way_to_another_table(connection):
    """The answer may have been lost; he was told to change the table, or the state."""
    do(connection, f"CREATE TABLE small ({FITS})")
    do(connection, f"CREATE TABLE other ({FITS})")
    do(connection, "INSERT INTO other VALUES (1, 5, 5)")
    shop = small(connection)
    adopt(connection, shop.topology, "small", "small")
    for table in ("small", "other"):
        with pytest.raises(AdoptNotPossible, match=r"adopted public\.small already") as raised:
            adopt(connection, shop.topology, "small", table)
        assert "do nothing, if that is the table" in str(raised.value)
        assert "`reliability drop shop --keep-tables`" in str(raised.value)
    say("drop", "shop", "--keep-tables", "--yes")
    do(connection, "DROP TABLE small")
    adopt(connection, shop.topology, "small", "other")
    assert shown(shop) == {"small": [(1, 5, 5)]}


def test_adopted_rows_are_not_lost_with_a_changed_definition(connection):
    """C10: before the first commit, an emission makes the tables of changed states again."""
    do(connection, f"CREATE TABLE small ({FITS})")
    do(connection, "INSERT INTO small VALUES (1, 5, 5)")
    shop = small(connection)
    with pytest.raises(TargetTableTaken, match=r"adopt shop small --table public\.small"):
        shop.deliver(batch(1))
    adopt(connection, shop.topology, "small", "small")
    changed = small(connection, values={"n": Count()})
    with pytest.raises(StateDefinitionChanged, match=r"public\.small was adopted"):
        changed.deliver(batch(1))
    shop.commit(batch(1))
    assert is_exact(shop)
    other = State("other", key={"k": "bigint"}, values={"n": Count()})
    alter(connection, shop_of(connection, other).topology, "it goes, with its adoption")


def test_an_empty_adopted_table_is_not_dropped_with_a_changed_definition(connection):
    """C10: a person's columns, indexes, triggers and grants are in it. `alter` said it was free."""
    do(connection, f"CREATE TABLE small ({FITS}, note text DEFAULT 'mine')")
    adopt(connection, small(connection).topology, "small", "small")
    changed = small(connection, values={"n": Count()})
    with pytest.raises(AlterNotPossible, match=r"was adopted; .* and adopt it again"):
        alter(connection, changed.topology, "a test")
    with pytest.raises(StateDefinitionChanged, match=r"public\.small was adopted"):
        changed.deliver(batch(1))
    assert rows(connection, "SELECT k, note FROM small") == []


def test_types_are_widened_in_place_and_triggers_do_not_fire(connection):
    """H7: an UPDATE would let a trigger change what is adopted."""
    do(connection, "CREATE TABLE small (k integer PRIMARY KEY, n integer, total numeric(8,2))")
    do(connection, "INSERT INTO small VALUES (1, 5, NULL)")
    do(
        connection,
        "CREATE FUNCTION public.touch() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.total := 0; RETURN NEW; END $$",
    )
    do(
        connection,
        "CREATE TRIGGER touch BEFORE UPDATE ON small FOR EACH ROW EXECUTE FUNCTION public.touch()",
    )
    shop = small(connection)
    adopt(connection, shop.topology, "small", "public.small")
    assert shown(shop) == {"small": [(1, 5, None)]}
    assert is_exact(shop)


def test_keys_keep_their_own_collation(connection):
    """H7: Postgres compares no contribution with a key of another collation."""
    values = {"n": Count(), "total": Sum("price", "numeric"), "most": Max("price", MONEY)}
    for type_ in ("text", "varchar(9)"):
        columns = f'k {type_} COLLATE "C" PRIMARY KEY, n bigint, total numeric, most numeric(14,2)'
        do(connection, f"CREATE TABLE small ({columns})")
        do(connection, "INSERT INTO small VALUES ('a', 5, 5)")
        shop = small(connection, key={"k": "text"}, values=values)
        adopt(connection, shop.topology, "small", "small")
        shop.commit([{"k": k, "price": Decimal(1)} for k in "ab"])
        shop.correct(1, [{"k": k, "price": Decimal(2)} for k in "ac"])
        assert shown(shop) == {"small": [("a", 6, 7, 2), ("c", 1, 2, 2)]}
        assert is_exact(shop)
        roll_back(connection, "shop", 0, "all of it")
        assert shown(shop) == {"small": [("a", 5, 5, None)]}
        drop_topology(connection, "shop")


def test_names_may_be_any_that_postgres_takes(connection):
    do(
        connection,
        'CREATE TABLE "Umsatz 100%.je" ("Tag %s" bigint, "_times" bigint, "{total}" bigint)',
    )
    do(connection, 'INSERT INTO "Umsatz 100%.je" VALUES (1, 5, NULL)')
    values = {"_times": Count(), "{total}": Sum("price")}
    shop = small(connection, table='"Umsatz 100%.je"', key={"Tag %s": "bigint"}, values=values)
    done = adopt(connection, shop.topology, "small", 'public."Umsatz 100%.je"')
    assert (done.rows, done.is_in_place) == (1, True)
    shop.commit([{"Tag %s": 1, "price": 2}])
    assert rows(connection, 'SELECT "Tag %s", "_times", "{total}" FROM "Umsatz 100%.je"') == [
        (1, 6, 2)
    ]
    assert is_exact(shop)
    drop_topology(connection, "shop", keep_tables=True)
    assert rows(connection, 'SELECT * FROM "Umsatz 100%.je"') == [(1, 6, 2)]
    with pytest.raises(AdoptNotPossible, match="no name of a table"):
        adopt(connection, shop.topology, "small", "a.b.c")


# --- all or nothing ------------------------------------------------------------------------------


def test_an_adoption_is_whole_or_has_not_been(connection, old, monkeypatch):
    """A3: a dry run, a holder who gives up before others have to, and a death in the middle."""
    shop = Shop(connection, kinds=lambda _: kinds("before_"), name="new")
    before = what_there_is(connection)
    done = adopt(connection, shop.topology, "sums", "before_sums", dry_run=True)
    assert what_there_is(connection) == before
    assert done.rows == len(old[1]["sums"])
    assert any(statement.startswith("ALTER TABLE") for statement in done.statements)
    with monkeypatch.context() as patch, LedgerConnection(connection.dsn).transaction() as reader:
        patch.setattr("reliability.ledger.locks.HOLDERS_PATIENCE_SECONDS", 0.1)
        reader.all(SQL("SELECT FROM public.before_sums"))
        with pytest.raises(LedgerBusy):
            adopt(connection, shop.topology, "sums", "before_sums")
    for at in range(100):
        with doomed(at) as fate:
            adopt(LedgerConnection(connection.dsn), shop.topology, "sums", "before_sums")
        if not fate.has_died:
            break
        assert what_there_is(connection) == before
    assert at > 5
    assert shown(replace(shop, kinds=lambda _: kinds("before_")[:1]))["sums"] == old[1]["sums"]


def test_a_type_that_changed_while_it_waited_is_refused(connection):
    """H7: it had looked before it waited, and 1.2345 became 1.23."""
    shop = small(connection, table="copied")
    changes = (
        "DROP VIEW seen; ALTER TABLE small ALTER total TYPE numeric(14,4);"
        " CREATE VIEW seen AS SELECT k, n, total FROM small;"
        " INSERT INTO small VALUES (1, 1, 1.2345)"
    )
    waiting = LedgerConnection(connection.dsn, "adopting")
    for through in ("small", "seen"):
        do(connection, f"CREATE TABLE small ({FITS})")
        do(connection, "CREATE VIEW seen AS SELECT k, n, total FROM small")
        with closing(own_session(connection.dsn)) as other, ThreadPoolExecutor() as executor:
            other.cursor().execute(changes)
            adopts = executor.submit(adopt, waiting, shop.topology, "small", through)
            wait_until_it_waits(connection, "adopting")
            other.commit()
            with pytest.raises(AdoptNotPossible, match=r"total is numeric\(14,4\) instead of num"):
                adopts.result(30)
        do(connection, "DROP TABLE small CASCADE")


def test_rows_of_a_view_that_changed_meanwhile_are_refused(connection, monkeypatch):
    """H7: nobody can be kept from changing what it reads."""
    do(connection, f"CREATE TABLE small ({FITS})")
    do(connection, "INSERT INTO small VALUES (1, 1, 1)")
    do(connection, "CREATE VIEW seen AS SELECT * FROM small")
    makes = AdoptedTable.statements

    def changed(self):
        with closing(own_session(connection.dsn)) as other, other, other.cursor() as cursor:
            cursor.execute("UPDATE small SET n = NULL")
        return makes(self)

    monkeypatch.setattr(AdoptedTable, "statements", changed)
    shop = small(connection, table="copied")
    refused(connection, shop, "seen does not fit: 1 rows have NULL in a count", table="seen")


# --- leave ---------------------------------------------------------------------------------------


def test_a_topology_leaves_ordinary_tables_which_can_be_adopted_again(connection, old):
    """H7: what was left is what readers saw, and goes on from there."""
    shop, _ = old
    plain, floats = {"total": Avg("price", "numeric(20,6)")}, shown(shop)
    means = Shop(
        connection,
        kinds=lambda _: [
            State("means", key={"word": "text"}, values=plain),
            State("seen", values={"word": Append("word", "text")}, as_view=True),
        ],
        name="means",
    )
    means.commit(batch(1), batch(2))
    before = shown(means)
    drop_topology(connection, "means", keep_tables=True)
    drop_topology(connection, "old", keep_tables=True)
    assert shown(means) == before
    assert shown(shop) == floats
    columns = {name for _, name, *_ in what_there_is(connection)[0]}
    assert not {name for name in columns if name.startswith("_")}
    assert what_there_is(connection)[1] == []
    again = Shop(connection, kinds=lambda _: kinds("old_"), name="old")
    for state in again.topology.states:
        adopt(connection, again.topology, state.name, f"old_{state.name}")
    again.commit(batch(4))
    assert is_exact(again)
    assert shown(again)["whole"][0][0] == floats["whole"][0][0] + len(batch(4))


def test_a_generated_column_that_is_gone_keeps_no_table_from_leaving(connection):
    mean = State("means", key={"k": "bigint"}, values={"mean": Avg("price", "numeric(9,2)")})
    Shop(connection, kinds=lambda _: [mean]).commit([{"k": 1, "price": Decimal(1)}])
    do(connection, "ALTER TABLE means DROP mean")
    drop_topology(connection, "shop", keep_tables=True)
    assert rows(connection, "SELECT * FROM means") == [(1,)]


def test_what_uses_the_ledgers_columns_is_in_the_way(connection):
    shop = small(connection)
    shop.commit([{"k": 1, "price": Decimal(1)}])
    do(connection, "CREATE VIEW report AS SELECT k, total FROM small")
    do(connection, "CREATE VIEW inner_life AS SELECT k, _rows FROM small")
    with pytest.raises(DropNotPossible, match=r"view public\.inner_life \(column _rows\)"):
        drop_topology(connection, "shop", keep_tables=True)
    assert is_exact(shop)
    do(connection, "DROP VIEW inner_life")
    drop_topology(connection, "shop", keep_tables=True)
    assert rows(connection, "SELECT * FROM report") == [(1, 1)]


# --- the command line ----------------------------------------------------------------------------


def test_the_command_line_adopts_and_leaves(connection, monkeypatch):
    do(connection, f"CREATE TABLE small ({FITS})")
    do(connection, "INSERT INTO small VALUES (1, 5, 5)")
    shop = small(connection)
    monkeypatch.setitem(sys.modules, "m", SimpleNamespace(topology=shop.topology))
    asked = ("adopt", "shop", "small", "--table", "public.small", "--module", "m")
    would = read(*asked, "--dry-run")
    assert (would["rows"], would["is_in_place"], would["is_dry_run"]) == (1, True, True)
    assert "Adopt it?" in say(*asked, input="n\n", code=1).stderr
    said = say(*asked, "--yes", "--reason", "from dlt").stdout
    assert "has become the table of state small" in said
    assert rows(connection, "SELECT adopted_table, rows, reason FROM reliability.adoption") == [
        ("public.small", 1, "from dlt")
    ]
    assert "[ADOPT_NOT_POSSIBLE]" in say(*asked, "--yes", code=1).stderr
    shop.commit([{"k": 1, "price": Decimal(1)}])
    asked_drop = say("drop", "shop", "--keep-tables", input="n\n", code=1).stderr
    assert "Drop shop with the history of these tables" in asked_drop
    assert read("drop", "shop", "--keep-tables", "--yes")["keeps_tables"]
    assert rows(connection, "SELECT * FROM small") == [(1, 6, 6)]
