"""A server that is replaced by its standby, or by a restored dump: what counts, what is fenced."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dev.services.accounts import memory, server_home_path
from dev.services.credentials import SUPERUSER, Credentials
from dev.services.ports import HOST, Ports
from dev.services.postgres import NO_FSYNC, EmbeddedPostgres
from dev.services.processes import family, wait_gone, wait_until
from reliability import Count, MemorySpout, State, Topology
from reliability.core.errors import AttemptFenced, LedgerUnavailable
from reliability.deployment.address import DatabaseAddress
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.migrations import migrate
from reliability.spark.stage.read_postgres import ReadTask
from reliability.states import attempt_table
from reliability.transaction.inspect.verify import verify
from tests.support.command_line import say
from tests.support.fix_pipeline import Pipeline, pipeline_of
from tests.support.fix_postgres import execute, new_database, rows
from tests.support.python_driver import process_in_python

ROOT = Path(__file__).resolve().parents[2]
WORDS = ["man", "man", "dog", "cat", "man", "dog", "cat", "egg", "egg"]


def topology(happens: Callable[[], None] = lambda: None) -> Topology:
    """Return a topology that counts words, and lets something happen while Spark works."""

    def process(batch):
        happens()
        return {"words": batch}

    return Topology(
        "words",
        spout=MemorySpout({"word": "string"}, [WORDS], take=3),
        process=process,
        states=[State("words", key={"word": "text"}, values={"times": Count()})],
        max_spout_pending=3,
    )


TOPOLOGY = topology()


def table(connection):
    return rows(connection, "SELECT word, times FROM public.words ORDER BY 1")


def position(connection):
    with connection.transaction(reads_only=True) as tx:
        return tx.one("topology_position", topology=TOPOLOGY.name)["curr_txid"]


def go_on(connection: LedgerConnection, before: Pipeline) -> None:
    """Process what is left as the retries of the same run do, and compare all that counts."""
    pipeline = Pipeline(pipeline_of(TOPOLOGY, connection).runner, None, before.run)
    pipeline.runner.sweep()  # as each task does before it works
    for txid in (1, 2, 3):
        pipeline.transact(txid)
    assert table(connection) == [("cat", 2), ("dog", 2), ("egg", 2), ("man", 3)]
    assert all(state.is_exact for state in verify(connection, TOPOLOGY.name))


# --- a standby -----------------------------------------------------------------------------------


class Cluster(EmbeddedPostgres):
    """A server of a test's own."""

    def dsn(self) -> str:
        password = self.credentials.password("reliability")
        return (
            f"host={HOST} port={self.port} user=reliability password={password} dbname=reliability"
        )

    def add_standby(self, folder: Path) -> Cluster:
        """Copy this server, and follow it."""
        standby = cluster(folder, self.credentials)
        shutil.rmtree(standby.data_dir, ignore_errors=True)
        source = f"host={HOST} port={self.port} user={SUPERUSER} "
        source += f"password={self.credentials.password(SUPERUSER)}"
        standby._run(
            *("pg_basebackup", "--pgdata", str(standby.data_dir), "--dbname", source),
            *("--write-recovery-conf", "--checkpoint", "fast", "--no-sync"),
        )
        standby.start()
        return standby

    def end(self, how: signal.Signals) -> None:
        """Let it end by a signal: a kill, or a fast shutdown."""
        postmaster = self.postmaster()
        assert postmaster is not None
        own = family(postmaster)
        for process in own if how is signal.SIGKILL else [postmaster]:
            process.send_signal(how)
        assert wait_gone(own, 30) == []

    def promote(self) -> None:
        self._run("pg_ctl", "promote", "--wait", "--silent", "--pgdata", str(self.data_dir))


def cluster(folder: Path, credentials: Credentials | None = None) -> Cluster:
    folder.mkdir()
    home = server_home_path(folder, memory())
    store = home.parent / "passwords.json"
    return Cluster(
        root=ROOT,
        home=home,
        ports=Ports(file=folder / "ports.json"),
        credentials=credentials or Credentials(state_dir=folder, store=store),
        settings=NO_FSYNC,
    )


@pytest.fixture
def primary(tmp_path) -> Iterator[Cluster]:
    server = cluster(tmp_path / "primary")
    server.up()
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(server.home.parent, ignore_errors=True)


@pytest.fixture
def follow(primary, tmp_path):
    """Return what adds a standby to the primary."""
    standbys: list[Cluster] = []

    def add(name: str) -> Cluster:
        standbys.append(primary.add_standby(tmp_path / name))
        return standbys[-1]

    yield add
    for standby in standbys:
        standby.kill()
        shutil.rmtree(standby.home.parent, ignore_errors=True)


def test_a_driver_goes_on_when_its_server_was_restarted_between_two_transactions(primary):
    """S3: an attempt of hours had to begin again, as its driver's idle session was gone.

    A session of anyone else says that it was lost: it may hold the lock of a checkpoint, which the
    next session would not have.
    """
    with (
        LedgerConnection(primary.dsn(), opens_within=60) as connection,
        LedgerConnection(primary.dsn()) as anyone,
    ):
        migrate(connection)
        pipeline = pipeline_of(TOPOLOGY, connection)
        pipeline.emit(None)
        assert anyone.all("participants", topology=TOPOLOGY.name) == []
        process_over_a_restart(pipeline, 1, primary, signal.SIGKILL)
        with pytest.raises(LedgerUnavailable):
            anyone.all("participants", topology=TOPOLOGY.name)
        process_over_a_restart(pipeline, 2, primary, signal.SIGINT)
        pipeline.runner.commit(0)
        assert table(connection) == [("cat", 1), ("dog", 2), ("man", 3)]


