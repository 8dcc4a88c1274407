"""Measure this project beside others, and write down what was found.

python -m benchmarks run [--size quick|normal|large] [--only append,upsert]
python -m benchmarks report [--size quick|normal|large]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.airflow.measure import measure_in_airflow
from benchmarks.cases import AIRFLOW, CASES, Case, Expected, cases_of
from benchmarks.environment import install
from benchmarks.measure import CaseRun
from benchmarks.places import HOME
from benchmarks.report import print_tables, write_report
from benchmarks.results import Results
from benchmarks.server import scratch_server
from benchmarks.sizes import SIZES, Size


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("command", choices=["run", "report"])
    parser.add_argument("--size", choices=SIZES, default="normal")
    parser.add_argument("--only", type=chosen, help="names of cases, with commas between")
    options = parser.parse_args()
    size = SIZES[options.size]
    if options.command == "report":
        write_report(size)
    else:
        print_tables([*run_suite(size, options.only or cases_of(size))])


def chosen(names: str) -> list[str]:
    found = [name for name in names.split(",") if name]
    if unknown := set(found) - CASES.keys():
        raise argparse.ArgumentTypeError(f"no case {sorted(unknown)}; there are {[*CASES]}")
    return found


def run_suite(size: Size, names: Sequence[str]) -> Iterator[Results]:
    """Measure the cases; each one's results are on disk before the next begins."""
    install()
    home = HOME / "data" / size.folder
    with scratch_server() as server:
        for name in names:
            case = CASES[name]
            expected = generated(case, size, home)
            run = CaseRun(case=case, size=size, home=home, expected=expected, server=server)
            measure_in_airflow(run) if case is AIRFLOW else run.run()
            results = run.results()
            results.save(size.results)
            yield results


def generated(case: Case, size: Size, home: Path) -> Expected:
    """Generate a case's data unless it is there, and return what its check must find."""
    known = home / f"{case.name}.json"
    if not known.is_file():
        known.parent.mkdir(parents=True, exist_ok=True)
        known.write_text(json.dumps(case.generate(home, size)))
    expected: Expected = json.loads(known.read_text())
    return expected


if __name__ == "__main__":
    main()
