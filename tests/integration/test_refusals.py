"""C5, S6: what Postgres refuses is told in its own words, and is no outage.

The rows are staged by the product's own Spark task, without Spark.
"""

from __future__ import annotations

import random
import re
import string
from typing import Any

import pytest
from psycopg2.sql import SQL
from typer.testing import CliRunner

from reliability import Append, Count, Max, State
from reliability.cli import app
from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import (
    AttemptIncomplete,
    LedgerRefusedLogin,
    RightMissing,
    RunUnsatisfied,
    UnexpectedAnswer,
)
from reliability.core.leases import Leases
from reliability.states.tables import check_rights
from reliability.transaction.emit.requests import close, settle
from reliability.transaction.maintain.sweep import sweep
from reliability.transaction.process.attempt_messages import end_attempt
from tests.replay.shop import Shop
from tests.support.commit_task import context, shop_with_two_txids
from tests.support.fix_postgres import database_of, execute, rolled_back, rows, run_as_admin

OVERDUE = Leases(overdue=0)


def random_text(length: int) -> str:
    """A text that Postgres cannot compress."""
    return "".join(random.Random(7).choices(string.ascii_letters + string.digits, k=length))


def row(word: str, k: int = 1) -> dict[str, Any]:
    return {"k": k, "word": word, "price": None, "day": None}


LONGEST = State("longest", key={"k": "bigint"}, values={"word": Max("word", "text")})
BY_WORD = State("by_word", key={"word": "text"}, values={"n": Count()})
WORDS = State("words", values={"word": Append("word", "text")})


def shop_of(connection, *states) -> Shop:
    return Shop(connection, kinds=lambda _: states, pending=20)


def statuses(connection) -> list[tuple[Any, ...]]:
    return rows(
        connection,
        "SELECT txid, attempt_id, status, reason_code FROM reliability.attempt ORDER BY 1, 2",
    )


# --- rows and tables that Postgres refuses -------------------------------------------------------


@pytest.mark.parametrize("guilty", [1, 2])
def test_a_value_too_large_for_an_index_of_the_users_own_fails_its_txid_alone(connection, guilty):
    """C5: it was taken for an outage: the txid blocked, and every sweep raised."""
    shop = shop_of(connection, LONGEST, WORDS)
    shop.deliver(*([row("a" if n != guilty else random_text(4000))] for n in range(1, 4)))
    execute(connection, "CREATE INDEX own_index ON public.longest (word)")
    for txid in (3, 2, 1):
        shop.process(txid)
    sweep(connection, "shop", OVERDUE)
    expected: list[tuple[Any, ...]]
    expected = [(n, 0, "COMMITTED" if n < guilty else "PROCESSED", None) for n in range(1, 4)]
    expected[guilty - 1] = (guilty, 0, "FAILED", "UNEXPECTED_ANSWER")
    assert statuses(connection) == expected
    [(reason,)] = rows(connection, "SELECT reason FROM reliability.attempt WHERE status = 'FAILED'")
    assert "index row size" in reason
    assert "own_index" in reason
    assert "Consider a function index of an MD5 hash of the value" in reason
    execute(connection, "DROP INDEX public.own_index")
    shop.transact(guilty)
    sweep(connection, "shop", OVERDUE)
    assert rows(connection, "SELECT curr_txid FROM reliability.topology") == [(4,)]


def test_a_key_that_is_too_long_and_a_row_that_is_too_wide_fail_when_they_are_staged(connection):
    """C5: keys are indexed; the task waited for days, and began an attempt every 10 s."""
    shop = shop_of(connection, BY_WORD)
    shop.deliver([row(random_text(4000))])
    with pytest.raises(UnexpectedAnswer, match="index row size") as raised:
        shop.write(shop.begin(1))
    assert "hash the value in the process function" in str(raised.value)

    columns = {f"v{n}": Max("k", "bigint") for n in range(1100)}
    wide = State("wide", key={"k": "bigint"}, values=columns)
    shop = Shop(connection, kinds=lambda _: [wide], name="wide")
    shop.deliver([row("a")])
    with pytest.raises(UnexpectedAnswer, match="row is too big"):
        shop.write(shop.begin(1))


