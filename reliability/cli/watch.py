"""`reliability watch`: what happens now, on a terminal that is left open for the night."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer

from reliability.cli import options
from reliability.cli.app import ledger, names, verb
from reliability.cli.live import follow
from reliability.cli.parts import SPACE, Line, Part, Table, right, show
from reliability.cli.status import line_of
from reliability.cli.terminal import HEADING
from reliability.core.attempt import TransactionAttempt
from reliability.core.texts import format_length
from reliability.ledger.connection import DatabaseTransaction, Row
from reliability.ledger.read_rows import interval_text
from reliability.transaction.inspect.overview import Overview, for_a_person, overviews

MINUTES = 10  # of which the rate is the average
COMMITS = 5  # that are listed


@verb("reliability watch", "reliability watch shop --every 30", "reliability watch --once")
def watch(
    topology: options.OneOrAll = "",
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="How often to read it again.")
    ] = options.WATCH_SECONDS,
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
    with ledger() as connection:
        wanted = names(connection, topology)
        with connection.transaction() as tx:
            found_topologies = overviews(tx, topology or None)
            rates = tx.all("commits_of_last_minutes", topologies=wanted, minutes=MINUTES)
            rate_of = {row["topology"]: row["commits"] / MINUTES for row in rates}
            positions = [_position(tx, overview, rate_of) for overview in found_topologies]
            running = tx.all("running_attempts", topologies=wanted)
            commits = tx.all("last_commits", topologies=wanted, most=COMMITS)
    counts = ("emitted", "committed", "processing", "processed", "/min", "oldest")
    return [
        Table(("topology", *right(counts)), positions, coloured=counts),
        SPACE,
        _running(running),
        *_listed("what needs a person", found_topologies, is_urgent=True),
        *_listed("what else to know", found_topologies, is_urgent=False),
        SPACE,
        _last(commits),
    ]


def _listed(heading: str, topologies: Sequence[Overview], *, is_urgent: bool) -> list[Part]:
    lines = [
        line_of(overview.topology, note)
        for overview in topologies
        for note in for_a_person(overview)
        if note.is_urgent == is_urgent
    ]
    return [SPACE, Line(heading, style=HEADING), *lines] if lines else []


def _position(
    tx: DatabaseTransaction, overview: Overview, rate_of: dict[str, float]
) -> Sequence[Any]:
    return (
        overview.topology,
        overview.emitted,
        overview.committed,
        overview.processing,
        overview.processed,
        f"{rate_of.get(overview.topology, 0):.1f}",
        _length(tx.one("lag", topology=overview.topology)["age"]),
    )


def _running(rows: Sequence[Row]) -> Part:
    return Table(
        ("attempt", "topology", "state", "step", ">age", ">lease left", "interval", "host"),
        [
            (
                TransactionAttempt(row["txid"], row["attempt_id"]),
                row["topology"],
                f"{row['status'].lower()}{', dry run' if row['is_dry_run'] else ''}",
                row["step"],
                _length(row["age"]),
                "expired" if row["lease_left"] < timedelta() else _length(row["lease_left"]),
                interval_text(row),
                row["driver_host"],
            )
            for row in rows
        ],
        title="attempts that run now",
        empty="no attempt runs now",
        coloured=["state", "lease left"],
        hide_empty=True,
    )


def _last(rows: Sequence[Row]) -> Part:
    return Table(
        (">c", "topology", "change", "attempt", ">ago", "interval"),
        [
            (
                str(row["commit_number"]),
                row["topology"],
                row["kind"].lower(),
                TransactionAttempt(row["txid"], row["attempt_id"])
                if row["attempt_id"] is not None
                else "",  # of a rollback and a repair
                _length(row["ago"]),
                interval_text(row),
            )
            for row in rows
        ],
        title="last commits",
        empty="nothing has committed yet",
        hide_empty=True,
    )


def _length(span: timedelta | None) -> str:
    return "" if span is None else format_length(max(span.total_seconds(), 0.0))
