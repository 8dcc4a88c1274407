"""S8: what each role of the ledger may do, and what it must not."""

from __future__ import annotations

import re
import shutil
from contextlib import closing
from dataclasses import replace

import psycopg2
import pytest
from psycopg2.errors import InsufficientPrivilege
from psycopg2.sql import SQL, Identifier

from reliability import Count, History, State
from reliability.cli.doctor import CheckResult, CheckStatus
from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import AttemptFenced, InvalidDefinition, RightMissing
from reliability.core.leases import Leases
from reliability.core.names import session_name
from reliability.deployment.address import DatabaseAddress
from reliability.ledger import migrations as ledger_migrations
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.migrations import check_migrated, migrate, migrations
from reliability.ledger.queries import queries, sql_folder
from reliability.ledger.roles import (
    COORDINATOR,
    EXECUTOR,
    KINDS,
    OWNER,
    PAGE,
    READER,
    RolesWanted,
    make_roles,
    roles_as_sql,
)
from reliability.spark.stage.stage_task import stage_task
from reliability.states import attempt_table
from reliability.states.kinds import stored_state
from reliability.states.tables import check_rights
from reliability.transaction.correct.adopt import adopt
from reliability.transaction.correct.drop import drop_topology
from reliability.transaction.correct.erase import erase
from reliability.transaction.correct.park import park, skip, unskip
from reliability.transaction.correct.repair import repair
from reliability.transaction.correct.rollback import release, roll_back
from reliability.transaction.inspect.overview import overviews
from reliability.transaction.inspect.verify import verify
from reliability.transaction.maintain import compaction
from reliability.transaction.maintain.sweep import sweep
from reliability.transaction.process.attempt_messages import end_attempt
from reliability.transaction.topology.alter import alter, plan_alteration
from reliability.transaction.topology.lifecycle import declare, pause
from reliability.transaction.topology.server import end_sessions_of
from spark_apps import global_count
from tests.integration.test_steps import shop_in_steps
from tests.replay.shop import Shop, made, states
from tests.support.command_line import read, say
from tests.support.fix_pipeline import TWENTY, month, pipeline_of, write_parquet
from tests.support.fix_postgres import (
    admin_session,
    database_of,
    execute,
    new_session,
    own_session,
    rows,
    run_as_admin,
)
from tests.support.fix_roles import WANTED, login_of
from tests.support.python_driver import reduced

LIVE = "SELECT table_id FROM reliability.attempt_table ORDER BY table_id DESC LIMIT 1"


def declared(roles, **parameters) -> Shop:
    """A shop that its owner has declared, and whose tasks have the coordinator's role."""
    declare(roles.sessions[OWNER], Shop(roles.sessions[OWNER], **parameters).topology)
    return Shop(roles.sessions[COORDINATOR], **parameters)


@pytest.fixture
def shop(roles) -> Shop:
    return declared(roles)


# --- what tasks and executors do -----------------------------------------------------------------


def kept(elsewhere: str = "") -> list[State]:
    """The states of a shop, some compacted, and one in a schema whose name needs quotes."""
    first, second, *others, last = states(elsewhere)
    some = [replace(one, keep=History(txids=2)) for one in (first, second)]
    return [*some, *others, replace(last, table="Mart.order")]


def kept_with_more(elsewhere: str = "") -> list[State]:
    """The same of newer code: a value more, and a state more."""
    first, *others = kept(elsewhere)
    more = replace(first, values={**first.values, "rows": Count()})
    return [more, *others, State("more", key={"word": "text"}, values={"n": Count()})]


def test_batches_go_all_their_ways_with_the_roles_of_tasks_and_executors(roles, monkeypatch):
    """S8: nothing that a task, a sweep or a correction does needs more, of many rows and of few."""
    monkeypatch.setattr(attempt_table, "MIN_ROWS", 4)
    monkeypatch.setattr(attempt_table, "MAX_TABLES", 2)  # fewer than there are txids
    monkeypatch.setattr(compaction, "KEPT_TABLES", 1)
    shop, coordinator = declared(roles, kinds=kept), roles.sessions[COORDINATOR]
    shop.commit(made(1), made(2, rows=3), made(3))
    before = shop.tables()
    assert all(one.is_nothing for one in shop.replay(2))
    assert not all(one.is_nothing for one in shop.correct(1, made(8)))
    shop.makes[1] = made(1)
    assert not all(one.is_nothing for one in shop.dry_run(1))
    shop.replay(1)
    roll_back(coordinator, "shop", 1, "a test")
    release(coordinator, "shop")
    shop.do_again(2, 3)
    assert shop.tables() == before
    shop.deliver(made(4), made(5, rows=3))
    park(coordinator, "shop", 4, "a test")
    skip(coordinator, "shop", 5, "a test")
    unskip(coordinator, "shop", 5, "a test")
    shop.clear(5)
    shop.transact(5)
    swept = sweep(coordinator, "shop", Leases(), clean=True)
    assert swept.cleaned
    assert swept.compacted
    newer = Shop(coordinator, kinds=kept_with_more, makes=shop.makes, raised=shop.raised)
    newer.source.sizes = shop.source.sizes
    alter(roles.sessions[OWNER], newer.topology, "a test")
    newer.commit(made(6))
    newer.replay(5)
    roles.as_admin("UPDATE public.exact SET n = n + 1")
    repair(coordinator, "shop", "a test")
    assert all(one.is_exact for one in verify(coordinator, "shop"))
    drop_topology(roles.sessions[OWNER], "shop")


