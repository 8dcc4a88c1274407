"""How fast text is read: counted at emission, and read by Spark, numbered and only counted.

    python -m benchmarks.text [MILLIONS]

Two files each of CSV and of JSON lines, a million records together by default, in one warm session
on all cores. Nothing is staged.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.places import HOME
from reliability import FileSpout
from reliability.core.spout import BatchMeta, NoItems
from reliability.spark.check import local_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 2
ROUNDS = 4
SCHEMA = "id bigint, customer bigint, day date, price decimal(10,2), note string"


def main() -> None:
    """Measure, and print a table of megabytes a second."""
    records = int(float(sys.argv[1] if len(sys.argv) > 1 else 1) * 1_000_000)
    folder = HOME / "data" / f"text-{records}"
    if not folder.is_dir():
        write_text(folder, records)
    table = Table("what", "MB", "emission, MB/s", "Spark, MB/s")
    with local_spark([]) as spark:
        for pattern in ("plain*.csv", "quoted*.csv", "*.jsonl"):
            size = sum(path.stat().st_size for path in folder.glob(pattern)) / 1e6
            for name, spout in _ways(f"{folder}/{pattern}").items():
                emission, reading = _seconds(spark, spout)
                rates = (f"{size / seconds:.0f}" for seconds in (emission, reading))
                table.add_row(f"{pattern}, {name}", f"{size:.0f}", *rates)
    Console().print(table)


def _ways(pattern: str) -> dict[str, FileSpout]:
    format = pattern.rpartition(".")[2]
    spout = FileSpout(pattern, FILES, format=format, schema=SCHEMA)
    return {
        "numbered": spout,
        'malformed="quarantine"': replace(spout, malformed="quarantine"),
        "counted=True": replace(spout, counted=True),
    }


def _seconds(spark: SparkSession, spout: FileSpout) -> tuple[float, float]:
    """Return the seconds of an emission, and of Spark's reading."""

    def plan() -> None:
        spout.plan(None, NoItems())

    items = tuple(spout.plan(None, NoItems()))
    frame = spout.frame(spark, BatchMeta(items=items, emitted=spout.count(items)))
    return _median(plan), _median(frame.write.format("noop").mode("overwrite").save)


def write_text(folder: Path, records: int) -> None:
    """Write the same records as CSV, as CSV with a quoted column, and as JSON lines."""
    folder.mkdir(parents=True)
    dice = random.Random(7)
    each = records // FILES
    for file in range(FILES):
        with (
            open(folder / f"plain{file}.csv", "w") as plain,
            open(folder / f"quoted{file}.csv", "w") as quoted,
            open(folder / f"a{file}.jsonl", "w") as lines,
        ):
            for number in range(file * each, (file + 1) * each):
                customer, price = dice.randrange(100_000), dice.randrange(100_000) / 100
                day, note = (
                    f"2024-{1 + number % 12:02}-{1 + number % 28:02}",
                    f"note {number % 997}",
                )
                start = f"{number},{customer},{day},{price:.2f}"
                plain.write(f"{start},{note}\n")
                quoted.write(f'{start},"{note}, ""quoted"""\n')
                told = {"id": number, "customer": customer, "day": day, "price": price}
                lines.write(json.dumps({**told, "note": note}) + "\n")


def _median(act: Callable[[], None]) -> float:
    """Return the median of the seconds, without the first round."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


if __name__ == "__main__":
    main()
