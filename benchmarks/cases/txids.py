"""Commit many small txids: the ledger's own cost."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cases import Case, Entry, Expected
from benchmarks.contestants import PGBENCH, RECIPE, RELIABILITY
from benchmarks.data import SUM_TOTALS, sum_small_files, write_small_files
from benchmarks.sizes import Size


def generate(folder: Path, size: Size) -> Expected:
    """Write the files."""
    return sum_small_files(write_small_files(folder / "txids", size.txids, size.txid_rows))


def what(size: Size) -> str:
    """Say what is committed, and what is left out."""
    return (
        f"{size.txids} files of {size.txid_rows} rows, a txid each, from emission to committed. "
        "Without Spark: this project's staging task is called directly."
    )


CASE = Case(
    name="txids",
    title="Many small txids",
    what=what,
    unit="txids",
    amount=lambda _, size: size.txids,
    entries=(
        Entry(
            contestant=RELIABILITY,
            base="base_empty",
            operation="txids_one_by_one",
            how="one by one",
        ),
        Entry(contestant=RELIABILITY, base="base_empty", operation="txids_grouped", how="grouped"),
        Entry(contestant=RECIPE, base="base_empty"),
        Entry(contestant=PGBENCH, base="base_txids", is_checked=False),
    ),
    check=SUM_TOTALS,
    generate=generate,
    has_cold=False,
)
