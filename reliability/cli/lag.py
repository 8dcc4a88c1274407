"""`reliability lag`: the intervals that lack a commit, and items of the source without a txid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reliability.cli.app import (
    FOUND,
    AsJson,
    OneOrAll,
    ledger,
    names,
    rows_of,
    topology_from_code,
    verb,
)
from reliability.cli.live import Watch, follow
from reliability.cli.output import format_value, print_json, table_of
from reliability.cli.parts import SPACE, Line, Part, show
from reliability.core.errors import NothingToEmit, ReliabilityError
from reliability.core.spout import SpoutKind
from reliability.core.statement_key import TxidKey
from reliability.core.txids import format_txids

if TYPE_CHECKING:
    from reliability.core.definitions import Topology
    from reliability.core.spout import AllocatedItems, Interval, SourceItem
    from reliability.ledger.connection import LedgerConnection
    from reliability.transaction.inspect.intervals import IntervalReport, IntervalsReport


@verb(
    "reliability lag",
    "reliability lag shop --json",
    "reliability lag --fail-after 3600",
    "reliability lag --watch 60",
)
def lag(
    topology: OneOrAll = "",
    fail_after: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS",
            help="Exit with 3 if the oldest uncommitted txid is older than this, an interval has "
            "been missing or failing for longer, or an item of a closed interval has no txid.",
        ),
    ] = None,
    watch: Watch = None,
    as_json: AsJson = False,
) -> None:
    """Show every interval that lacks a commit, with its run, the reason and the next step.

    An interval is missing if the DAG's schedule has it and no run has tried to emit it. The source
    is read if the pipeline's module can be imported: it shows the items without a txid in past
    intervals, or, with an untimed spout, everything that is not emitted yet.
    """
    if watch is not None:
        if fail_after is not None:
            raise typer.BadParameter("--fail-after is for one look: leave out --watch")
        return follow(lambda: list(_page(_read(topology))), watch, as_json=as_json)
    found = _read(topology)
    if as_json:
        print_json(found)
    else:
        show(_page(found))
    if fail_after is not None and any(_is_late(one, fail_after) for one in found):
        raise typer.Exit(FOUND)


def _read(topology: str) -> list[dict[str, Any]]:
    with ledger() as connection:
        return [_lag_of(connection, name) for name in names(connection, topology)]


def _lag_of(connection: LedgerConnection, topology: str) -> dict[str, Any]:
    (row,) = rows_of(connection, "lag", topology=topology)
    without_txid, error = look_at_source(connection, topology)
    report = read_intervals(connection, topology)
    late = [
        late_of(connection, topology, found) for found in without_txid or () if found["interval"]
    ]
    return {
        "topology": topology,
        "uncommitted": row["uncommitted"],
        "txids": format_txids(range(row["curr_txid"], row["next_txid"])),
        "oldest_emitted_at": row["emitted_at"],
        "oldest_age_seconds": row["age"].total_seconds() if row["age"] else None,
        "without_txid": without_txid,
        "source_error": error,
        "intervals": [plain_report(topology, found) for found in [*report.reports, *late]],
        "expected_unknown": report.unknown,
        "is_cut": report.is_cut,
    }


def read_intervals(connection: LedgerConnection, topology: str) -> IntervalsReport:
    """Return the intervals of a topology that lack a commit."""
    from reliability.transaction.inspect.intervals import intervals_without_commit

    with connection.transaction() as tx:
        return intervals_without_commit(tx, topology)


def plain_report(topology: str, report: IntervalReport) -> dict[str, Any]:
    """Return an interval's report as plain data."""
    return {
        "topology": topology,
        "interval": str(report.interval) if report.interval else None,
        "count": report.count,
        "state": report.state.value,
        "txids": format_txids(report.txids),
        "dag_id": report.dag_id,
        "run_id": report.run_id or None,
        "since": report.since,
        "age_seconds": report.age.total_seconds(),
        "why": report.why,
        "next_step": report.next_step,
    }


def late_of(connection: LedgerConnection, topology: str, found: dict[str, Any]) -> IntervalReport:
    """Report items that came after the emission of their interval."""
    from reliability.core.spout import Interval
    from reliability.transaction.inspect.intervals import IntervalKey, late_report

    interval = Interval.parse(found["interval"])
    rows = rows_of(connection, "last_run_of_interval", **IntervalKey.of(topology, interval))
    return late_report(
        topology, interval, rows[0], found["items"], found["rows"], found["second_deliveries"]
    )


_COUNTED = ("missing", "failed", "emitting", "waiting")


def _is_late(one: dict[str, Any], fail_after: int) -> bool:
    # what an untimed spout has not emitted is left to the next run
    overdue = any(found["interval"] for found in one["without_txid"] or ())
    ages = [found["age_seconds"] for found in one["intervals"] if found["state"] in _COUNTED]
    return overdue or max([one["oldest_age_seconds"] or 0, *ages]) > fail_after


def _page(found: list[dict[str, Any]]) -> Iterator[Part]:
    columns = ("topology", "uncommitted", "txids", "oldest", "items without txid")
    sides = ("left", "right", "left", "right", "right")
    yield table_of(
        "",
        dict(zip(columns, sides, strict=True)),
        [
            (
                one["topology"],
                one["uncommitted"],
                one["txids"],
                _age(one["oldest_age_seconds"]),
                _count(one["without_txid"]),
            )
            for one in found
        ],
    )
    yield from _intervals([row for one in found for row in one["intervals"]])
    notes = [note for one in found for note in _notes(one)]
    yield from [SPACE, *notes] if notes else ()


