"""Audits see what is staged, and what a table would become, before any reader does (C12)."""

from __future__ import annotations

import logging
from contextlib import ExitStack, closing
from dataclasses import replace
from decimal import Decimal

import pytest

from reliability import (
    Append,
    Avg,
    Count,
    Latest,
    OpaqueState,
    State,
    Sum,
    TransactionalState,
    audit,
    in_range,
    not_null,
    references,
    unique,
)
from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import AuditFailed, LedgerBusy
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.queries import queries
from reliability.states import attempt_table
from reliability.transaction.commit.committer import drain
from reliability.transaction.correct.drop import drop_topology
from reliability.transaction.correct.rollback import release, roll_back
from reliability.transaction.inspect.attempt_report import attempt_report
from tests.integration.test_pipeline_kit import words
from tests.replay.shop import Shop
from tests.support.command_line import read, say
from tests.support.doomed import doomed
from tests.support.fix_postgres import execute, own_session, rows
from tests.support.staged import DECIDED

IMPATIENT = queries()["limit_statements"] + "; SET LOCAL lock_timeout = '100ms'"
X = "SELECT 1 / (n - n) FROM {contribution}"
STATUS = "SELECT txid, attempt_id, status, reason_code FROM reliability.attempt ORDER BY 1, 2"
FOUND = (
    "SELECT txid, attempt_id, audit, severity, violations FROM reliability.audits"
    " ORDER BY txid, attempt_id, audit"
)
SALES = "SELECT k, n, total FROM sales ORDER BY k"


def row(k, price=1, word="a"):
    return {"k": k, "word": word, "price": None if price is None else Decimal(price), "day": None}


def sales(*audits, kind=State, **more):
    """How many rows a key has had, and the sum of their prices."""
    values = {"n": Count(), "total": Sum("price", "numeric(14,2)"), "mean": Avg("price")}
    return kind("sales", key={"k": "bigint"}, values=values, audits=audits, **more)


def log(*audits, **more):
    values = {"word": Append("word", "text"), "price": Append("price", "numeric(14,2)")}
    return State("log", key={"k": "bigint"}, values=values, audits=audits, **more)


def viewed(*audits):
    return replace(log(*audits, as_view=True), name="viewed")


@pytest.fixture
def shop(connection):
    """Make a shop with these states; its batches commit in one group."""

    def make(*states, **more):
        return Shop(connection, kinds=lambda _: states, pending=20, **more)

    return make


def with_audits(shop, *states):
    """Deploy other audits."""
    other = Shop(shop.connection, kinds=lambda _: states, pending=20, makes=shop.makes)
    other.source.sizes, other.raised = shop.source.sizes, shop.raised
    return other


def refused(shop, batch, text=""):
    """Deliver a batch that an audit refuses, or let the txid of this number try (again)."""
    [txid] = shop.deliver(batch) if isinstance(batch, list) else [batch]
    with pytest.raises(AuditFailed) as caught:
        shop.transact(txid)
    assert text in caught.value.what
    return caught.value


# --- of a contribution ---------------------------------------------------------------------------

BATCH = [row(1), row(2, -5), row(1), row(None)]  # Spark has all rows of a key in one partition
VIOLATED = {
    not_null("k", "total"): '{"k":null,"total":1.00}',
    in_range("total", least=0): '{"k":2,"total":-5.00}',
    in_range("n", most=1): '{"k":1,"n":2}',
    in_range("mean", least=Decimal("-4.5")): '{"k":2,"mean":-5.0000000000000000}',
    unique("n", of="contribution"): '{"n":1,"times":2}',
    references("k", "public.known.Id"): '{"k":2}',
    audit("cheap", "SELECT k FROM {contribution} c WHERE c.total < 0;"): '{"k":2}',
}


@pytest.fixture
def known(connection):
    execute(connection, 'CREATE TABLE public.known ("Id" bigint)')
    execute(connection, "INSERT INTO public.known VALUES (1)")


def test_a_contribution_that_violates_audits_fails_its_attempt(shop, connection, known):
    error = refused(shop(sales(*VIOLATED)), BATCH)
    assert error.what == "; ".join(
        f"state sales: audit {one.name} found 1 violation, for example {example}"
        for one, example in VIOLATED.items()
    )
    assert rows(connection, STATUS) == [(1, 0, "FAILED", "AUDIT_FAILED")]
    assert rows(connection, FOUND) == sorted((1, 0, one.name, "error", 1) for one in VIOLATED)
    assert rows(connection, SALES) == []


