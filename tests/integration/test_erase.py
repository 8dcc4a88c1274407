"""H12 on the real ledger: a person's rows go from every place, stay gone, and the rest is exact."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest

from reliability import (
    Append,
    Count,
    FileSpout,
    First,
    History,
    Latest,
    Max,
    OpaqueState,
    State,
    Sum,
    Topology,
    TransactionalState,
    Upsert,
    in_range,
    quarantine,
)
from reliability.core.erasure import person_of
from reliability.core.errors import (
    AttemptFenced,
    AttemptIncomplete,
    CorrectionRefused,
    EraseNotPossible,
    RowsUnaccounted,
)
from reliability.deployment.lazy import pa
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import holding
from reliability.transaction.correct.erase import erase, persons_where
from reliability.transaction.correct.quarantine import record_corrections
from reliability.transaction.correct.repair import repair
from reliability.transaction.correct.replayable import Replayable
from reliability.transaction.correct.rollback import release, roll_back
from reliability.transaction.inspect.alerts import record_conditions
from reliability.transaction.inspect.explain import explain
from reliability.transaction.inspect.verify import verify
from reliability.transaction.maintain.compaction import compact
from reliability.transaction.topology.alter import alter
from tests.replay.shop import BY, Shop, shown
from tests.support.command_line import read, say
from tests.support.doomed import doomed
from tests.support.fix_pipeline import month, write_parquet
from tests.support.fix_postgres import (
    all_texts,
    database_of,
    execute,
    new_database,
    rows,
    wait_until_it_waits,
)
from tests.support.quarantined import compare, edit, lines

MONEY = "numeric(14,2)"
TOTALS = {"n": Count(), "total": Sum("price", MONEY)}


def kinds(_="", **options):
    """One state for each way in which rows are kept; the last two tell no customers apart."""
    customer, prices = {"customer": "bigint"}, {"price": Append("price", MONEY)}
    highest = {"n": Count(), "highest": Max("price", MONEY)}
    first = {"opened": First("price", BY, MONEY), "word": Upsert("word", BY, "text")}
    of_word = {"customer": Append("customer", "integer"), **prices}
    return [
        State("sums", key=customer | {"word": "text"}, values=TOTALS, **options),
        State("recomputed", key=customer, values=highest | first),
        State("log", values={"who": Append("customer"), **prices}),
        State("lines", key={"word": "text"}, values=of_word),
        State("viewed", key=customer, values=prices, as_view=True),
        State("days", key={"day": "date"}, values=TOTALS),
        State("whole", values=TOTALS),
    ]


TELLS = {"sums": 0, "recomputed": 0, "log": 0, "lines": 1, "viewed": 0}  # in which column


def batch(seed):
    return [
        {
            "customer": (17, 3, 170, 4)[(seed + n) % 4],
            "word": "abc"[n % 3],
            "price": Decimal(seed * 10 + n) / 4,
            "day": date(2026, 1, 1 + (seed + n) % 3),
        }
        for n in range(9)
    ]


def without_ann(tables):
    return {
        name: [row for row in found if name not in TELLS or row[TELLS[name]] != 17]
        for name, found in tables.items()
    }


def is_exact(shop):
    return all(state.is_exact is not False for state in verify(shop.connection, shop.name))


def stored(shop):
    """Return how many rows of the customer are in any table of the schemas with rows."""
    found = 0
    for state in shop.topology.states:
        if state.name in TELLS:
            tables = (f"public.{state.target[1]}", f'reliability_contribution."shop__{state.name}"')
            for table in tables:
                column = "who" if state.name == "log" else "customer"
                [(n,)] = rows(shop.connection, f"SELECT count(*) FROM {table} WHERE {column} = 17")
                found += n
    return found


@pytest.fixture(scope="module")
def with_batches(template):
    """A ledger in which three batches have committed, one of them twice."""
    with new_database(template) as dsn:
        with closing(LedgerConnection(dsn)) as connection:
            found = Shop(connection, kinds=kinds)
            found.commit(batch(1), batch(2), batch(3))
            found.replay(2)
        yield database_of(dsn)


@pytest.fixture
def origin(request, template):
    has_shop = "shop" in request.fixturenames
    return request.getfixturevalue("with_batches") if has_shop else template


@pytest.fixture
def shop(connection):
    """Go on there."""
    found = Shop(connection, kinds=kinds)
    found.source.sizes += [len(batch(1))] * 3
    found.makes.update({txid: batch(txid) for txid in (1, 2, 3)})
    found.raised[f"{found.run_of(2).run_id}:2"] = 1
    return found


def erased(shop, keys=(), **options):
    """Erase customer 17, or others; a table calls the column `who`."""
    columns = {name for state in shop.topology.states for name in (*state.key, *state.values)}
    keys = keys or [(name, "17") for name in ("customer", "who") if name in columns]
    return erase(shop.connection, shop.name, keys, reason="request 4711", **options)


def test_rows_go_from_every_kind_of_state_and_stay_gone(connection, shop):
    """H12: whatever is done next is exact, with the others' rows as they were."""
    before = shown(shop)
    done = erased(shop)
    after = shown(shop)
    assert after == without_ann(before)
    assert stored(shop) == 0
    assert is_exact(shop)
    known = "sink = 'sums' AND contribution_digest IS NOT NULL"  # it is of the person's rows too
    assert rows(connection, f"SELECT count(*) FROM reliability.sink WHERE {known}") == [(0,)]
    gone = {one.state: one.rows for one in done.states}
    assert gone == {name: len(before[name]) - len(after[name]) for name in TELLS}
    assert done.totals == ("days", "whole")
    for txid in (1, 3, 2):
        assert all(difference.is_nothing for difference in shop.replay(txid)), txid
        assert shown(shop) == after
        assert is_exact(shop)
    [(counted,)] = rows(
        connection,
        "SELECT sum(count)::int FROM reliability.set_aside WHERE (kind, reason, sink, txid)"
        " = ('DROPPED', 'erased', 'sums', 2)",
    )
    assert counted == sum(row["customer"] == 17 for row in batch(2))
    wrong = [{**row, "price": Decimal("-7.25")} for row in batch(2)]
    shop.correct(2, wrong)  # corrected code counts for the others as ever
    renamed = [replace(state, name=f"fresh_{state.name}") for state in kinds()]
    fresh = Shop(connection, kinds=lambda _: renamed, name="fresh")
    fresh.commit(batch(1), wrong, batch(3))
    expected = {name.removeprefix("fresh_"): found for name, found in shown(fresh).items()}
    assert shown(shop) == without_ann(expected)
    assert is_exact(shop)
    shop.correct(2, batch(2))
    roll_back(connection, "shop", 1, "too far")
    assert is_exact(shop)
    release(connection, "shop")
    shop.do_again(2, 3)
    assert shown(shop) == after
    shop.commit(batch(4))  # a new txid leaves them out, too
    assert stored(shop) == 0
    assert is_exact(shop)
    assert explain(connection, "shop", "recomputed", {"customer": "17"}).contributions == ()


