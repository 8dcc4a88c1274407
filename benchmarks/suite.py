"""Run the suite: install, generate, start the server, measure case by case."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

from benchmarks import environment
from benchmarks.airflow.measure import measure_in_airflow
from benchmarks.cases import Case, Expected, airflow
from benchmarks.cases.all import CASES
from benchmarks.machine import describe_machine
from benchmarks.measure import CaseRun
from benchmarks.places import HOME, RESULTS
from benchmarks.results import Measurement, Results
from benchmarks.server import Server, scratch_server
from benchmarks.sizes import Size


def run_suite(size: Size, names: Sequence[str]) -> Results:
    """Measure the cases; each one's results are on disk before the next begins."""
    environment.install()
    earlier = Results.load(RESULTS) if RESULTS.is_file() else None
    measurements: list[Measurement] = []
    missing: dict[str, str] = {}
    with scratch_server() as server:
        for name in names:
            case, home = CASES[name], HOME / "data" / size.folder
            run = CaseRun(
                case=case,
                size=size,
                home=home,
                expected=generated(case, size, home),
                server=server,
                env=worker_environment(server),
            )
            measure_in_airflow(run) if case is airflow.CASE else run.run()
            measurements += run.measurements
            missing |= {f"{name}: {label}": why for label, why in run.missing.items()}
            results = results_of(size, server, measurements, missing)
            (results.over(earlier) if earlier else results).save(RESULTS)
    return results


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


def worker_environment(server: Server) -> dict[str, str]:
    """Return the environment of every worker, in which the server's own programs come first."""
    found = server.environment.env()
    binaries = server.environment.postgres.binaries.folder
    return {**found, "PATH": f"{binaries}:{found['PATH']}", "TZ": "UTC"}


def results_of(
    size: Size, server: Server, measurements: Sequence[Measurement], missing: Mapping[str, str]
) -> Results:
    """Return what is known so far."""
    today = datetime.now(timezone.utc).date().isoformat()
    return Results(
        dates=dict.fromkeys((one.case for one in measurements), today),
        size=asdict(size),
        machine=describe_machine(),
        settings=server.settings(),
        measurements=list(measurements),
        missing=dict(missing),
    )
