"""The process of one contestant: read a job a line, do it, answer with its seconds.

    python -m benchmarks.worker CONTESTANT

Whatever the contestant prints goes to standard error: standard output is for the answers.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from importlib import import_module
from types import ModuleType
from typing import Any, TextIO

from benchmarks.job import Job


def main() -> None:
    """Answer until the input ends."""
    answers = take_over_stdout()
    contestant = import_module(f"benchmarks.contestants.{sys.argv[1]}")
    for line in sys.stdin:
        print(json.dumps(answer(contestant, json.loads(line))), file=answers, flush=True)


def take_over_stdout() -> TextIO:
    """Return the standard output, and let all that is printed go to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def answer(contestant: ModuleType, asked: dict[str, Any]) -> dict[str, Any]:
    """Do one operation; an error is an answer too."""
    job = Job.from_json(asked["job"])
    operation = getattr(contestant, asked["operation"])
    started = time.perf_counter()
    try:
        phases = operation(job)
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    return {"seconds": time.perf_counter() - started, "phases": phases or {}}


if __name__ == "__main__":
    main()