@pytest.mark.parametrize("kind", [COORDINATOR, OWNER])
def test_a_login_that_sets_its_role_works_as_one_that_inherits_it(roles, kind):
    """S8: tables of attempts were refused to it, as if it had no role."""
    login = login_of(kind)
    run_as_admin(f"ALTER ROLE {login} NOINHERIT", f"ALTER ROLE {login} SET role = test_{kind}")
    try:
        declared(roles)
        shop = Shop(roles.sessions[kind])
        shop.commit(made(1), made(2))
        assert not all(one.is_nothing for one in shop.correct(1, made(8)))
        roll_back(shop.connection, "shop", 1, "a test")
        assert all(one.is_exact for one in verify(shop.connection, "shop"))
    finally:
        run_as_admin(f"ALTER ROLE {login} RESET role", f"ALTER ROLE {login} INHERIT")


def test_an_attempt_that_ends_while_executors_stage_leaves_nothing(roles, shop):
    shop.deliver(made(1))
    grant, tables = shop.begin(1), stored_state("shop", shop.topology.states[0])
    own = opened(roles, grant, tables)
    end_attempt(roles.sessions[COORDINATOR], grant, AttemptFenced("a test"), fence=True)
    with pytest.raises(AttemptFenced):
        staging(roles, own, grant)(1)
    sweep(roles.sessions[COORDINATOR], "shop", Leases(), clean=True)
    found = "SELECT to_regclass('reliability_contribution.attempt_' || %(id)s)"
    assert rows(roles.sessions[OWNER], found, id=own.attempt_table) == [(None,)]


def test_a_session_of_executors_that_hangs_is_ended_by_the_owner(roles, shop):
    """A4: another role may not end it, and it stopped the seal; also of a topology's long name."""
    shop.deliver(made(1))
    write = shop.write
    hanging = []

    def write_twice(grant):
        write(grant)
        name = f"reliability {grant}"
        session = own_session(roles.dsns[EXECUTOR], application_name=name)
        hanging.append(session)
        cursor = session.cursor()
        cursor.execute("SELECT set_config('reliability.nonce', %s, false)", [grant.nonce])
        [(own,)] = rows(roles.sessions[OWNER], LIVE)
        cursor.execute(f"INSERT INTO reliability_contribution.attempt_{own} (_x, _n) VALUES (1, 1)")

    shop.write = write_twice
    shop.transact(1)
    [session] = hanging
    ended = "terminating connection|closed the connection"
    with closing(session), pytest.raises(psycopg2.OperationalError, match=ended):
        session.cursor().execute("SELECT")
    assert all(one.is_exact for one in verify(roles.sessions[COORDINATOR], "shop"))
    # Postgres cuts the name of a session, so a hash stands for its end
    topology, attempt = "shop" * 20, TransactionAttempt(7, 2)
    name = session_name(f"reliability {topology} {attempt}")
    session = own_session(roles.dsns[EXECUTOR], application_name=name)
    end_sessions_of(roles.sessions[COORDINATOR], topology, attempt)
    with closing(session), pytest.raises(psycopg2.OperationalError, match=ended):
        session.cursor().execute("SELECT")


@pytest.mark.slow
def test_spark_reads_and_stages_with_the_role_of_executors(roles, spark, tmp_path):
    """S8: a step that reads what another has staged, too."""
    write_parquet(tmp_path / "1997-01" / "a.parquet", TWENTY)
    topology = shop_in_steps(tmp_path)
    declare(roles.sessions[OWNER], topology)
    shop = pipeline_of(topology, roles.sessions[COORDINATOR], spark)
    assert shop.emit(month(1997, 1)) == [1]
    shop.transact(1)
    assert rows(shop.runner.connection, "SELECT year, orders, revenue FROM per_year") == [
        (1997, 20, 190)
    ]


# --- what executors must not ---------------------------------------------------------------------


def opened(roles, grant, tables):
    """Open the table of an attempt at a state, as its driver does."""
    coordinator = roles.sessions[COORDINATOR]
    return attempt_table.open_table(coordinator, tables, grant, 1, for_executors=True)


def staging(roles, own, grant, claimed=None):
    """Return what stages a partition of such a table, as a Spark task does.

    :param claimed: the attempt that it says it works for
    """
    task = stage_task(
        roles.sessions[COORDINATOR], own, grant, DatabaseAddress(dsn=roles.dsns[EXECUTOR])
    )
    task = replace(task, grant=claimed or grant)
    row = {"k": 1, "word": "a", "price": 1, "day": None, "_x": 1}
    return lambda partition: task.stage(partition, iter([reduced(own, grant, [row])]))


