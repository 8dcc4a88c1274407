"""Steps in a warm engine: as exact as with a spark-submit each, and none disturbs another (A9)."""

from __future__ import annotations

import json
import os
import selectors
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from dev.services.processes import descendants, is_gone, wait_until
from reliability.cli import app
from reliability.cli.doctor import CheckStatus, _host
from reliability.core.definitions import SUBMIT, WARM
from reliability.core.errors import AttemptIncomplete, EngineUnavailable, ProcessFunctionFailed
from reliability.deployment.topologies import load_topology
from reliability.spark import launch, warm_engine
from reliability.spark.engine_socket import (
    STOP,
    ask,
    check_versions,
    connect,
    engine_status,
    socket_path,
    versions,
)
from reliability.spark.launch import DriverFailed
from spark_apps import global_count
from tests.support.fix_engine import DriverPipeline, is_daemon, running_engine
from tests.support.fix_postgres import rows
from tests.support.runner import TransactionRunner

SECONDS = 120
# A module of the user's, in some version; its steps meet in a folder.
NUMBERS = """
import time
from pathlib import Path

from reliability import MemorySpout, State, Sum, Topology

VERSION, FOLDER = {version}, Path({folder!r})
STARTS_AFTER, COMPUTES_AFTER = {starts_after}, {computes_after}


def wait_for(name):
    deadline = time.monotonic() + 120
    while not (FOLDER / name).exists():
        assert time.monotonic() < deadline, name
        time.sleep(0.02)


def of_version(n):
    (FOLDER / f"v{{VERSION}} computes").touch()
    for name in COMPUTES_AFTER:
        wait_for(name)
    time.sleep({{"7": 2, "9": 10}}.get(VERSION, 0))  # version 9 takes minutes
    return n * int(VERSION)


def process(batch):
    from pyspark.sql import functions as F

    spark = batch.sparkSession
    (FOLDER / f"v{{VERSION}} is there").touch()
    for name in STARTS_AFTER:
        wait_for(name)
    # Version 7 has tasks that end now and then; the others leave room for it.
    batch = batch.repartition(30) if VERSION == "7" else batch.coalesce(2)
    before = spark.conf.get("spark.sql.shuffle.partitions") == "7"
    spark.conf.set("spark.sql.shuffle.partitions", 7)
    spark.conf.set("spark.sql.ansi.enabled", "false")
    batch.createGlobalTempView("only_one_in_a_session")
    kept = batch.withColumn("n", F.udf(of_version, "int")("n")).cache()
    return {{"numbers": kept.withColumn("leaks", F.lit(int(before)))}}


topology = Topology(
    "numbers",
    spout=MemorySpout(schema={{"n": "int"}}, partitions=[list(range(1, 61))], take=30),
    process=process,
    states=[State("numbers", values={{"n": Sum("n", "bigint"), "leaks": Sum("leaks", "bigint")}})],
    max_spout_pending=2,
)
"""
FIRST, SECOND = sum(range(1, 31)), sum(range(31, 61))  # what the batches of txids 1 and 2 add


in_both_engines = pytest.mark.parametrize("numbers", [WARM, SUBMIT], indirect=True)


@pytest.fixture
def numbers(connection, tmp_path, monkeypatch, request):
    """Make the pipeline of a version of the user's module, in a folder of its own."""
    chosen = getattr(request, "param", WARM)
    engine = request.getfixturevalue("engine") if chosen == WARM else None
    monkeypatch.setattr(launch, "POLL_INTERVAL_SECONDS", 0.1)
    meeting = tmp_path / "meeting"
    meeting.mkdir()

    def make(
        version: int | str, starts_after: tuple[str, ...] = (), computes_after: tuple[str, ...] = ()
    ) -> DriverPipeline:
        folder = tmp_path / f"v{version}"
        folder.mkdir(exist_ok=True)
        text = NUMBERS.format(
            version=repr(str(version)),
            folder=str(meeting),
            starts_after=starts_after,
            computes_after=computes_after,
        )
        (folder / "numbers_of_user.py").write_text(text)
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(folder)
            patch.delitem(__import__("sys").modules, "numbers_of_user", raising=False)
            topology = load_topology("numbers_of_user", "numbers")
        runner = TransactionRunner(topology, connection)
        return DriverPipeline(runner, None, code=[str(folder)], engine=chosen)

    yield make
    if engine is not None:
        wait_until(lambda: engine.steps() == 0, "all steps to end", SECONDS)


