"""`reliability watch`: what happens now, on a terminal that is left open for the night."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reliability.cli.app import WATCH_SECONDS, OneOrAll, ledger, names, verb
from reliability.cli.live import follow
from reliability.cli.output import format_interval, format_span, table_of
from reliability.cli.parts import SPACE, Line, Part, show
from reliability.cli.status import line_of
from reliability.cli.terminal import HEADING
from reliability.core.attempt import TransactionAttempt

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction, Row
    from reliability.transaction.inspect.overview import Overview

MINUTES = 10  # of which the rate is the average
COMMITS = 5  # that are listed


@verb("reliability watch", "reliability watch shop --every 30", "reliability watch --once")
def watch(
    topology: OneOrAll = "",
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="How often to read it anew.")
    ] = WATCH_SECONDS,
    once: Annotated[
        bool, typer.Option("--once", help="Print it once, on a terminal or not.")
    ] = False,
) -> None:
    """Show what runs now, what has committed last and what needs a person, until Ctrl-C.

    A txid counts for the rate of the last 10 minutes when it commits, and each time it is replayed.
    """
    if once:
        show(_page(topology))
    else:
        follow(lambda: _page(topology), every, otherwise="--once prints it one time")


def _page(topology: str) -> list[Part]:
    from reliability.transaction.inspect.overview import for_a_person, overviews

    with ledger() as connection:
        wanted = names(connection, topology)
        with connection.transaction() as tx:
            found = overviews(tx, topology or None)
            rates = tx.all("commits_of_last_minutes", topologies=wanted, minutes=MINUTES)
            rate_of = {row["topology"]: row["commits"] / MINUTES for row in rates}
            positions = [_position(tx, one, rate_of) for one in found]
            notes = [(one.topology, note) for one in found for note in for_a_person(one)]
            running = tx.all("running_attempts", topologies=wanted)
            commits = tx.all("last_commits", topologies=wanted, most=COMMITS)
    urgent = [line_of(topology, note) for topology, note in notes if note.is_urgent]
    others = [line_of(topology, note) for topology, note in notes if not note.is_urgent]
    return [
        _positions(positions),
        *_running(running),
        *_listed("what needs a person", urgent),
        *_listed("what else to know", others),
        *_last(commits),
    ]


def _listed(heading: str, lines: Sequence[Line]) -> list[Part]:
    return [SPACE, Line(heading, style=HEADING), *lines] if lines else []


def _position(tx: DatabaseTransaction, one: Overview, rate_of: dict[str, float]) -> Sequence[Any]:
    return (
        one.topology,
        one.emitted,
        one.committed,
        one.processing,
        one.processed,
        f"{rate_of.get(one.topology, 0):.1f}",
        format_span(tx.one("lag", topology=one.topology)["age"]),
    )


def _positions(rows: Sequence[Sequence[Any]]) -> Part:
    counts = ("emitted", "committed", "processing", "processed", "/min", "oldest")
    return table_of(
        "", {"topology": "left", **dict.fromkeys(counts, "right")}, rows, coloured=counts
    )


def _running(rows: Sequence[Row]) -> Iterator[Part]:
    yield SPACE
    sides = {"attempt": "left", "topology": "left", "state": "left", "step": "left"}
    yield table_of(
        "attempts that run now",
        {**sides, "age": "right", "lease left": "right", "interval": "left", "host": "left"},
        [
            (
                TransactionAttempt(row["txid"], row["attempt_id"]),
                row["topology"],
                f"{row['status'].lower()}{', dry run' if row['is_dry_run'] else ''}",
                row["step"],
                format_span(row["age"]),
                "expired" if row["lease_left"] < timedelta() else format_span(row["lease_left"]),
                format_interval(row),
                row["driver_host"],
            )
            for row in rows
        ],
        empty="no attempt runs now",
        coloured=["state", "lease left"],
        hide_empty=True,
    )


def _last(rows: Sequence[Row]) -> Iterator[Part]:
    yield SPACE
    sides = {"c": "right", "topology": "left", "change": "left", "attempt": "left"}
    yield table_of(
        "last commits",
        {**sides, "ago": "right", "interval": "left"},
        [
            (
                str(row["commit_number"]),
                row["topology"],
                row["kind"].lower(),
                _attempt(row),
                format_span(row["ago"]),
                format_interval(row),
            )
            for row in rows
        ],
        empty="nothing has committed yet",
        hide_empty=True,
    )


def _attempt(row: Row) -> TransactionAttempt | str:
    """Name the attempt; a rollback and a repair have none."""
    if row["attempt_id"] is None:
        return ""
    return TransactionAttempt(row["txid"], row["attempt_id"])
