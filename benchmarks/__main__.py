"""Measure this project beside others, and write down what was found.

python -m benchmarks run [--size quick|normal|large] [--only append,upsert]
python -m benchmarks report
"""

from __future__ import annotations

import argparse

from benchmarks.cases.all import CASES
from benchmarks.sizes import SIZES


def main() -> None:
    """Do what the command line says."""
    options = parse()
    if options.command == "report":
        from benchmarks.report import write_report

        write_report()
    else:
        from benchmarks.report import print_tables
        from benchmarks.suite import all_cases, run_suite

        size = SIZES[options.size]
        print_tables(run_suite(size, options.only or all_cases(size)))


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure")
    run.add_argument("--size", choices=SIZES, default="normal")
    run.add_argument("--only", type=chosen, help="names of cases, with commas between")
    commands.add_parser("report", help="write the last run's tables and plots into docs/")
    return parser.parse_args()


def chosen(names: str) -> list[str]:
    """Return the names of cases."""
    found = [name for name in names.split(",") if name]
    if unknown := set(found) - CASES.keys():
        raise argparse.ArgumentTypeError(f"no case {sorted(unknown)}; there are {[*CASES]}")
    return found


if __name__ == "__main__":
    main()