@contextmanager
def driver_fails(match: str = "exit code 1") -> Iterator[list[str]]:
    """Expect it of the block; afterwards the list has the driver's log."""
    log: list[str] = []
    with pytest.raises(DriverFailed, match=match) as raised:
        yield log
    log.append(raised.value.log.read_text())
    raised.value.log.unlink()


def happens(pipeline: DriverPipeline, name: str) -> None:
    folder = Path(pipeline.code[0]).parent / "meeting"
    wait_until((folder / name).exists, name, SECONDS)


@pytest.mark.slow
def test_batches_are_counted_as_with_a_spark_submit_each(engine, connection):
    count = DriverPipeline(TransactionRunner(global_count.topology, connection), None)
    assert count.emit(None) == [1, 2, 3]
    counts = []
    for txid in (1, 2):
        count.transact(txid)
        for daemon in engine.daemons():  # as if it had been idle for long
            daemon.terminate()
        counts += rows(connection, "SELECT words FROM global_count")
    assert counts == [(9,), (16,)]
    said = rows(
        connection, "SELECT DISTINCT application_id, driver_pid FROM reliability.attempt_step"
    )
    status = engine_status()
    assert said == [(status["application_id"], engine.process.pid)]
    assert (status["master"], status["steps"]) == ("local[4,2]", 0)


@pytest.mark.slow
def test_two_steps_at_once_have_their_own_code_settings_cache_and_views(numbers, connection):
    """V5, V7: newSession() would share the cache and the views."""
    one, two = numbers(1, ("v2 is there",)), numbers(2, ("v1 is there",))
    assert one.emit(None) == [1, 2]
    grants = one.begin(1), two.begin(2)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(DriverPipeline.run_step, (one, two), grants)) == [None, None]
    one.seal(grants[0])
    two.seal(grants[1])
    one.transact(1)  # and what is due behind it
    assert rows(connection, "SELECT n, leaks FROM numbers") == [(FIRST + 2 * SECOND, 0)]


@pytest.mark.slow
def test_a_step_runs_the_code_that_the_folder_has_now(numbers, connection):
    """A Python worker that another step has used would still have the old module."""
    one = numbers(1)
    one.emit(None)
    one.transact(1)
    changed = numbers(3)
    Path(one.code[0], "numbers_of_user.py").write_text(
        Path(changed.code[0], "numbers_of_user.py").read_text()
    )
    one.transact(2)
    assert rows(connection, "SELECT n FROM numbers") == [(FIRST + 3 * SECOND,)]


@pytest.mark.slow
@in_both_engines
def test_an_error_of_the_process_function_fails_the_attempt_and_is_told(numbers, connection):
    """What a task raised is read from the JVM: a warm engine's answers until the session ends."""
    wrong = numbers("wrong")
    wrong.emit(None)
    grant = wrong.begin(1)
    with driver_fails():
        wrong.run_step(grant)
    error = wrong.runner.error_of(grant)
    assert isinstance(error, ProcessFunctionFailed)
    assert "invalid literal for int()" in error.what
    status = "SELECT status FROM reliability.attempt ORDER BY attempt_id"
    assert rows(connection, status) == [("FAILED",)]
    numbers(1).transact(1)
    assert rows(connection, status) == [("FAILED",), ("COMMITTED",)]
    assert rows(connection, "SELECT n FROM numbers") == [(FIRST,)]


@pytest.mark.slow
@in_both_engines
def test_a_driver_that_starts_when_its_attempt_is_fenced_adds_nothing(numbers, connection):
    """G4: a cluster's queue may hold it back for long."""
    one = numbers(1)
    one.emit(None)
    zombie, grant = one.begin(1), one.begin(1)
    one.run_step(grant)
    with driver_fails():
        one.run_step(zombie)
    one.seal(grant)
    one.transact(1)
    assert rows(connection, "SELECT n FROM numbers") == [(FIRST,)]


@contextmanager
def one_of_two_is_fenced(slow, computes, other, also_computes):
    """Let somebody end an attempt while another computes; that one ends behind the block."""
    slow.emit(None)
    grant, grant_of_other = slow.begin(1), other.begin(2)
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(slow.run_step, grant)
        running_too = pool.submit(other.run_step, grant_of_other)
        happens(slow, computes)
        happens(other, also_computes)
        slow.runner.end_attempt(grant, AttemptIncomplete("by somebody else"), fence=True)
        yield running, grant_of_other
        (Path(slow.code[0]).parent / "meeting" / "go on").touch()
        running_too.result(SECONDS)


