"""What the pages show, read from the ledger in one transaction a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import groupby
from typing import Any

from reliability.core.coordinator import why_waits
from reliability.core.difference import Difference
from reliability.core.errors import ReliabilityError
from reliability.core.spout import Interval
from reliability.core.standing import Standing
from reliability.core.state import State
from reliability.core.txids import TooManyTxids, format_txids, parse_txids, with_noun
from reliability.deployment.settings import ledger_dsn
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
from reliability.ledger.locks import check_known
from reliability.ledger.migrations import check_migrated
from reliability.ledger.read_rows import interval_of
from reliability.transaction.inspect.intervals import IntervalReport
from reliability.transaction.inspect.overview import Overview, overviews
from reliability.transaction.inspect.txid_in_words import files_of, state_of_txid
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.read_standing import read_standing
from reliability_airflow.page.timeline import Axis, Lane, Tick, axis_of, lane

#: how many txids a timeline may show
SIZES = (20, 50, 200)
#: txids whose times are plotted
PLOTTED = 500
#: intervals of a calendar
CALENDAR = 372
ROLLBACKS = 20
#: contributions to a row that are listed, the last ones
EXPLAINED = 200
COMPLETE = "complete"


@contextmanager
def ledger() -> Iterator[LedgerConnection]:
    """Open the ledger for one request; nothing is read or changed in another release's schema."""
    with LedgerConnection(ledger_dsn(), application_name="reliability page") as connection:
        check_migrated(connection)
        yield connection


@contextmanager
def reading() -> Iterator[DatabaseTransaction]:
    """Begin the transaction in which a page is read."""
    with ledger() as connection, connection.transaction() as tx:
        yield tx


# --- topologies ----------------------------------------------------------------------------------


def read_overviews(names: set[str]) -> tuple[list[Overview], int]:
    """Return the position of the topologies with these names, and how many others there are."""
    with reading() as tx:
        found = overviews(tx)
    shown = [one for one in found if one.topology in names]
    return shown, len(found) - len(shown)


# --- a topology ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A txid in the list of a topology."""

    txid: int
    interval: Interval | None
    state: str
    why: str
    rows: int | None
    files: Sequence[str]
    replays: int
    attempts: int
    emitted_at: datetime
    committed_at: datetime | None
    lane: Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyPage:
    """A topology and some of its txids, the newest first.

    :param newer: the `last` of the page before; None if this is the first
    :param older: the `last` of the next page; None if this is the last
    """

    overview: Overview
    lines: Sequence[Line]
    ticks: Sequence[Tick]
    size: int
    newer: int | None
    older: int | None
    rollbacks: Sequence[Mapping[str, Any]]


def read_topology(topology: str, last: int | None, size: int) -> TopologyPage:
    """Read a topology with `size` txids up to the last that is given.

    :raises TopologyUnknown: there is none with this name
    """
    with reading() as tx:
        check_known(tx, topology)
        overview = next(one for one in overviews(tx, topology) if one.topology == topology)
        top = overview.emitted if last is None else min(last, overview.emitted)
        rows = tx.all("page_of_txids", topology=topology, before=top + 1, txids=None, page=size)
        txids = [row["txid"] for row in rows]
        attempts = tx.all("attempts_of_page", topology=topology, txids=txids)
        by_txid = {txid: list(own) for txid, own in groupby(attempts, lambda row: row["txid"])}
        axis = axis_of(attempts)
        standing = read_standing(tx, topology)
        return TopologyPage(
            overview=overview,
            lines=[_line(axis, row, standing, by_txid.get(row["txid"], [])) for row in rows],
            ticks=[*axis.ticks()],
            size=size,
            newer=min(top + size, overview.emitted) if top < overview.emitted else None,
            older=txids[-1] - 1 if txids and txids[-1] > 1 else None,
            rollbacks=tx.all("rollbacks_of_topology", topology=topology, most=ROLLBACKS),
        )


