"""S1, S2: sessions whose defaults are hostile; nothing that the ledger says depends on them.

The server of the test run has all of `HOSTILE_SETTINGS`, so each other test shows it, too.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from datetime import datetime, timedelta, timezone

import psycopg2
import pytest
from psycopg2.sql import SQL

from reliability import Append, Count, FileSpout, MemorySpout, State, Topology, audit
from reliability.core.errors import (
    AttemptIncomplete,
    EncodingUnsupported,
    RightMissing,
    TextNotStorable,
    UnexpectedAnswer,
    error_types,
)
from reliability.core.leases import Leases
from reliability.core.spout import Interval
from reliability.deployment.address import DatabaseAddress
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.migrations import migrate, migrations_as_sql
from reliability.spark.stage import stage_task
from reliability.spark.stage.read_postgres import ReadTask
from reliability.transaction.inspect.alerts import record_conditions
from reliability.transaction.maintain.sweep import sweep
from reliability.transaction.process import begin
from reliability.transaction.process.attempt_messages import end_attempt, read_attempt
from tests.replay.shop import Shop, made
from tests.support.fix_pipeline import pipeline_of, write_parquet
from tests.support.fix_postgres import (
    database_of,
    execute,
    new_database,
    own_session,
    rows,
    run_as_admin,
)

PINNED = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "client_encoding": "UTF8",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "array_nulls": "on",
    "quote_all_identifiers": "off",
    "transform_null_equals": "off",
    "row_security": "off",
    "jit": "off",
    "transaction_isolation": "read committed",
    "transaction_read_only": "off",
    "synchronous_commit": "on",
    "statement_timeout": "0",
    "lock_timeout": "10s",
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": "1min",
    "search_path": "pg_catalog, pg_temp",
}


SHOWN = SQL(
    "SELECT json_object_agg(name, pg_catalog.current_setting(name)) AS settings"
    " FROM unnest(%(names)s) AS name"
)


def shown(connection, *names):
    with connection.transaction() as tx:
        return tx.one(SHOWN, names=list(names))["settings"]


def test_a_setting_is_what_the_package_relies_on_whatever_the_role_has(shared_connection):
    """And whatever a user's trigger, or another client of the pooler, has set before."""
    assert shown(shared_connection, *PINNED) == PINNED
    names = list(PINNED)
    with shared_connection.in_one_round_trip() as tx:
        assert tx.one(SHOWN, names=names)["settings"] == PINNED
    with shared_connection.transaction() as tx:
        tx.queue(SHOWN, names=names)
        assert tx.commit_and_ask(SHOWN, names=names)["settings"] == PINNED
    other = "SET TimeZone = 'Asia/Tokyo'; SET statement_timeout = 900; SET jit = on"
    execute(shared_connection, other)
    assert shown(shared_connection, *PINNED) == PINNED


def test_the_role_of_the_tests_has_other_settings(shared_connection):
    """Else this file shows nothing."""
    with closing(psycopg2.connect(shared_connection.dsn)) as session, session.cursor() as cursor:
        cursor.execute("SELECT name, pg_catalog.current_setting(name) FROM unnest(%s) AS name",
                       [list(PINNED)])  # fmt: skip
        assert not {*cursor.fetchall()} & {*PINNED.items()}


TAKEN_BY_SHADOWS = [
    "clock_timestamp()",
    "to_regclass('reliability.topology')",
    "hashtextextended('a', 1::bigint)",
    "current_setting('TimeZone')",
    "(SELECT max(one) FROM unnest(ARRAY[1::bigint]) AS one)",
    "jsonb_build_object('a', 'b')",
    "format('%%s', 'a')",
    "num_nonnulls(1::bigint, 'a'::pg_catalog.text)",
    "lower('[1,2)'::pg_catalog.int8range)",
    "left('abc'::varchar, 2)",
    "(SELECT jsonb_agg(one) FROM (SELECT '1'::pg_catalog.jsonb AS one) AS t)",
    "(SELECT count(one) FROM (SELECT 1::bigint AS one) AS t)",
    "('a'::pg_catalog.text = 'b'::pg_catalog.text)",
    "('a'::pg_catalog.text || 1::bigint)",
    "(1::bigint + 1)",
    "('{}'::pg_catalog.jsonb ->> 'a')",
    "CAST('a' AS text)",
    "CAST('{}' AS jsonb)",
]


