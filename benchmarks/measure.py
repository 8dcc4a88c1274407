"""Measure a case: each contestant in turn, round by round, so that drift hits all alike.

A block starts a process for each contestant. Its first work is measured from the start of the
process, and is called cold. The next ones are warm: the process, and its Spark session if it has
one, has done the same once before in another database. Each work has a copy of the contestant's
base database for itself, and starts after a checkpoint.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from benchmarks.cases import Case, Entry, Expected
from benchmarks.environment import describe_machine
from benchmarks.job import Database, Job, Phases
from benchmarks.postgres import transaction
from benchmarks.results import Measurement, Results
from benchmarks.server import Server
from benchmarks.sizes import Size
from benchmarks.worker import Failed, Worker

COPY = "bench_run"
EMPTY = "template0"


@dataclass
class CaseRun:
    """The measurements of one case.

    :param home: the folder with the data
    :param missing: label -> why a contestant is left out
    """

    case: Case
    size: Size
    home: Path
    expected: Expected
    server: Server
    measurements: list[Measurement] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        bases = {entry.label: self._make_base(entry) for entry in self.case.entries}
        try:
            for _ in range(self.size.blocks):
                self._run_block(bases)
        finally:
            for base in {*bases.values()} - {EMPTY}:
                self.server.drop(base)

    def _make_base(self, entry: Entry) -> str:
        if not entry.base:
            return EMPTY
        name = f"{entry.contestant.name}_{entry.base}"
        database = self.server.create(name)
        with self._survive(entry), closing(self._worker(entry)) as process:
            self._work(process, entry.base, database)
        return name

    def _worker(self, entry: Entry) -> Worker:
        return Worker(entry.contestant, self.server.env())

    def _run_block(self, bases: Mapping[str, str]) -> None:
        with ExitStack() as ending:
            workers = {
                entry.label: ending.enter_context(closing(self._worker(entry)))
                for entry in self.case.entries
            }
            for number in range(1 + self.size.rounds):
                for entry in self.case.entries:
                    if entry.label not in self.missing:
                        process, base = workers[entry.label], bases[entry.label]
                        with self._survive(entry):
                            self._measure(entry, process, base, is_cold=number == 0)

    def _measure(self, entry: Entry, process: Worker, base: str, *, is_cold: bool) -> None:
        """Measure a process once; its first work begins with its start, and leaves it warm."""
        seconds, phases = self._do(entry, process, base, is_cold=is_cold)
        if not is_cold:
            self.note(entry, "warm", seconds, phases)
        elif self.case.has_cold:
            if not entry.contestant.is_limit:
                self.note(entry, "cold", seconds)
            if entry.contestant.submits:
                self._do(entry, process, base)

    def _do(
        self, entry: Entry, process: Worker, base: str, *, is_cold: bool = False
    ) -> tuple[float, Phases]:
        """Let a process do the entry's part in the case, in a copy of the base."""
        operation = entry.operation or self.case.name
        with self.server.copied(base, COPY) as database:
            started = time.perf_counter()
            phases = self._work(process, operation, database, is_cold=is_cold)
            seconds = time.perf_counter() - started
            if entry.is_checked:
                check(self.case.check, self.expected, database)
        return seconds, phases

    def _work(
        self, process: Worker, operation: str, database: Database, *, is_cold: bool = False
    ) -> Phases:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            job = Job(
                database=database,
                home=self.home,
                scratch=Path(scratch),
                is_cold=is_cold,
                sizes=asdict(self.size),
            )
            return process.do(operation, job)

    def note(
        self, entry: Entry, mode: str, seconds: float, phases: Mapping[str, float] | None = None
    ) -> None:
        """Keep a measurement, and print it."""
        print(f"{self.case.name:9} {mode}  {seconds:8.3f} s  {entry.label}", flush=True)
        self.measurements.append(
            Measurement(contestant=entry.label, mode=mode, seconds=seconds, phases=phases or {})
        )

    def results(self) -> Results:
        return Results(
            case=self.case.name,
            date=datetime.now(timezone.utc).date().isoformat(),
            size=asdict(self.size),
            machine=describe_machine(),
            settings=self.server.settings(),
            amount=self.case.amount(self.home, self.size),
            measurements=self.measurements,
            missing=self.missing,
        )

    @contextmanager
    def _survive(self, entry: Entry) -> Iterator[None]:
        """Go on without a contestant that fails or is wrong, and without what it has measured."""
        try:
            yield
        except Failed as error:
            print(f"{self.case.name:9} {entry.label}: {error}", flush=True)
            self.missing[entry.label] = str(error)
            self.measurements = [m for m in self.measurements if m.contestant != entry.label]


def check(statement: str, expected: Expected, database: Database) -> None:
    """Raise unless a statement returns the row that it must."""
    with transaction(database) as cursor:
        cursor.execute(statement)
        found = [str(value) for value in cursor.fetchone() or ()]
    if found != expected:
        raise Failed(f"{statement}: {found} instead of {expected}")
