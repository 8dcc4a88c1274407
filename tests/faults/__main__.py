"""Run the matrix: `python -m tests.faults [PART OF A SCENARIO'S NAME …]`; `make test-faults`.

Prints each scenario as it goes on, and a table at the end; returns 1 if a cell is wrong.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.faults.matrix import SCENARIOS, Outcome
from tests.faults.proxy import FaultKind
from tests.faults.run import run


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of scenarios' names; all if there is none")
    parser.add_argument("--kind", action="append", help="parts of kinds' names", default=[])
    parser.add_argument("--jobs", type=int, default=2, help="how many run side by side")
    parsed = parser.parse_args(arguments)
    chosen = [
        place
        for place, scenario in enumerate(SCENARIOS)
        if not parsed.names or any(name in scenario.name for name in parsed.names)
    ]
    if not chosen:
        parser.error(f"no scenario is called {' or '.join(parsed.names)}")
    kinds = [k for k in FaultKind if not parsed.kind or any(p in k.value for p in parsed.kind)]
    began = time.monotonic()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(parsed.jobs, spawn) as pool:
        runs = [*pool.map(run, chosen, [kinds] * len(chosen))]
    outcomes = [outcome for own, _ in runs for outcome in own]
    _tell(outcomes, sum(snapshots for _, snapshots in runs), time.monotonic() - began)
    return 1 if any(one.wrong for one in outcomes) else 0


def _tell(outcomes: Sequence[Outcome], snapshots: int, seconds: float) -> None:
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
        f" wrong; {snapshots:,} snapshots read; {seconds / 60:.1f} minutes"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
