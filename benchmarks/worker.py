"""The process of one contestant: get an operation and its job, do it, answer with its phases.

    python -m benchmarks.worker CONTESTANT DESCRIPTOR

The descriptor is that of the worker's end of a pipe. Standard library only: workers run in two
environments.
"""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import ModuleType

from benchmarks.contestants import Contestant
from benchmarks.job import Job, Phases
from benchmarks.places import LOGS, PYTHON, ROOT

END_SECONDS = 30


class Failed(Exception):
    """A contestant's operation raised, its worker has died, or its tables are wrong."""


class Worker:
    """A contestant's process, which its first operation starts; a peer's has its own Python."""

    def __init__(self, contestant: Contestant, env: Mapping[str, str]) -> None:
        self._name = contestant.name
        self._python, self._env = sys.executable, {**env}
        if contestant.is_peer:
            self._python = str(PYTHON)
            self._env["PATH"] = f"{PYTHON.parent}{os.pathsep}{env['PATH']}"
        self._process: subprocess.Popen[bytes] | None = None

    def do(self, operation: str, job: Job) -> Phases:
        """Do an operation; return the seconds of its phases, if it tells them.

        :raises Failed: it failed; the worker's log says more
        """
        if self._process is None:
            self._start()
        try:
            self._jobs.send((operation, job))
            answer: Phases | str = self._jobs.recv()
        except (EOFError, OSError):
            answer = "it has died"
        if isinstance(answer, str):
            raise Failed(f"{self._name} {operation}: {answer}")
        return answer

    def _start(self) -> None:
        self._jobs, theirs = Pipe()
        end = theirs.fileno()
        LOGS.mkdir(parents=True, exist_ok=True)
        with (LOGS / f"{self._name}.log").open("a") as log, theirs:
            self._process = subprocess.Popen(
                [self._python, "-m", "benchmarks.worker", self._name, str(end)],
                cwd=ROOT,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[end],
            )

    def close(self) -> None:
        """Let the process end, if it was started; or else kill it."""
        if self._process is None:
            return
        self._jobs.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main() -> None:
    """Answer until the other end of the pipe is closed."""
    contestant = import_module(f"benchmarks.contestants.{sys.argv[1]}")
    with Connection(int(sys.argv[2])) as jobs, suppress(EOFError):
        while True:
            jobs.send(answer(contestant, *jobs.recv()))


def answer(contestant: ModuleType, operation: str, job: Job) -> Phases | str:
    """Do one operation; an error is an answer too."""
    try:
        phases: Phases | None = getattr(contestant, operation)(job)
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"[:500]
    return phases or {}


if __name__ == "__main__":
    main()
