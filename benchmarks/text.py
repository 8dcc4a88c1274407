"""How fast text is read: counted at emission, and read by Spark, numbered and only counted.

    python -m benchmarks.text [MILLIONS]

Two files each of CSV and of JSON lines, a million records together by default, in one warm session
on all cores. Nothing is staged.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.places import HOME
from benchmarks.study import Job, in_turn, show
from reliability import Csv, FileSpout, JsonLines
from reliability.core.spout import BatchMeta, NoItems
from reliability.spark.check import local_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 2
ROUNDS = 3
SCHEMA = "id bigint, customer bigint, day date, price decimal(10,2), note string"


def main() -> None:
    records = int(float(sys.argv[1] if len(sys.argv) > 1 else 1) * 1_000_000)
    folder = HOME / "data" / f"text-{records}"
    if not folder.is_dir():
        write_text(folder, records)
    rows = []
    with local_spark([]) as spark:
        for pattern in ("plain*.csv", "quoted*.csv", "*.jsonl"):
            size = sum(path.stat().st_size for path in folder.glob(pattern)) / 1e6
            for name, spout in ways(f"{folder}/{pattern}").items():
                medians = in_turn(jobs(spark, spout), ROUNDS).median()
                rows.append({"what": f"{pattern}, {name}", "MB": size, **size / medians})
    show("megabytes a second", rows)


def ways(pattern: str) -> dict[str, FileSpout]:
    """Return the ways of reading files, by what a person writes."""
    form = Csv if pattern.endswith(".csv") else JsonLines
    formats = {
        "numbered": form(),
        'malformed="quarantine"': form(malformed="quarantine"),
        "counted=True": form(counted=True),
    }
    return {
        name: FileSpout(pattern, FILES, format=way, schema=SCHEMA) for name, way in formats.items()
    }


def jobs(spark: SparkSession, spout: FileSpout) -> dict[str, Job]:
    items = tuple(spout.plan(None, NoItems()))
    frame = spout.frame(spark, BatchMeta(items=items, emitted=spout.count(items)))
    return {
        "emission": lambda: spout.plan(None, NoItems()),
        "Spark": frame.write.format("noop").mode("overwrite").save,
    }


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
                day = f"2024-{1 + number % 12:02}-{1 + number % 28:02}"
                note = f"note {number % 997}"
                start = f"{number},{customer},{day},{price:.2f}"
                plain.write(f"{start},{note}\n")
                quoted.write(f'{start},"{note}, ""quoted"""\n')
                record = {"id": number, "customer": customer, "day": day, "price": price}
                lines.write(json.dumps({**record, "note": note}) + "\n")


if __name__ == "__main__":
    main()
