"""What the accounting adds to a scan and an aggregate: the same Spark job with it and without it.

    python -m benchmarks.accounting [MILLIONS]

By default it reads 20 million rows, in one warm session, both ways in turn. Nothing is staged.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.data import write_rows
from benchmarks.places import HOME
from reliability import FileSpout
from reliability.core.spout import BatchMeta, NoItems
from reliability.spark.accounting import hide_accounting, with_accounting
from reliability.spark.check import local_spark
from reliability.spark.frames import FOLD_X
from reliability.spark.reduce import fold_n

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MILLIONS = 20
ROUNDS = 7


def main() -> None:
    """Measure, and print a table."""
    import numpy as np

    rows = (int(sys.argv[1]) if len(sys.argv) > 1 else MILLIONS) * 1_000_000
    folder = HOME / "data" / f"accounting-{rows}"
    if not folder.is_dir():
        write_rows(folder, np.arange(rows), seed=7)
    seconds = measure(folder)
    table = Table("job", "s", "least to most", "n")
    for name, found in seconds.items():
        spread = f"{min(found):.2f} to {max(found):.2f}"
        table.add_row(name, f"{statistics.median(found):.2f}", spread, str(len(found)))
    Console().print(table)
    plain, accounted = (statistics.median(found) for found in seconds.values())
    Console().print(f"{rows:,} rows: the accounting adds {accounted / plain - 1:.1%}")


def measure(folder: Path) -> dict[str, list[float]]:
    """Run both jobs in turn; the first round is not measured."""
    spout = FileSpout(f"{folder}/*.parquet", max_files_per_batch=100)
    items = tuple(spout.plan(None, NoItems()))
    with local_spark([]) as spark:
        batch = spout.frame(spark, BatchMeta(items=items, emitted=spout.count(items)))
        jobs = {"without": lambda: plain(spark.read.parquet(str(folder))),
                "with": lambda: accounted(hide_accounting(batch))}  # fmt: skip
        return in_turn(jobs)


def in_turn(jobs: dict[str, Callable[[], DataFrame]]) -> dict[str, list[float]]:
    """Return the seconds of each job."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(ROUNDS + 1):
        for name, job in jobs.items():
            start = time.perf_counter()
            job().write.format("noop").mode("overwrite").save()
            if number:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def plain(rows: DataFrame) -> DataFrame:
    """Aggregate as a state does."""
    return _by_customer(rows)


def accounted(rows: DataFrame) -> DataFrame:
    """Aggregate as a state does, with the fold of the accounting."""
    shown = with_accounting("the frame", rows)
    return _by_customer(shown, FOLD_X, fold_n(shown))


def _by_customer(rows: DataFrame, *folds: str) -> DataFrame:
    from pyspark.sql import functions as F

    values = ["count(*)", "sum(amount)", "max(ts)", *folds]
    return rows.groupBy("customer_id").agg(*map(F.expr, values))


if __name__ == "__main__":
    main()
