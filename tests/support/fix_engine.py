"""A warm engine, and a pipeline whose steps run in it by drivers of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from dev.services.processes import descendants, wait_until
from reliability.cli.engine import EngineAction
from reliability.core.attempt import Grant
from reliability.core.errors import EngineUnavailable
from reliability.core.graph import THE_STEP
from reliability.spark.engine_socket import engine_status
from reliability.spark.submission import Submission
from reliability.spark.warm_submit import WarmSubmit
from tests.support.fix_pipeline import Pipeline
from tests.support.fix_postgres import ROOT

START_SECONDS = 60


@dataclass
class WarmPipeline(Pipeline):
    """Its steps are processed by drivers that attach to the engine."""

    code: list[str] = field(default_factory=list)
    is_wanted: Callable[[], bool] = lambda: True

    def run_step(self, grant: Grant, step: str = THE_STEP) -> None:
        module = self.runner.topology.module
        submit = WarmSubmit(code=[*self.code, str(ROOT)])
        submit(Submission(module=module, grant=grant, step=step), self.is_wanted)


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