def test_what_another_role_creates_in_a_schema_of_the_path_never_runs(shared_connection):
    """S4: it would run with the rights of the product's role."""
    reached = {
        taken for taken in TAKEN_BY_SHADOWS if reaches_a_shadow(shared_connection.dsn, taken)
    }
    assert reached == set(TAKEN_BY_SHADOWS)  # by the role's own path
    assert shown(shared_connection, "search_path") == {"search_path": "pg_catalog, pg_temp"}
    with shared_connection.transaction() as tx:
        for taken in TAKEN_BY_SHADOWS:
            tx.one(SQL(f"SELECT {taken}"), none=None)


def reaches_a_shadow(dsn, expression):
    """Say whether a session with the role's own path evaluates it by a shadow."""
    with closing(psycopg2.connect(dsn)) as session, session.cursor() as cursor:
        try:
            cursor.execute(f"SELECT {expression}", {})
        except (psycopg2.errors.RaiseException, psycopg2.errors.CheckViolation):
            return True
    return False


def test_a_better_fitting_function_of_a_shared_schema_never_runs(connection, python_pipeline):
    """S4: an aggregate jsonb_agg(jsonb) of public was taken rather than Postgres's own."""
    fill = "LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.ran VALUES (1); RETURN $1; END $$"
    database = database_of(connection.dsn)
    run_as_admin(
        "CREATE TABLE public.ran (n integer)",
        "GRANT ALL ON public.ran TO PUBLIC",
        f"CREATE FUNCTION public.more(jsonb, jsonb) RETURNS jsonb {fill}",
        "CREATE AGGREGATE public.jsonb_agg(jsonb) (SFUNC = public.more, STYPE = jsonb,"
        " INITCOND = '[]')",
        f"ALTER ROLE reliability IN DATABASE {database} SET search_path = public",
        database=database,
    )
    shop = python_pipeline(words(["man", "dog"]))
    shop.emit(None)
    shop.transact(1)
    assert rows(connection, "SELECT count(*) FROM public.seen") == [(2,)]
    assert rows(connection, "SELECT count(*) FROM public.ran") == [(0,)]
    with closing(own_session(connection.dsn)) as session, session.cursor() as cursor:
        cursor.execute("SELECT jsonb_agg(to_jsonb(word)) FROM public.seen")  # it can run
        cursor.execute("SELECT count(*) FROM public.ran")
        assert cursor.fetchall() == [(2,)]


def test_a_temporary_table_takes_no_name_of_postgres(connection):
    """S4: and who reads a view calls the ledger's functions with a path of their own."""
    with connection.transaction() as tx:
        tx.run(SQL("CREATE TEMPORARY TABLE pg_class (oid integer)"))
        assert tx.one(SQL("SELECT count(*) AS rows FROM pg_class"))["rows"] > 0
    own = (
        "SELECT oid::regprocedure::text FROM pg_proc"
        " WHERE pronamespace = 'reliability'::regnamespace"
        " AND 'search_path=pg_catalog, pg_temp' <> ALL (coalesce(proconfig, '{}'))"
    )
    assert rows(connection, own) == []


def test_a_server_that_waits_for_its_standbys_goes_on_doing_so(connection):
    run_as_admin(
        f"ALTER DATABASE {database_of(connection.dsn)} SET synchronous_commit = remote_apply",
        "ALTER ROLE reliability RESET synchronous_commit",
    )
    try:
        found = shown(LedgerConnection(connection.dsn), "synchronous_commit")
    finally:
        run_as_admin("ALTER ROLE reliability SET synchronous_commit = 'off'")
    assert found == {"synchronous_commit": "remote_apply"}


def test_a_transaction_that_reads_only_writes_nothing(shared_connection):
    with (
        pytest.raises(UnexpectedAnswer, match="read-only"),
        shared_connection.transaction(reads_only=True) as tx,
    ):
        tx.run(SQL("CREATE TABLE public.x ()"))


# --- time zones ----------------------------------------------------------------------------------


