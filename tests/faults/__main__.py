"""Run the matrix: `python -m tests.faults [PART OF A SCENARIO'S NAME …]`; `make test-faults`.

Prints each scenario as it goes on, and a table at the end; returns 1 if a cell is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dev.services.environment import Environment
from tests.faults.matrix import SCENARIOS, Matrix, Outcome, Scenario
from tests.faults.proxy import FaultKind, Proxy
from tests.support.fix_postgres import ROOT, make_hostile


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of scenarios' names; all if there is none")
    parser.add_argument("--kind", action="append", help="parts of kinds' names", default=[])
    parsed = parser.parse_args(arguments)
    chosen = [
        s for s in SCENARIOS if not parsed.names or any(name in s.name for name in parsed.names)
    ]
    kinds = [k for k in FaultKind if not parsed.kind or any(p in k.value for p in parsed.kind)]
    began = time.monotonic()
    with server() as matrix:
        outcomes = [one for scenario in chosen for one in run(matrix, scenario, kinds)]
    _tell(outcomes, matrix, time.monotonic() - began)
    return 1 if any(one.wrong for one in outcomes) else 0


@contextmanager
def server() -> Iterator[Matrix]:
    """Lend a matrix with a server of its own."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        environment = Environment(ROOT, Path(folder) / "environment", throwaway=True)
        environment.up_postgres()
        before = dict(os.environ)
        os.environ.update(environment.own_env())
        make_hostile()
        try:
            with matrix_of(environment, Path(folder)) as matrix:
                yield matrix
        finally:
            os.environ.clear()
            os.environ.update(before)
            environment.destroy()


@contextmanager
def matrix_of(environment: Environment, folder: Path) -> Iterator[Matrix]:
    """Lend a matrix on a server that runs, and whose crash hurts nobody else."""

    def crash() -> None:
        environment.postgres.kill()
        environment.postgres.start()

    proxy = Proxy(folder, environment.postgres.port, crash)
    password = environment.credentials.password("reliability")
    try:
        yield Matrix(proxy, {**os.environ, "PGPASSWORD": password})
    finally:
        proxy.close()


def run(matrix: Matrix, scenario: Scenario, kinds: Sequence[FaultKind]) -> Iterator[Outcome]:
    """Run all cells of a scenario."""
    with matrix.prepared(scenario) as template:
        changes, clean = matrix.cells(scenario, template)
        print(f"{scenario.name}: {len(changes)} changes", flush=True)
        for change in changes:
            print(f"  {change!s:<34}", end="", flush=True)
            for kind in kinds:
                outcome = matrix.try_cell(scenario, change, kind, template, clean)
                print("X" if outcome.wrong else ".", end="", flush=True)
                if outcome.wrong:
                    print(f"\n    {kind.value}: {outcome.wrong}", flush=True)
                yield outcome
            print(flush=True)


def _tell(outcomes: Sequence[Outcome], matrix: Matrix, seconds: float) -> None:
    print()
    for scenario in dict.fromkeys(one.scenario for one in outcomes):
        own = [one for one in outcomes if one.scenario == scenario]
        changes = len({one.change for one in own})
        wrong = sum(bool(one.wrong) for one in own)
        print(f"| {scenario} | {changes} | {len(own)} | {wrong} |")
    kinds = Counter(one.kind.value for one in outcomes)
    print(", ".join(f"{kind}: {count}" for kind, count in kinds.items()))
    points = {one.change.statement for one in outcomes}
    print(
        f"{len(outcomes)} faults at {len(points)} points, {sum(bool(o.wrong) for o in outcomes)}"
        f" wrong; {matrix.snapshots:,} snapshots read; {seconds / 60:.1f} minutes"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
