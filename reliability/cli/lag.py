"""`reliability lag`: the intervals that lack a commit, and items of the source without a txid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Annotated

import typer

from reliability.cli import options
from reliability.cli.app import FOUND, ledger, of_each, topology_from_code, verb
from reliability.cli.live import follow
from reliability.cli.output import format_value
from reliability.cli.parts import SPACE, Line, Part, Table, answer
from reliability.core.errors import ReliabilityError, TopologyNotFound
from reliability.core.spout import Interval
from reliability.core.txids import format_txids
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.inspect.completeness import Lag, lag_of
from reliability.transaction.inspect.intervals import IntervalReport
from reliability.transaction.inspect.source import Source, look_at

_SHOWN = 50
#: At how many intervals it looks. Each is listed: more take seconds, and minutes in a store.
LAST = 10_000


@verb(
    "reliability lag",
    "reliability lag shop --json",
    "reliability lag --fail-after 3600",
    "reliability lag --watch 60",
)
def lag(
    topology: options.OneOrAll = "",
    fail_after: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS",
            help="Exit with 3 if the oldest uncommitted txid is older than this, an interval has "
            "been missing or failing for longer, an item of a closed interval has no txid, or the "
            "source of a timed spout cannot be read although its module can be imported.",
        ),
    ] = None,
    last: Annotated[
        int,
        typer.Option(
            metavar="INTERVALS",
            min=0,
            help="Look for items without a txid in so many past intervals, the last; 0 for all.",
        ),
    ] = LAST,
    watch: options.Watch = None,
    as_json: options.AsJson = False,
) -> None:
    """Show every interval that lacks a commit, with its run, the reason and the next step.

    An interval is missing if the DAG's schedule has it and no run has tried to emit it. The source
    is read if the pipeline's module can be imported: it shows the items without a txid in past
    intervals, or, with an untimed spout, everything that is not emitted yet.
    """
    if watch is not None:
        if fail_after is not None:
            raise typer.BadParameter("--fail-after is for one look: leave out --watch")
        return follow(lambda: list(_page(_read(topology, last))), watch, as_json=as_json)
    lags = _read(topology, last)
    is_late = fail_after is not None and any(late.is_over(fail_after) for late in lags)
    answer(lags, _page(lags), as_json=as_json, code=FOUND if is_late else 0)


def _read(topology: str, last: int) -> list[Lag]:
    with ledger() as connection:

        def read(name: str) -> Lag:
            return lag_of(connection, name, read_source(connection, name, last or None))

        return of_each(connection, topology, read)


def read_source(
    connection: LedgerConnection,
    topology: str,
    most: int | None = None,
    wanted: Interval | None = None,
) -> Source:
    """Return the items of the source that have no txid, or why nobody can say.

    :param most, wanted: as in `look_at`
    """
    is_timed = False
    try:
        found = topology_from_code(connection, topology)
        is_timed = found.spout.timed  # what another has not emitted is left to the next run
        return look_at(connection, found, most, wanted)
    except TopologyNotFound as error:
        return Source(without_txid=None, error=str(error))
    except Exception as error:  # a user's spout may raise anything
        named = "" if isinstance(error, ReliabilityError) else f"{type(error).__name__}: "
        return Source(without_txid=None, error=f"{named}{error}", has_failed=is_timed)


def _page(lags: Sequence[Lag]) -> Iterator[Part]:
    yield Table(
        ("topology", ">uncommitted", "txids", ">oldest", ">items without txid"),
        [
            (lag.topology, lag.uncommitted, lag.txids, _oldest(lag), _items_without_txid(lag))
            for lag in lags
        ],
    )
    yield from _intervals([report for lag in lags for report in lag.intervals])
    notes = [note for lag in lags for note in _notes(lag)]
    yield from [SPACE, *notes] if notes else ()


def _oldest(lag: Lag) -> timedelta | None:
    seconds = lag.oldest_age_seconds
    return None if seconds is None else timedelta(seconds=int(seconds))


def _items_without_txid(lag: Lag) -> int | str:
    return "?" if lag.without_txid is None else sum(len(items.items) for items in lag.without_txid)


def _notes(lag: Lag) -> Iterator[Line]:
    topology = lag.topology
    if lag.expected_unknown:
        text = f": expected intervals unknown: {lag.expected_unknown}"
        yield Line(text, ["unknown"], topology)
    if lag.is_cut:
        yield Line(": more intervals are missing than are listed", ["missing"], topology)
    if lag.source_error:
        yield Line(f": its source could not be read: {lag.source_error}", (), topology)
    if lag.looked_from:
        text = (
            f": items without a txid: looked at intervals from {format_value(lag.looked_from)} on"
        )
        yield Line(f"{text}; --last 0 looks at all", (), topology)
    for items in lag.without_txid or ():
        if not items.interval:
            yield Line(f": not emitted yet: {items}", (), topology)


def _intervals(reports: Sequence[IntervalReport]) -> Iterator[Part]:
    """Yield a table with a row for each, and below it why, and what to type: both are long."""
    if not reports:
        return
    yield SPACE
    shown = reports[:_SHOWN]
    yield Table(
        ("topology", "interval", "state", "txids", "since (UTC)", "run"),
        [
            (
                report.topology,
                report.name,
                report.state.value,
                format_txids(report.txids),
                report.since,
                report.run_id,
            )
            for report in shown
        ],
        title="intervals without a commit",
        coloured=["state"],
        below=[
            [(name, text) for name, text in (("why", report.why), ("next", _next(report))) if text]
            for report in shown
        ],
    )
    if len(reports) > _SHOWN:
        yield Line(f"{len(reports) - _SHOWN} more are in --json")


def _next(report: IntervalReport) -> str:
    return report.next_step if report.next_step != "nothing" else ""
