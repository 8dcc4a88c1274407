"""Roll back the last tenth of the txids."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cases import Case, Entry, Expected
from benchmarks.contestants import RECIPE, RELIABILITY
from benchmarks.data import SUM_TOTALS, sum_small_files, write_small_files
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


CASE = Case(
    name="rollback",
    title="Rollback",
    what=what,
    unit="rollbacks",
    amount=lambda _, __: 1,
    entries=(
        Entry(contestant=RELIABILITY, base="base_history"),
        Entry(contestant=RECIPE, base="base_history"),
    ),
    check=SUM_TOTALS,
    generate=generate,
    has_cold=False,
)
