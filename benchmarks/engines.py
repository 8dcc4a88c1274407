"""What a small step costs with a spark-submit of its own and in a warm engine, and what it leaves.

    python -m benchmarks.engines [STEPS]

It prints the seconds of both in turn, and the engine's memory while it runs so many steps (200).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.places import ROOT
from benchmarks.project.transactions import Transactions
from dev.services.environment import Environment
from dev.services.postgres import NO_FSYNC
from reliability import MemorySpout, State, Sum, Topology
from reliability.core.attempt import Grant
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.migrations import migrate
from reliability.spark.submission import Submission
from reliability.spark.submit import SparkSubmit
from reliability.spark.warm_submit import WarmSubmit

PAIRS = 7
STEPS = 200
ROWS = 100  # of a txid
LOOKS = 8  # at the engine's memory


def total(batch: Any) -> dict[str, Any]:
    """Every row counts."""
    return {"total": batch}


topology = Topology(
    "small_steps",
    spout=MemorySpout({"n": "bigint"}, [list(range(ROWS * (2 * PAIRS + STEPS + 10)))], take=ROWS),
    process=total,
    states=[State("total", values={"n": Sum("n")})],
)


class Steps:
    """Processes one txid after the other, by either engine."""

    def __init__(self, connection: LedgerConnection) -> None:
        self._submit: Any = None
        self._transactions = Transactions(connection, topology, self._step)
        self._txids = iter(self._transactions.emit())
        self.seconds = 0.0

    def run(self, submit: Any) -> float:
        """Process and commit the next txid; return how long its driver took, in seconds."""
        self._submit = submit
        self._transactions.process(next(self._txids))
        self._transactions.commit()
        return self.seconds

    def _step(self, _: LedgerConnection, topology: Topology, grant: Grant, step: str) -> None:
        submission = Submission(module="benchmarks.engines", grant=grant, step=step)
        started = time.perf_counter()
        self._submit(submission, lambda: True)
        self.seconds = time.perf_counter() - started


def compare(steps: Steps) -> Table:
    """Run both engines in turn."""
    code = [str(ROOT)]
    program = str(ROOT / ".venv" / "bin" / "spark-submit")
    ways = {
        "submit": SparkSubmit(program=program, master="local[2]", code=code),
        "warm": WarmSubmit(code=code),
    }
    first = steps.run(ways["warm"])  # its classes are loaded then
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(PAIRS):
        for name, way in ways.items():
            seconds[name].append(steps.run(way))
    table = Table(title=f"one step of {ROWS} rows, seconds; n = {PAIRS}, in turn")
    for name in ("engine", "median", "least", "most"):
        table.add_column(name, justify="right")
    for name, found in seconds.items():
        table.add_row(
            name, *(f"{one:.2f}" for one in (statistics.median(found), min(found), max(found)))
        )
    table.add_row("warm, the first", f"{first:.2f}", "", "")
    return table


def grow(steps: Steps, environment: Environment, count: int) -> Table:
    """Run many steps in the engine, and look at its memory now and then."""
    table = Table(title="memory of the engine, after a full garbage collection")
    for name in ("steps", "heap, MB", "classes and the rest of the JVM, MB", "Python, MB", "s"):
        table.add_column(name, justify="right")
    warm, took = WarmSubmit(code=[str(ROOT)]), 0.0
    for done in range(count + 1):
        if done % (count // LOOKS) == 0:
            heap, rest, python = memory(environment)
            table.add_row(str(done), f"{heap:.1f}", f"{rest:.0f}", f"{python:.0f}", f"{took:.2f}")
        if done < count:
            took = steps.run(warm)
    return table


def memory(environment: Environment) -> tuple[float, float, float]:
    """Return megabytes of live objects, of the JVM beside the heap, and of its Python processes."""
    pid = environment.engine.pid
    jmap = str(Path(environment.java.home) / "bin" / "jmap")
    said = subprocess.run(
        [jmap, "-histo:live", str(pid)], capture_output=True, text=True, check=True
    )
    heap = int(said.stdout.split()[-1]) / 1e6
    process = psutil.Process(pid)
    python = sum(one.memory_info().rss for one in process.children(recursive=True)) / 1e6
    return heap, process.memory_info().rss / 1e6 - heap, python


def main() -> None:
    """Measure both, and print two tables."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else STEPS
    with tempfile.TemporaryDirectory() as folder:
        environment = Environment(ROOT, Path(folder) / "env", postgres_settings=NO_FSYNC)
        environment.up_postgres()
        os.environ.update(environment.own_env())
        connection = LedgerConnection("service=reliability")
        try:
            migrate(connection)
            environment.start_engine()
            steps = Steps(connection)
            Console().print(compare(steps))
            Console().print(grow(steps, environment, count))
        finally:
            connection.close()
            environment.destroy()


if __name__ == "__main__":
    main()
