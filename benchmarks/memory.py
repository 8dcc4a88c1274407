"""How much memory an append takes, by its rows: the driver's JVM and its Python processes.

    python -m benchmarks.memory [MILLIONS …]

By default it appends 3 and 30 million rows, each by a spark-submit of its own, to a view. Where the
master is local, the JVM is driver and executor.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress

import numpy as np
import psutil

from benchmarks import topologies
from benchmarks.data import write_rows
from benchmarks.project.spark import MASTER, by_spark_submit
from benchmarks.project.transactions import Transactions
from benchmarks.server import Server
from benchmarks.study import seconds_of, show, study

MILLIONS = (3, 30)
INTERVAL_SECONDS = 0.2
MEGABYTE = 1 << 20
KINDS = ("java", "python")  # names of processes begin so


class Peaks(threading.Thread):
    """Looks at all child processes again and again until it is ended.

    `bytes` is the most resident memory that the processes of a kind had at once.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes = dict.fromkeys(KINDS, 0)
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(INTERVAL_SECONDS):
            sizes = dict.fromkeys(KINDS, 0)
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):  # it has ended
                    name, size = process.name(), process.memory_info().rss
                    for kind in KINDS:
                        sizes[kind] += size if name.startswith(kind) else 0
            self.bytes = {kind: max(sizes[kind], self.bytes[kind]) for kind in KINDS}


def append(server: Server, millions: int) -> dict[str, int]:
    """Append so many rows to an empty view; return a row of the table."""
    with server.ledger() as (connection, home):
        write_rows(home / "append", np.arange(millions * 1_000_000), seed=1)
        work = Transactions(connection, topologies.append_as_view, by_spark_submit)
        peaks = Peaks()
        peaks.start()
        seconds = seconds_of(work.transact)
        peaks.ended.set()
        peaks.join()
    sizes = {f"{kind}, MB": size // MEGABYTE for kind, size in peaks.bytes.items()}
    return {"million rows": millions, **sizes, "s": round(seconds)}


def main(sizes: list[int]) -> None:
    with study() as server:
        show(f"append to a view, {MASTER}", [append(server, millions) for millions in sizes])


if __name__ == "__main__":
    main([int(one) for one in sys.argv[1:]] or [*MILLIONS])