def _notes(one: dict[str, Any]) -> Iterator[Line]:
    topology = one["topology"]
    if one["expected_unknown"]:
        text = f": expected intervals unknown: {one['expected_unknown']}"
        yield Line(text, ["unknown"], topology)
    if one["is_cut"]:
        yield Line(": more intervals are missing than are listed", ["missing"], topology)
    if one["source_error"]:
        yield Line(f": its source could not be read: {one['source_error']}", (), topology)
    for open_ in one["without_txid"] or ():
        if not open_["interval"]:
            yield Line(f": not emitted yet: {describe_items(open_)}", (), topology)


def _intervals(rows: list[dict[str, Any]]) -> Iterator[Part]:
    """Yield a table with a row for each, and below it why, and what to type: both are long."""
    if not rows:
        return
    columns = ("topology", "interval", "state", "txids", "since (UTC)", "run")
    yield SPACE
    yield table_of(
        "intervals without a commit",
        dict.fromkeys(columns, "left"),
        [
            (
                row["topology"],
                name_interval(row),
                row["state"],
                row["txids"],
                row["since"],
                row["run_id"],
            )
            for row in rows[:_SHOWN]
        ],
        coloured=["state"],
        below=[
            [(name, text) for name, text in (("why", row["why"]), _next(row)) if text]
            for row in rows[:_SHOWN]
        ],
    )
    for row in rows[:_SHOWN]:
        name = f"{row['topology']} {name_interval(row)} {row['state']}"
        yield Line(f"{name}: {row['why']}", only="pipe")
        if row["next_step"] != "nothing":
            yield Line(f"  next: {row['next_step']}", only="pipe")
    if len(rows) > _SHOWN:
        yield Line(f"{len(rows) - _SHOWN} more are in --json")


def _next(row: dict[str, Any]) -> tuple[str, str]:
    return "next", row["next_step"] if row["next_step"] != "nothing" else ""


_SHOWN = 50


def name_interval(row: dict[str, Any]) -> str:
    """Name an interval of a report, with how many such there are."""
    several = f" ({row['count']})" if row.get("count", 1) > 1 else ""
    return (row["interval"] or "no interval") + several


def describe_items(found: dict[str, Any]) -> str:
    """Describe items that have no txid."""
    return (
        f"{format_value(found['rows'])} rows in {format_value(len(found['items']))} items, the "
        f"first {found['items'][0]}"
    )


def _age(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=int(seconds))


def _count(without_txid: list[dict[str, Any]] | None) -> int | str:
    return "?" if without_txid is None else sum(len(one["items"]) for one in without_txid)


# --- the source ----------------------------------------------------------------------------------


def look_at_source(
    connection: LedgerConnection, topology: str
) -> tuple[list[dict[str, Any]] | None, str | None]:
    """Return the items of the source that have no txid, or the error."""
    try:
        return list(_without_txid(connection, topology_from_code(connection, topology))), None
    except ReliabilityError as error:
        return None, str(error)


def _without_txid(connection: LedgerConnection, topology: Topology) -> Iterator[dict[str, Any]]:
    allocated = _allocated(connection, topology)
    for interval in _closed_intervals(connection, topology):
        try:
            items = topology.spout.plan(interval, allocated)
        except NothingToEmit:  # all its files were archived
            continue
        if items:
            yield {
                "interval": str(interval) if interval else None,
                "items": [item.identity for item in items],
                "rows": sum(item.rows for item in items),
                "second_deliveries": _second_deliveries(connection, topology, interval, items),
            }


def _second_deliveries(
    connection: LedgerConnection,
    topology: Topology,
    interval: Interval | None,
    items: Sequence[SourceItem],
) -> Mapping[str, str]:
    """Return which new items of an interval look like one of it that has counted."""
    from reliability.spouts.redelivered import second_deliveries
    from reliability.transaction.inspect.since import committed_batches

    if interval is None:  # it would be compared with everything that was ever read
        return {}
    with connection.transaction() as tx:
        counted = committed_batches(tx, topology.name, interval)
    return second_deliveries(items, [item for _, meta in counted.values() for item in meta.items])


def _closed_intervals(connection: LedgerConnection, topology: Topology) -> list[Interval | None]:
    from reliability.ledger.read_rows import interval_of

    if not topology.spout.timed:
        return [None]
    return [
        interval_of(row) for row in rows_of(connection, "closed_intervals", topology=topology.name)
    ]


def _allocated(connection: LedgerConnection, topology: Topology) -> AllocatedItems:
    """Return the allocated items; an opaque batch belongs to its attempt until it commits."""
    from reliability.ledger.read_rows import batch_of
    from reliability.transaction.emit.source_items import LedgerItems, with_batches

    committed = LedgerItems(connection, topology.name)
    if topology.spout.kind is SpoutKind.TRANSACTIONAL:
        return committed
    (row,) = rows_of(connection, "topology_details", topology=topology.name)
    key = TxidKey(topology.name, row["next_txid"])
    live = rows_of(connection, "uncommitted_batches_before", **key)
    return with_batches(committed, [batch_of(row) for row in live])
