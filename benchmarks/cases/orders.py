"""Aggregate the orders of TPC-H by customer."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cases import Case, Entry, Expected
from benchmarks.contestants import FOREACH_BATCH, RECIPE, RELIABILITY
from benchmarks.data import as_text, digits, rows_of, write_tpch
from benchmarks.sizes import Size


def generate(folder: Path, size: Size) -> Expected:
    """Generate the orders."""
    table = write_tpch(folder, "orders", size)
    customers = len(table["o_custkey"].unique())
    spent = int(digits(table["o_totalprice"]).sum())
    return [str(customers), str(table.num_rows), as_text(spent)]


CASE = Case(
    name="orders",
    title="Aggregate orders",
    what=lambda size: f"TPC-H's orders, scale factor {size.scale}, by customer: three aggregates.",
    unit="rows",
    amount=lambda folder, _: rows_of(folder / "orders"),
    entries=(
        Entry(contestant=RELIABILITY, base="base_empty"),
        Entry(contestant=RECIPE, base="base_empty"),
        Entry(contestant=FOREACH_BATCH, base="base_orders"),
    ),
    check="SELECT count(*), sum(orders), sum(spent) FROM customers",
    generate=generate,
)
