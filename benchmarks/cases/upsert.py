"""Upsert keys into a large table: nine in ten are there already."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cases import Case, Entry, Expected
from benchmarks.contestants import BARE_SQL, DLT, FOREACH_BATCH, RECIPE, RELIABILITY
from benchmarks.data import as_text, write_rows
from benchmarks.sizes import Size


def generate(folder: Path, size: Size) -> Expected:
    """Write the rows of the table, and those of the upsert, which are all later."""
    import numpy as np

    base = np.arange(size.base_keys)
    old = np.random.default_rng(2).choice(base, size.batch_keys * 9 // 10, replace=False)
    new = size.base_keys + np.arange(size.batch_keys - len(old))
    batch = np.random.default_rng(3).permutation(np.concatenate([old, new]))
    before = write_rows(folder / "upsert" / "2026-01", base, seed=4)
    after = write_rows(folder / "upsert" / "2026-02", batch, seed=5, first_day=366)
    cents = before.sum() - before[old].sum() + after.sum()
    return [str(len(base) + len(new)), str(base.sum() + new.sum()), as_text(int(cents))]


def what(size: Size) -> str:
    """Say how much is upserted into how much."""
    return f"{size.batch_keys:,} keys into a table of {size.base_keys:,}, 6 columns; 9 in 10 exist."


CASE = Case(
    name="upsert",
    title="Upsert",
    what=what,
    unit="rows",
    amount=lambda _, size: size.batch_keys,
    entries=(
        Entry(contestant=RELIABILITY, base="base_upsert"),
        Entry(
            contestant=RELIABILITY,
            base="base_upsert_without_history",
            operation="upsert_without_history",
            how="without history",
        ),
        Entry(contestant=RECIPE, base="base_upsert"),
        Entry(contestant=DLT, base="base_upsert"),
        Entry(contestant=FOREACH_BATCH, base="base_upsert"),
        Entry(contestant=BARE_SQL, base="base_upsert"),
    ),
    check="SELECT count(*), sum(id), sum(amount) FROM orders",
    generate=generate,
)