@pytest.mark.parametrize("compacts_first", [True, False])
def test_folded_history_is_erased_too(connection, compacts_first):
    """H12: compaction folds a key's rows to one, which is the person's."""
    shop = Shop(connection, kinds=lambda _: kinds(keep=History(txids=1))[:1])
    shop.commit(batch(1), batch(2), batch(3))
    before = shown(shop)
    for step in (compact, lambda *_: erased(shop))[:: 1 if compacts_first else -1]:
        step(connection, "shop")
        assert is_exact(shop)
    assert shown(shop) == without_ann(before)
    assert all(difference.is_nothing for difference in shop.replay(3))
    roll_back(connection, "shop", 2, "too far")
    assert is_exact(shop)
    release(connection, "shop")
    shop.do_again(3)
    assert shown(shop) == without_ann(before)
    execute(connection, "UPDATE public.sums SET total = total + 1")
    repair(connection, "shop", "by hand")
    assert shown(shop) == without_ann(before)


@pytest.mark.parametrize("kind", [OpaqueState, TransactionalState])
def test_states_without_history(connection, kind):
    """H12: the last txid can still be replaced, or taken out, without the person."""
    sums = kind("sums", key={"customer": "bigint"}, values=TOTALS)
    shop = Shop(connection, kinds=lambda _: [sums])
    shop.commit(batch(1), batch(2))
    before = shown(shop)
    erased(shop)
    after = shown(shop)
    assert after == without_ann(before)
    if kind is OpaqueState:
        assert all(difference.is_nothing for difference in shop.replay(2))
        assert shown(shop) == after
        roll_back(connection, "shop", 1, "too far")
        release(connection, "shop")
        shop.do_again(2)
    assert shown(shop) == after
    shop.commit(batch(3))
    assert stored(shop) == 0


