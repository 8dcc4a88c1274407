"""What the demo found: the ledger's figures, and both tables against totals made by other means."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg2.sql import SQL
from rich.console import Console
from rich.table import Table

from reliability.ledger.connection import LedgerConnection

ROOT = Path(__file__).resolve().parents[2]

LEDGER = SQL("""
    SELECT (SELECT count(DISTINCT interval_start) FROM reliability.transaction) AS months,
           (SELECT count(*) FROM reliability.transaction) AS txids,
           (SELECT count(*) FROM reliability.transaction
             WHERE committed_attempt IS NOT NULL) AS committed,
           (SELECT count(*) FROM reliability.attempt) AS attempts,
           (SELECT count(*) FROM reliability.attempt WHERE status = 'FENCED') AS fenced,
           (SELECT count(*) FROM reliability.attempt WHERE status = 'FAILED') AS failed,
           (SELECT count(*) FROM reliability.commit_log
             WHERE replaced_attempt IS NOT NULL) AS replayed,
           (SELECT sum(emitted_count) FROM reliability.transaction
             WHERE committed_attempt IS NOT NULL)::bigint AS rows
""")
ENDED = SQL("""
    SELECT txid, attempt_id, lower(status) AS status, reason_code, reason
      FROM reliability.failures ORDER BY txid, attempt_id
""")
CUSTOMERS = SQL("""
    SELECT customer_id, orders, cds, revenue, first_order, last_order
      FROM public.customer_totals ORDER BY customer_id
""")
DAYS = SQL("SELECT day, orders, revenue FROM public.daily_revenue ORDER BY day")

ONE_SNAPSHOT = SQL("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")

Tables = tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure as the tables have it and as the raw file has it."""

    what: str
    found: Any
    expected: Any

    @property
    def is_exact(self) -> bool:
        return bool(self.found == self.expected)


def read_ledger(connection: LedgerConnection) -> dict[str, Any]:
    with connection.transaction() as tx:
        return dict(tx.one(LEDGER))


def ended_attempts(connection: LedgerConnection) -> list[str]:
    """Return a line for each attempt that was fenced or failed: which, and why."""
    with connection.transaction() as tx:
        return [
            f"{row['status']}: {row['txid']}:{row['attempt_id']}, {row['reason']} "
            f"[{row['reason_code']}]"
            for row in tx.all(ENDED)
        ]


def read_tables(connection: LedgerConnection) -> Tables:
    """Return both target tables, whole, in one snapshot."""
    with connection.transaction() as tx:
        tx.run(ONE_SNAPSHOT)
        customers = [tuple(row.values()) for row in tx.all(CUSTOMERS)]
        return customers, [tuple(row.values()) for row in tx.all(DAYS)]


def expected_tables(months: Iterable[str] | None = None) -> Tables:
    """Compute both tables from the raw file: standard library, exact decimals, none of our code."""
    sys.path.insert(0, str(ROOT / "data" / "cdnow"))
    import totals

    wanted = None if months is None else set(months)
    lines = totals.raw_lines()
    customers = totals.customer_totals(lines, wanted)
    days = totals.daily_revenue(lines, wanted)
    return (
        [
            (key, c.orders, c.cds, c.revenue, c.first_order, c.last_order)
            for key, c in sorted(customers.items())
        ],
        [(day, d.orders, d.revenue) for day, d in sorted(days.items())],
    )


def compare(found: Tables, expected: Tables) -> list[Comparison]:
    """Compare every row of both tables, and say the sums a person knows."""
    sides = (found, expected)
    customers, days = ([side[index] for side in sides] for index in (0, 1))
    return [
        Comparison("customers", *[len(rows) for rows in customers]),
        Comparison("orders", *[sum(row[1] for row in rows) for rows in customers]),
        Comparison("CDs", *[sum(row[2] for row in rows) for rows in customers]),
        Comparison("revenue by customer", *[sum(row[3] for row in rows) for rows in customers]),
        Comparison("first order", *[min((row[4] for row in r), default=None) for r in customers]),
        Comparison("last order", *[max((row[5] for row in r), default=None) for r in customers]),
        Comparison("days", *[len(rows) for rows in days]),
        Comparison("revenue by day", *[sum(row[2] for row in rows) for rows in days]),
        Comparison("rows of customer_totals that differ", _differing(*customers), 0),
        Comparison("rows of daily_revenue that differ", _differing(*days), 0),
    ]


def _differing(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> int:
    return len(set(found) ^ set(expected))


def print_figures(console: Console, figures: dict[str, Any]) -> None:
    table = Table(title="the ledger")
    for name in figures:
        table.add_column(name, justify="right")
    table.add_row(*[_number(value) for value in figures.values()])
    console.print(table)


def print_comparisons(console: Console, comparisons: list[Comparison]) -> None:
    table = Table("", title="the tables, against the raw file")
    table.add_column("in Postgres", justify="right")
    table.add_column("in the raw file", justify="right")
    table.add_column("exact")
    for row in comparisons:
        mark = "yes" if row.is_exact else "[bold red]NO"
        table.add_row(row.what, _number(row.found), _number(row.expected), mark)
    console.print(table)


def _number(value: Any) -> str:
    return str(value) if value is None or hasattr(value, "year") else f"{value:,}"
