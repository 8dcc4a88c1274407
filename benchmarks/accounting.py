"""What the accounting adds to a scan and an aggregate: the same Spark job with it and without it.

    python -m benchmarks.accounting [MILLIONS]

By default it reads 20 million rows, in one warm session, both ways in turn. Nothing is staged.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.data import write_rows
from benchmarks.places import HOME
from benchmarks.study import in_turn, show, spreads
from reliability import FileSpout
from reliability.core.spout import BatchMeta, NoItems
from reliability.spark.check import local_spark
from reliability.spark.frames.accounting import hide_accounting, with_accounting
from reliability.spark.frames.accounting_columns import FOLD_X
from reliability.spark.stage.reduce import fold_n

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MILLIONS = 20
ROUNDS = 7


def main() -> None:
    rows = (int(sys.argv[1]) if len(sys.argv) > 1 else MILLIONS) * 1_000_000
    folder = HOME / "data" / f"accounting-{rows}"
    if not folder.is_dir():
        write_rows(folder, np.arange(rows), seed=7)
    spout = FileSpout(f"{folder}/*.parquet", max_files_per_batch=100)
    items = tuple(spout.plan(None, NoItems()))
    with local_spark([]) as spark:
        batch = spout.frame(spark, BatchMeta(items=items, emitted=spout.count(items)))
        jobs = {
            "without": lambda: compute(by_customer(spark.read.parquet(str(folder)))),
            "with": lambda: compute(accounted(hide_accounting(batch))),
        }
        show(f"{rows:,} rows, n = {ROUNDS}", spreads(in_turn(jobs, ROUNDS)))


def accounted(rows: DataFrame) -> DataFrame:
    """Aggregate as a state does, with the fold of the accounting."""
    shown = with_accounting("the frame", rows)
    return by_customer(shown, FOLD_X, fold_n(shown))


def by_customer(rows: DataFrame, *folds: str) -> DataFrame:
    from pyspark.sql import functions as F

    values = ["count(*)", "sum(amount)", "max(ts)", *folds]
    return rows.groupBy("customer_id").agg(*map(F.expr, values))


def compute(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main()
