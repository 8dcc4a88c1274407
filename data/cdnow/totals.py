"""The results that the demo must reach, computed from the raw text by the standard library alone.

It shares no code with the package, nor with make_parquet.py: where both agree, neither is
checked against its own mistake.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

RAW_FILE = Path(__file__).resolve().parent / "CDNOW_master.txt"


class Purchase(NamedTuple):
    """One line of the raw file; a tuple is made in half the time of a dataclass."""

    customer_id: int
    ordered_on: date
    cds: int
    value: Decimal

    @property
    def month(self) -> str:
        """Name the month as the data folders do: 1997-01."""
        return f"{self.ordered_on.year}-{self.ordered_on.month:02}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomerTotals:
    """All that one customer bought."""

    orders: int
    cds: int
    revenue: Decimal
    first_order: date
    last_order: date


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyRevenue:
    """All that was sold on one day."""

    orders: int
    revenue: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class GrandTotals:
    """The facts of the whole file, or of the chosen months."""

    orders: int
    customers: int
    cds: int
    revenue: Decimal
    first_order: date
    last_order: date
    repeated_orders: int
    zero_value_orders: int
    orders_by_month: dict[str, int]


def raw_lines() -> list[str]:
    """Read the raw file, header included: what the functions below take."""
    return RAW_FILE.read_text(encoding="ascii").splitlines()


def customer_totals(
    lines: Iterable[str], months: Collection[str] | None = None
) -> dict[int, CustomerTotals]:
    """Total the purchases of each customer, of all months or only of those named (YYYY-MM)."""
    groups: defaultdict[int, list[Purchase]] = defaultdict(list)
    for purchase in purchases(lines, months):
        groups[purchase.customer_id].append(purchase)
    return {customer_id: customer_total(groups[customer_id]) for customer_id in sorted(groups)}


def daily_revenue(
    lines: Iterable[str], months: Collection[str] | None = None
) -> dict[date, DailyRevenue]:
    """Total the purchases of each day, of all months or only of those named (YYYY-MM)."""
    groups: defaultdict[date, list[Decimal]] = defaultdict(list)
    for purchase in purchases(lines, months):
        groups[purchase.ordered_on].append(purchase.value)
    return {
        day: DailyRevenue(orders=len(groups[day]), revenue=total(groups[day]))
        for day in sorted(groups)
    }


def grand_totals(lines: Iterable[str], months: Collection[str] | None = None) -> GrandTotals:
    """Total all purchases, of all months or only of those named (YYYY-MM).

    :raises ValueError: when no purchase lies in those months.
    """
    bought = list(purchases(lines, months))
    if not bought:
        raise ValueError("no purchase lies in these months")
    return GrandTotals(
        orders=len(bought),
        customers=len({purchase.customer_id for purchase in bought}),
        cds=sum(purchase.cds for purchase in bought),
        revenue=total(purchase.value for purchase in bought),
        first_order=min(purchase.ordered_on for purchase in bought),
        last_order=max(purchase.ordered_on for purchase in bought),
        # The first of equal rows is no repetition.
        repeated_orders=len(bought) - len(set(bought)),
        zero_value_orders=sum(purchase.value == 0 for purchase in bought),
        orders_by_month=dict(sorted(Counter(purchase.month for purchase in bought).items())),
    )


def customer_total(bought: list[Purchase]) -> CustomerTotals:
    """Total the purchases of one customer."""
    return CustomerTotals(
        orders=len(bought),
        cds=sum(purchase.cds for purchase in bought),
        revenue=total(purchase.value for purchase in bought),
        first_order=min(purchase.ordered_on for purchase in bought),
        last_order=max(purchase.ordered_on for purchase in bought),
    )


def purchases(lines: Iterable[str], months: Collection[str] | None = None) -> Iterator[Purchase]:
    """Read the purchases of these months from the lines, the first of which is the header."""
    rows = iter(lines)
    next(rows, None)
    for purchase in map(parse, rows):
        if months is None or purchase.month in months:
            yield purchase


def parse(line: str) -> Purchase:
    """Read one line, the line end included or not."""
    customer_id, day, cds, value = line.split()
    return Purchase(
        customer_id=int(customer_id),
        ordered_on=date(int(day[:4]), int(day[4:6]), int(day[6:])),
        cds=int(cds),
        value=Decimal(value),
    )


def total(values: Iterable[Decimal]) -> Decimal:
    """Add up to exact cents; without a start the sum of nothing would be the int 0."""
    return sum(values, Decimal("0.00"))


def print_facts(facts: GrandTotals) -> None:
    """Print the facts as a small table."""
    for name, value in table(facts):
        print(f"{name:<18}{value:>14}")


def table(facts: GrandTotals) -> list[tuple[str, str]]:
    """Lay the facts out as names and words."""
    return [
        ("rows", f"{facts.orders:,}"),
        ("customers", f"{facts.customers:,}"),
        ("CDs", f"{facts.cds:,}"),
        ("revenue", f"{facts.revenue:,}"),
        ("first day", f"{facts.first_order}"),
        ("last day", f"{facts.last_order}"),
        ("repeated rows", f"{facts.repeated_orders:,}"),
        ("rows of value 0.00", f"{facts.zero_value_orders:,}"),
        *((f"rows in {month}", f"{rows:,}") for month, rows in facts.orders_by_month.items()),
    ]


if __name__ == "__main__":
    print_facts(grand_totals(raw_lines()))
