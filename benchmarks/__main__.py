"""Measure this project beside others, and write down what was found.

python -m benchmarks run [--size quick|normal|large] [--only append,upsert]
python -m benchmarks report [--size quick|normal|large]
"""

from __future__ import annotations

import argparse

from benchmarks.cases import CASES
from benchmarks.report import print_tables, write_report
from benchmarks.sizes import SIZES
from benchmarks.suite import all_cases, run_suite


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("command", choices=["run", "report"])
    parser.add_argument("--size", choices=SIZES, default="normal")
    parser.add_argument("--only", type=chosen, help="names of cases, with commas between")
    options = parser.parse_args()
    size = SIZES[options.size]
    if options.command == "report":
        write_report(size)
    else:
        print_tables([*run_suite(size, options.only or all_cases(size))])


def chosen(names: str) -> list[str]:
    """Return the names of cases."""
    found = [name for name in names.split(",") if name]
    if unknown := set(found) - CASES.keys():
        raise argparse.ArgumentTypeError(f"no case {sorted(unknown)}; there are {[*CASES]}")
    return found


if __name__ == "__main__":
    main()