FORBIDDEN = {
    "read a target": "SELECT FROM public.exact",
    "change a target": "UPDATE public.exact SET n = 0",
    "delete from a target": "DELETE FROM public.log",
    "add to a target": "INSERT INTO public.log (word) VALUES ('a')",
    "read a view of rows": "SELECT FROM public.viewed",
    "read staged rows": "SELECT FROM reliability_contribution.shop__exact",
    "stage with others": "INSERT INTO reliability_contribution.shop__log (word) VALUES ('a')",
    "read what an attempt stages": "SELECT FROM {own}",
    "change what an attempt stages": "UPDATE {own} SET _n = 0",
    "delete what an attempt stages": "DELETE FROM {own}",
    "say for which txid it stages": "INSERT INTO {own} (_txid, _x, _n) VALUES (1, 1, 1)",
    "read nonces": "SELECT nonce FROM reliability.attempt",
    "delete from the ledger": "DELETE FROM reliability.ack",
    "ack without a nonce": "INSERT INTO reliability.ack DEFAULT VALUES",
    "end an attempt": "UPDATE reliability.attempt SET status = 'FAILED'",
    "commit": "UPDATE reliability.topology SET curr_txid = 9",
    "see the quarantine": "SELECT FROM reliability.quarantined_row",
    "make a table": "CREATE TABLE public.own ()",
    "make a table of the ledger's": "CREATE TABLE reliability_contribution.own ()",
    "make a schema": "CREATE SCHEMA own",
    "drop a table": "DROP TABLE {own}",
    "have a table made": "SELECT reliability.create_attempt_table(1, 'shop', 1, 0,"
    " gen_random_uuid(), 'shop__log', false, false, true)",
    "have a table dropped": "SELECT reliability.drop_attempt_table(1)",
    "end a session": "SELECT reliability.end_session(1, 'reliability shop 1:0')",
    "seal": "SELECT reliability.close_attempt_table(1)",
    "be the owner": "SET ROLE test_owner",
    "be the coordinator": "SET ROLE test_coordinator",
}


@pytest.fixture
def attempt(roles, shop):
    """A live attempt, and the table of its own for its first state."""
    shop.deliver(made(1))
    grant = shop.begin(1)
    return grant, opened(roles, grant, stored_state("shop", shop.topology.states[0]))


def refused(roles, kind: str, statements: dict[str, str], own: str = "") -> None:
    """Check that each statement is denied to a role."""
    with closing(own_session(roles.dsns[kind])) as session:
        session.autocommit = True
        for what, statement in statements.items():
            try:
                session.cursor().execute(statement.format(own=own))
            except InsufficientPrivilege:
                continue
            pytest.fail(f"{kind} may {what}")


def test_executors_may_only_stage_and_ack(roles, attempt):
    _, own = attempt
    refused(roles, EXECUTOR, FORBIDDEN, f"reliability_contribution.attempt_{own.attempt_table}")


def test_executors_stage_and_ack_for_no_attempt_but_their_own(roles, attempt, shop):
    """S8: the nonce is what shows that it is theirs; no table tells it to them."""
    grant, _ = attempt
    shop.deliver(made(2))
    other = shop.begin(2)
    theirs = opened(roles, other, stored_state("shop", shop.topology.states[0]))
    with pytest.raises(AttemptFenced, match="stages for no attempt"):
        staging(roles, theirs, other, grant)(0)
    forged = replace(other, nonce="00000000-0000-0000-0000-000000000000")
    with pytest.raises(AttemptFenced, match="stages for no attempt"):
        staging(roles, theirs, other, forged)(0)
    executor = LedgerConnection(roles.dsns[EXECUTOR])
    acked = {"sink": "exact", "partition": 0, "write_id": other.nonce, "xor": 1, "count": 1}
    with closing(executor), pytest.raises(AttemptFenced):
        executor.run("acknowledge", rows=1, digest=1, **acked, **forged)
    read = SQL(
        "SELECT * FROM reliability.read_staged(%(topology)s, %(txid)s, %(attempt_id)s,"
        " %(nonce)s::uuid, 'exact', '{{k}}', 1, 0) AS staged(k bigint)"
    )
    staging(roles, theirs, other)(0)
    assert [row["k"] for row in executor.all(read, **other)] == [1]
    with pytest.raises(AttemptFenced):
        executor.all(read, **forged)
    assert executor.all("existing_ack", sink="exact", partition=0, **forged) == []
    assert executor.all("existing_ack", sink="exact", partition=0, **other)
    executor.close()


def test_executors_write_no_more_to_what_is_sealed(roles, shop, monkeypatch):
    monkeypatch.setattr(attempt_table, "MIN_ROWS", 1)
    shop.deliver(made(1))
    shop.process(1)
    [(nonce,)] = rows(roles.sessions[OWNER], "SELECT nonce::text FROM reliability.attempt")
    own = "SELECT 'attempt_' || table_id FROM reliability.attempt_table"
    for (name,) in rows(roles.sessions[OWNER], own):
        with closing(own_session(roles.dsns[EXECUTOR])) as session, session.cursor() as cursor:
            cursor.execute("SELECT set_config('reliability.nonce', %s, false)", [nonce])
            with pytest.raises(InsufficientPrivilege):
                cursor.execute(f"INSERT INTO reliability_contribution.{name} (_x) VALUES (1)")
    shop.transact(1)


