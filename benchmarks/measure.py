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
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cases import Case, Entry, Expected
from benchmarks.job import Database, Job
from benchmarks.postgres import transaction
from benchmarks.processes import Worker, WorkerFailed, worker
from benchmarks.results import Measurement
from benchmarks.server import Server
from benchmarks.sizes import Size

COPY = "bench_run"
EMPTY = "template0"


class WrongResult(Exception):
    """A contestant's tables are not what they must be."""


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
    env: Mapping[str, str]
    measurements: list[Measurement] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Measure all contestants that can work here."""
        entries = [entry for entry in self.case.entries if self._is_possible(entry)]
        bases = {entry.label: base for entry in entries if (base := self._make_base(entry))}
        try:
            for _ in range(self.size.blocks):
                self._run_block([e for e in entries if e.label not in self.missing], bases)
        finally:
            for base in set(bases.values()) - {EMPTY}:
                self.server.drop(base)

    def _is_possible(self, entry: Entry) -> bool:
        if lack := entry.contestant.lacks(self.env["PATH"]):
            self._give_up(entry, lack)
        return lack is None

    def _make_base(self, entry: Entry) -> str | None:
        """Make the database that each run starts from."""
        if not entry.base:
            return EMPTY
        name = f"{entry.contestant.name}_{entry.base}"
        self.server.drop(name)
        database = self.server.create(name)
        with self._survive(entry), worker(entry.contestant, self.env) as process:
            self._work(process, entry.base, database)
            return name
        return None

    def _run_block(self, entries: list[Entry], bases: Mapping[str, str]) -> None:
        with ExitStack() as ending:
            workers = {}
            for entry in entries:
                with self._survive(entry):
                    workers[entry.label] = self._first(entry, bases[entry.label], ending)
            for _ in range(self.size.rounds):
                for entry in entries:
                    if entry.label not in self.missing:
                        with self._survive(entry):
                            self._again(entry, bases[entry.label], workers[entry.label])

    def _first(self, entry: Entry, base: str, ending: ExitStack) -> Worker:
        """Start a process, measure its first work, and leave it warm."""
        with self._copied(base) as database:
            started = time.perf_counter()
            process = ending.enter_context(worker(entry.contestant, self.env))
            self._do(entry, process, database, is_cold=True)
            seconds = time.perf_counter() - started
            self._check(entry, database)
        if self.case.has_cold and not entry.contestant.is_limit:
            self.note(entry, "cold", seconds)
        if entry.contestant.submits and self.case.has_cold:
            with self._copied(base) as database:
                self._do(entry, process, database)
        return process

    def _again(self, entry: Entry, base: str, process: Worker) -> None:
        """Measure one more work of a warm process."""
        with self._copied(base) as database:
            answer = self._do(entry, process, database)
            self._check(entry, database)
        self.note(entry, "warm", answer["seconds"], answer["phases"])

    @contextmanager
    def _copied(self, base: str) -> Iterator[Database]:
        with self.server.copied(base, COPY) as database:
            self.server.checkpoint()
            yield database

    def _do(
        self, entry: Entry, process: Worker, database: Database, *, is_cold: bool = False
    ) -> dict[str, Any]:
        """Let a process do the entry's part in the case."""
        operation = entry.operation or self.case.name
        return self._work(process, operation, database, is_cold=is_cold)

    def _work(
        self, process: Worker, operation: str, database: Database, *, is_cold: bool = False
    ) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            job = Job(
                database=database,
                home=self.home,
                scratch=Path(scratch),
                is_cold=is_cold,
                sizes=asdict(self.size),
            )
            return process.do(operation, job)

    def _check(self, entry: Entry, database: Database) -> None:
        if entry.is_checked:
            check(self.case.check, self.expected, database)

    def note(
        self, entry: Entry, mode: str, seconds: float, phases: Mapping[str, float] | None = None
    ) -> None:
        """Keep a measurement, and print it."""
        print(f"{self.case.name:9} {mode}  {seconds:8.3f} s  {entry.label}", flush=True)
        self.measurements.append(
            Measurement(
                case=self.case.name,
                contestant=entry.label,
                mode=mode,
                seconds=seconds,
                amount=self.case.amount(self.home, self.size),
                phases=phases or {},
            )
        )

    @contextmanager
    def _survive(self, entry: Entry) -> Iterator[None]:
        """Go on without a contestant that fails or is wrong."""
        try:
            yield
        except (WorkerFailed, WrongResult) as error:
            self._give_up(entry, str(error))

    def _give_up(self, entry: Entry, why: str) -> None:
        """Leave a contestant out, with all that was measured of it."""
        print(f"{self.case.name:9} {entry.label}: {why}", flush=True)
        self.missing[entry.label] = why
        self.measurements = [m for m in self.measurements if m.contestant != entry.label]


def check(statement: str, expected: Expected, database: Database) -> None:
    """Raise unless a statement returns the row that it must."""
    with transaction(database) as cursor:
        cursor.execute(statement)
        found = [str(value) for value in cursor.fetchone() or ()]
    if found != expected:
        raise WrongResult(f"{statement}: {found} instead of {expected}")
