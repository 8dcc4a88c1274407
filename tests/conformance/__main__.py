"""Play vector files: `python -m tests.conformance [FILE...]`; without files, those of this folder.

Starts a Postgres of its own, and Spark if a vector needs it. Exits with 1 if a vector fails.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from dev.services.environment import Environment
from tests.conformance.adapters import ADAPTERS
from tests.conformance.bench import open_bench
from tests.conformance.comparison import Outcome, Verdict
from tests.conformance.runner import lines, run_file
from tests.conformance.vectors import FOLDER
from tests.support.fix_postgres import ROOT
from tests.support.fix_spark import local_session


@contextmanager
def _server() -> Iterator[None]:
    """A Postgres beside the user's own, named by the process's environment."""
    with TemporaryDirectory() as folder:
        environment = Environment(ROOT, Path(folder), throwaway=True, profile="demo")
        environment.up_postgres()
        environment.enter()
        try:
            yield
        finally:
            environment.destroy()


def main(files: list[Path]) -> int:
    """Play the files and print each vector's verdict; return the exit code."""
    outcomes: list[Outcome] = []
    with ExitStack() as stack:
        stack.enter_context(_server())

        @cache
        def spark():
            session = local_session()
            stack.callback(session.stop)
            return session

        bench = stack.enter_context(open_bench(spark))

        def played() -> Iterator[Outcome]:
            for file in files:
                for outcome in run_file(file, ADAPTERS, bench):
                    outcomes.append(outcome)
                    yield outcome

        for line in lines(played()):
            print(line, flush=True)
    return int(any(outcome.verdict is Verdict.FAIL for outcome in outcomes))


if __name__ == "__main__":
    logging.getLogger("reliability").setLevel(logging.ERROR)  # what is refused is meant to be
    sys.exit(main([Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.json"))))