# --- what others must not ------------------------------------------------------------------------


COORDINATORS = {
    "make a target": "CREATE TABLE public.own ()",
    "make a table of the ledger's": "CREATE TABLE reliability.own ()",
    "make a table of contributions": "CREATE TABLE reliability_contribution.own ()",
    "make a schema": "CREATE SCHEMA own",
    "change a target": "ALTER TABLE public.exact ADD own integer",
    "drop a target": "DROP TABLE public.exact",
    "empty a target": "TRUNCATE public.exact",
    "watch a target": "CREATE TRIGGER own AFTER INSERT ON public.exact"
    " EXECUTE FUNCTION reliability.open_checkpoint()",
    "change a definition": "UPDATE reliability.state SET definition = '{{}}'",
    "delete what happened": "DELETE FROM reliability.attempt",
    "change what happened": "UPDATE reliability.commit_log SET txid = 1",
    "record a migration": "INSERT INTO reliability.migration VALUES (99, 'own', 'x', 99)",
    "change the roles": "UPDATE reliability.role SET name = 'own'",
    "replace a function": "CREATE OR REPLACE FUNCTION reliability.timeline() RETURNS integer"
    " LANGUAGE sql AS 'SELECT 1'",
    "be the owner": "SET ROLE test_owner",
}
WRITES = {
    "change a target": "UPDATE public.exact SET n = 0",
    "add to a target": "INSERT INTO public.log (word) VALUES ('a')",
    "change contributions": "DELETE FROM reliability_contribution.shop__exact",
    "pause": "UPDATE reliability.topology SET paused_at = now(), paused_reason = 'x'",
    "skip": "INSERT INTO reliability.skip DEFAULT VALUES",
    "delete from the ledger": "DELETE FROM reliability.contribution",
    "make a table": "CREATE TABLE public.own ()",
    "ack": "SELECT reliability.acknowledge('shop', 1, 0, gen_random_uuid(), 'exact', 0,"
    " gen_random_uuid(), 0, 0, 0, 0)",
    "be the coordinator": "SET ROLE test_coordinator",
    "be the owner": "SET ROLE test_owner",
}
CONTENTS = {
    "read a target": "SELECT FROM public.exact",
    "read contributions": "SELECT FROM reliability_contribution.shop__exact",
    "read the quarantine": "SELECT FROM reliability.quarantine",
    "read quarantined rows": "SELECT FROM reliability.quarantined_row",
    "read corrections": "SELECT becomes FROM reliability.correction",
    "read hashes of persons": "SELECT key_hash FROM reliability.erased_key",
}


def test_tasks_readers_and_the_page_do_only_what_is_theirs(roles, shop, monkeypatch):
    """Tasks make no tables, readers write nothing and see no rows, the page acts if it may."""
    shop.commit(made(1), made(2))
    refused(roles, COORDINATOR, COORDINATORS)
    persons = [("k", "1"), ("k", "2")]
    with pytest.raises(RightMissing, match="that is for test_owner"):
        erase(roles.sessions[COORDINATOR], "shop", persons, reason="r")
    assert erase(roles.sessions[OWNER], "shop", persons, reason="r").fenced == 0
    refused(roles, READER, WRITES | CONTENTS)
    with roles.sessions[READER].transaction(reads_only=True) as tx:
        assert [one.topology for one in overviews(tx)] == ["shop"]
    metrics = "SELECT count(*) > 0 FROM reliability.metrics"
    assert rows(roles.sessions[READER], metrics) == [(True,)]
    # a txid was refused for its corrections, and a topology for the hashes of its persons
    monkeypatch.setenv("RELIABILITY_DSN", roles.dsns[READER])
    for verb in ("status", "show shop 1", "show shop 1:0"):
        assert read(*verb.split())
    [erasure] = read("topologies", "shop")[0]["erasures"]
    assert erasure["keys"] == [{"column": "k", "hash": None}] * 2
    page = roles.sessions[PAGE]
    refused(roles, PAGE, WRITES)
    newer = replace(shop.topology, states=kept_with_more()[1:])
    assert len(plan_alteration(page, newer).states) == 3  # what would go is counted
    for statement in CONTENTS.values():
        rows(page, statement)
    for act in (
        lambda: roll_back(page, "shop", 1, "a test"),
        lambda: pause(page, "shop", "a test"),
        lambda: park(page, "shop", 3, "a test"),
    ):
        with pytest.raises(RightMissing):
            act()
    with closing(LedgerConnection(roles.dsn)) as admin:
        make_roles(admin, replace(WANTED, page_acts=True))
        try:
            pause(page, "shop", "a test")
            roll_back(page, "shop", 1, "a test")
        finally:
            roles.as_admin("REVOKE test_coordinator FROM test_page")