def test_who_is_at_work_begins_again_without_the_person(connection, shop):
    """H12: an attempt that began before has not been told whom to leave out.

    The erasure waits for the topology's lock, so that no commit comes between.
    """
    shop.deliver(batch(4), batch(5))
    shop.process(5)
    grant = shop.begin(4)
    with ThreadPoolExecutor() as pool:
        with holding(LedgerConnection(connection.dsn), "shop"):
            waiting = pool.submit(erased, shop.another_process())
            wait_until_it_waits(connection, "reliability")
        assert waiting.result().fenced == 2
    with pytest.raises(AttemptFenced):
        shop.write(grant)
    assert stored(shop) == 0
    shop.transact(4)
    shop.transact(5)
    assert stored(shop) == 0
    assert is_exact(shop)


def test_an_erasure_is_whole_and_a_dry_run_of_it_changes_nothing(connection, shop):
    """H12: what dies in between has changed nothing, either."""
    before = shown(shop)
    would = erased(shop, dry_run=True)
    recorded = (
        "SELECT (SELECT count(*) FROM reliability.erasure),"
        " (SELECT count(*) FROM reliability.erased_key)"
    )
    trips = 0
    while True:
        assert shown(shop) == before
        assert rows(connection, recorded) == [(0, 0)]
        other = shop.another_process()
        with doomed(at=trips) as fate:
            done = erased(other)
        if not fate.has_died:
            break
        trips += 3
    assert shown(shop) == without_ann(before)
    assert would.states == done.states
    assert erased(shop).states != done.states  # nothing is left
    assert rows(connection, recorded) == [(2, 2)]


def test_no_part_of_the_ledger_has_the_key(connection):
    """H12: of a person stay a salted hash and numbers."""
    values = {**TOTALS, "most": Max("price", MONEY)}
    audits = [in_range("total", least=0, severity="warn", of="table")]
    balances = State("balances", key={"customer": "text"}, values=values, audits=audits)
    shop = Shop(connection, kinds=lambda _: [balances])
    shop.commit([{"customer": "ann@x.org", "price": Decimal(-1)}, {"customer": "bob", "price": 1}])
    execute(connection, "UPDATE public.balances SET n = 5 WHERE customer LIKE 'ann%%'")
    roll_back(connection, "shop", 0, "all of it")
    release(connection, "shop")
    shop.do_again(1)
    execute(connection, TOLD)
    assert "ann@x.org" in all_texts(connection)
    assert erased(shop, [("customer", "ann@x.org")]).examples == 3
    assert "ann@x" not in all_texts(connection)
    assert "bob" in all_texts(connection)


TOLD = """
    UPDATE reliability.attempt SET remedy = 'ask ann@x.org' WHERE reason_code IS NOT NULL;
    UPDATE reliability.emission SET status = 'FAILED', reason_code = 'KeyError',
           reason = '"ann@x.org"', failing_since = now();
    UPDATE reliability.request
       SET problem_code = 'FILE_REFUSED', problem = 'bob''s', problem_remedy = 'ann@x.org'
     WHERE request_id = (SELECT min(request_id) FROM reliability.request);
    UPDATE reliability.request SET problem_code = 'FILE_REFUSED', problem = 'ann@x.org.csv'
     WHERE request_id = (SELECT max(request_id) FROM reliability.request);
    INSERT INTO reliability.alert (topology, kind, subject, what, advice, command, since)
    VALUES ('shop', 'BLOCKED', '1', 'why: [AUDIT_FAILED] {"customer":"ann@x', 'mend it', '', now()),
           ('shop', 'BLOCKED', '2', 'a disk is full', 'ask ann@x.org', '', now())
"""
QUARANTINE = """
    INSERT INTO reliability.quarantined_row (topology, txid, attempt_id, step, number, reason,
           contents, is_cut, xor, count)
    SELECT 'shop', 1, 0, 'process', n, 'bad', contents, contents NOT LIKE '%%}', 0, 1
      FROM unnest(%(contents)s::text[]) WITH ORDINALITY AS c(contents, n)
"""
CORRECTION = """
    INSERT INTO reliability.correction (topology, txid, xor, was, becomes, reason, corrected_by)
    VALUES ('shop', 1, 1, '{"Customer": 17, "price": 1}', '{"price": 2}', 'r', 'b'),
           ('shop', 1, 2, '{"customer": 3, "price": 1}', '{"price": 2}', 'r', 'b')
"""


