"""The page of Airflow's UI with Airflow's login left out, and ledgers with something to see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from psycopg2.sql import SQL

from dev.services.browser import find_browser, options
from reliability.core.errors import SourceChanged
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.correct.park import park, skip
from reliability.transaction.correct.rollback import release, roll_back
from tests.support.fix_postgres import new_database

TXIDS = 50_000
#: The topologies of `full_ledger`, by how many txids each has.
TOPOLOGIES = {0: "none", 1: "one", 36: "many"}
LONG = "growth"
#: What a change has to come with: another site cannot send it.
FROM_THE_PAGE = {"X-Reliability": "page"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium without a window, for one module.

    Playwright keeps an event loop running in the process's main thread until it ends: a later
    module there could run no loop of its own.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=options())
        yield browser
        browser.close()


# --- the application -----------------------------------------------------------------------------


class Person:
    """A user of Airflow's, as far as the page asks."""

    def get_name(self) -> str:
        return "zoe"


@dataclass
class Rights:
    """What the person may do; `readable` None is everything."""

    is_logged_in: bool = True
    may_read: bool = True
    may_act: bool = True
    readable: set[str] | None = None


class Everything(set[str]):
    """The ids of all DAGs that there may be."""

    def __contains__(self, name: object) -> bool:
        return True


@contextmanager
def airflow_with_page(rights: Rights) -> Iterator[Any]:
    """Give an application that has the page where Airflow's API server has it.

    Which rights each address needs is the page's own; only Airflow's answers are these.
    """
    from fastapi import FastAPI, HTTPException

    from reliability_airflow.page import access
    from reliability_airflow.page.addresses import PREFIX
    from reliability_airflow.page.app import make_app

    def person() -> Person:
        if not rights.is_logged_in:
            raise HTTPException(401, "Not authenticated")
        return Person()

    def check_reading() -> None:
        if not rights.may_read:
            raise HTTPException(403, "Forbidden")

    def may(user: Person, method: str, dag_id: str) -> bool:
        return rights.may_act if method == "PUT" else rights.may_read

    page = make_app()
    page.dependency_overrides |= {
        access.logged_in.dependency: person,
        access.may_read_dag.dependency: check_reading,
        access.readable_dags: lambda: Everything() if rights.readable is None else rights.readable,
    }
    airflow = FastAPI()
    airflow.mount(PREFIX, page)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(access, "_may", may)
        yield airflow


@pytest.fixture(scope="module")
def rights_of_module() -> Rights:
    """What `rights` are, for a page that is made once."""
    return Rights()


@pytest.fixture
def rights(rights_of_module: Rights) -> Rights:
    """What the person of this test may do; a test changes it."""
    vars(rights_of_module).update(vars(Rights()))
    return rights_of_module


# --- ledgers -------------------------------------------------------------------------------------


def shop_named(
    connection: LedgerConnection, name: str, kinds: Any = None, elsewhere: str = ""
) -> Any:
    """A topology whose tables have its name, so that several fit into one database."""
    from tests.replay.shop import Shop

    def own(other: str) -> list[Any]:
        return [replace(state, table=f"{name}_{state.name}") for state in (kinds or three)(other)]

    return Shop(connection, elsewhere, own, name=name, pending=8)


def three(elsewhere: str = "") -> list[Any]:
    """A state that is swapped exactly, one that is recomputed elsewhere, and appended rows."""
    from tests.replay.shop import states

    return [one for one in states(elsewhere) if one.name in ("exact", "recomputed", "log")]


def give_rich_history(connection: LedgerConnection, elsewhere: str = "") -> None:
    """Everything that can become of a txid, in one topology without intervals."""
    from tests.replay.shop import made

    shop = shop_named(connection, "rich", elsewhere=elsewhere)
    shop.deliver(*(made(n) for n in range(1, 13)))
    shop.transact(1)
    shop.correct(1, made(101))
    shop.correct(1, made(201))
    shop.transact(2)
    shop.dry_run(2)
    shop.source.sizes[2] += 1  # 3 fails, is refrozen and commits
    with pytest.raises(SourceChanged):
        shop.transact(3)
    shop.makes[3] = made(3, rows=shop.source.sizes[2])
    shop.runner.refreeze(3, "a corrected delivery")
    shop.clear(3)
    shop.transact(3)
    shop.begin(4)  # fenced by the next attempt
    shop.clear(4)
    shop.transact(4)
    shop.transact(5)
    roll_back(connection, "rich", 4, "a wrong price list")
    release(connection, "rich")
    shop.clear(5)
    shop.transact(5)
    park(connection, "rich", 6, "its file is broken")
    skip(connection, "rich", 7, "a duplicate of 6", by="zoe")
    shop.transact(8)
    shop.transact(9)
    roll_back(connection, "rich", 8, "9 was wrong")  # 9 and later are held
    with connection.transaction() as tx:
        tx.run(SQL(ASIDE))
        tx.run(SQL(AUDITED))
    shop.runner.pause("the disk is full")