def test_a_topology_that_nobody_has_declared_is_for_the_owner(roles):
    """S6, C10: it is told before anything is emitted."""
    shop = Shop(roles.sessions[COORDINATOR])
    with pytest.raises(RightMissing, match=r"test_owner.*`reliability declare shop`") as raised:
        shop.deliver(made(1))
    assert f"role {login_of(COORDINATOR)} may not make or change tables" in raised.value.what
    assert rows(roles.sessions[OWNER], "SELECT FROM reliability.transaction") == []
    # C10: what is changed before the first commit is the owner's, too
    declare(roles.sessions[OWNER], shop.topology)
    newer = Shop(roles.sessions[COORDINATOR], kinds=kept_with_more)
    with pytest.raises(RightMissing, match="reliability declare shop"):
        newer.deliver(made(1))
    declare(roles.sessions[OWNER], newer.topology)
    newer.commit(made(1))
    owners = "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'public'"
    assert rows(roles.sessions[OWNER], owners) == [("test_owner",)]


OLD = (
    "CREATE TABLE public.{0} AS SELECT i::bigint AS k, 1::bigint AS n FROM generate_series(0, 9) i"
)


@pytest.mark.parametrize("table", ["small", "old"], ids=["in place", "a copy"])
def test_the_owner_adopts_a_table_for_tasks_and_leaves_it(roles, table):
    """H7: what the owner has taken over is written by tasks, which cannot take over anything."""
    state = State("small", key={"k": "bigint"}, values={"n": Count()})
    owner = roles.sessions[OWNER]
    shop = Shop(roles.sessions[COORDINATOR], kinds=lambda _: [state])
    roles.as_admin(OLD.format(table), f"ALTER TABLE public.{table} ADD id serial, ADD UNIQUE (k)")
    with pytest.raises(RightMissing) as raised:
        adopt(roles.sessions[COORDINATOR], shop.topology, "small", table)
    assert "`reliability adopt shop` as a role that has test_owner" in raised.value.what_to_do
    with pytest.raises(RightMissing) as raised:
        adopt(owner, shop.topology, "small", table)
    give = f"ALTER TABLE public.{table} OWNER TO test_owner;"
    if table == "small":
        assert give in raised.value.what_to_do
    else:
        give = f"GRANT SELECT ON public.{table} TO test_owner"
    roles.as_admin(give)
    assert adopt(owner, shop.topology, "small", table, dry_run=True).rows == 10
    assert adopt(owner, shop.topology, "small", table).rows == 10
    shop.commit(made(1))
    assert shop.replay(1)
    assert all(one.is_exact for one in verify(shop.connection, "shop"))
    assert rows(owner, "SELECT sum(n) FROM public.small") == [(10 + len(made(1)),)]
    with pytest.raises(RightMissing) as raised:
        drop_topology(roles.sessions[COORDINATOR], "shop", keep_tables=True)
    assert "`reliability drop shop` as a role that has test_owner" in raised.value.what_to_do
    drop_topology(owner, "shop", keep_tables=True)
    assert rows(owner, "SELECT sum(n) FROM public.small") == [(10 + len(made(1)),)]


def test_a_role_without_the_coordinators_is_told_to_get_it(roles, shop):
    """S6"""
    shop.deliver(made(1))
    with pytest.raises(RightMissing) as raised:
        check(roles.sessions[PAGE])
    assert raised.value.what.endswith(f"; GRANT test_coordinator TO {login_of(PAGE)};")
    check(roles.sessions[COORDINATOR])
    assert make_roles(roles.sessions[OWNER], WANTED) == []
    shop.transact(1)


def check(session: LedgerConnection) -> None:
    with session.transaction() as tx:
        check_rights(tx, [])
        tx.run(SQL("SELECT"))  # with which it is sent


BY_HAND = (
    "USAGE ON SCHEMA reliability, reliability_contribution",
    "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA"
    " reliability, reliability_contribution, public",
    "EXECUTE ON ALL FUNCTIONS IN SCHEMA reliability",
)


def test_without_roles_a_login_works_with_what_it_is_granted(
    role_template, connection, monkeypatch
):
    """S6: a table that only the owner could write to is not made for it."""
    monkeypatch.setattr(attempt_table, "MIN_ROWS", 1)
    login = login_of(READER)
    declare(connection, Shop(connection).topology)
    with LedgerConnection(f"{connection.dsn} user={login}", "test") as session:
        for right in BY_HAND:
            execute(connection, f"GRANT {right} TO {login}")
        shop = Shop(session)
        shop.commit(made(1), made(2))
        assert not all(one.is_nothing for one in shop.correct(1, made(8)))
        assert rows(connection, "SELECT FROM reliability.attempt_table") == []
        assert all(one.is_exact for one in verify(connection, "shop"))
        execute(connection, f"REVOKE SELECT ON reliability.role FROM {login}")
        execute(connection, f"REVOKE INSERT ON reliability.code FROM {login}")
        with pytest.raises(RightMissing) as raised:
            check(session)
    assert raised.value.what.endswith(f"; GRANT INSERT ON TABLE reliability.code TO {login};")


