"""Show that the tests of the rules can fail: `python -m tests.mutants [RULE or part of a name …]`.

Each mutant of the table is put into a copy of the tree, where its tests have to fail; without a
mutant they have to pass. With `--histories` the simulation has to find the mutants that it claims
to find, within 1,000 histories of each kind. Takes about two minutes, with `--histories` ten.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue

from dev.services.environment import Environment
from tests.mutants.attach import OF_SERVER
from tests.mutants.run import ROOT, Outcome, copy_tree, run_mutant, run_tests, running_jvm
from tests.mutants.table import MUTANTS, Mutant

HISTORIES = 1000
SIMULATION = "tests/simulation/test_histories.py::test_every_history_keeps_the_guarantees"


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for, print a table, and return 1 if a mutant survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="rules, or parts of names; all if there is none")
    parser.add_argument("--histories", action="store_true", help="let the simulation find them")
    parser.add_argument("--jobs", type=int, default=2, help="how many run side by side")
    parsed = parser.parse_args(arguments)
    if parsed.histories:
        os.environ["RELIABILITY_HISTORIES"] = str(HISTORIES)
    chosen = [m for m in MUTANTS if _is_chosen(m, parsed.names, histories=parsed.histories)]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, _server(Path(folder)):
        runs = _run(chosen, Path(folder), parsed.jobs, histories=parsed.histories)
        wrong = [outcome for outcome in runs if _tell(outcome).wrong]
    return _report(len(chosen), wrong)


def _is_chosen(mutant: Mutant, names: Sequence[str], *, histories: bool) -> bool:
    named = not names or any(n == mutant.rule or n in mutant.name for n in names)
    return named and (mutant.in_histories or not histories)


@contextmanager
def _server(folder: Path) -> Iterator[None]:
    """One Postgres for all runs: bringing it up takes longer than most of them."""
    environment = Environment(ROOT, folder / "environment", throwaway=True, profile="demo")
    environment.up_postgres()
    os.environ |= {OF_SERVER: json.dumps(environment.own_env()), "RELIABILITY_SHRINK": "no"}
    try:
        yield
    finally:
        environment.destroy()


def _run(
    chosen: Sequence[Mutant], folder: Path, jobs: int, *, histories: bool
) -> Iterator[Outcome]:
    """Run the tests as they are, then each mutant; every job has a copy of the tree."""
    trees: SimpleQueue[Path] = SimpleQueue()

    def one(mutant: Mutant | None) -> Outcome:
        tree = trees.get()
        try:
            if mutant is not None:
                return run_mutant(mutant, tree, [SIMULATION] if histories else mutant.tests)
            return run_tests(sorted({test for m in chosen for test in m.tests}), tree)
        finally:
            trees.put(tree)

    with ExitStack() as stack, ThreadPoolExecutor(jobs) as pool:
        for job in range(jobs):
            tree = copy_tree(folder / f"tree{job}")
            if not histories:
                stack.enter_context(running_jvm(tree))
            trees.put(tree)
        runs = [pool.submit(one, each) for each in ([*chosen] if histories else [None, *chosen])]
        for run in as_completed(runs):
            yield run.result()


def _tell(outcome: Outcome) -> Outcome:
    """Print what became of a run, as soon as it is known."""
    mutant = outcome.mutant
    if mutant is None:
        verdict = "FAIL" if outcome.wrong else "pass"
        what = f"all {len(outcome.tests)} tests without a mutant"
    else:
        verdict = "SURVIVES" if outcome.wrong else "killed"
        what = f"{mutant.rule:4} {mutant.name}"
    print(f"{verdict:9}{outcome.seconds:4.0f} s  {what}", flush=True)
    return outcome


def _report(number: int, wrong: Sequence[Outcome]) -> int:
    """Print what was wrong, and return 1 if anything was."""
    for outcome in wrong:
        name = outcome.mutant.name if outcome.mutant else "without a mutant"
        print(f"\n{name}: {', '.join(outcome.wrong)}\n{outcome.output[-3000:]}")
    survivors = sum(outcome.mutant is not None for outcome in wrong)
    print(f"{number - survivors} of {number} mutants killed")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
