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

ORDERS_BY_MONTH = {
    "1997-01": 8_928,
    "1997-02": 11_272,
    "1997-03": 11_598,
    "1997-04": 3_781,
    "1997-05": 2_895,
    "1997-06": 3_054,
    "1997-07": 2_942,
    "1997-08": 2_320,
    "1997-09": 2_296,
    "1997-10": 2_562,
    "1997-11": 2_750,
    "1997-12": 2_504,
    "1998-01": 2_032,
    "1998-02": 2_026,
    "1998-03": 2_793,
    "1998-04": 1_878,
    "1998-05": 1_985,
    "1998-06": 2_043,
}
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