# --- the roles themselves ------------------------------------------------------------------------


def test_what_runs_as_the_owner_has_a_path_of_its_own_and_is_not_for_all(roles):
    """S8: in a path of the caller's, another function could be found, which ran as the owner."""
    found = rows(
        roles.sessions[OWNER],
        "SELECT proname, proconfig, has_function_privilege('public', oid, 'EXECUTE')"
        " FROM pg_proc WHERE pronamespace = 'reliability'::regnamespace AND prosecdef",
    )
    assert len(found) >= 9
    for name, config, is_for_all in found:
        assert "search_path=pg_catalog, pg_temp" in config, name
        assert not is_for_all, name


def test_tasks_have_the_rights_that_statements_need_and_no_others(roles):
    """S8: a right that no statement needs would only help who has stolen the login."""
    owners = {"adoption", "alteration", "migration", "role"}
    dropped = ("request_contact", "state", "topology")
    by_the_owner = {("state", "INSERT"), *((table, "DELETE") for table in dropped)}
    by_its_functions = {("ack", "INSERT"), ("attempt_table", "DELETE")}
    needed = written() - by_the_owner - by_its_functions
    found = rows(
        roles.sessions[OWNER],
        "SELECT c.relname, x.privilege_type FROM pg_class c"
        " JOIN pg_attribute a ON a.attrelid = c.oid, aclexplode(c.relacl || a.attacl) x"
        " WHERE c.relnamespace = 'reliability'::regnamespace"
        " AND x.grantee = 'test_coordinator'::regrole AND x.privilege_type <> 'SELECT'",
    )
    assert {*found} == {(table, right) for table, right in needed if table not in owners}


def written() -> set[tuple[str, str]]:
    """Return which rights on which tables of the ledger the statements need."""
    files = (path for path in sql_folder().rglob("*.sql") if path.name != "erase.sql")
    text = "".join(path.read_text() for path in files)  # what erases is the owner's
    text = re.sub("--.*", "", text)
    forms = {
        "INSERT": r"INSERT INTO reliability\.(\w+)",
        "UPDATE": r"(?<!FOR )UPDATE reliability\.(\w+)",
        "DELETE": r"DELETE FROM reliability\.(\w+)",
    }
    found = {(table, right) for right, form in forms.items() for table in re.findall(form, text)}
    upserts = re.findall(r"INSERT INTO reliability\.(\w+)[^;]*?DO\s+UPDATE", text)
    return found | {(table, "UPDATE") for table in upserts}


@pytest.fixture
def empty(role_template):
    """A database of a role's own, without a ledger."""
    with new_session() as connection:
        yield connection


@pytest.fixture
def others():
    """Roles with another name, which are dropped afterwards."""
    wanted = RolesWanted(prefix='Shop "2"', schemas=("mart",))
    yield wanted
    with admin_session() as cursor:
        cursor.execute("SELECT rolname FROM pg_roles WHERE starts_with(rolname, 'Shop')")
        for (name,) in cursor.fetchall():
            cursor.execute(SQL("DROP ROLE {}").format(Identifier(name)).as_string(cursor))


def of_admin(connection: LedgerConnection) -> LedgerConnection:
    return LedgerConnection(connection.dsn.replace("service=reliability", "service=admin"))


def owned(connection: LedgerConnection) -> dict[str, int]:
    """Return how many tables and functions each role has in the schemas of a ledger and a shop."""
    found = rows(
        connection,
        "SELECT pg_get_userbyid(owner), count(*) FROM ("
        " SELECT relowner, relnamespace FROM pg_class WHERE relkind IN ('r', 'v')"
        " UNION ALL SELECT proowner, pronamespace FROM pg_proc) AS o(owner, place)"
        " WHERE place::regnamespace::text IN ('reliability', 'reliability_contribution')"
        " OR (place = 'public'::regnamespace AND owner <> 10) GROUP BY 1",
    )
    return dict(found)


def forget(connection: LedgerConnection, wanted: RolesWanted) -> None:
    """Take from roles all that they have in a database."""
    with closing(of_admin(connection)) as admin:
        for kind in KINDS:
            role = Identifier(wanted.name(kind))
            admin.run(SQL("REASSIGN OWNED BY {} TO postgres").format(role))
            admin.run(SQL("DROP OWNED BY {}").format(role))


NUMBERED_AND_PARTITIONED = """
    CREATE SEQUENCE public.numbers;
    ALTER TABLE public.exact ADD id bigint DEFAULT nextval('public.numbers');
    ALTER TABLE public.newest RENAME TO newest_0;
    CREATE TABLE public.newest (LIKE public.newest_0 INCLUDING ALL) PARTITION BY HASH (k);
    ALTER TABLE public.newest ATTACH PARTITION public.newest_0
        FOR VALUES WITH (MODULUS 1, REMAINDER 0)
"""