ASIDE = """
    INSERT INTO reliability.set_aside (topology, txid, attempt_id, sink, kind, reason, xor, count)
    SELECT topology, txid, attempt_id, sink, kind, reason, 0, count
      FROM reliability.sink, (VALUES ('DROPPED', 'no customer', 2), ('QUARANTINED', 'no price', 1),
                                     ('FANNED_OUT', 'a row per item', -3)) AS v(kind, reason, count)
     WHERE topology = 'rich' AND txid = 2;
    INSERT INTO reliability.quarantined_row (topology, txid, attempt_id, step, number, reason, item,
                                             row, contents, is_cut, xor, count)
    VALUES ('rich', 2, 0, 'process', 1, 'no price', 'a.csv', 4, '{{"price": ""}}', false, 0, 1)
"""
AUDITED = """
    INSERT INTO reliability.audit (digest, name, of, severity, query)
    VALUES ('1', 'no negative price', 'contribution', 'warn', 'SELECT'),
           ('2', 'every key once', 'table', 'error', 'SELECT'),
           ('3', 'it divides', 'contribution', 'warn', 'SELECT'),
           ('4', 'later', 'table', 'warn', 'SELECT');
    INSERT INTO reliability.audit_result (topology, txid, attempt_id, state, digest, violations,
                                          examples, problem, error_code, audited_at)
    VALUES ('rich', 2, 0, 'exact', '1', 2, ARRAY['{{"price": -1}}', '{{"price": -2}}'], NULL, NULL,
            clock_timestamp()),
           ('rich', 2, 0, 'exact', '2', 0, ARRAY[]::text[], NULL, NULL, clock_timestamp()),
           ('rich', 2, 0, 'exact', '4', NULL, NULL, NULL, NULL, NULL),  -- not committed
           ('rich', 2, 0, 'exact', '3', NULL, NULL, 'division by zero', '22012', clock_timestamp())
"""


def give_intervals(connection: LedgerConnection, name: str, txids: int, home: Any) -> None:
    """A topology with an interval for each of its txids, all committed."""
    from benchmarks.copied_history import fill
    from benchmarks.ledger_growth import Pipeline
    from benchmarks.topologies import by_minute

    Pipeline(connection, by_minute(name), home).transact()
    if txids > 1:
        fill(connection, txids)


def give_opaque(connection: LedgerConnection) -> None:
    """A topology that keeps one txid's history."""
    from tests.replay.shop import made, opaque_states

    shop = shop_named(connection, "opaque", opaque_states)
    for txid in shop.deliver(made(1), made(2)):
        shop.transact(txid)


#: All minutes since then but the first lack.
SCHEDULE = """
    INSERT INTO reliability.schedule (topology, dag_id, period, first_start, catchup)
    VALUES ('many', 'many', '1 minute', '2020-01-01 00:00+00', true)
"""


@dataclass(frozen=True)
class Ledgers:
    """Ledgers that nobody changes, by their DSN: `full` has every topology but the long one."""

    empty: str
    full: str
    east: str


@pytest.fixture(scope="session")
def ledgers(template, tmp_path_factory) -> Iterator[Ledgers]:
    """Make them; the other database of `rich` is `east`."""
    home = tmp_path_factory.mktemp("source")
    with ExitStack() as stack:
        empty, full, east = (stack.enter_context(new_database(template)) for _ in range(3))
        with pytest.MonkeyPatch.context() as patch:  # not longer: the other tests have their own
            patch.setenv("RELIABILITY_HOME", str(home))
            patch.setenv("RELIABILITY_DSN_EAST", east)
            connection = LedgerConnection(full)
            give_intervals(connection, "many", 36, home)  # first: it copies what is there
            give_intervals(connection, "one", 1, home)
            shop_named(connection, "none").deliver()
            give_opaque(connection)
            give_rich_history(connection, "east")
            with connection.transaction() as tx:
                tx.run(SQL(SCHEDULE))
            connection.close()
        yield Ledgers(empty, full, east)


@pytest.fixture
def full(ledgers, monkeypatch) -> None:
    """The ledger that has every topology but the long one; nobody changes it."""
    monkeypatch.setenv("RELIABILITY_DSN", ledgers.full)
    monkeypatch.setenv("RELIABILITY_DSN_EAST", ledgers.east)


@pytest.fixture(scope="session")
def long_ledger(template, tmp_path_factory) -> Iterator[str]:
    """The DSN of a ledger whose only topology has committed 50,000 txids."""
    from benchmarks.copied_history import fill

    home = tmp_path_factory.mktemp("source")
    with new_database(template) as dsn:
        connection = LedgerConnection(dsn)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RELIABILITY_HOME", str(home))
            give_intervals(connection, LONG, 1, home)
        # by a superuser, who may leave the foreign keys unchecked: that is most of the time
        unchecked = dsn.replace("service=reliability", "service=admin")
        filling = LedgerConnection(f"{unchecked} options='-c session_replication_role=replica'")
        fill(filling, TXIDS)
        filling.close()
        with connection.transaction() as tx:
            tx.run(SQL(SPREAD), first=TXIDS - 1000)
            tx.run(SQL("ANALYZE"))
        connection.close()
        yield dsn


#: The copies have the times of txid 1: let the last ones have happened one after another.
SPREAD = """
    UPDATE reliability.attempt SET granted_at = granted_at + txid * interval '1 second',
           processed_at = processed_at + txid * interval '1 second',
           ended_at = ended_at + txid * interval '1 second' WHERE txid > %(first)s;
    UPDATE reliability.commit_log SET began_at = began_at + txid * interval '1 second',
           committed_at = committed_at + txid * interval '1 second' WHERE txid > %(first)s;
    UPDATE reliability.transaction SET emitted_at = emitted_at + txid * interval '1 second',
           committed_at = committed_at + txid * interval '1 second' WHERE txid > %(first)s
"""
