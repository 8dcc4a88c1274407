"""Append rows to an empty table without an index."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cases import Case, Entry, Expected
from benchmarks.contestants import (
    BARE_SQL,
    DLT,
    FOREACH_BATCH,
    PSQL_COPY,
    RECIPE,
    RELIABILITY,
    SPARK_JDBC,
    WITHOUT_LEDGER,
)
from benchmarks.data import as_text, write_rows
from benchmarks.sizes import Size


def generate(folder: Path, size: Size) -> Expected:
    """Write the rows."""
    import numpy as np

    ids = np.arange(size.append_rows)
    cents = write_rows(folder / "append", ids, seed=1)
    return [str(len(ids)), str(ids.sum()), as_text(int(cents.sum()))]


CASE = Case(
    name="append",
    title="Append",
    what=lambda size: f"{size.append_rows:,} rows of 6 columns in 4 Parquet files, one batch.",
    unit="rows",
    amount=lambda _, size: size.append_rows,
    entries=(
        Entry(contestant=RELIABILITY, base="base_empty"),
        Entry(
            contestant=RELIABILITY,
            base="base_empty",
            operation="append_as_view",
            how="as_view",
        ),
        Entry(contestant=RECIPE, base="base_empty"),
        Entry(contestant=DLT),
        Entry(contestant=SPARK_JDBC, base="base_empty"),
        Entry(contestant=FOREACH_BATCH, base="base_empty"),
        Entry(contestant=WITHOUT_LEDGER, base="base_empty"),
        Entry(contestant=PSQL_COPY, base="base_empty"),
        Entry(contestant=BARE_SQL, base="base_append"),
    ),
    check="SELECT count(*), sum(id), sum(amount) FROM orders",
    generate=generate,
)