def _line(axis: Axis, row: Row, standing: Standing, attempts: Sequence[Mapping[str, Any]]) -> Line:
    state, why = state_of_txid(row, standing)
    return Line(
        txid=row["txid"],
        interval=interval_of(row),
        state="replayed" if state.startswith("replayed") else state,
        why=why,
        rows=row["rows"],
        files=files_of(row["items"] or ()),
        replays=row["replays"],
        attempts=len(attempts),
        emitted_at=row["emitted_at"],
        committed_at=row["committed_at"],
        lane=lane(axis, attempts),
    )


def read_states(topology: str) -> list[State]:
    """Return the states of a topology, those in other databases too, by name.

    :raises TopologyUnknown: there is none with this name
    """
    with ledger() as connection, TopologyDatabases.of_known(connection, topology) as databases:
        rows = databases.rows_of_all("state_definitions", topology=topology)
    found = [State.from_definition(row["definition"]) for row in rows]
    return sorted(found, key=lambda state: state.name)


def find_txid(topology: str, text: str) -> int:
    """Return the txid that a person means: its number, or the newest of a time.

    :raises NotFound: it is neither, or there is none
    """
    meant = _read_txids(text)
    with reading() as tx:
        last = tx.one("topology_position", topology=topology)["next_txid"] - 1
        if isinstance(meant, Interval):
            row = tx.first(
                "newest_txid_of_interval", topology=topology, start=meant.start, end=meant.end
            )
            found: int | None = row["txid"] if row else None
        else:
            found = next((txid for txid in reversed(meant) if 1 <= txid <= last), None)
    if found is None:
        raise _nothing_there(text, last)
    return found


def choose_txids(topology: str, text: str) -> list[int]:
    """Return the committed txids that a person means: by numbers, or all of an interval.

    :raises NotFound: it is neither, there is none, or one of them has not committed
    """
    meant = _read_txids(text)
    named, time = (None, meant) if isinstance(meant, Interval) else (meant, None)
    with reading() as tx:
        last = tx.one("topology_position", topology=topology)["next_txid"] - 1
        rows = tx.all(
            "selected_txids",
            topology=topology,
            txids=named,
            interval_start=time and time.start,
            interval_end=time and time.end,
            file=None,
        )
        found = [row["txid"] for row in rows]
        waiting = [
            row["txid"] for row in tx.all("uncommitted_txids", topology=topology, txids=found)
        ]
    if not found or (named is not None and len(found) < len(named)):
        raise _nothing_there(text, last)
    if waiting:
        raise NotFound(
            f"{with_noun(format_txids(waiting))} did not commit yet",
            remedy="choose committed txids: what has not committed needs no replay.",
        )
    return found


def _read_txids(text: str) -> list[int] | Interval:
    text = text.strip()
    try:
        return parse_txids(text)
    except TooManyTxids as error:
        raise NotFound(str(error), remedy="name fewer.") from error
    except ValueError:  # an interval, then
        pass
    try:
        return Interval.parse(text)
    except (ReliabilityError, ValueError) as error:
        raise NotFound(
            f"{text[:40]!r} is neither a txid nor an interval",
            remedy="write a number such as 14, several such as 5..6, or a date such as 2013-04.",
        ) from error


def _nothing_there(text: str, last: int) -> NotFound:
    return NotFound(
        f"there is no txid of {text.strip()[:40]!r}",
        remedy=f"the txids so far are 1..{last}." if last else "nothing has been emitted yet.",
    )


class NotFound(ReliabilityError):
    """There is no such thing."""

    code = "NOT_FOUND"


def read_series(topology: str, last: int | None) -> dict[str, list[Any]]:
    """Return the times of the last txids as columns."""
    with reading() as tx:
        check_known(tx, topology)
        end = tx.one("topology_position", topology=topology)["next_txid"] - 1
        top = end if last is None else min(last, end)
        rows = tx.all("series_of_topology", topology=topology, first=top - PLOTTED + 1, last=top)
    columns = ("txid", "committed_at", "rows", "lag", "commit", "processing")
    return {name: [row[name] for row in rows] for name in columns}


