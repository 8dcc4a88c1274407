"""Replay one of many committed txids."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cases import Case, Entry, Expected
from benchmarks.contestants import RECIPE, RELIABILITY
from benchmarks.data import SUM_TOTALS, sum_small_files, write_small_files
from benchmarks.sizes import Size


def generate(folder: Path, size: Size) -> Expected:
    """Write the files."""
    return sum_small_files(write_small_files(folder / "history", size.txids, size.history_rows))


def what(size: Size) -> str:
    """Say what is replayed, and what the recipe does instead."""
    return (
        f"1 of {size.txids} txids of {size.history_rows:,} rows each. "
        "The recipe keeps no history: it rebuilds the table from all files."
    )


CASE = Case(
    name="replay",
    title="Replay",
    what=what,
    unit="replays",
    amount=lambda _, __: 1,
    entries=(
        Entry(contestant=RELIABILITY, base="base_history"),
        Entry(contestant=RECIPE, base="base_history"),
    ),
    check=SUM_TOTALS,
    generate=generate,
)