KEPT = [
    not_null("n"),
    in_range("total", least=-5, most=2.0),
    unique("total", "n", of="contribution"),
    references("n", "known.Id", severity="warn"),
    audit("none", "SELECT FROM {contribution} WHERE false"),
    audit("brackets", "SELECT '{}'::int[], '%s %%', '\"', 'a\\b' FROM {contribution} WHERE k = 9"),
    audit("a comment", "WITH c AS (TABLE {contribution})\nSELECT 1, * FROM c WHERE k = 9 -- ;"),
    audit("every row", "SELECT 1 AS a, 2 AS a FROM {contribution}", severity="warn"),
]


@pytest.mark.parametrize("kind", [State, TransactionalState])
def test_audits_that_hold_let_the_attempt_commit(shop, connection, known, kind):
    """C12: a warning is recorded and no more; an empty contribution violates nothing."""
    shop = shop(sales(*KEPT, unique("k"), kind=kind))
    shop.commit(BATCH, [])
    assert rows(connection, "SELECT count(*) FROM sales") == [(3,)]
    found = {(txid, name): number for txid, _, name, _, number in rows(connection, FOUND) if number}
    assert found.keys() == {(1, "references(n, known.Id)"), (1, "every row")}
    assert found[1, "every row"] == 3
    examples = (
        "SELECT examples[1] FROM reliability.audits WHERE (audit, violations) = ('every row', 3)"
    )
    assert rows(connection, examples) == [('{"a":1,"a":2}',)]


@pytest.mark.parametrize("min_rows", [2, 100], ids=["own table", "shared table"])
def test_only_what_this_attempt_has_staged_is_audited(shop, monkeypatch, min_rows):
    """C12: not what has committed, and not what another attempt has staged."""
    monkeypatch.setattr(attempt_table, "MIN_ROWS", min_rows)
    two_rows = audit("two rows", "SELECT FROM {contribution} HAVING count(*) <> 2")
    shop = shop(log(two_rows), viewed(two_rows), sales(two_rows))
    shop.deliver([row(1), row(2)], [row(3), row(4)], [row(5), row(6), row(7)])
    shop.process(2)
    shop.transact(1)
    shop.transact(2)
    assert refused(shop, 3, "two rows").what.count("two rows") == 3


def test_a_key_in_two_notations_is_one_row_of_the_contribution(shop, connection):
    """C12: each notation is in range, and their sum is not."""
    mine = [in_range("n", most=1), unique("u", of="contribution"), not_null("last")]
    last = Latest("word", by={"price": "numeric"}, type="text")
    state = State("owners", key={"u": "uuid"}, values={"n": Count(), "last": last}, audits=mine)
    text = "12345678-1234-1234-1234-123456789abc"
    error = refused(shop(state), [{**row(1), "u": text}, {**row(1), "u": text.upper()}])
    example = f'{{"u":"{text}","n":2}}'
    what = f"state owners: audit in_range(n, most=1) found 1 violation, for example {example}"
    assert error.what == what


def test_a_number_in_two_notations_is_one_key_too(kit):
    """C12: for Spark they are texts that differ."""
    numbers = words(lambda b: {"words": b.selectExpr("if(word = 'dog', '1', '1.0') AS word")})
    audited = replace(numbers.states[0], key={"word": "numeric"}, audits=[in_range("n", most=2)])
    with pytest.raises(AuditFailed, match=r'found 1 violation, .*"n":3'):
        kit.run(replace(numbers, states=[audited]))


def test_a_warning_is_recorded_and_logged_in_one_line(shop, connection, caplog):
    """C12: its severity decides."""
    shop = shop(sales(in_range("total", least=0, severity="warn"), unique("n", severity="warn")))
    with caplog.at_level(logging.WARNING):
        shop.commit([row(1, -1), row(2, -2), row(3, -3), row(4, -4)])
    of_contribution, of_table = (record.getMessage() for record in caplog.records)
    assert "state sales: audit in_range(total, least=0) found 4 violations, for" in of_contribution
    assert of_contribution.count('"total"') == 3
    assert of_table.endswith('audit unique(n) found 1 violation, for example {"n":1,"times":4}')
    assert rows(connection, FOUND) == [
        (1, 0, "in_range(total, least=0)", "warn", 4),
        (1, 0, "unique(n)", "warn", 1),
    ]
    assert rows(connection, STATUS) == [(1, 0, "COMMITTED", None)]


