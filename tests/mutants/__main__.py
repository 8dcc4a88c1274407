"""Show that the tests of the rules can fail: `python -m tests.mutants [RULE or part of a name …]`.

Each mutant of the table is put into a copy of the tree, where its tests have to fail; without a
mutant they have to pass. With `--histories` the simulation has to find the mutants that it claims
to find, within 1,000 histories of each kind. The table takes about 20 minutes.

With `--generated` these are mutants that are made by rule, of the modules of the core that decide,
and their unit tests have to notice; names are then those of modules. Takes about four minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from statistics import median

import psutil

from dev.demo.guard import end_with_parent
from dev.services.environment import Environment
from dev.services.processes import descendants, kill
from tests.mutants.attach import OF_SERVER
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.forked import KILLERS, run_all
from tests.mutants.generated import generated
from tests.mutants.run import ROOT, Outcome, copy_tree, run_mutant, run_tests, running_jvm
from tests.mutants.table import MUTANTS, Mutant
from tests.simulation.test_histories import PROCESSES

HISTORIES = 1000
SIMULATION = "tests/simulation/test_histories.py::test_every_history_keeps_the_guarantees"


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for, print a table, and return 1 if a mutant survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="rules, or parts of names; all if there is none")
    parser.add_argument("--histories", action="store_true", help="let the simulation find them")
    parser.add_argument("--generated", action="store_true", help="those that are made by rule")
    parser.add_argument("--jobs", type=int, default=2, help="how many run side by side")
    parsed = parser.parse_args(arguments)
    end_with_parent()
    if parsed.generated:
        if unknown := {*parsed.names} - {*KILLERS}:
            parser.error(f"no mutants are made of {', '.join(sorted(unknown))}")
        return _generated(parsed)
    if parsed.histories:
        os.environ["RELIABILITY_HISTORIES"] = str(HISTORIES)
    chosen = [m for m in MUTANTS if _is_chosen(m, parsed.names, histories=parsed.histories)]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, _server(Path(folder)):
        runs = _run(chosen, Path(folder), parsed.jobs, histories=parsed.histories)
        return _report(len(chosen), [_tell(outcome) for outcome in runs])


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
        try:
            for run in as_completed(runs):
                yield run.result()
        except BaseException:  # interrupted: without this it would do all that is left
            pool.shutdown(wait=False, cancel_futures=True)
            kill(descendants(psutil.Process()))
            raise


def _tell(outcome: Outcome) -> Outcome:
    """Print what became of a run, as soon as it is known."""
    mutant = outcome.mutant
    if mutant is None:
        verdict = "FAIL" if outcome.wrong else "pass"
        what = f"all {len(outcome.tests)} tests without a mutant"
    else:
        verdict = "SURVIVES" if outcome.wrong else "killed"
        what = f"{mutant.rule:4} {mutant.name}"
    if found := _histories(outcome):
        what += f", among the first {found} histories"
    print(f"{verdict:9}{outcome.seconds:4.0f} s  {what}", flush=True)
    return outcome


def _histories(outcome: Outcome) -> int:
    """Return how many histories it took at most to find the mutant; 0 if other tests did."""
    found = re.findall(r"among (\d+) histories", outcome.output)
    return PROCESSES * min(map(int, found), default=0)


def _report(number: int, outcomes: Sequence[Outcome]) -> int:
    """Print what was wrong, and return 1 if anything was."""
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    for outcome in wrong:
        name = outcome.mutant.name if outcome.mutant else "without a mutant"
        print(f"\n{name}: {', '.join(outcome.wrong)}\n{outcome.output[-3000:]}")
    killed = [one for one in outcomes if one.mutant and not one.wrong]
    print(f"{len(killed)} of {number} mutants killed{_times([one.seconds for one in killed])}")
    if found := [histories for one in killed if (histories := _histories(one))]:
        print(f"histories to find one: median {median(found):.0f}, most {max(found)}")
    return int(bool(wrong))


def _times(killed: Sequence[float]) -> str:
    return f"; median {median(killed):.1f} s, longest {max(killed):.1f} s" if killed else ""


def _generated(parsed: argparse.Namespace) -> int:
    """Run the mutants that are made by rule, print a table, and return 1 if one survives."""
    modules = [name for name in KILLERS if not parsed.names or name in parsed.names]
    made = [mutant for module in modules for mutant in generated(module)]
    mutants = [mutant for mutant in made if mutant.name not in EQUIVALENT]
    killed: dict[str, list[float]] = {module: [] for module in modules}
    for run in run_all(mutants, parsed.jobs):
        if run.mutant is None:
            print(f"{'FAIL' if run.failed else 'pass':9}{run.seconds:4.0f} s  without a mutant")
            if run.failed:
                return 1
        elif run.failed:
            killed[run.mutant.module].append(run.seconds)
        else:
            print(f"SURVIVES {run.seconds:4.0f} s  {run.mutant.name}", flush=True)
    for module, seconds in killed.items():
        number = sum(mutant.module == module for mutant in mutants)
        print(f"{module:15} {len(seconds):4} of {number:4} killed{_times(seconds)}")
    every = [one for seconds in killed.values() for one in seconds]
    print(f"{len(every)} of {len(mutants)} mutants killed{_times(every)}")
    named = sum(mutant.name in EQUIVALENT for mutant in made)
    print(f"{len(made)} were made; {named} of them change nothing that can be seen")
    return int(len(every) < len(mutants))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