def process_over_a_restart(
    pipeline: Pipeline, txid: int, server: Cluster, how: signal.Signals
) -> None:
    """Process a txid by a driver whose server ends while it works, and is started again."""
    restart = threading.Timer(0.3, server.start)

    def end() -> None:
        server.end(how)
        restart.start()

    grant = pipeline.begin(txid)
    try:
        process_in_python(pipeline.runner.connection, topology(end), grant)
    finally:
        restart.join()
    pipeline.seal(grant)


def test_a_driver_does_not_go_on_with_a_standby_that_was_promoted(primary, follow):
    """A1: it may lack rows that the driver has stored. S3: until then, it is waited for.

    A task that only reads a table takes it at once: it waits for no server that takes writes.
    """
    with LedgerConnection(primary.dsn()) as connection:
        migrate(connection)
        pipeline = pipeline_of(TOPOLOGY, connection)
        pipeline.emit(None)
        grant = pipeline.begin(1)
    standby = follow("standby")
    address = DatabaseAddress(dsn=standby.dsn())
    task = ReadTask(address=address, columns=(("n", "int"),))
    began = time.monotonic()
    [batch] = task.read("SELECT 7")
    assert batch.to_pylist() == [{"n": 7}]
    assert time.monotonic() - began < 20
    promotion = threading.Timer(0.7, standby.promote)
    both = primary.dsn().replace(
        f"{HOST} port={primary.port}", f"{HOST},{HOST} port={primary.port},{standby.port}"
    )

    def fail_over() -> None:
        primary.kill()
        promotion.start()

    with LedgerConnection(both, opens_within=60) as connection:
        try:
            with pytest.raises(LedgerUnavailable, match="has failed over"):
                process_in_python(connection, topology(fail_over), grant)
        finally:
            promotion.join()


def test_a_standby_goes_on_with_or_without_the_last_commits(primary, follow):
    """A1: a promoted standby has another timeline, so live attempts of before cannot count.

    S3: until then it is an outage, whose tasks wait.
    """
    with LedgerConnection(primary.dsn()) as connection:
        migrate(connection)
        pipeline = pipeline_of(TOPOLOGY, connection)
        pipeline.emit(None)
        pipeline.transact(1)
        pipeline.runner.sweep()
        late = follow("late")
        late.stop()  # so it misses what comes now
        pipeline.transact(2)
        grant = pipeline.begin(3)
        whole = follow("whole")
        with LedgerConnection(whole.dsn()) as standby:
            with pytest.raises(LedgerUnavailable, match="is a standby"):
                pipeline_of(TOPOLOGY, standby).transact(3)
            wait_until(lambda: position(standby) == 3, "the standby", 20)
    primary.kill()
    whole.promote()
    with LedgerConnection(whole.dsn()) as connection:
        assert position(connection) == 3
        go_on(connection, pipeline)
        of_before = Pipeline(pipeline_of(TOPOLOGY, connection).runner, None, pipeline.run)
        with pytest.raises(AttemptFenced):
            of_before.run_step(grant)
    whole.kill()
    late.start()
    late.promote()
    with LedgerConnection(late.dsn()) as connection:
        # The run was green for txid 2: its commit is lost, and the ledger says so.
        assert position(connection) == 2
        assert table(connection) == [("dog", 1), ("man", 2)]
        go_on(connection, pipeline)


# --- a dump --------------------------------------------------------------------------------------


def test_a_dump_that_is_restored_elsewhere_goes_on(connection, dsn, environment, monkeypatch):
    """A1: its timeline tells nothing, so a person says `restored`. That it has no roles is fine."""
    monkeypatch.setattr(attempt_table, "MIN_ROWS", 1)
    execute(connection, "SELECT reliability.record_roles('gone')")
    pipeline = pipeline_of(TOPOLOGY, connection)
    pipeline.emit(None)
    pipeline.transact(1)
    grant = pipeline.begin(2)
    with new_database() as restored:
        monkeypatch.setenv("PGOPTIONS", "-c default_transaction_read_only=off")
        dumped = program(environment, "pg_dump", "--format=custom", "--exclude-schema=shadows", dsn)
        program(environment, "pg_restore", "--exit-on-error", f"--dbname={restored}", given=dumped)
        pipeline.run_step(grant)  # after the dump: lost, with its commit
        pipeline.seal(grant)
        pipeline.runner.commit(0)
        monkeypatch.setenv("RELIABILITY_DSN", restored)
        assert "1 live attempts were fenced" in say("restored").stdout
        with LedgerConnection(restored) as other:
            assert position(other) == 2
            of_before = Pipeline(pipeline_of(TOPOLOGY, other).runner, None, pipeline.run)
            with pytest.raises(AttemptFenced):
                of_before.run_step(grant)
            go_on(other, pipeline)


def program(environment, name: str, *arguments: str, given: bytes | None = None) -> bytes:
    command = [environment.postgres.binaries.program(name), *arguments]
    done = subprocess.run(command, input=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