# --- of a table ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [State, OpaqueState, TransactionalState])
def test_a_table_that_would_violate_an_audit_is_never_seen(shop, connection, kind):
    """C12: each contribution is in range, and their sum is not."""
    shop = shop(sales(in_range("total", most=5, of="table"), kind=kind))
    shop.commit([row(1, 3)])
    error = refused(shop, [row(1, 3)], 'found 1 violation, for example {"k":1,"total":6.00}')
    assert "reliability resume-runs shop" in error.about(topology="shop").what_to_do
    assert rows(connection, SALES) == [(1, 1, Decimal(3))]
    shop.deliver([row(2, 1)])
    shop.process(3)
    assert drain(connection, "shop") == []  # it is blocked
    assert rows(connection, STATUS) == [
        (1, 0, "COMMITTED", None),
        (2, 0, "FAILED", "AUDIT_FAILED"),
        (3, 0, "PROCESSED", None),
    ]
    name = "in_range(total, most=5, of=table)"
    found = [(txid, 0, name, "error", number) for txid, number in ((1, 0), (2, 1), (3, None))]
    assert rows(connection, FOUND) == found


def test_appended_rows_and_views_are_audited_as_they_would_be(shop, connection):
    shop = shop(log(unique("word")), viewed(unique("word")))
    shop.commit([row(1, word="a"), row(2, word=None)])
    error = refused(shop, [row(3, word="a"), row(4, word=None)])
    said = 'unique(word) found 1 violation, for example {"word":"a","times":2}'
    assert error.what.count(said) == 2
    for name in ("log", "viewed"):
        assert rows(connection, f"SELECT count(*) FROM {name}") == [(2,)]


def test_of_a_group_only_the_txid_that_violates_is_refused(shop, connection):
    """C12, C5: those before it commit, those behind it wait."""
    shop = shop(sales(in_range("total", most=100, of="table")))
    shop.deliver(*([row(txid, 101 if txid == 6 else 1)] for txid in range(1, 11)))
    for txid in range(1, 11):
        shop.process(txid)
    assert [str(one.attempt) for one in drain(connection, "shop")] == [
        f"{n}:0" for n in range(1, 6)
    ]
    statuses = [status for *_, status, _ in rows(connection, STATUS)]
    assert statuses == ["COMMITTED"] * 5 + ["FAILED"] + ["PROCESSED"] * 4
    shop.makes[6] = [row(6, 100)]
    shop.clear(6)
    shop.transact(6)
    assert rows(connection, "SELECT max(total)::int, count(*)::int FROM sales") == [(100, 10)]
    name = "in_range(total, most=100, of=table)"
    assert rows(connection, FOUND)[5:7] == [(6, 0, name, "error", 1), (6, 1, name, "error", 0)]


def test_a_group_is_audited_once_as_it_commits(shop, connection):
    """Its txids share what is found; an audit may change between them."""
    shop = shop(sales(audit("rows", "SELECT FROM {table}", severity="warn")))
    shop.deliver([row(1)], [row(2)], [row(3)])
    shop.process(1)
    shop.process(2)
    with_audits(shop, sales(audit("rows", "SELECT 1 FROM {table}", severity="warn"))).process(3)
    drain(connection, "shop")
    assert rows(connection, FOUND) == [(n, 0, "rows", "warn", 3) for n in (1, 2, 3)]
    assert rows(connection, "SELECT count(*) FROM reliability.audit") == [(2,)]


def test_a_table_is_audited_with_what_the_txid_adds_to_other_states(shop, connection):
    """An orphan of a table that the same commit fills is none."""
    known = references("k", "sales.k", of="table")
    shop = shop(State("orders", values={"k": Append("k")}, audits=[known]), sales())
    shop.commit([row(1), row(2)])
    assert rows(connection, "SELECT count(*) FROM orders") == [(2,)]
    execute(connection, "DELETE FROM public.sales WHERE k = 2")
    refused(shop, [row(1)], 'found 1 violation, for example {"k":2}')


# --- replays, dry runs, rollbacks ----------------------------------------------------------------


def test_a_replay_that_violates_leaves_the_old_contribution(shop, connection):
    """C12: it fails as a first commit does."""
    shop = shop(sales(in_range("total", most=5, of="table"), in_range("total", most=7)))
    shop.commit([row(1, 3)], [row(1, 1)])
    before = rows(connection, SALES)
    for price in (7, 8):  # the contribution alone would do, and would not
        with pytest.raises(AuditFailed):
            shop.correct(1, [row(1, price)])
        assert rows(connection, SALES) == before
    assert rows(connection, STATUS) == [
        (1, 0, "COMMITTED", None),
        (1, 1, "FAILED", "AUDIT_FAILED"),
        (1, 2, "FAILED", "AUDIT_FAILED"),
        (2, 0, "COMMITTED", None),
    ]
    shop.correct(1, [row(1, 4)])
    assert rows(connection, SALES) == [(1, 2, Decimal(5))]