def test_rows_of_the_quarantine_and_corrections_go_too(connection, shop):
    """H12: a row of the quarantine is a person's by a column of its contents.

    The command compares the rows, and asks a person before it records corrections.
    """
    execute(connection, QUARANTINE, contents=['{"customer": 17, "price": -1}'])
    execute(connection, "UPDATE reliability.quarantined_row SET source = contents")
    [line] = lines(connection, "shop")
    edited = compare(connection, "shop", edit(line, price=1))
    assert erased(shop, [("customer", "17")]).quarantined == 1
    replayable = Replayable.of(connection, "shop")
    with (
        holding(connection, "shop") as (tx, _),
        pytest.raises(CorrectionRefused, match="has left the quarantine"),
    ):
        record_corrections(tx, replayable, edited, "a test", "ann")
    assert rows(connection, "SELECT count(*) FROM reliability.correction") == [(0,)]

    contents = [
        '{"CUSTOMER":17,"price":1}',
        '{"customer":"17"}',
        '{"customer":170}',
        '{"customer":3,"price":17}',
        '{"_record":"17;1.50"}',  # nobody knows whose it is
        '{"customer":17,"note":"…',
        '{"note":"…',
        '{"customer":3,"note":"…',
    ]
    execute(connection, QUARANTINE, contents=contents)
    execute(connection, CORRECTION)
    source = "UPDATE reliability.quarantined_row SET source = %(ann)s WHERE number = 4"
    execute(
        connection, source, ann='{"customer": 17}'
    )  # the next edit of that row would bring the person back
    done = erased(shop, [("customer", "17")])
    assert (done.quarantined, done.corrections, done.unclear) == (4, 1, 2)
    left = rows(connection, "SELECT number FROM reliability.quarantined_row ORDER BY 1")
    assert left == [(3,), (5,), (7,), (8,)]


def test_an_order_is_erased_by_its_key(connection):
    """H12: a row that shows one of several persons may hold what others have added."""
    states = [
        State(
            "orders",
            key={"number": "bigint"},
            values={"customer": Latest("customer", by=BY, type="bigint"), **TOTALS},
        ),
        State("sums", key={"customer": "bigint"}, values=TOTALS),
    ]
    shop = Shop(connection, kinds=lambda _: states)
    shop.commit([{**row, "number": n} for n, row in enumerate(batch(1))])
    with pytest.raises(EraseNotPossible, match="rows of state orders, contributions among them"):
        erased(shop)
    orders = persons_where(connection, "shop", "number", "customer = 17 AND '%' = chr(37)")
    assert len(orders) == sum(row["customer"] == 17 for row in batch(1))
    erased(shop, orders)
    erased(shop)
    assert rows(connection, "SELECT count(*) FROM public.orders WHERE customer = 17") == [(0,)]
    assert stored(shop) == 0
    shop.replay(1)
    assert rows(connection, "SELECT count(*) FROM public.orders WHERE customer = 17") == [(0,)]
    shop.commit([{**row, "number": 100 + n} for n, row in enumerate(batch(2))])
    later = "SELECT customer, sum(n)::int FROM orders WHERE number >= 100 GROUP BY 1 ORDER BY 1"
    assert rows(connection, later) == [(3, 2), (4, 2), (170, 3), (None, 2)]
    assert is_exact(shop)


