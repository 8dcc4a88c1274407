"""Aggregate the lines of TPC-H by part."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cases import Case, Entry, Expected
from benchmarks.contestants import FOREACH_BATCH, RECIPE, RELIABILITY, WITHOUT_LEDGER
from benchmarks.data import digits, rows_of, write_tpch
from benchmarks.sizes import Size


def generate(folder: Path, size: Size) -> Expected:
    """Generate the lines."""
    table = write_tpch(folder, "lineitem", size)
    paid = digits(table["l_extendedprice"]) * (100 - digits(table["l_discount"]))
    parts = len(table["l_partkey"].unique())
    quantity = int(digits(table["l_quantity"]).sum()) // 100
    return [str(parts), str(table.num_rows), str(quantity), str(int(paid.sum()))]


CASE = Case(
    name="lineitem",
    title="Aggregate many lines",
    what=lambda size: f"TPC-H's lineitem, scale factor {size.scale}, by part: four aggregates.",
    unit="rows",
    amount=lambda folder, _: rows_of(folder / "lineitem"),
    entries=(
        Entry(contestant=RELIABILITY, base="base_empty"),
        Entry(contestant=RECIPE, base="base_empty"),
        Entry(contestant=FOREACH_BATCH, base="base_lineitem"),
        Entry(contestant=WITHOUT_LEDGER, base="base_empty"),
    ),
    check="SELECT count(*), sum(lines), sum(quantity)::bigint, (sum(revenue) * 10000)::bigint"
    " FROM parts",
    generate=generate,
)
