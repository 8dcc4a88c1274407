"""Roll back the last tenth of the txids."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.cases import Expected, replay
from benchmarks.data import sum_small_files, write_small_files
from benchmarks.sizes import Size


def generate(folder: Path, size: Size) -> Expected:
    """Write the files of the case `replay`; those that are rolled back do not count."""
    files = write_small_files(folder / "history", size.txids, size.history_rows)
    return sum_small_files(files[: size.txids - size.txids // 10])


def what(size: Size) -> str:
    """Say what is rolled back, and what the recipe does instead."""
    return (
        f"{size.txids // 10} of {size.txids} txids of {size.history_rows:,} rows each. "
        "The recipe keeps no history: it rebuilds the table without these files."
    )


CASE = replace(
    replay.CASE,
    name="rollback",
    title="Rollback",
    what=what,
    unit="rollbacks",
    generate=generate,
    has_cold=False,
)
