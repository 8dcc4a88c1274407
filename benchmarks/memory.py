"""How much memory an append takes, by its rows: the driver's JVM and its Python processes.

    python -m benchmarks.memory [MILLIONS …]

By default it appends 3 and 30 million rows, each by a spark-submit of its own, to a view. Where the
master is local, the JVM is driver and executor.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks import topologies
from benchmarks.data import write_rows
from benchmarks.places import HOME
from benchmarks.project.spark import MASTER, by_spark_submit
from benchmarks.project.transactions import Transactions
from benchmarks.server import Server, scratch_server
from benchmarks.suite import worker_environment
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.migrations import migrate

MILLIONS = (3, 30)
INTERVAL_SECONDS = 0.2
MEGABYTE = 1 << 20


@dataclass
class Peaks:
    """The most memory that the processes of a kind had at once, resident, in bytes."""

    java: int = 0
    python: int = 0
    seconds: float = 0.0
    _ended: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Look at all child processes again and again until `end`."""
        while not self._ended.wait(INTERVAL_SECONDS):
            sizes = {"java": 0, "python": 0}
            for process in psutil.Process().children(recursive=True):
                try:
                    name, size = process.name(), process.memory_info().rss
                except psutil.Error:  # it has ended
                    continue
                for kind in sizes:
                    sizes[kind] += size if name.startswith(kind) else 0
            self.java = max(self.java, sizes["java"])
            self.python = max(self.python, sizes["python"])

    def end(self) -> None:
        """Stop looking."""
        self._ended.set()


@contextmanager
def watched() -> Iterator[Peaks]:
    """Watch the memory of what the block starts."""
    peaks, start = Peaks(), time.perf_counter()
    thread = threading.Thread(target=peaks.watch, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        peaks.seconds = time.perf_counter() - start
        peaks.end()
        thread.join()


def append(server: Server, millions: int, home: Path) -> Peaks:
    """Append so many rows to an empty view."""
    import numpy as np

    write_rows(home / "append", np.arange(millions * 1_000_000), seed=1)
    database = server.create(f"memory_{millions}")
    os.environ |= {"RELIABILITY_DSN": database.libpq, "RELIABILITY_HOME": str(home)}
    with LedgerConnection(database.libpq) as connection:
        migrate(connection)
        work = Transactions(connection, topologies.append_as_view, by_spark_submit)
        with watched() as peaks:
            for txid in work.emit():
                work.process(txid)
                work.commit()
    server.drop(database.name)
    return peaks


def main(sizes: list[int]) -> None:
    """Measure each size, and print a table."""
    home = HOME / "data" / "memory"
    table = Table(title=f"append to a view, {MASTER}")
    for column in ("million rows", "the JVM, MB", "Python, MB", "s"):
        table.add_column(column, justify="right")
    with scratch_server() as server:
        os.environ |= worker_environment(server)
        for millions in sizes:
            peaks = append(server, millions, home)
            sizes_in_mb = (f"{size // MEGABYTE:,}" for size in (peaks.java, peaks.python))
            table.add_row(str(millions), *sizes_in_mb, f"{peaks.seconds:.0f}")
    shutil.rmtree(home)
    Console().print(table)


if __name__ == "__main__":
    main([int(one) for one in sys.argv[1:]] or [*MILLIONS])
