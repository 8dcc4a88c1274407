"""How much memory an append takes, by its rows: the driver's JVM and its Python processes.

    python -m benchmarks.memory [MILLIONS …]

By default it appends 3 and 30 million rows, each by a spark-submit of its own, to a view. Where the
master is local, the JVM is driver and executor.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import suppress

import numpy as np
import psutil

from benchmarks import topologies
from benchmarks.data import write_rows
from benchmarks.project.spark import MASTER, by_spark_submit
from benchmarks.project.transactions import Transactions
from benchmarks.server import Server
from benchmarks.study import highest, seconds_of, show, study

MILLIONS = (3, 30)
INTERVAL_SECONDS = 0.2
MEGABYTE = 1 << 20
KINDS = ("java", "python")  # names of processes begin so


def memory_of_children() -> Counter[str]:
    """Return the bytes of resident memory that the child processes of each kind have now."""
    sizes = Counter[str]()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            name, size = process.name(), process.memory_info().rss
            sizes.update({kind: size for kind in KINDS if name.startswith(kind)})
    return sizes


def append(server: Server, millions: int) -> dict[str, int]:
    """Append so many rows to an empty view; return a row of the table."""
    with server.ledger() as (connection, home):
        write_rows(home / "append", np.arange(millions * 1_000_000), seed=1)
        work = Transactions(connection, topologies.append_as_view, by_spark_submit)
        with highest(memory_of_children, INTERVAL_SECONDS) as peaks:
            seconds = seconds_of(work.transact)
    sizes = {f"{kind}, MB": peaks[kind] // MEGABYTE for kind in KINDS}
    return {"million rows": millions, **sizes, "s": round(seconds)}


def main(sizes: list[int]) -> None:
    with study() as server:
        show(f"append to a view, {MASTER}", [append(server, millions) for millions in sizes])


if __name__ == "__main__":
    main([int(one) for one in sys.argv[1:]] or [*MILLIONS])