def test_a_daily_opaque_spout_reads_its_own_day_where_the_ledgers_zone_is_new_york(
    connection, python_pipeline, tmp_path
):
    for day in (1, 2):
        folder = tmp_path / f"2026-01-0{day}"
        write_parquet(folder / "a.parquet", [{"customer": day}] * day)
        (folder / "_SUCCESS").touch()
    topology = Topology(
        "shop",
        spout=FileSpout(
            f"{tmp_path}/{{data_interval_start:%Y-%m-%d}}/*.parquet",
            schema="customer bigint, day date, price decimal(10,2)",
            opaque=True,
            ready_file=f"{tmp_path}/{{data_interval_start:%Y-%m-%d}}/_SUCCESS",
        ),
        process=lambda batch: {"customers": batch},
        states=[State("customers", key={"customer": "bigint"}, values={"orders": Count()})],
        module=__name__,
    )
    shop = python_pipeline(topology)
    second = datetime(2026, 1, 2, tzinfo=timezone.utc)
    [txid] = shop.emit(Interval(second, second + timedelta(days=1)))
    assert str(begin.interval(connection, "shop", txid)) == "2026-01-02"
    shop.transact(txid)
    assert rows(connection, "SELECT customer, orders FROM public.customers") == [(2, 2)]


def test_an_interval_is_in_utc_whatever_zone_it_came_in():
    start = datetime(2026, 1, 2, 9, tzinfo=timezone(timedelta(hours=9)))
    assert str(Interval(start, start + timedelta(days=1))) == "2026-01-02"
    with pytest.raises(ValueError, match="time zone"):
        Interval(datetime(2026, 1, 1), datetime(2026, 1, 2))


# --- encodings -----------------------------------------------------------------------------------


UNQUALIFIED = audit("elsewhere", "SELECT FROM {contribution}, nowhere", severity="warn")


def words(texts: list[str]) -> Topology:
    return Topology(
        "words",
        spout=MemorySpout(schema={"word": "string"}, partitions=[texts], take=99),
        process=lambda batch: {"seen": batch, "counted": batch},
        states=[
            State("seen", values={"word": Append("word", "text")}, audits=[UNQUALIFIED]),
            State("counted", key={"word": "text"}, values={"times": Count()}),
        ],
        module=__name__,
    )


@pytest.fixture
def encoded(environment):
    """Make a pipeline of words in a database of some encoding, after its migration."""
    with ExitStack() as stack:

        def make(encoding, texts):
            dsn = stack.enter_context(new_database(encoding=encoding))
            connection = stack.enter_context(LedgerConnection(dsn))
            migrate(connection)
            pipeline = pipeline_of(words(texts), connection)
            pipeline.emit(None)
            return pipeline

        yield make


def stored(pipeline):
    """Read the bytes that are there, by a session of the test's own."""
    read = "SELECT convert_to(word, getdatabaseencoding()) FROM public.seen"
    session = own_session(pipeline.runner.connection.dsn)
    with closing(session), session.cursor() as cursor:
        cursor.execute(read)
        return {bytes(value) for (value,) in cursor.fetchall()}


@pytest.mark.parametrize(
    ("encoding", "codec", "texts"),
    [
        ("UTF8", "utf-8", ["Zoë", "€", "日本", "a\tb\nc"]),
        ("LATIN1", "latin-1", ["Zoë", "Ärger"]),
        ("SQL_ASCII", "utf-8", ["Zoë", "€", "日本"]),
    ],
)
def test_text_is_stored_as_it_is_where_the_client_says_latin1(encoded, encoding, codec, texts):
    """PGCLIENTENCODING=LATIN1 is set for the whole test run.

    What the ledger itself says of an audit that cannot run has characters of its own.
    """
    pipeline = encoded(encoding, texts)
    pipeline.transact(1)
    assert stored(pipeline) == {text.encode(codec) for text in texts}
    again = pipeline.again()
    again.emit(None)
    again.transact(1)
    moved = "SELECT sum(rows_added + rows_changed) FROM reliability.difference"
    assert rows(pipeline.runner.connection, moved) == [(0,)]


def test_a_reason_in_any_script_is_kept_where_the_client_says_latin1(shared_connection):
    """S1: in that encoding the driver could not even send it."""
    asked = "SELECT %(reason)s::pg_catalog.text"
    assert rows(shared_connection, asked, reason="你好 €") == [("你好 €",)]