def test_who_only_decides_which_row_wins_is_no_total(connection):
    """H12: the hidden column of `by` shows the person, and it was said that no column does."""
    by = {**BY, "customer": "bigint"}
    words = State("words", key={"word": "text"}, values={"price": Latest("price", by, MONEY)})
    sums = State("sums", key={"customer": "bigint"}, values=TOTALS)
    shop = Shop(connection, kinds=lambda _: [words, sums])
    shop.commit([row for row in batch(1) if row["customer"] != 17])
    erased(shop)
    shop.commit(batch(2))
    shown_by = "SELECT count(*) FILTER (WHERE _price_by_2 = {}) > 0 FROM words"
    assert rows(connection, shown_by.format(17)) == [(False,)]
    assert rows(connection, shown_by.format(170)) == [(True,)]
    with pytest.raises(EraseNotPossible, match=r"state words, .* as _price_by_2"):
        erased(shop, [("customer", "170")])


def test_what_a_row_was_before_its_last_txid_shows_the_person_too(connection):
    """H12: a rollback brought the person back into the table."""
    last = OpaqueState("words", key={"word": "text"}, values={"customer": Latest("customer", BY)})
    shop = Shop(connection, kinds=lambda _: [*kinds()[2:3], last])
    ann, day = {**batch(1)[0], "customer": 17}, date(2026, 2, 1)
    shop.commit([ann], [{**ann, "customer": 3, "day": day}])
    with pytest.raises(EraseNotPossible, match="as _customer_previous or customer"):
        erased(shop)


def test_rows_that_are_the_persons_go_though_they_are_ordered_by_the_person(connection):
    """H12: it was refused for ever; and a key never becomes NULL."""
    price, last = Latest("price", {**BY, "customer": "bigint"}, MONEY), Max("customer")
    own = State("sums", key={"customer": "bigint"}, values={"price": price, "last": last})
    shop = Shop(connection, kinds=lambda _: [own])
    shop.commit(batch(1))
    erased(shop, [("customer", "17")])
    shop.commit(batch(2))
    assert rows(connection, "SELECT customer FROM sums ORDER BY 1") == [(3,), (4,), (170,)]
    assert is_exact(shop)


def test_a_person_of_32_digits_is_sought_as_it_is_written(connection):
    """H12: a text without dashes became another text; an integer of so many digits, no integer."""
    hashed = "d41d8cd98f00b204e9800998ecf8427e"
    people = State("people", key={"id": "text"}, values={"n": Count()})
    shop = Shop(connection, kinds=lambda _: [people])
    shop.commit([{"id": hashed.upper()}, {"id": "bob"}])
    execute(connection, f"UPDATE reliability.attempt SET reason = 'Key (id)=({hashed}) exists'")
    erased(shop, [("id", hashed)])
    assert rows(connection, "SELECT id FROM people") == [("bob",)]
    assert hashed not in all_texts(connection).lower()
    sums = State("sums", key={"customer": "bigint"}, values={"n": Count()})
    assert person_of([sums], "customer", "17".zfill(32)).value == "17"


@pytest.mark.parametrize(
    ("types", "is_added"), [(("text", "uuid"), True), (("uuid", "text"), False)]
)
def test_a_uuid_stays_erased_whatever_type_a_later_state_gives_it(connection, types, is_added):
    """H12: its hash was made of another notation; an alteration and a replay brought it back."""
    first, second = (
        State(name, key={"id": type_}, values={"n": Count()})
        for name, type_ in zip(("people", "visitors"), types, strict=True)
    )
    visits = [{"id": id_, "day": date(2026, 1, 1)} for id_ in (ANNS, BOBS, ANNS.lower())]
    shop = Shop(connection, kinds=lambda _: [first])
    shop.commit(visits)
    erased(shop, [("id", ANNS)])
    assert rows(connection, "SELECT id::text, n FROM people") == [(BOBS, 1)]
    altered = Shop(connection, kinds=lambda _: [first, second] if is_added else [second])
    altered.source.sizes.append(len(visits))
    altered.makes[1], altered.raised = visits, shop.raised
    alter(connection, altered.topology, "a test")
    altered.replay(1)
    for state in altered.topology.states:
        assert rows(connection, f"SELECT id::text, n FROM {state.name}") == [(BOBS, 1)]


