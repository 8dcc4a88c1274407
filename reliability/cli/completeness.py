"""`reliability completeness`: what is there of each interval, and what became of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from reliability.cli.output import print_json, table_of
from reliability.cli.parts import Line, Part, show
from reliability.cli.select import IntervalOption, read_interval
from reliability.core.errors import ReliabilityError

if TYPE_CHECKING:
    from reliability.core.spout import Interval
    from reliability.ledger.connection import LedgerConnection, Row
    from reliability.transaction.inspect.intervals import IntervalReport

COMPLETE = "complete"
_ASIDE = ("dropped", "quarantined")


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
    """Show for each interval whether it is complete, and how many rows were read and set aside.

    An interval is complete if all its txids have committed, the source has nothing more for it,
    its files are as they were read, and no exclusion waits for a replay. Otherwise it is changed,
    to_replay, missing, failed, late, held, parked and the like, as in `lag`. If states were not
    given the same rows, each is named.
    """
    with ledger() as connection:
        check_known(connection, topology)
        found = _report(connection, topology, read_interval(interval) if interval else None)
    if as_json:
        print_json(found)
    else:
        show(_page(found))
    if check and any(row["state"] != COMPLETE for row in found["intervals"]):
        raise typer.Exit(FOUND)


def _report(connection: LedgerConnection, topology: str, wanted: Interval | None) -> dict[str, Any]:
    from reliability.ledger.read_rows import interval_of

    times = {"start": wanted and wanted.start, "end": wanted and wanted.end}
    rows = rows_of(connection, "accounts_by_interval", topology=topology, **times)
    since, unreadable = _since(connection, topology, wanted)
    lacking = read_intervals(connection, topology)
    items, error = look_at_source(connection, topology)
    late = [late_of(connection, topology, one) for one in items or () if one["interval"]]
    found: dict[Interval | None, IntervalReport] = {}
    for report in [*since, *lacking.reports, *late]:
        if wanted and (report.interval is None or not _lies_in(report.interval, wanted)):
            continue
        found[report.interval] = report
    aside, unknown = _set_aside(connection, topology, times)
    emitted = {interval_of(row): row for row in rows}
    own = [
        _emitted(interval, row, found.get(interval), aside.get(interval, []))
        for interval, row in emitted.items()
    ]
    others = [_lacking(report) for interval, report in found.items() if interval not in emitted]
    return {
        "topology": topology,
        "intervals": sorted([*own, *others], key=lambda row: str(row["interval"])),
        "expected_unknown": lacking.unknown,
        "source_error": error or unreadable,
        "states_error": unknown,
    }


def _lies_in(interval: Interval, wanted: Interval) -> bool:
    return interval.start < wanted.end and wanted.start < interval.end


def _since(
    connection: LedgerConnection, topology: str, wanted: Interval | None
) -> tuple[list[IntervalReport], str | None]:
    """Return the intervals whose tables differ from what the source is to give; or the error."""
    from reliability.transaction.inspect.since import (
        changed_intervals,
        committed_batches,
        intervals_to_replay,
    )

    try:
        with connection.transaction() as tx:
            batches = committed_batches(tx, topology, wanted)
            rows = tx.all("items_to_replay", topology=topology)
        replays = list(intervals_to_replay(topology, rows, batches))
    except ReliabilityError as error:  # items of a class that is not known here
        return [], str(error)
    try:
        return [*changed_intervals(topology, batches), *replays], None
    except (ReliabilityError, OSError) as error:
        return replays, str(error)


def _set_aside(
    connection: LedgerConnection, topology: str, times: Mapping[str, Any]
) -> tuple[dict[Interval | None, list[Row]], str | None]:
    """Return what each state was not given, by interval; a database may be unavailable."""
    from reliability.ledger.read_rows import interval_of
    from reliability.transaction.topology.databases import TopologyDatabases, naming_database

    found: dict[Interval | None, list[Row]] = {}
    unknown: str | None = None
    with TopologyDatabases.of(connection, topology) as databases:
        for name in databases.all:
            try:
                with naming_database(name), databases.connection_of(name).transaction() as tx:
                    rows = tx.all("set_aside_by_interval", topology=topology, **times)
            except ReliabilityError as error:
                unknown = str(error)
                continue
            for row in rows:
                found.setdefault(interval_of(row), []).append(row)
    return found, unknown


def _emitted(
    interval: Interval | None, row: Row, report: IntervalReport | None, aside: Sequence[Row]
) -> dict[str, Any]:
    is_done = row["txids"] == row["committed"]
    return {
        "interval": str(interval) if interval else None,
        "state": report.state.value if report else COMPLETE if is_done else "open",
        **{name: row[name] for name in ("txids", "committed", "emitted")},
        **{name: max((one[name] for one in aside), default=0) for name in _ASIDE},
        "states": [{name: one[name] for name in ("state", *_ASIDE)} for one in aside],
        "why": report.why if report else None,
        "next_step": report.next_step if report else None,
    }


def _lacking(report: IntervalReport) -> dict[str, Any]:
    return {
        "interval": str(report.interval) if report.interval else None,
        "state": report.state.value,
        "count": report.count,
        "why": report.why,
        "next_step": report.next_step,
    }


# --- for a person --------------------------------------------------------------------------------

# States that `lag` does not explain, or not for what has committed.
_EXPLAINED = ("changed", "to_replay", "late")


def _page(found: dict[str, Any]) -> Iterator[Part]:
    rows = found["intervals"]
    sides = {"interval": "left", "state": "left", "txids": "right", "rows": "right"}
    yield table_of(
        "",
        {**sides, "dropped": "right", "quarantined": "right"},
        [
            (
                name_interval(row),
                row["state"],
                row.get("txids"),
                row.get("emitted"),
                *(_by_state(row.get("states", ()), name) for name in _ASIDE),
            )
            for row in rows
        ],
        empty="No interval is expected, and none was emitted.",
        hide_empty=True,
        coloured=["state", "quarantined"],
    )
    for row in rows:
        if row["state"] in _EXPLAINED:
            yield Line(f"{name_interval(row)} {row['state']}: {row['why']}", [row["state"]])
            yield Line(f"  next: {row['next_step']}")
    complete = sum(row["state"] == COMPLETE for row in rows)
    total = sum(row.get("count", 1) for row in rows)
    yield Line(f"{complete:,} of {total:,} intervals are complete")
    if found["expected_unknown"]:
        yield Line(f"expected intervals unknown: {found['expected_unknown']}")
    if found["source_error"]:
        text = "late and changed items unknown, the source could not be read"
        yield Line(f"{text}: {found['source_error']}")
    if found["states_error"]:
        yield Line(f"what some states dropped is unknown: {found['states_error']}")


def _by_state(states: Sequence[Mapping[str, Any]], name: str) -> str:
    """Format how many rows were set aside: for each state, unless it is the same for all.

    >>> by_day, total = {"state": "by_day", "dropped": 2841}, {"state": "total", "dropped": 0}
    >>> _by_state([by_day, total], "dropped"), _by_state([by_day], "dropped")
    ('2,841 by_day', '2,841')
    """
    counts = {one["state"]: one[name] for one in states}
    if len(set(counts.values())) == 1:
        return f"{max(counts.values()):,}" if any(counts.values()) else ""
    return ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)