def test_text_that_the_database_cannot_hold_fails_the_attempt_and_says_so(encoded):
    """A reason reaches the ledger whatever its characters, and so does an alert of it."""
    pipeline = encoded("LATIN1", ["Zoë", "€"])
    grant = pipeline.begin(1)
    connection = pipeline.runner.connection
    text, stored = (
        "“5 €”\0 and a surrogate \udcff",
        "\\u201c5 \\u20ac\\u201d\\0 and a surrogate \\udcff",
    )
    error = error_types()["PROCESS_FUNCTION_FAILED"](text, remedy=text)
    assert end_attempt(connection, grant, error)
    attempt = read_attempt(connection, grant)
    assert (attempt["reason"], attempt["remedy"]) == (stored, stored)
    with pytest.raises(TextNotStorable, match="LATIN1"):
        pipeline.transact(1)
    asked = "SELECT reason_code, status FROM reliability.attempt WHERE attempt_id = 1"
    assert rows(connection, asked) == [("TEXT_NOT_STORABLE", "FAILED")]
    execute(connection, "UPDATE reliability.request SET status = 'CLOSED', ended_at = now()")
    execute(connection, "UPDATE reliability.attempt SET reason_code = 'X', remedy = NULL")
    record_conditions(connection, "words", None)
    [advice] = rows(connection, "SELECT advice FROM reliability.alert WHERE kind = 'BLOCKED'")
    assert r"--reason '\u2026'" in advice[0]


def test_a_database_in_which_texts_have_another_order_is_refused(environment):
    for name, act in (("WIN1252", migrate), ("LATIN2", migrate), ("LATIN2", migrations_as_sql)):
        with new_database(encoding=name) as dsn, pytest.raises(EncodingUnsupported, match=name):
            act(LedgerConnection(dsn))


def test_a_parameter_with_backslashes_and_quotes_is_itself(shared_connection):
    """standard_conforming_strings is off for the role."""
    for text in ("\\", "a\\'b", "'; DROP TABLE x; --", "\\u0041", "E'"):
        assert shared_connection.one(SQL("SELECT %(text)s AS text"), text=text)["text"] == text


def test_nul_in_a_parameter_is_an_error_of_ours(shared_connection):
    with pytest.raises(TextNotStorable, match="NUL"), shared_connection.transaction() as tx:
        tx.one("table_exists", table="a\0b")


def test_bytes_that_are_no_text_are_an_error_of_ours(environment):
    with new_database(encoding="SQL_ASCII") as dsn, LedgerConnection(dsn) as connection:
        with pytest.raises(TextNotStorable, match="UTF-8"), connection.transaction() as tx:
            tx.one(SQL("SELECT E'\\xff'::text AS broken"))
        assert shown(connection, "TimeZone") == {"TimeZone": "UTC"}  # the session goes on


# --- what is said of rows ------------------------------------------------------------------------


def test_an_error_names_line_column_and_key_and_shows_no_row(connection):
    import io

    execute(
        connection, "CREATE TABLE public.people (name text, age integer UNIQUE CHECK (age > 0))"
    )
    with pytest.raises(UnexpectedAnswer) as raised, connection.transaction() as tx:
        tx.copy("COPY public.people FROM STDIN (FORMAT csv)", io.BytesIO(b"ann,1\nbob,x,secret\n"))
    assert raised.value.what == "extra data after last expected column; COPY people, line 2"
    assert "secret" not in str(raised.value)
    with pytest.raises(UnexpectedAnswer) as raised, connection.transaction() as tx:
        tx.run(SQL("INSERT INTO public.people VALUES ('secret', -1)"))
    assert "people_age_check" in raised.value.what
    assert "secret" not in raised.value.what
    with pytest.raises(UnexpectedAnswer) as raised, connection.transaction() as tx:
        tx.run(SQL("INSERT INTO public.people VALUES ('secret', 1), ('secret', 1)"))
    assert raised.value.what.endswith("Key (age)=(1) already exists.")


# --- what else a role may have -------------------------------------------------------------------


def test_rows_that_a_policy_hides_are_an_error_and_never_missing(connection, python_pipeline):
    shop = python_pipeline(words(["man", "dog"]))
    shop.emit(None)
    shop.transact(1)
    execute(
        connection, "ALTER TABLE public.seen ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
    )
    again = shop.again()
    again.emit(None)
    with pytest.raises(RightMissing, match=r"row-level security.* Give the role BYPASSRLS"):
        again.transact(1)
    execute(connection, "ALTER TABLE public.seen NO FORCE ROW LEVEL SECURITY")
    again.transact(1)
    assert rows(connection, "SELECT count(*) FROM public.seen") == [(2,)]