def test_a_ledger_that_one_role_owns_gets_roles_with_all_that_it_has(empty, others):
    """S8: the history goes on; the role that had all is a task's then."""
    migrate(empty)
    shop = Shop(empty, kinds=kept)
    shop.commit(made(1))
    assert owned(empty).keys() == {"reliability"}
    with closing(of_admin(empty)) as admin:
        admin.run(SQL(NUMBERED_AND_PARTITIONED))
        assert make_roles(admin, others)
        assert make_roles(admin, others) == []
        try:
            assert owned(empty).keys() == {others.name(OWNER)}
            with pytest.raises(RightMissing):
                shop.replay(1)
            admin.run(SQL("GRANT {} TO reliability").format(Identifier(others.name(COORDINATOR))))
            assert all(one.is_nothing for one in shop.replay(1))
            shop.commit(made(2))
            admin.run(SQL("GRANT {} TO reliability").format(Identifier(others.name(OWNER))))
            alter(empty, Shop(empty, kinds=kept_with_more).topology, "a test")
            assert owned(empty).keys() == {others.name(OWNER)}
        finally:
            forget(empty, others)


def test_the_plan_is_what_a_superuser_runs_by_hand(empty, others, monkeypatch):
    """In a database without a ledger, and in one whose roles lack something."""
    monkeypatch.setenv("RELIABILITY_DSN", empty.dsn)
    script = say("migrate", "--roles", "--prefix", "etl", "--plan").stdout
    assert "BEGIN;\nSET LOCAL search_path = pg_catalog, pg_temp;\nCREATE ROLE etl_owner" in script
    assert script.endswith("\nCOMMIT;\n")
    try:
        plan = roles_as_sql(empty, others)
        assert owned(empty) == {}
        run_script(empty.dsn, plan)
        with closing(of_admin(empty)) as admin:
            check_migrated(admin)
            assert make_roles(admin, others) == roles_as_sql(admin, others) == []
            reader = Identifier(others.name(READER))
            admin.run(SQL("REVOKE SELECT ON reliability.topology FROM {}").format(reader))
            lacking = roles_as_sql(admin, others)
            with admin.transaction() as tx:
                tx.run(SQL("SET LOCAL SESSION AUTHORIZATION {}").format(reader))
                facts = [tx.one(f"{of}_facts") for of in ("server", "role", "executor", "session")]
        # as the doctor prints them in statements
        quoted = '"Shop ""2""_{}"'.format
        assert [one.get("role") or one["login"] for one in facts] == [quoted(READER)] * 4
        assert [one["owner"] for one in facts[1:3]] == [quoted(OWNER)] * 2
        assert facts[1]["roles"] == {kind: quoted(kind) for kind in KINDS}
        assert lacking == [f"GRANT SELECT ON TABLE reliability.topology TO {quoted(READER)}"]
        run_script(empty.dsn, lacking)
        with closing(of_admin(empty)) as admin:
            assert roles_as_sql(admin, others) == []
    finally:
        forget(empty, others)


def run_script(dsn: str, statements: list[str]) -> None:
    with admin_session(database_of(dsn)) as cursor:
        cursor.execute(";".join([queries()["begin_script"], *statements, "COMMIT"]))


def test_the_plan_without_roles_is_what_its_owner_runs_by_hand(empty, monkeypatch):
    """It had neither the schema that it makes tables in nor the record of what is applied."""
    monkeypatch.setenv("RELIABILITY_DSN", empty.dsn)
    with closing(own_session(empty.dsn)) as session:
        session.cursor().execute(say("migrate", "--plan").stdout)
    assert "up to date" in say("migrate", "--check").stdout
    assert say("migrate", "--plan").stdout == ""


def test_who_owns_the_database_and_may_make_roles_needs_no_superuser(empty, others):
    wanted = replace(others, schemas=("public",))
    with pytest.raises(RightMissing, match=r"CREATEROLE.* prints"):
        make_roles(empty, wanted)
    run_as_admin("ALTER ROLE reliability CREATEROLE")
    try:
        make_roles(empty, wanted)
        assert owned(empty).keys() == {others.name(OWNER)}
        assert make_roles(empty, wanted) == []
        Shop(empty).commit(made(1))  # it has the owner's role
        assert owned(empty).keys() == {others.name(OWNER)}
    finally:
        run_as_admin("ALTER ROLE reliability NOCREATEROLE")
        forget(empty, others)


