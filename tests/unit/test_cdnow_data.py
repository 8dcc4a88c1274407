"""The demo's input: the raw file says what its README says, and the Parquet files say the same."""

from __future__ import annotations

import sys
from collections import defaultdict
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]
import pytest

CDNOW = Path(__file__).resolve().parents[2] / "data" / "cdnow"
sys.path.append(str(CDNOW))  # the data folder is no package

import totals  # noqa: E402

MONTHS = [*(f"1997-{n:02}" for n in range(1, 13)), *(f"1998-{n:02}" for n in range(1, 7))]
ORDERS = [
    8_928,
    11_272,
    11_598,
    3_781,
    2_895,
    3_054,
    2_942,
    2_320,
    2_296,
    2_562,
    2_750,
    2_504,
    2_032,
    2_026,
    2_793,
    1_878,
    1_985,
    2_043,
]
ORDERS_BY_MONTH = dict(zip(MONTHS, ORDERS, strict=True))
SCHEMA = pa.schema(
    {
        "customer_id": pa.int64(),
        "ordered_on": pa.date32(),
        "cds": pa.int32(),
        "value": pa.decimal128(10, 2),
    }
)


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    """Every Parquet file by its name: 1997-01/odd.parquet."""
    paths = sorted(CDNOW.glob("*/*.parquet"))
    return {path.relative_to(CDNOW).as_posix(): pq.ParquetFile(path).read() for path in paths}


def test_raw_file_keeps_its_line_ends() -> None:
    raw = (CDNOW / "CDNOW_master.txt").read_bytes()
    assert raw.count(b"\r\n") == raw.count(b"\n") == 69_660


def test_raw_file_holds_the_facts() -> None:
    assert totals.grand_totals(totals.raw_lines()) == totals.GrandTotals(
        orders=69_659,
        customers=23_570,
        cds=167_881,
        revenue=Decimal("2500315.63"),
        first_order=date(1997, 1, 1),
        last_order=date(1998, 6, 30),
        repeated_orders=255,
        zero_value_orders=80,
        orders_by_month=ORDERS_BY_MONTH,
    )


def test_every_file_has_the_schema_and_no_metadata(tables: dict[str, pa.Table]) -> None:
    for file, table in tables.items():
        assert table.schema.equals(SCHEMA), file
        assert table.schema.metadata is None, file


LARGE = ("1997-01", "1997-02", "1997-03")


def test_both_files_of_a_large_month_touch_shared_days(tables: dict[str, pa.Table]) -> None:
    """The demo updates one row per day from two batches, or it would show nothing."""
    for month in LARGE:
        odd, even = (tables[f"{month}/{parity}.parquet"] for parity in ("odd", "even"))
        assert days(odd) & days(even), month


def test_parquet_files_hold_the_rows_of_the_raw_file_in_its_order(
    tables: dict[str, pa.Table],
) -> None:
    """So a month has a file, and a large one a file for each parity, with its own days alone."""
    raw: dict[str, list[tuple[object, ...]]] = defaultdict(list)
    for purchase in totals.purchases(totals.raw_lines()):
        parity = "odd" if purchase.customer_id % 2 else "even"
        name = parity if purchase.month in LARGE else "all"
        raw[f"{purchase.month}/{name}.parquet"].append(tuple(purchase))
    assert {file: rows(table) for file, table in tables.items()} == raw


def test_customer_and_daily_totals_add_up_to_the_grand_totals() -> None:
    some = totals.raw_lines()[:5_001]  # the whole file would cost a second and show no more
    customers = totals.customer_totals(some).values()
    daily = totals.daily_revenue(some).values()
    grand = totals.grand_totals(some)
    assert sum(c.orders for c in customers) == sum(d.orders for d in daily) == grand.orders
    assert sum(c.revenue for c in customers) == sum(d.revenue for d in daily) == grand.revenue
    assert (len(customers), sum(c.cds for c in customers)) == (grand.customers, grand.cds)


def test_totals_of_chosen_months_leave_the_others_out() -> None:
    lines = ["header", "1 19970131 1 1.50", "1 19970201 2 2.25", "2 19970201 4 0.00"]
    february = {"1997-02"}
    day = date(1997, 2, 1)
    assert totals.customer_totals(lines, february) == {
        1: totals.CustomerTotals(
            orders=1, cds=2, revenue=Decimal("2.25"), first_order=day, last_order=day
        ),
        2: totals.CustomerTotals(
            orders=1, cds=4, revenue=Decimal("0.00"), first_order=day, last_order=day
        ),
    }
    assert totals.daily_revenue(lines, february) == {
        day: totals.DailyRevenue(orders=2, revenue=Decimal("2.25"))
    }


def days(table: pa.Table) -> set[date]:
    return set(pc.unique(table["ordered_on"]).to_pylist())


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
