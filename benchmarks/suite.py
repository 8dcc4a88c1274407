"""Run the suite: install, generate, start the server, measure case by case."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.airflow.measure import measure_in_airflow
from benchmarks.cases import AIRFLOW, CASES, Case, Expected
from benchmarks.environment import install
from benchmarks.measure import CaseRun
from benchmarks.places import HOME
from benchmarks.results import Results
from benchmarks.server import scratch_server
from benchmarks.sizes import Size


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


def all_cases(size: Size) -> list[str]:
    """Return the names of the cases that a size measures unasked."""
    return [name for name in CASES if name not in size.leaves_out]


def generated(case: Case, size: Size, home: Path) -> Expected:
    """Generate a case's data unless it is there, and return what its check must find."""
    known = home / f"{case.name}.json"
    if not known.is_file():
        known.parent.mkdir(parents=True, exist_ok=True)
        known.write_text(json.dumps(case.generate(home, size)))
    expected: Expected = json.loads(known.read_text())
    return expected
