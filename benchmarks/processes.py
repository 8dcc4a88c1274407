"""Start a contestant's worker and let it do one operation after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contestants import Contestant
from benchmarks.environment import PYTHON
from benchmarks.job import Job
from benchmarks.places import LOGS, ROOT

END_SECONDS = 30


class WorkerFailed(Exception):
    """An operation raised, or its worker has died."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A running worker."""

    name: str
    process: subprocess.Popen[str]

    def do(self, operation: str, job: Job) -> dict[str, Any]:
        """Do an operation; return its seconds and its phases.

        :raises WorkerFailed: it failed; the worker's log says more
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            print(
                json.dumps({"operation": operation, "job": job.to_json()}), file=self.process.stdin
            )
            self.process.stdin.flush()
            answer: dict[str, Any] = json.loads(self.process.stdout.readline() or "{}")
        except BrokenPipeError:
            answer = {}
        if "seconds" not in answer:
            raise WorkerFailed(f"{self.name} {operation}: {answer.get('error', 'it has died')}")
        return answer


@contextmanager
def worker(contestant: Contestant, env: Mapping[str, str]) -> Iterator[Worker]:
    """Run a contestant's worker for the length of the block."""
    python = PYTHON if contestant.is_peer else Path(sys.executable)
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / f"{contestant.name}.log").open("a") as log:
        process = subprocess.Popen(
            [python, "-m", "benchmarks.worker", contestant.name],
            cwd=ROOT,
            env=_environment(contestant, env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            yield Worker(contestant.name, process)
        finally:
            _end(process)


def _environment(contestant: Contestant, env: Mapping[str, str]) -> dict[str, str]:
    """Let a peer's Python come first on the PATH."""
    if not contestant.is_peer:
        return {**env}
    return {**env, "PATH": f"{PYTHON.parent}{os.pathsep}{env['PATH']}"}


def _end(process: subprocess.Popen[str]) -> None:
    """End a worker by the end of its input."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