@pytest.mark.slow
def test_a_fence_ends_the_driver_and_its_jobs_and_no_other_step(numbers, connection):
    """A7: the warm engine's JVM belongs to all steps."""
    fenced = threading.Event()
    slow, other = numbers(9), numbers(1, computes_after=("go on",))
    slow.is_wanted = lambda: not fenced.is_set()
    with one_of_two_is_fenced(slow, "v9 computes", other, "v1 computes") as (running, grant):
        fenced.set()
        with driver_fails("its attempt was ended"):
            running.result(SECONDS)
        wait_until(lambda: engine_status()["steps"] == 1, "the fenced step to end", SECONDS)
    other.seal(grant)
    numbers(1).transact(1)
    other.transact(2)
    assert rows(connection, "SELECT n FROM numbers") == [(FIRST + SECOND,)]


@pytest.mark.slow
@in_both_engines
def test_the_jobs_of_a_driver_that_was_killed_are_cancelled(numbers, connection):
    slow = numbers(9)
    slow.emit(None)
    grant = slow.begin(1)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(slow.run_step, grant)
        happens(slow, "v9 computes")
        pids = "SELECT python_pid, driver_pid FROM reliability.attempt_step WHERE txid = 1"
        ((python, jvm),) = rows(connection, pids)
        driver = psutil.Process(python)
        assert str(grant.attempt) in driver.cmdline()
        workers = workers_of(psutil.Process(jvm))
        assert workers
        driver.kill()
        with driver_fails(r"killed by SIG|exit code"):
            running.result(SECONDS)
    wait_until(lambda: all(map(is_gone, workers)), "its tasks to end", SECONDS)
    if slow.engine == WARM:
        wait_until(lambda: engine_status()["steps"] == 0, "its session to end", SECONDS)
    slow.runner.end_attempt(grant, AttemptIncomplete("its driver died"), fence=True)
    numbers(1).transact(1)
    assert rows(connection, "SELECT n FROM numbers") == [(FIRST,)]


@pytest.mark.slow
def test_an_attempt_whose_engine_died_fails_and_the_next_one_succeeds(
    numbers, connection, tmp_path_factory
):
    slow = numbers(9)
    slow.emit(None)
    grant = slow.begin(1)
    folder = tmp_path_factory.mktemp("engine") / "socket"
    with running_engine(folder) as engine, ThreadPoolExecutor(1) as pool:
        running = pool.submit(slow.run_step, grant)
        happens(slow, "v9 computes")
        processes = [engine.process, *engine.process.children(recursive=True)]
        engine.process.kill()
        with driver_fails() as log:
            running.result(SECONDS)
        assert "the JVM is gone" in log[0]
        wait_until(lambda: all(map(is_gone, processes)), "all of the engine to end", SECONDS)
    slow.runner.end_attempt(grant, AttemptIncomplete("its driver failed"), fence=True)
    with running_engine(folder):  # where the one that was killed has left its socket
        numbers(1).transact(1)
    assert rows(connection, "SELECT n FROM numbers") == [(FIRST,)]


def test_doctor_and_status_say_whether_an_engine_runs(monkeypatch, tmp_path):
    def said(*arguments):
        return CliRunner().invoke(app, arguments)

    monkeypatch.setenv("RELIABILITY_ENGINE_FOLDER", str(tmp_path / "of an engine"))
    context: Any = SimpleNamespace(applicationId="local-1", master="local[4,2]")
    with warm_engine._bound(socket_path()) as listener:
        listener.listen()
        running = warm_engine.Engine(context, listener)
        running._selector.register(listener, selectors.EVENT_READ)
        answers = threading.Thread(target=lambda: [*iter(running._answer, False)], daemon=True)
        answers.start()
        assert f"on local[4,2], pid {os.getpid()}" in said("engine", "status").stdout
        assert json.loads(said("engine", "status", "--json").stdout)["steps"] == 0
        found = next(one for one in _host() if one.check == "warm engine")
        assert found.verdict is CheckStatus.OK
        with connect() as connection:
            assert ask(connection, STOP)["pid"] == os.getpid()
        answers.join()
    monkeypatch.setenv("RELIABILITY_ENGINE_FOLDER", str(tmp_path))
    monkeypatch.setenv("RELIABILITY_ENGINE", "warm")
    found = next(one for one in _host() if one.check == "warm engine")
    assert found.verdict is CheckStatus.FAIL
    assert "reliability engine run" in found.todo


