"""`reliability completeness`: what is there of each interval, and what became of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from reliability.cli.app import (
    FOUND,
    AsJson,
    TopologyName,
    check_known,
    ledger,
    rows_of,
    verb,
)
from reliability.cli.lag import late_of, look_at_source, name_interval, read_intervals
from reliability.cli.output import print_json, print_table
from reliability.cli.select import IntervalOption, read_interval

if TYPE_CHECKING:
    from reliability.core.spout import Interval
    from reliability.ledger.connection import LedgerConnection, Row
    from reliability.transaction.inspect.intervals import IntervalReport

COMPLETE = "complete"


@verb(
    "reliability completeness shop",
    "reliability completeness shop --interval 2013-03",
    "reliability completeness shop --interval 2013-01/2013-04 --check",
)
def completeness(
    topology: TopologyName,
    interval: IntervalOption = "",
    check: Annotated[
        bool,
        typer.Option("--check", help="Exit with 3 if an interval is not complete."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show for each interval whether it is complete, and how many rows were emitted and set aside.

    An interval is complete if all its txids have committed, and the source has nothing more for
    it. Otherwise it is missing, failed, late, held, parked and the like, as in `lag`.
    """
    with ledger() as connection:
        check_known(connection, topology)
        found = _report(connection, topology, read_interval(interval) if interval else None)
    if as_json:
        print_json(found)
    else:
        _print(found)
    if check and any(row["state"] != COMPLETE for row in found["intervals"]):
        raise typer.Exit(FOUND)


def _report(connection: LedgerConnection, topology: str, wanted: Interval | None) -> dict[str, Any]:
    from reliability.ledger.records import interval_of

    rows = rows_of(
        connection,
        "accounts_by_interval",
        topology=topology,
        start=wanted and wanted.start,
        end=wanted and wanted.end,
    )
    lacking = read_intervals(connection, topology)
    items, error = look_at_source(connection, topology)
    late = [late_of(connection, topology, one) for one in items or () if one["interval"]]
    found: dict[Interval | None, IntervalReport] = {}
    for report in [*lacking.reports, *late]:
        if wanted and (report.interval is None or not _lies_in(report.interval, wanted)):
            continue
        found[report.interval] = report
    emitted = {interval_of(row): row for row in rows}
    own = [_emitted(interval, row, found.get(interval)) for interval, row in emitted.items()]
    others = [_lacking(report) for interval, report in found.items() if interval not in emitted]
    return {
        "topology": topology,
        "intervals": sorted([*own, *others], key=lambda row: str(row["interval"])),
        "expected_unknown": lacking.unknown,
        "source_error": error,
    }


def _lies_in(interval: Interval, wanted: Interval) -> bool:
    return interval.start < wanted.end and wanted.start < interval.end


def _emitted(interval: Interval | None, row: Row, lacking: IntervalReport | None) -> dict[str, Any]:
    is_done = row["txids"] == row["committed"]
    state = lacking.state.value if lacking else COMPLETE if is_done else "open"
    counts = ("txids", "committed", "emitted", "dropped", "quarantined")
    return {
        "interval": str(interval) if interval else None,
        "state": state,
        **{name: row[name] for name in counts},
    }


def _lacking(report: IntervalReport) -> dict[str, Any]:
    interval = str(report.interval) if report.interval else None
    return {"interval": interval, "state": report.state.value, "count": report.count}


def _print(found: dict[str, Any]) -> None:
    rows = found["intervals"]
    print_table(
        "",
        {
            "interval": "left",
            "state": "left",
            "txids": "right",
            "rows": "right",
            "dropped": "right",
            "quarantined": "right",
        },
        [
            (
                name_interval(row),
                row["state"],
                row.get("txids"),
                row.get("emitted"),
                row.get("dropped") or None,
                row.get("quarantined") or None,
            )
            for row in rows
        ],
        empty="No interval is expected, and none was emitted.",
        hide_empty=True,
        coloured=["state", "quarantined"],
    )
    complete = sum(row["state"] == COMPLETE for row in rows)
    total = sum(row.get("count", 1) for row in rows)
    typer.echo(f"{complete:,} of {total:,} intervals are complete")
    if found["expected_unknown"]:
        typer.echo(f"expected intervals unknown: {found['expected_unknown']}")
    if found["source_error"]:
        typer.echo(f"late items unknown, the source could not be read: {found['source_error']}")