def test_a_dry_run_reports_what_an_audit_would_find(shop, connection, east):
    """C12: it is rolled back in any case, so it refuses nothing, in no database."""
    here = sales(in_range("total", most=5, of="table"))
    shop = shop(here, replace(here, name="away", table="public.sales", database="east"))
    shop.commit([row(1, 3)])
    shop.makes[1] = [row(1, 7)]
    shop.dry_run(1)
    for there in (connection, east):
        assert rows(there, SALES) == [(1, 1, Decimal(3))]
    assert rows(connection, STATUS)[1] == (1, 1, "DRY_RUN", None)
    found = attempt_report(connection, "shop", TransactionAttempt(1, 1)).audits
    assert [one.foretell("it").partition(": audit in_range(")[0] for one in found] == [
        f"it would be refused: state {name}" for name in ("sales", "away")
    ]


def test_no_rollback_is_audited_but_what_is_released_is(shop, connection):
    """After it the topology can be dropped."""
    shop = shop(sales(in_range("total", most=5, of="table")))
    shop.commit([row(1, 3)], [row(1, 1)])
    execute(
        connection, "INSERT INTO public.sales (k, n, total, _rows, _txid) VALUES (9, 1, 9, 1, 1)"
    )
    roll_back(connection, "shop", 1, "a test")
    release(connection, "shop")
    shop.clear(2)
    refused(shop, 2, '{"k":9')
    drop_topology(connection, "shop")
    assert rows(connection, "SELECT count(*) FROM reliability.audit_result") == [(0,)]


AUDITS_SHOWN = """
audits
  sales: in_range(n, most=1), warn: 1 violation
    {"k":1,"n":2}
  sales: not_null(k), error: passed
  sales: x, error: could not run
    division by zero
  sales: unique(n), error: no result
"""


def test_show_tells_what_audits_have_found(shop):
    state = sales(in_range("n", most=1, severity="warn"), not_null("k"), unique("n"), audit("x", X))
    refused(shop(state), [row(1), row(2), row(1)])
    assert AUDITS_SHOWN in say("show", "shop", "1:0").stdout
    assert read("show", "1:0")["audits"][0] == {
        "state": "sales",
        "name": "in_range(n, most=1)",
        "of": "contribution",
        "severity": "warn",
        "violations": 1,
        "examples": ['{"k":1,"n":2}'],
        "problem": None,
        "error_code": None,
    }


def test_a_replay_on_the_command_line_tells_of_violations(shop, connection, monkeypatch):
    """C12: of a dry run, what would be refused."""
    shop = shop(sales(in_range("total", most=5, of="table"), not_null("k", severity="warn")))
    shop.commit([row(None, 3)])
    shop.makes[1] = [row(None, 7)]
    monkeypatch.setattr("tests.replay.shop.topology", shop.topology, raising=False)
    steps = "reliability.cli.replay.steps_of"
    monkeypatch.setattr(steps, lambda *_: lambda grant, *_: shop.write(grant))
    told = say("replay", "shop", "1", "--dry-run").stdout
    assert "1:1, a warning: state sales: audit not_null(k) found 1 violation" in told
    assert "1:1 would be refused: state sales: audit in_range(total, most=5, of" in told
    assert rows(connection, SALES) == [(None, 1, Decimal(3))]


# --- SQL of users' -------------------------------------------------------------------------------


FAILING = {
    "SELECT missing FROM {}": 'column "missing" does not exist',
    "SELECT 1 FROM {} JOIN known USING (k)": 'relation "known" does not exist; write names with',
    "SELECT 1 / (k - k) FROM {}": "division by zero",
    "WITH d AS (DELETE FROM public.known RETURNING 1) SELECT 1 FROM d, {}": "WITH clause",
    "SELECT 1 FROM {}, public.known FOR UPDATE OF known": "SELECT FOR UPDATE is not allowed",
    "SELECT public.empties_it() FROM {}": "cannot execute DELETE in a read-only transaction",
    "SELECT public.raises_it() FROM {}": "it is undone",
    "SELECT public.asserts_it() FROM {}": "assertion failed",
    "SELECT pg_sleep(3) FROM {}": "canceling statement due to statement timeout",
    "SELECT FROM {} WHERE": "syntax error",
    "DELETE FROM public.known WHERE EXISTS (SELECT FROM {})": "syntax error",
    "SELECT 1 FROM {}) AS one; SELECT (1": "syntax error",
}