# --- completeness --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """An interval in the calendar, or `count` missing ones that follow each other."""

    interval: Interval
    state: str
    count: int = 1
    txids: int = 0
    rows: int = 0
    first_txid: int | None = None
    why: str = ""

    @property
    def length(self) -> timedelta:
        """Return how long one of its intervals is."""
        return (self.interval.end - self.interval.start) / self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """The intervals of a topology, by year or month; `older` is where the page before ends."""

    groups: Sequence[tuple[str, Sequence[Day]]]
    older: datetime | None
    unknown: str | None


def read_calendar(topology: str, before: datetime | None) -> Calendar:
    """Read the last intervals before a moment, and those that lack a commit among them."""
    if before is not None and before.tzinfo is None:
        before = before.replace(tzinfo=timezone.utc)
    with reading() as tx:
        check_known(tx, topology)
        rows = tx.all("intervals_of_calendar", topology=topology, before=before, most=CALENDAR + 1)
        lacking = next(iter(overviews(tx, topology))).lacking
    days = {interval_of(row): _day(row) for row in rows[:CALENDAR]}
    oldest = min((one.start for one in days if one), default=None)
    for report in lacking.reports:
        interval = report.interval
        if interval is None or (oldest and len(rows) > CALENDAR and interval.start < oldest):
            continue
        if before is None or interval.start < before:
            days[interval] = _lacking(report, days.get(interval))
    ordered = sorted((one for one in days.values()), key=lambda day: day.interval.start)
    short = all(day.length < _MONTH for day in ordered)
    form = "%Y-%m" if short else "%Y"
    groups = [
        (name, list(own))
        for name, own in groupby(ordered, lambda day: f"{day.interval.start:{form}}")
    ]
    return Calendar(
        groups=groups,
        older=oldest if len(rows) > CALENDAR else None,
        unknown=lacking.unknown,
    )


_MONTH = timedelta(days=28)


def _day(row: Mapping[str, Any]) -> Day:
    interval = interval_of(row)
    assert interval is not None
    return Day(
        interval=interval,
        state=COMPLETE if row["txids"] == row["committed"] else "open",
        txids=row["txids"],
        rows=row["rows"] or 0,
        first_txid=row["first_txid"],
    )


def _lacking(report: IntervalReport, emitted: Day | None) -> Day:
    assert report.interval is not None
    return Day(
        interval=report.interval,
        state=report.state.value,
        count=report.count,
        txids=emitted.txids if emitted else 0,
        rows=emitted.rows if emitted else 0,
        first_txid=emitted.first_txid if emitted else None,
        why=report.why,
    )


# --- a run ---------------------------------------------------------------------------------------


def read_run(topology: str, dag_id: str, run_id: str) -> list[Mapping[str, Any]]:
    """Return what a run has asked for, and what became of it, by txid."""
    with reading() as tx:
        check_known(tx, topology)
        rows = tx.all("outcome_of_run", topology=topology, dag_id=dag_id, run_id=run_id)
        standing = read_standing(tx, topology)
    return [
        {
            **row,
            "interval": interval_of(row),
            "wait": why_waits(standing.snapshot(row["txid"])) if row["status"] == "OPEN" else None,
        }
        for row in rows
    ]


def read_differences(
    topology: str, rows: Sequence[Mapping[str, Any]]
) -> list[tuple[int, Difference]]:
    """Return what a run's attempts changed, or would have changed, by txid and state.

    :param rows: as `read_run` returns them
    """
    done = [row for row in rows if row["is_done"] and row["attempt_id"] is not None]
    if not done:
        return []
    with ledger() as connection, TopologyDatabases.of(connection, topology) as databases:
        changed = databases.rows_of_all(
            "differences_of_attempts",
            topology=topology,
            txids=[row["txid"] for row in done],
            attempt_ids=[row["attempt_id"] for row in done],
        )
    found = [(row["txid"], difference_of(row)) for row in changed]
    return sorted(found, key=lambda one: (one[0], one[1].state))


def difference_of(row: Mapping[str, Any]) -> Difference:
    """Return the difference that the ledger has in a row."""
    fields = ("state", "rows_added", "rows_changed", "rows_removed", "moved", "by_hand")
    return Difference.from_json({name: row[name] for name in fields})
