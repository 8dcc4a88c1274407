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

from tests.faults.matrix import SCENARIOS, Matrix, Outcome, Scenario
from tests.faults.proxy import FaultKind, Proxy
from tests.support.fix_postgres import running_environment


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of scenarios' names; all if there is none")
    parser.add_argument("--kind", action="append", help="parts of kinds' names", default=[])
    parsed = parser.parse_args(arguments)
    chosen = [
        s for s in SCENARIOS if not parsed.names or any(name in s.name for name in parsed.names)
    ]
    if not chosen:
        parser.error(f"no scenario is called {' or '.join(parsed.names)}")
    kinds = [k for k in FaultKind if not parsed.kind or any(p in k.value for p in parsed.kind)]
    began = time.monotonic()
    with server() as matrix:
        outcomes = [one for scenario in chosen for one in run(matrix, scenario, kinds)]
    _tell(outcomes, matrix, time.monotonic() - began)
    return 1 if any(one.wrong for one in outcomes) else 0


@contextmanager
def server() -> Iterator[Matrix]:
    """Lend a matrix with a server of its own, whose crash hurts nobody else."""
    with (
        tempfile.TemporaryDirectory(prefix="faults-") as name,
        running_environment(Path(name) / "environment") as environment,
    ):

        def crash() -> None:
            environment.postgres.kill()
            environment.postgres.start()

        proxy = Proxy(Path(name), environment.postgres.port, crash)
        credentials = environment.credentials
        password = credentials.password("reliability")
        with credentials.pass_file.open("a") as file:  # for whoever comes through the proxy
            file.write(f"{name}:{environment.postgres.port}:*:reliability:{password}\n")
        try:
            yield Matrix(proxy, dict(os.environ), environment.start_engine)
        finally:
            environment.engine.stop()
            proxy.close()


def run(matrix: Matrix, scenario: Scenario, kinds: Sequence[FaultKind]) -> Iterator[Outcome]:
    """Run all cells of a scenario, and print what becomes of each."""
    print(scenario.name, end="", flush=True)
    change = None
    for outcome in matrix.outcomes(scenario, kinds=kinds):
        if outcome.change != change:
            change = outcome.change
            print(f"\n  {change!s:<34}", end="")
        print("X" if outcome.wrong else ".", end="", flush=True)
        if outcome.wrong:
            print(f"\n    {outcome.kind.value}: {outcome.wrong}", flush=True)
        yield outcome
    print(flush=True)


def _tell(outcomes: Sequence[Outcome], matrix: Matrix, seconds: float) -> None:
    print("\n| scenario | changes | cells | wrong |\n|---|---|---|---|")
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