def test_what_a_later_migration_makes_is_the_owners_and_granted(roles, tmp_path, monkeypatch):
    """S8: also if the process that applies it is killed before it grants anything."""

    def kill(_):
        raise KeyboardInterrupt

    folder = tmp_path / "migrations"
    shutil.copytree(sql_folder() / "migrations", folder)
    number = len(migrations()) + 1
    (folder / f"{number:04d}_later.sql").write_text("CREATE TABLE reliability.later ()")
    with pytest.raises(
        RightMissing, match=rf"lacks {number:04d}_later, and .* for test_owner"
    ) as no:
        migrate(roles.sessions[COORDINATOR], migrations(folder))
    assert no.value.what_to_do == "run `reliability migrate` as a role that has test_owner."
    assert migrate(roles.sessions[COORDINATOR]) == []
    monkeypatch.setattr(ledger_migrations, "_grant_rights", kill)
    with pytest.raises(KeyboardInterrupt):
        migrate(roles.sessions[OWNER], migrations(folder))
    monkeypatch.undo()
    assert migrate(roles.sessions[OWNER], migrations(folder)) == []
    (folder / f"{number + 1:04d}_by_hand.sql").write_text("CREATE TABLE reliability.by_hand ()")
    task, known = roles.sessions[COORDINATOR], migrations(folder)
    run_script(roles.dsn, ledger_migrations.migrations_as_sql(task, known))
    execute(roles.sessions[OWNER], "REVOKE SELECT ON reliability.later FROM test_reader")
    run_script(roles.dsn, ledger_migrations.migrations_as_sql(task, known))
    assert ledger_migrations.missing_migrations(task, known) == []
    assert owned(roles.sessions[OWNER]).keys() == {"test_owner"}
    made_later = "SELECT count(*) FROM reliability.later CROSS JOIN reliability.by_hand"
    assert rows(roles.sessions[READER], made_later) == [(0,)]


def test_a_prefix_that_makes_no_name_is_refused():
    for prefix in ("", "x" * 52):
        with pytest.raises(InvalidDefinition, match="makes no name of a role"):
            RolesWanted(prefix=prefix)


# --- the command line ----------------------------------------------------------------------------


def test_an_owner_declares_and_migrates_by_the_command_line(roles, monkeypatch):
    monkeypatch.setenv("RELIABILITY_DSN", roles.dsns[OWNER])
    up_to_date = "the ledger is up to date, and its roles have their rights\n"
    options = ("--roles", "--prefix", "test")
    assert say("migrate", *options).stdout == up_to_date
    assert say("migrate", *options, "--plan").stdout == ""
    assert "--check cannot be combined" in say("migrate", *options, "--check", code=2).stderr
    assert "TOPOLOGY_UNKNOWN" in say("declare", "global_count", code=1).stderr
    module = ("--module", "spark_apps.global_count")
    for _ in range(2):
        assert say("declare", "global_count", *module).stdout == "global_count is declared\n"
    monkeypatch.setenv("RELIABILITY_DSN", roles.dsns[COORDINATOR])
    assert pipeline_of(global_count.topology, roles.sessions[COORDINATOR]).emit(None) == [1, 2, 3]
    assert "RIGHT_MISSING" in say("drop", "global_count", "--yes", code=1).stderr


PLACE = "database of the ledger: "


def examined() -> dict[str, tuple[str, str, str]]:
    """Return what the doctor says of roles; the tests' server does not wait for the disk."""
    return {
        one["check"].removeprefix(PLACE): (one["verdict"], one["what"], one["todo"])
        for one in read("doctor", code=1)
    }


def test_the_doctor_says_which_role_it_is_and_what_it_lacks(roles, shop, monkeypatch):
    """S6: with the same check as an emission."""
    java = CheckResult(CheckStatus.OK, "Java", "21")  # which takes longest
    monkeypatch.setattr("reliability.cli.doctor._java", lambda: java)
    found = examined()
    assert found["role"] == ("ok", "a_coordinator has test_coordinator", "")
    assert found["rights"] == ("ok", "may stage, commit and replay", "")
    said = "a_executor, by RELIABILITY_EXECUTOR_DSN, may only stage and ack"
    assert found["executors"] == ("ok", said, "")
    roles.as_admin(
        "REVOKE INSERT ON public.log FROM test_coordinator",
        "ALTER TABLE public.log ADD id serial",
        "REVOKE CREATE ON SCHEMA public FROM test_owner",
        "REVOKE pg_signal_backend FROM test_owner",
    )
    try:
        found = examined()
    finally:
        roles.as_admin("GRANT pg_signal_backend TO test_owner")
    assert found["rights"][2] == (
        "GRANT INSERT ON TABLE public.log TO a_coordinator;"
        " GRANT USAGE ON SEQUENCE public.log_id_seq TO a_coordinator;"
    )
    assert found["rights to create"][2].endswith("GRANT CREATE ON SCHEMA public TO test_owner;")
    assert found["executors"][2] == "GRANT pg_signal_backend TO test_owner; as a superuser"
    monkeypatch.setenv("RELIABILITY_DSN", roles.dsns[PAGE])
    monkeypatch.setenv("RELIABILITY_EXECUTOR_DSN", roles.dsns[READER])
    found = examined()
    assert found["role"] == ("ok", "a_page has test_page", "")
    assert found["rights"] == ("ok", "reads; a task needs test_coordinator", "")
    said = "a_reader, by RELIABILITY_EXECUTOR_DSN, may not stage"
    assert found["executors"][:2] == ("FAIL", said)
    monkeypatch.setenv("RELIABILITY_EXECUTOR_DSN", roles.dsns[COORDINATOR])
    verdict, what, _ = examined()["executors"]
    assert (verdict, "may change the ledger or its tables, too" in what) == ("warning", True)