@pytest.mark.parametrize("place", ["{contribution}", "{table}"])
def test_sql_that_fails_or_writes_fails_the_attempt_and_changes_nothing(
    shop, connection, known, monkeypatch, place
):
    """C12: it is one query, and read only."""
    monkeypatch.setattr("reliability.states.audit_sql.MAX_SECONDS", 0.2)
    execute(
        connection,
        "CREATE FUNCTION public.empties_it() RETURNS integer LANGUAGE sql"
        " AS $$ DELETE FROM public.known RETURNING 1 $$;"
        "CREATE FUNCTION public.raises_it() RETURNS integer LANGUAGE plpgsql"
        " AS $$ BEGIN RAISE 'it is undone' USING ERRCODE = 'RL000'; END $$;"
        "CREATE FUNCTION public.asserts_it() RETURNS integer LANGUAGE plpgsql"
        " AS $$ BEGIN ASSERT false; END $$",
    )
    shop = shop(sales(*(audit(sql, sql.replace("{}", place)) for sql in FAILING)))
    what = refused(shop, [row(1)]).what
    for sql, said in FAILING.items():
        assert f"state sales: audit {sql} could not run: {said}" in what
    assert rows(connection, "SELECT count(*) FROM known") == [(1,)]
    assert rows(connection, STATUS) == [(1, 0, "FAILED", "AUDIT_FAILED")]
    assert rows(connection, SALES) == []


def test_sql_that_is_more_than_one_statement_commits_nothing(shop, connection, known):
    """C12: its brackets may fit into those around it."""

    def with_statement(between, **more):
        last = "SELECT 1, 2 FROM (SELECT 1 FROM (SELECT 1"
        sql = f"SELECT 1 FROM {{table}}) AS one) AS found; {between}; {last}"
        return audit(between, sql, **more)

    shop = shop(sales(with_statement("DELETE FROM public.known"), with_statement("COMMIT")))
    assert "transaction commands" in refused(shop, [row(1)], "DELETE is not allowed").what
    with_audits(shop, sales(with_statement("SELECT 1", severity="warn"))).do_again(1)
    assert rows(connection, "SELECT count(*) FROM known") == [(1,)]


def test_sql_of_a_warning_that_fails_warns_and_what_follows_may_write(shop, connection):
    """The audit alone is read only and limited in time."""
    places = ("{contribution}", "{table}")
    failing = [audit(one, f"SELECT missing FROM {one}", severity="warn") for one in places]
    shop = shop(log(not_null("k", of="table")), sales(*failing, unique("k")))
    shop.commit([row(1)], [row(2)])
    found = rows(connection, "SELECT problem, error_code FROM reliability.audits WHERE audit ~ '{'")
    assert found == [('column "missing" does not exist', "42703")] * 4
    with connection.transaction() as tx:
        tx.cursor.execute("SHOW statement_timeout")
        assert tx.cursor.fetchone()["statement_timeout"] == "0"


def test_an_audit_that_waits_for_a_lock_for_too_long_is_tried_again(
    shop, connection, known, monkeypatch
):
    """Nothing is wrong with the rows."""
    first = shop(sales())
    first.deliver([row(1)], [row(1)])
    for txid, of in ((1, "contribution"), (2, "table")):
        shop = with_audits(first, sales(references("k", "known.Id", of=of)))
        with closing(own_session(connection.dsn)) as other, monkeypatch.context() as patched:
            other.cursor().execute("LOCK TABLE public.known")
            patched.setitem(queries(), "limit_statements", IMPATIENT)
            with pytest.raises(LedgerBusy, match="lock timeout"):
                shop.transact(txid)
        shop.clear(txid)
        shop.transact(txid)
        assert rows(connection, SALES) == [(1, txid, Decimal(txid))]


def test_columns_and_tables_are_quoted(shop, connection):
    """Columns with names of SQL's own, in a table with one."""
    state = State(
        "words",
        key={"order": "bigint"},
        values={"user": Append("word", "text")},
        table="order.select",
        audits=[
            not_null("order", "user"),
            not_null("user", of="table"),
            in_range("order", least=0),
            unique("user", "order"),
            references("user", "Mixed Case.ta%ble.c{o}l", of="table", severity="warn"),
        ],
    )
    execute(connection, 'CREATE SCHEMA "Mixed Case"')
    execute(connection, 'CREATE TABLE "Mixed Case"."ta%%ble" ("c{o}l" text)')
    shop(state).commit([{**row(1), "order": 1}])
    assert [violations for *_, violations in rows(connection, FOUND)] == [0, 0, 0, 1, 0]


