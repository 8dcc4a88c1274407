"""A warm engine, and a pipeline whose steps run in it by drivers of their own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from dev.services.processes import descendants, wait_until
from reliability import Topology
from reliability.cli.engine import EngineAction
from reliability.core.attempt import Grant
from reliability.core.definitions import WARM
from reliability.core.errors import EngineUnavailable
from reliability.core.graph import THE_STEP
from reliability.ledger.connection import LedgerConnection
from reliability.spark import launch
from reliability.spark.driver_environment import find_spark_submit
from reliability.spark.engine_socket import engine_status
from reliability.spark.launch import DriverFailed, Launcher, SparkSubmit, WarmEngine, run_with_log
from reliability.spark.submission import Submission
from tests.support import pickled
from tests.support.fix_pipeline import Pipeline
from tests.support.fix_postgres import ROOT
from tests.support.runner import TransactionRunner

START_SECONDS = 60


@dataclass
class DriverPipeline(Pipeline):
    """Its steps are processed by drivers that attach to the engine, or each by a spark-submit."""

    code: list[str] = field(default_factory=list)
    is_wanted: Callable[[], bool] = lambda: True
    engine: str = WARM
    conf: dict[str, str] = field(default_factory=dict)

    def run_step(self, grant: Grant, step: str = THE_STEP) -> None:
        self.run_driver(Submission(module=self.runner.topology.module, grant=grant, step=step))

    def run_driver(self, submission: Submission) -> None:
        """Run the driver of a step to its end."""
        code = [*self.code, str(ROOT)]
        launcher: Launcher = WarmEngine(code=code)
        if self.engine != WARM:
            program = find_spark_submit()
            assert program is not None
            launcher = SparkSubmit(program=program, master="local[2,2]", conf=self.conf, code=code)
        run_with_log(launcher, submission, self.is_wanted)


@dataclass
class PickledPipeline(DriverPipeline):
    """Its drivers get the topology as it is here; what they raise is read from the ledger."""

    def run_step(self, grant: Grant, step: str = THE_STEP) -> None:
        from pyspark import cloudpickle

        with tempfile.NamedTemporaryFile() as file, pytest.MonkeyPatch.context() as patch:
            file.write(cloudpickle.dumps(self.runner.topology))
            file.flush()
            patch.setenv(pickled.FILE, file.name)
            submission = Submission(module=pickled.__name__, grant=grant, step=step)
            try:
                self.run_driver(submission)
            except DriverFailed as failed:
                failed.log.unlink()
                raise self.runner.error_of(grant) from failed


@dataclass
class RunningEngine:
    """An engine that this test run has started."""

    process: psutil.Process
    log: Path

    def steps(self) -> int:
        """How many steps run in it."""
        return int(engine_status()["steps"])

    def daemons(self) -> list[psutil.Process]:
        """The parents of Python workers, one for each environment of theirs."""
        return [one for one in self.process.children() if is_daemon(one)]

    def workers(self) -> list[psutil.Process]:
        """The Python processes that run tasks."""
        return [one for daemon in self.daemons() for one in descendants(daemon)]


def is_daemon(process: psutil.Process) -> bool:
    """Say whether it forks Python workers."""
    try:
        return "reliability.spark.daemon" in process.cmdline()
    except psutil.Error:  # it has ended meanwhile
        return False


@contextmanager
def running_engine(folder: Path) -> Iterator[RunningEngine]:
    """Run an engine for the block; its socket lies in the folder."""
    log = folder.with_suffix(".log")
    command = (EngineAction.RUN.value, "--master", "local[4,2]")
    with pytest.MonkeyPatch.context() as patch, log.open("ab") as output:
        patch.setenv("RELIABILITY_ENGINE_FOLDER", str(folder))
        process = subprocess.Popen(
            [sys.executable, "-m", "reliability", "engine", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            wait_until(lambda: answers() or process.poll() is not None, "an engine", START_SECONDS)
            assert process.poll() is None, log.read_text()
            yield RunningEngine(psutil.Process(process.pid), log)
        finally:
            process.terminate()
            process.wait(timeout=START_SECONDS)


def answers() -> bool:
    """Say whether an engine answers."""
    try:
        engine_status()
    except EngineUnavailable:
        return False
    return True


@pytest.fixture(scope="session")
def engine(environment: Any, tmp_path_factory: Any) -> Iterator[RunningEngine]:
    """The one engine of a test process."""
    with running_engine(tmp_path_factory.mktemp("engine") / "socket") as engine:
        yield engine


@pytest.fixture
def warm_pipeline(
    engine: RunningEngine, connection: LedgerConnection, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Topology], Pipeline]]:
    """Make a pipeline of a topology, with a driver of its own for each step."""
    monkeypatch.setattr(launch, "POLL_INTERVAL_SECONDS", 0.1)
    yield lambda topology: PickledPipeline(TransactionRunner(topology, connection), None)
    wait_until(lambda: engine.steps() == 0, "all steps to end", START_SECONDS)
