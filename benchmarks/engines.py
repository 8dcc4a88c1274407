"""What a small step costs with a spark-submit of its own and in a warm engine, and what it leaves.

    python -m benchmarks.engines [STEPS]

It prints the seconds of both in turn, and the engine's memory while it runs so many steps (200).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.places import ROOT
from benchmarks.project.spark import by_spark_submit, spark_submit
from benchmarks.project.transactions import Transactions
from benchmarks.study import Job, in_turn, seconds_of, show, spreads, study
from benchmarks.topologies import small_steps
from dev.services.environment import Environment
from reliability import Topology
from reliability.core.attempt import Grant
from reliability.ledger.connection import LedgerConnection
from reliability.spark.launch import Launcher, WarmEngine, run_with_log
from reliability.spark.submission import Submission

PAIRS = 7
STEPS = 200
LOOKS = 8  # at the engine's memory


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else STEPS
    with study() as server, server.ledger() as (connection, _):
        server.environment.start_engine()
        work = Transactions(connection, small_steps, by_spark_submit)
        txids = iter(work.emit())
        jobs = {
            "submit": partial(step, work, txids, spark_submit()),
            "warm": partial(step, work, txids, WarmEngine(code=[str(ROOT)])),
        }
        first = seconds_of(jobs["warm"])  # its classes are loaded then
        title = f"seconds of one small step, n = {PAIRS}; the engine's first {first:.2f}"
        show(title, spreads(in_turn(jobs, PAIRS)))
        show("memory of the engine, MB", [*grow(jobs["warm"], server.environment, count)])


def step(work: Transactions, txids: Iterator[int], launcher: Launcher) -> None:
    def drive(_: LedgerConnection, topology: Topology, grant: Grant, step: str) -> None:
        submission = Submission(module=topology.module, grant=grant, step=step)
        run_with_log(launcher, submission, lambda: True)

    work.submit_step = drive
    work.process(next(txids))
    work.commit()


def grow(step: Job, environment: Environment, count: int) -> Iterator[dict[str, float]]:
    """Run many steps in the engine, and look at its memory now and then."""
    for done in range(count + 1):
        if done % (count // LOOKS) == 0:
            yield {"steps": done, **memory(environment)}
        if done < count:
            step()


def memory(environment: Environment) -> dict[str, float]:
    """Return megabytes of live objects, of the JVM beside the heap, and of its Python processes."""
    process = environment.engine.find()
    assert process is not None
    jmap = str(Path(environment.java.home) / "bin" / "jmap")
    histogram = subprocess.check_output([jmap, "-histo:live", str(process.pid)], text=True)
    heap = int(histogram.split()[-1]) / 1e6
    python = sum(one.memory_info().rss for one in process.children(recursive=True)) / 1e6
    beside_heap = process.memory_info().rss / 1e6 - heap
    return {"live objects": heap, "the rest of the JVM": beside_heap, "Python": python}


if __name__ == "__main__":
    main()