def test_without_an_engine_the_attempt_fails_and_says_what_to_do(connection, monkeypatch, tmp_path):
    monkeypatch.setenv("RELIABILITY_ENGINE_FOLDER", str(tmp_path))
    tmp_path.chmod(0o700)
    count = DriverPipeline(TransactionRunner(global_count.topology, connection), None)
    count.emit(None)
    grant = count.begin(1)
    with driver_fails():
        count.run_step(grant)
    error = count.runner.error_of(grant)
    assert isinstance(error, EngineUnavailable)
    assert str(tmp_path / "engine.sock") in error.what
    assert "reliability engine run" in error.what_to_do


def test_a_socket_of_others_and_an_engine_of_another_release_are_not_used(tmp_path, monkeypatch):
    """They would get what a driver sends, and answer with a gateway of theirs."""
    monkeypatch.setenv("RELIABILITY_ENGINE_FOLDER", str(tmp_path))
    tmp_path.chmod(0o755)
    with pytest.raises(EngineUnavailable, match="only this user"):
        connect()
    for folder in (tmp_path / "a file", Path("/proc/none"), tmp_path / ("x" * 99)):
        (tmp_path / "a file").touch()
        with pytest.raises(EngineUnavailable, match="cannot make the socket"):
            warm_engine._bound(folder / "engine.sock").__enter__()
    with pytest.raises(EngineUnavailable, match="Spark 4 instead of "):  # of another release
        check_versions({**versions(), "Spark": "4"})


def test_an_engine_that_only_waits_keeps_its_files_young(tmp_path, monkeypatch):
    """What cleans /tmp took the lock after ten days, and another engine began."""
    monkeypatch.setattr(warm_engine, "TOUCH_SECONDS", 0)
    with warm_engine._bound(tmp_path / "engine.sock") as listener:
        for file in (files := [*tmp_path.iterdir()]):
            os.utime(file, (0, 0))
        assert warm_engine.Engine(None, listener)._answer()  # type: ignore[arg-type]
        assert [file.stat().st_mtime > 0 for file in files] == [True, True]


@pytest.mark.slow
@in_both_engines
def test_a_driver_that_finds_its_attempt_ended_cancels_its_own_jobs_only(numbers):
    """A7: nobody may be there to end it, and cancelAllJobs would be everybody's."""
    slow, other = numbers(7), numbers(8, computes_after=("go on",))
    with one_of_two_is_fenced(slow, "v7 computes", other, "v8 computes") as (running, _):
        with driver_fails() as log:
            running.result(SECONDS)
        assert "attempt numbers 1:0 was ended" in log[0]


@pytest.mark.slow
def test_no_secret_of_the_engine_is_shown_anywhere(engine, numbers):
    """G10: not in arguments, environments, files or logs; and each step has another one."""
    slow = numbers(9)
    slow.emit(None)
    grant = slow.begin(1)
    wanted = threading.Event()
    wanted.set()
    slow.is_wanted = wanted.is_set
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(slow.run_step, grant)
        happens(slow, "v9 computes")
        processes = [engine.process, *engine.process.children(recursive=True), psutil.Process()]
        drivers = [one for one in psutil.Process().children() if is_driver(one)]
        assert drivers
        shown = [f"{one.cmdline()} {one.environ()}" for one in [*processes[1:2], *drivers]]
        wanted.clear()
        with pytest.raises(DriverFailed) as raised:
            running.result(SECONDS)
    shown += [raised.value.log.read_text(), engine.log.read_text()]
    raised.value.log.unlink()
    assert all("PYSPARK_GATEWAY_SECRET" not in text for text in shown[1:])
    folder = socket_path().parent
    assert folder.stat().st_mode & 0o077 == 0
    assert {path.name: path.read_bytes() for path in folder.glob("*.lock")} == {"engine.lock": b""}


def workers_of(jvm: psutil.Process) -> list[psutil.Process]:
    """Return the Python processes that run a JVM's tasks."""
    return [one for each in jvm.children() if is_daemon(each) for one in descendants(each)]


def is_driver(process: psutil.Process) -> bool:
    return any(part.endswith("process_batch.py") for part in process.cmdline())