def test_the_ledgers_triggers_run_where_the_role_is_a_replica(connection, python_pipeline):
    """S1: those of foreign keys do not, so a drop relies on none. It left rows behind."""
    of_database = f"ALTER ROLE reliability IN DATABASE {database_of(connection.dsn)}"
    run_as_admin(f"{of_database} SET session_replication_role = replica")
    try:
        shop = pipeline_of(words(["man"]), LedgerConnection(connection.dsn))
        shop.emit(None)
        shop.begin(1)
    finally:
        run_as_admin(f"{of_database} RESET session_replication_role")
    assert rows(connection, "SELECT status FROM reliability.attempt_event") == [("PROCESSING",)]
    assert rows(connection, "SELECT phase FROM reliability.checkpoint") == [("COMMITTED",)]
    acting = "SELECT conname FROM pg_constraint WHERE contype = 'f' AND confdeltype <> 'a'"
    assert rows(connection, acting) == []


# --- a server that refuses functions -------------------------------------------------------------


REFUSED = (
    "pg_terminate_backend(integer, bigint)",
    "pg_stat_get_activity(integer)",
    "pg_current_wal_lsn()",
)


def test_a_server_that_refuses_to_end_sessions_keeps_no_rows_that_cannot_count(connection):
    """A4: they stayed for ever, and nobody was told."""
    shop = Shop(connection)
    database = database_of(connection.dsn)
    staged = "SELECT count(*) FROM reliability_contribution.shop__exact WHERE _txid = %(txid)s"
    for txid, function in enumerate(REFUSED, start=1):
        right = f"EXECUTE ON FUNCTION pg_catalog.{function}"
        run_as_admin(f"REVOKE {right} FROM PUBLIC", database=database)
        shop.deliver(made(txid))
        grant = shop.begin(txid)
        shop.write(grant)
        shop.runner.end_attempt(grant, AttemptIncomplete("its JVM died"))
        swept = sweep(connection, "shop", Leases(), clean=True)
        assert list(map(str, swept.cleaned)) == [f"{txid}:0"]
        assert rows(connection, staged, txid=txid) == [(0,)]
        shop.transact(txid)
        run_as_admin(f"GRANT {right} TO PUBLIC", database=database)
    assert rows(connection, "SELECT curr_txid FROM reliability.topology") == [(4,)]


# --- a server without room -----------------------------------------------------------------------


@contextmanager
def one_place_becomes_free(dsn, places):
    """Take all places for sessions but these, and give one back when somebody was refused."""
    run_as_admin(f"ALTER DATABASE {database_of(dsn)} CONNECTION LIMIT {places + 4}")
    connect, refused = psycopg2.connect, []

    def connect_or_free(*args, **parameters):
        try:
            return connect(*args, **parameters)
        except psycopg2.OperationalError as error:
            refused.append(error)
            others[0].close()
            raise

    with ExitStack() as stack:
        others = [stack.enter_context(closing(psycopg2.connect(dsn))) for _ in range(4)]
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(
            psycopg2, "connect", connect_or_free
        )
        yield
    assert refused


def test_a_staging_task_waits_for_a_place_among_the_servers_sessions(connection, dsn, monkeypatch):
    """S3: with 60 topologies on a server of 100 sessions, attempts failed four times in a row."""
    monkeypatch.setattr(stage_task, "LedgerConnection", LedgerConnection)
    topology = Topology(
        "shop",
        spout=MemorySpout({"word": "string"}, [["a", "b"]], take=2),
        process=lambda batch: {"words": batch},
        states=[State("words", key={"word": "text"}, values={"times": Count()})],
    )
    pipeline = pipeline_of(topology, connection)
    pipeline.emit(None)
    grant = pipeline.begin(1)
    # there is a place for the driver, and none for its task
    with one_place_becomes_free(dsn, places=2):
        pipeline.run_step(grant)
    pipeline.seal(grant)
    pipeline.runner.commit(0)
    assert rows(connection, "SELECT word, times FROM words ORDER BY 1") == [("a", 1), ("b", 1)]


def test_a_task_that_reads_a_table_waits_for_a_place_too(dsn):
    """S3: it failed, and where the master is local, its attempt with it."""
    task = ReadTask(address=DatabaseAddress(dsn=dsn), columns=(("n", "int"),))
    with one_place_becomes_free(dsn, places=0):
        [batch] = task.read("SELECT 7")
    assert batch.to_pylist() == [{"n": 7}]
