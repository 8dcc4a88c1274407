"""How sessions get their credentials: from files, connections of Airflow, and in Spark tasks."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from psycopg2.extensions import make_dsn

from reliability.core.errors import LedgerRefusedLogin
from reliability.core.graph import THE_STEP
from reliability.deployment.address import (
    ADDRESSES,
    CREDENTIALS,
    ConnIds,
    DatabaseAddress,
    DriverAddresses,
    KeywordsInFile,
    address_of,
    using,
)
from reliability.ledger.connection import LedgerConnection
from reliability.spark.driver_environment import find_spark_submit
from reliability.spark.frames.pieces import frame_of_pieces
from reliability.spark.launch import SparkSubmit, WarmEngine, run_with_log
from reliability.spark.stage import task_address
from reliability.spark.stage.read_postgres import ReadTask, read_postgres
from reliability.spark.submission import Submission
from reliability.testing.server import TEST_DSN, test_server
from spark_apps import global_count
from tests.support import elsewhere
from tests.support.fix_pipeline import pipeline_of
from tests.support.fix_postgres import ROOT, database_of, rows, run_as_admin

FIRST, SECOND = "first-hunter2", "second-hunter2"
ROLE = "changes"


@dataclass(frozen=True)
class Server:
    """Where the tests' server is, and a role of which they know the password."""

    host: str
    port: int
    database: str

    def keywords(self, password: str) -> dict[str, str]:
        return {
            "host": self.host,
            "port": str(self.port),
            "dbname": self.database,
            "user": ROLE,
            "password": password,
        }

    def service(self, **more: str) -> str:
        """Return a service of it, without a password."""
        told = {**self.keywords(""), **more}
        return "[changes]\n" + "".join(f"{name}={value}\n" for name, value in told.items() if value)


@pytest.fixture
def server(connection, dsn) -> Iterator[Server]:
    run_as_admin(
        f"CREATE ROLE {ROLE} LOGIN PASSWORD '{FIRST}' IN ROLE reliability",
        f"ALTER ROLE {ROLE} SET role = reliability",
    )
    host, port, _ = connection.server()
    yield Server(host, port, database_of(dsn))
    run_as_admin(f"DROP ROLE {ROLE}")


@pytest.fixture
def told(server, tmp_path, monkeypatch):
    """Be a driver: `told(password)` writes what its task tells it."""

    def tell(password):
        file = tmp_path / "addresses"
        entry = {"dsn": "", "origin": "a test", "keywords": server.keywords(password)}
        new = tmp_path / "new"
        new.write_text(json.dumps({"": entry}))
        new.chmod(0o600)
        new.replace(file)
        monkeypatch.setenv(ADDRESSES, str(file))

    return tell


def database_at(address: DatabaseAddress) -> Any:
    with LedgerConnection(address) as connection:
        return connection.one("server_facts")["database"]


# --- libpq's files -------------------------------------------------------------------------------


def test_libpq_ignores_a_pass_file_that_others_may_read_but_no_service_file(
    server, tmp_path, monkeypatch
):
    """Kubernetes mounts secrets with 0644: the password goes into the service file there."""
    services, passwords = tmp_path / "services", tmp_path / "passwords"
    services.write_text(server.service())
    passwords.write_text(f"*:*:*:*:{FIRST}\n")
    passwords.chmod(0o600)
    with monkeypatch.context() as patch:
        patch.setenv("PGSERVICEFILE", str(services))
        patch.setenv("PGPASSFILE", str(passwords))
        patch.setenv("RELIABILITY_DSN", "service=changes")
        assert database_at(address_of()) == server.database
        passwords.chmod(0o644)
        with pytest.raises(LedgerRefusedLogin, match="no password supplied"):
            database_at(address_of())
        services.write_text(server.service(password=FIRST))
        services.chmod(0o644)
        assert database_at(address_of()) == server.database


def test_a_password_in_the_address_of_tests_goes_into_a_pass_file(server, tmp_path, monkeypatch):
    """CI often has one there; each `pipeline.run` refused it."""
    run_as_admin(rf"ALTER ROLE {ROLE} PASSWORD E'a:b\\c'")
    monkeypatch.setenv(TEST_DSN, make_dsn(**server.keywords("a:b\\c")))
    with test_server(tmp_path) as lent:
        monkeypatch.setenv("RELIABILITY_DSN", lent.dsn_of(server.database))
        assert database_at(address_of()) == server.database


# --- sessions of a driver ------------------------------------------------------------------------