def test_what_cannot_be_exact_is_refused(shop):
    before = shown(shop)
    for name, value, said in (
        ("customre", "17", "no state has a column customre"),
        ("day", "2026-01-01", "only an integer, a text or a uuid"),
        ("customer", "ann", "a value for customer is no bigint or integer"),
        ("customer", "9" * 20, "is no bigint or integer"),
        ("word", "", "is empty"),
        ("word", "Zo\udceb", "a value for word is no text"),  # Latin-1, where UTF-8 was expected
    ):
        with pytest.raises(EraseNotPossible, match=said) as refusal:
            erased(shop, [(name, value)])
        assert shown(shop) == before
        assert not value or value not in str(refusal.value)


KEEP = """
    CREATE FUNCTION public.keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    CREATE TRIGGER soft BEFORE DELETE ON public.log FOR EACH ROW EXECUTE FUNCTION public.keep()
"""


def test_rows_that_are_still_there_or_that_no_header_counts_are_told(connection, shop):
    """H12, H2: the verb said that they are erased.

    Or they were taken out of what others have, and no replay was possible any more.
    """
    execute(connection, "CREATE TABLE public.backup AS SELECT * FROM public.log WHERE who = 17")
    execute(connection, KEEP)
    kept = r"public\.log: 6 rows .* are still there; a trigger"
    with pytest.raises(EraseNotPossible, match=kept):
        erased(shop)
    execute(connection, "DROP TRIGGER soft ON public.log")
    erased(shop)
    assert stored(shop) == 0
    execute(connection, "INSERT INTO public.log SELECT * FROM public.backup")
    with pytest.raises(EraseNotPossible, match=r"state log: .* is recorded with \d rows, but \d"):
        erased(shop)
    execute(connection, "DELETE FROM public.log WHERE who = 17")
    erased(shop)
    assert is_exact(shop)


def test_the_command_asks_and_never_says_the_key(connection, shop):
    """H12: nothing that is printed or recorded has the value."""
    before = shown(shop)
    asked = say("erase", "shop", "--key", "customer=17", "--reason", "4711", code=1, input="n\n")
    assert shown(shop) == before
    options = ("--key", "customer=-", "--reason", "4711", "--yes")
    done = say("erase", "shop", *options, input="17\n170\n")
    assert "2 persons erased" in done.stdout
    assert "added to days, log, whole stays" in " ".join(done.stdout.split())
    assert "=17" not in asked.output + done.output
    assert {row[0] for row in shown(shop)["recomputed"]} == {3, 4}
    [record] = read("topologies", "shop")[0]["erasures"]
    assert [key["column"] for key in record["keys"]] == ["customer", "customer"]
    assert record["counts"]["states"]["recomputed"] == {"rows": 2, "staged": 8}
    where = ("--key", "customer", "--state", "recomputed", "--where", "n > 0", "--dry-run")
    assert len(read("erase", "shop", *where)["keys"]) == 2
    say("erase", "shop", "--key", "who=-", *options, code=2, input="17\n")
    nobody = say("erase", "shop", *options, code=1, input="\n").stderr
    assert "these are 0 persons, and 1 to 1,000 can be erased at once" in nobody
    say("erase", "shop", "--key", "customer=1", code=2)
    say("erase", "shop", "--key", "customer", "--dry-run", code=2)
    say("erase", "shop", *options, code=2, input=b"Zo\xeb\n")


def test_an_alert_does_not_tell_what_an_erasure_forgets_meanwhile(connection, shop, monkeypatch):
    """H12: it had read why a txid is blocked, and recorded that after the erasure."""
    shop.deliver(batch(4))
    told = AttemptIncomplete("a constraint of yours: Key (customer)=(17) already exists")
    shop.runner.end_attempt(shop.begin(4), told)
    shop.runner.close(4, shop.run_of(4), "its tasks have ended")
    alerts = LedgerConnection(connection.dsn, "alerts")
    with ThreadPoolExecutor() as pool, closing(LedgerConnection(connection.dsn)) as another:

        def meanwhile(*_):
            looking.append(pool.submit(record_conditions, alerts, "shop", None))
            wait_until_it_waits(another, "alerts")
            return 0

        looking: list[Future[None]] = []
        monkeypatch.setattr("reliability.transaction.correct.erase._erase_corrections", meanwhile)
        erased(shop)
        looking[0].result()
    alerts.close()
    [(what,)] = rows(connection, "SELECT what FROM reliability.alert WHERE kind = 'BLOCKED'")
    assert "17" not in what