def test_a_table_that_is_published_without_a_replica_identity_fails_its_txid(connection, caplog):
    """C5: CREATE PUBLICATION FOR ALL TABLES; inserts are let through, updates are not."""
    shop = shop_of(connection, LONGEST)
    shop.deliver([row("a")], [row("b")])
    shop.transact(1)
    run_as_admin(
        "CREATE PUBLICATION everything FOR ALL TABLES", database=database_of(connection.dsn)
    )
    with pytest.raises(UnexpectedAnswer, match="does not have a replica identity") as raised:
        shop.transact(2)
    assert "ALTER TABLE … REPLICA IDENTITY FULL" in raised.value.what_to_do
    assert statuses(connection)[1] == (2, 0, "FAILED", "UNEXPECTED_ANSWER")
    execute(connection, "ALTER TABLE public.longest REPLICA IDENTITY FULL")
    shop.transact(2)
    assert rows(connection, "SELECT word FROM longest") == [("b",)]
    kept = "SELECT _txid, _attempt_id FROM reliability_contribution.shop__longest"
    assert sweep(connection, "shop", clean=True).cleaned == [TransactionAttempt(2, 0)]
    assert rows(connection, kept) == [(1, 0), (2, 1)]
    execute(
        connection, "ALTER TABLE reliability_contribution.shop__longest REPLICA IDENTITY NOTHING"
    )
    shop.deliver([row("c")])
    grant = shop.begin(3)
    shop.write(grant)
    shop.runner.end_attempt(grant, AttemptIncomplete("its JVM died"))
    assert sweep(connection, "shop", clean=True).cleaned == []
    put_off = [r for r in caplog.records if "3:0 is cleaned later" in r.getMessage()]
    assert [each.levelname for each in put_off] == ["WARNING"]


# --- rights --------------------------------------------------------------------------------------


def test_a_right_that_is_missing_is_found_before_spark_runs(connection):
    """S6: it was told as a constraint of the user's, after 50 s of Spark."""
    shop = shop_of(connection, LONGEST, WORDS)
    shop.deliver([row("a")])
    for txid, (rights, place) in enumerate(
        (
            ("USAGE", "SCHEMA reliability_contribution"),
            ("INSERT, DELETE", "public.words"),
            ("UPDATE", "public.longest"),
            ("SELECT", "reliability_contribution.shop__longest"),
            ("INSERT", "reliability.code"),
        ),
        start=1,
    ):
        said = f"GRANT {rights} ON TABLE {place} TO reliability;"
        if rights == "USAGE":
            said = "permission denied for schema reliability_contribution"
        before = statuses(connection)
        execute(connection, f"REVOKE {rights} ON {place} FROM reliability")
        with pytest.raises(RightMissing) as raised:
            shop.transact(txid)
        assert said in raised.value.what
        assert statuses(connection) == before
        with pytest.raises(RightMissing):
            shop.deliver([row("a")])
        execute(connection, f"GRANT {rights} ON {place} TO reliability")
        shop.transact(txid)
        assert rows(connection, "SELECT word FROM words") == [("a",)] * txid
        shop.deliver()  # what has come meanwhile


# What the statements between the grant of an attempt and the end of its commit do.
RIGHTS = {
    "SELECT": "ack correction exclusion skip",
    "INSERT": "attempt_event",
    "SELECT, INSERT": "audit code commit_log set_aside",
    "SELECT, UPDATE": "checkpoint request state topology transaction",
    "SELECT, INSERT, UPDATE": "attempt attempt_step attempt_table audit_result contribution sink",
    "SELECT, INSERT, DELETE": "difference quarantined_row",
    "SELECT, UPDATE, DELETE": "source_item",
}
LEDGER_RIGHTS = {table: rights for rights, tables in RIGHTS.items() for table in tables.split()}


def check_without(connection, revoked: str) -> None:
    with rolled_back(connection) as tx:
        tx.run(SQL(f"REVOKE {revoked}"))
        check_rights(tx, [])
        tx.run(SQL("SELECT"))  # with which it is sent


def lacking(connection, revoked: str) -> str:
    with pytest.raises(RightMissing) as raised:
        check_without(connection, revoked)
    return raised.value.what


@pytest.mark.parametrize("table", LEDGER_RIGHTS)
def test_a_right_on_the_ledger_that_is_missing_is_found_with_its_grant(shared_connection, table):
    """S6: a commit, a dry run or a replay of a refrozen table failed after Spark had run."""
    what = lacking(shared_connection, f"ALL ON reliability.{table} FROM reliability")
    granted = f"GRANT {LEDGER_RIGHTS[table]} ON TABLE reliability.{table} TO reliability;"
    assert what.endswith(f"; {granted}")


def test_a_role_that_may_make_no_temporary_tables_is_found_with_its_grant(shared_connection):
    """S6: each commit makes some."""
    name = database_of(shared_connection.dsn)
    what = lacking(shared_connection, f'TEMPORARY ON DATABASE "{name}" FROM PUBLIC, reliability')
    assert re.search(rf'; GRANT TEMPORARY ON DATABASE "?{name}"? TO reliability;$', what)