def test_a_driver_waits_for_the_password_that_its_task_tells_it(server, told, monkeypatch):
    """S5: the role has the new one already, the file not yet."""
    told(FIRST)
    address = address_of()
    with LedgerConnection(address) as open_before:
        assert open_before.one("server_facts")["database"] == server.database
        run_as_admin(f"ALTER ROLE {ROLE} PASSWORD '{SECOND}'")
        thread = threading.Timer(0.3, told, [SECOND])
        thread.start()
        assert database_at(address) == server.database
        thread.join()
        assert open_before.one("server_facts")["database"] == server.database
    # one that nobody renews is refused
    monkeypatch.setattr("reliability.deployment.address.RENEWAL_SECONDS", 0.5)
    told(FIRST)
    with pytest.raises(LedgerRefusedLogin, match="password authentication failed"):
        database_at(address_of())


def token(database, known):
    return {"password": FIRST if known["user"] == ROLE else "unknown"}


def test_a_function_of_the_users_makes_the_password_of_a_session(server, monkeypatch):
    where = " ".join(f"{name}={value}" for name, value in server.keywords("").items() if value)
    monkeypatch.setenv("RELIABILITY_DSN", where)
    monkeypatch.setenv(CREDENTIALS, f"{__name__}:token")
    assert database_at(address_of()) == server.database


# --- Spark tasks ---------------------------------------------------------------------------------

NUMBERS = "SELECT 1 UNION ALL SELECT 2"


def is_hidden(spark, frame, password=FIRST):
    """Say whether nothing that Spark shows of a frame, or keeps of its application, has it."""
    shown = [
        frame._jdf.queryExecution().toString(),
        str(frame._jdf.queryExecution().logical().toJSON()),
        spark.sparkContext.getConf().toDebugString(),
        spark._jsparkSession.sessionState().conf().getAllConfs().toString(),
    ]
    return not any(password in text for text in shown)


def test_tasks_on_another_host_get_the_credentials_of_their_driver(
    spark, server, told, monkeypatch
):
    """G10: by a broadcast; the task that Spark pickles has none."""
    told(FIRST)
    monkeypatch.setattr(task_address, "is_local", lambda _: False)
    sent = task_address.task_address(spark, address_of())
    os.unlink(os.environ[ADDRESSES])  # as on another host
    task = ReadTask(address=sent, columns=(("n", "int"),))
    frame = frame_of_pieces(spark, [NUMBERS], task.read, "n int")
    assert sorted(row["n"] for row in frame.collect()) == [1, 2]
    assert is_hidden(spark, frame)
    assert FIRST.encode() not in pickled(task)


def pickled(task):
    from pyspark.serializers import CloudPickleSerializer

    return CloudPickleSerializer().dumps(task)


def test_tasks_on_the_drivers_host_read_its_file_or_are_sent_the_credentials(spark, server, told):
    """`reliability check` has Airflow, and asks it; its Spark tasks have not."""
    told(FIRST)
    assert task_address.task_address(spark, address_of()) == address_of()
    for address in (address_of(), DatabaseAddress(ask=lambda: server.keywords(FIRST))):
        frame = read_postgres(spark, address, [NUMBERS], "n int")
        assert sorted(row["n"] for row in frame.collect()) == [1, 2]
        assert is_hidden(spark, frame)


# --- Airflow's connections -----------------------------------------------------------------------


@pytest.fixture
def airflow_knows(airflow_home, server, monkeypatch):
    """Let a variable be the connection `kept`, as Airflow's first secrets backend finds it."""

    def know(password, **more):
        own = server.keywords(password)
        told = {
            "conn_type": "reliability",
            "host": own["host"],
            "port": int(own["port"]),
            "schema": own["dbname"],
            "login": own["user"],
            "password": own["password"],
            **more,
        }
        monkeypatch.setenv("AIRFLOW_CONN_KEPT", json.dumps(told))

    know(FIRST)
    return know


def test_the_hook_of_a_connection_says_whether_it_works(airflow_knows, server):
    from reliability_airflow.hook import ReliabilityHook

    works, message = ReliabilityHook("kept").test_connection()
    assert works, message
    assert message.endswith(f"{server.database} as reliability, with a ledger of this release")
    airflow_knows(FIRST, schema="postgres")
    works, message = ReliabilityHook("kept").test_connection()
    assert (works, "run `reliability migrate`" in message) == (True, True), message
    airflow_knows(SECOND)
    works, message = ReliabilityHook("kept").test_connection()
    assert (works, "[LEDGER_REFUSED_LOGIN]" in message) == (False, True)
    assert SECOND not in message
    works, message = ReliabilityHook("missing").test_connection()
    assert (works, "[DATABASE_CONNECTION_MISSING]" in message) == (False, True)


def test_an_open_connection_is_asked_again_when_the_password_has_changed(airflow_knows, server):
    with using(ConnIds.of("kept", {})):
        connection = LedgerConnection(address_of())
    with connection:
        assert connection.one("server_facts")["database"] == server.database
        run_as_admin(f"ALTER ROLE {ROLE} PASSWORD '{SECOND}'")
        airflow_knows(SECOND)
        connection.close()
        assert connection.one("server_facts")["database"] == server.database