ANNS, BOBS = "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
VISITS = [
    {"id": id_, "who": who, "number": number, "price": Decimal(price)}
    for number, (id_, who) in enumerate([(ANNS, "Änn ✓"), (BOBS, "bob")] * 3)
    for price in (number,)
]
VISITS[0] |= {"id": "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11", "who": "nobody"}  # quarantined
LOST = -1


def visited(batch):
    good = quarantine(batch.where(f"number <> {LOST}"), "price < 2", "too cheap")
    return dict.fromkeys(("people", "lines", "numbers", "whole"), good)


def test_spark_leaves_out_what_the_ledger_has_hashed(connection, pipeline, tmp_path, monkeypatch):
    """H12: Spark and Postgres compare the same texts; what is left out is accounted for."""
    types = {"id": pa.string(), "who": pa.string(), "number": pa.int32()}
    file = tmp_path / "1997-01" / "a.parquet"
    file_schema = pa.schema({**types, "price": pa.decimal128(10, 2)})
    write_parquet(file, VISITS, file_schema)
    topology = Topology(
        "shop",
        FileSpout(f"{tmp_path}/{{data_interval_start:%Y-%m}}/*.parquet"),
        [
            State("people", key={"id": "uuid"}, values=TOTALS),
            State("lines", values={"visitor": Append("who", "text")}),
            State("numbers", key={"number": "bigint"}, values=TOTALS),
            State("whole", values={**TOTALS, "who": Latest("who", {"price": MONEY}, "text")}),
        ],
        visited,
    )
    own = pipeline(topology)
    own.take_in(month(1997, 1))
    keys = [("id", ANNS.lower()), ("visitor", "Änn ✓"), ("who", "Änn ✓"), ("number", "5")]
    done = erase(connection, "shop", keys, reason="request 4711")
    assert {one.state: one.rows for one in done.states} == {"people": 1, "lines": 2, "numbers": 1}
    assert (done.quarantined, done.unclear) == (1, 0)

    def left():
        asked = (
            "id::text, n FROM people",
            "visitor FROM lines",
            "number FROM numbers",
            "n, total FROM whole",
            "contents::jsonb ->> 'who' FROM reliability.quarantine",
        )
        return [rows(connection, f"SELECT {what} ORDER BY 1") for what in asked]

    expected = [[(BOBS, 2)], [("bob",)] * 2, [(2,), (3,), (4,)], [(4, 14)], [("bob",)]]
    assert left() == expected
    own.replay(1)
    assert left() == expected
    assert ANNS.lower() not in all_texts(connection).lower()
    monkeypatch.setattr(f"{__name__}.LOST", 4)
    with pytest.raises(RowsUnaccounted):
        own.replay(1)
    assert ANNS.lower() not in all_texts(connection).lower()  # it was an example of a lost row
    assert verify(connection, "shop")[0].is_exact
    aside = rows(
        connection,
        "SELECT sink, kind, count FROM reliability.set_aside WHERE attempt_id = 1"
        " AND (kind = 'QUARANTINED' OR reason = 'erased') ORDER BY 1, 2",
    )
    assert aside == [
        (state, kind, count)
        for state, dropped in (("lines", 3), ("numbers", 2), ("people", 3), ("whole", 1))
        for kind, count in (("DROPPED", dropped), ("QUARANTINED", 1))
    ]
    monkeypatch.setattr(f"{__name__}.LOST", -1)
    ann = [{"id": ANNS, "who": "Änn ✓", "number": 9, "price": Decimal(6)}]
    write_parquet(tmp_path / "1997-02" / "a.parquet", ann, file_schema)
    own.emit(month(1997, 2))
    own.transact(2)  # what she adds to a total counts, and does not show her
    assert rows(connection, "SELECT n, total, who FROM whole") == [(5, 20, None)]
