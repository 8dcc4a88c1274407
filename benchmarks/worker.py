"""The process of one contestant: get an operation and its job, do it, answer with its phases.

    python -m benchmarks.worker CONTESTANT DESCRIPTOR

The descriptor is that of the worker's end of a pipe.
"""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from types import ModuleType

from benchmarks.job import Job, Phases


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