def test_a_right_that_is_missing_in_another_database_is_found_before_spark_runs(
    connection, add_database
):
    """S6, C6"""
    east = add_database("east")
    shop = shop_of(connection, LONGEST, State("words", values=WORDS.values, database="east"))
    shop.deliver([row("a")])
    execute(east, "REVOKE INSERT ON public.words FROM reliability")
    with pytest.raises(RightMissing, match=r"database east: .*GRANT INSERT ON TABLE public.words"):
        shop.transact(1)
    assert statuses(connection) == [(1, 0, "FAILED", "RIGHT_MISSING")]
    execute(east, "GRANT INSERT ON public.words TO reliability")
    shop.transact(1)


def test_a_right_that_is_revoked_before_the_commit_fails_its_txid_alone(connection):
    """C5, S6"""
    shop = shop_of(connection, LONGEST)
    shop.deliver([row("a")])
    shop.process(1)
    execute(connection, "REVOKE INSERT ON public.longest FROM reliability")
    sweep(connection, "shop", OVERDUE)
    assert statuses(connection) == [(1, 0, "FAILED", "RIGHT_MISSING")]


def test_a_role_that_does_not_own_the_contributions_stages_many_rows_with_others(
    connection, monkeypatch
):
    """H10: only an owner may let a table inherit."""
    from reliability.states import attempt_table

    monkeypatch.setattr(attempt_table, "MIN_ROWS", 1)
    shop = shop_of(connection, LONGEST)
    shop.deliver([row("a")])
    table = "reliability_contribution.shop__longest"
    run_as_admin(
        f"ALTER TABLE {table} OWNER TO postgres",
        f"GRANT ALL ON {table} TO reliability",
        database=database_of(connection.dsn),
    )
    shop.transact(1)
    assert rows(connection, f"SELECT count(*) FROM {table}") == [(1,)]


def test_a_login_that_is_refused_to_spark_tasks_costs_a_retry(connection, monkeypatch):
    """S5: executors may have credentials of their own, wrong for ever."""
    shop = shop_of(connection, LONGEST)
    shop.deliver([row("a")])

    def write(grant):
        refused = LedgerRefusedLogin("password authentication failed", remedy="ask for a login.")
        end_attempt(connection, grant, refused)
        raise RuntimeError("spark-submit ended with code 1")

    monkeypatch.setattr(shop, "write", write)
    with pytest.raises(
        AttemptIncomplete, match=r"password .*\[LEDGER_REFUSED_LOGIN\].* ask for a login"
    ):
        shop.transact(1)


# --- what no attempt can tell --------------------------------------------------------------------


def test_a_missing_spark_connection_is_told_by_settle_status_show_and_doctor(
    connection, airflow_home, monkeypatch
):
    """R3: only the log of the task said it; no attempt had begun."""
    from airflow.sdk.bases.hook import BaseHook
    from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException

    from reliability_airflow.operators import TransactionOperator

    def find(name):
        raise AirflowNotFoundException(f"The conn_id `{name}` isn't defined")

    shop = shop_with_two_txids(connection, monkeypatch)
    task = TransactionOperator(
        task_id="commit", topology=shop.topology, txid=1, step=None, conn_id="spark_of_mine"
    )
    run = shop.run_of(1)
    told = "[SPARK_CONNECTION_MISSING]"
    with monkeypatch.context() as patched:
        patched.setattr(BaseHook, "get_connection", find)
        with pytest.raises(AirflowFailException, match="airflow connections add spark_of_mine"):
            task.execute(context(task, run, max_tries=2, dry_run=False))
    close(connection, "shop", 1, run, "its tasks ended without it")
    with pytest.raises(RunUnsatisfied) as raised:
        settle(connection, "shop", run, [1])
    assert f"txid 1: {told} Airflow has no connection spark_of_mine" in str(raised.value)
    for verb in (["status"], ["show", "1"], ["doctor"]):
        said = " ".join(CliRunner().invoke(app, verb, env={"COLUMNS": "2000"}).output.split())
        assert "Airflow has no connection spark_of_mine" in said, verb
        assert told in said or verb == ["doctor"], verb
    shop.clear(1)
    shop.transact(1)  # an attempt has begun since, so nothing is told any more
    assert rows(connection, "SELECT count(*) FROM reliability.request WHERE problem <> ''") == [
        (1,)
    ]