def test_airflows_postgres_hook_makes_the_token_of_each_session(airflow_knows, server, monkeypatch):
    """As for its own sessions, by the extra `iam`; a cloud that does not answer is waited for."""
    from airflow.providers.postgres.hooks.postgres import PostgresHook

    airflow_knows("", conn_type="postgres", extra={"iam": True, "aws_conn_id": "aws"})
    made: list[str] = []

    def get_iam_token(hook, connection):
        made.append(connection.extra_dejson["aws_conn_id"])
        return connection.login, FIRST, connection.port

    monkeypatch.setattr(PostgresHook, "get_iam_token", get_iam_token)
    with using(ConnIds.of("kept", {})):
        monkeypatch.delenv("RELIABILITY_DSN")
        address = address_of()
    assert database_at(address) == database_at(address) == server.database
    assert made == ["aws", "aws"]
    monkeypatch.setattr(PostgresHook, "get_iam_token", None)
    with pytest.raises(LedgerRefusedLogin, match="connection kept gets no token: TypeError"):
        database_at(address)


def test_the_command_line_that_a_task_starts_is_told_the_addresses(
    airflow_knows, server, tmp_path, monkeypatch
):
    """The sweep's process has no way to Airflow's own database."""
    monkeypatch.delenv("RELIABILITY_DSN")
    with using(ConnIds.of("kept", {"mart": "kept"})):
        addresses = DriverAddresses(str(tmp_path))
    monkeypatch.delenv("AIRFLOW_CONN_KEPT")
    for name, value in addresses.variables.items():
        monkeypatch.setenv(name, value)
    assert stat.S_IMODE(Path(os.environ[ADDRESSES]).stat().st_mode) == 0o600
    assert isinstance(address_of("mart").ask, KeywordsInFile)
    assert database_at(address_of()) == database_at(address_of("mart")) == server.database


@pytest.mark.slow
def test_executors_in_processes_of_their_own_get_the_credentials_from_their_driver(
    airflow_knows, server, connection, tmp_path, monkeypatch
):
    """G10: a cluster of spark-submit's own; its executors do not find the driver's file."""
    monkeypatch.delenv("RELIABILITY_DSN")
    shop = pipeline_of(elsewhere.topology, connection)
    assert shop.emit(None) == [1]
    grant = shop.begin(1)
    program = find_spark_submit()
    assert program is not None
    events = tmp_path / "events"
    events.mkdir()
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
    launcher = SparkSubmit(
        program=program,
        master="local-cluster[1,2,1024]",
        conf={**conf, "spark.eventLog.dir": f"file:{events}", "spark.driver.host": "127.0.0.1"},
        code=[str(ROOT)],
    )
    processes: list[str] = []

    def look() -> bool:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                processes.append(f"{process.cmdline()} {process.environ()}")
        return True

    submission = Submission(module=elsewhere.__name__, grant=grant, step=THE_STEP)
    with using(ConnIds.of("kept", {})):
        run_with_log(launcher, submission, look)
    shop.seal(grant)
    shop.runner.commit(1)
    assert rows(connection, "SELECT word, times FROM elsewhere ORDER BY 1") == [("a", 2), ("b", 1)]
    assert any("CoarseGrainedExecutorBackend" in process for process in processes)
    seen = [process for process in processes if FIRST in process]
    assert all("AIRFLOW_CONN_KEPT" in process for process in seen), "those that Airflow starts"
    assert not any("process_batch.py" in process for process in seen)
    assert not any("CoarseGrainedExecutorBackend" in process for process in seen)
    logged = "".join(p.read_text() for p in events.rglob("*") if p.is_file())
    assert "elsewhere" in logged
    assert FIRST not in logged


@pytest.mark.slow
def test_a_step_in_a_warm_engine_reads_the_file_of_its_own_task(
    engine, airflow_knows, server, connection, monkeypatch
):
    """The engine, its environment and its Python workers have nothing of it."""
    monkeypatch.delenv("RELIABILITY_DSN")
    shop = pipeline_of(global_count.topology, connection)
    assert shop.emit(None) == [1, 2, 3]
    grant = shop.begin(1)
    submission = Submission(module=global_count.__name__, grant=grant, step=THE_STEP)
    with using(ConnIds.of("kept", {})):
        run_with_log(WarmEngine(code=[str(ROOT)]), submission, lambda: True)
    shop.seal(grant)
    shop.runner.commit(1)
    assert rows(connection, "SELECT words FROM global_count") == [(9,)]
    told = [process.environ() for process in (engine.process, *engine.workers())]
    assert not any(ADDRESSES in variables for variables in told)