def test_a_column_may_have_a_name_of_the_query_around_it(shop, connection):
    """C12: Postgres would take it for the whole row."""
    key = dict.fromkeys(("one", "place", "found", "example", "violation"), "bigint")
    audits = [
        made
        for of in ("contribution", "table")
        for made in (
            not_null(*key, of=of),
            unique(*key, of=of),
            audit(of, f"SELECT one, place FROM {{{of}}} WHERE found = 2", severity="warn"),
        )
    ]
    shop = shop(State("odd", key=key, values={"n": Count()}, audits=audits))
    shop.commit(*([dict.fromkeys(key, n)] for n in (1, 2)))
    found = "SELECT audit, examples FROM reliability.audits WHERE violations > 0 ORDER BY audit"
    example = ['{"one":2,"place":2}']
    assert rows(connection, found) == [("contribution", example), ("table", example)]


# --- several databases ---------------------------------------------------------------------------


def test_an_audit_runs_in_the_database_of_its_state(shop, connection, east):
    """C12, C6: a database votes no if an audit of its own is violated."""
    away = sales(not_null("k"), in_range("total", most=5, of="table"), database="east")
    shop = shop(away, log(unique("word", severity="warn")))
    shop.commit([row(1, 3)])
    refused(shop, [row(1, 3)], "database east: state sales: audit in_range")
    assert rows(east, SALES) == [(1, 1, Decimal(3))]
    assert rows(connection, "SELECT count(*) FROM log") == [(1,)]
    assert rows(connection, STATUS)[1] == (2, 0, "FAILED", "AUDIT_FAILED")
    shop.makes[2] = [row(None)]
    shop.clear(2)
    refused(shop, 2, "not_null")
    shop.makes[2] = [row(1, 2)]
    shop.clear(2)
    shop.transact(2)
    assert rows(east, SALES) == [(1, 2, Decimal(5))]
    assert [found[3:] for found in rows(connection, FOUND)][-1] == ("warn", 1)
    report = attempt_report(connection, "shop", TransactionAttempt(2, 2))
    found = [(one.state, one.violations) for one in report.audits]
    assert found == [("log", 1), ("sales", 0), ("sales", 0)]


@pytest.mark.parametrize("way", ["violated", "waits for a lock"])
def test_what_is_decided_is_not_refused_by_an_audit(shop, connection, east, monkeypatch, way):
    """C12, C6: otherwise a table that others change would hold up the topology for ever."""
    known = references("k", "public.known.k", of="table")
    shop = shop(sales(known, database="east"), log(known))
    for database in (connection, east):
        execute(
            database, "CREATE TABLE public.known (k bigint); INSERT INTO public.known VALUES (1)"
        )
    shop.deliver([row(1)])
    shop.process(1)
    with doomed(after=DECIDED) as fate:
        drain(LedgerConnection(connection.dsn), "shop")
    assert fate.has_died
    with ExitStack() as others:
        for database in (connection, east):
            other = others.enter_context(closing(own_session(database.dsn)))
            other.cursor().execute("DELETE FROM public.known")
            if way == "violated":
                other.commit()
            else:
                other.cursor().execute("LOCK TABLE public.known")
        monkeypatch.setitem(queries(), "limit_statements", IMPATIENT)
        drain(connection, "shop")
    assert rows(east, SALES) == [(1, 1, Decimal(1))]
    for database in (connection, east):
        [found] = rows(database, "SELECT violations, error_code FROM reliability.audits")
        assert found == ((1, None) if way == "violated" else (None, "55P03"))


# --- round trips ---------------------------------------------------------------------------------


def test_only_audits_cost_round_trips(shop, connection):
    """A commit has one more for each audit of a table; others of its topology have none."""
    shop = shop(sales(not_null("n"), unique("k"), not_null("k", of="table")))
    shop.deliver([row(1)], [row(2)])
    took = []
    for txid, topology in enumerate((shop, with_audits(shop, sales())), start=1):
        topology.process(txid)
        with doomed() as fate, LedgerConnection(connection.dsn) as session:
            drain(session, "shop")
            took.append(fate.round_trips)
    assert took == [5 + 2, 5]  # a new session has one more than usual
