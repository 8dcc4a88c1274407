"""The options and arguments that several commands have, alone and in groups.

A verb takes a group as one parameter; the command line has its fields (`verb` in app.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reliability.cli.terminal import say
from reliability.core.periods import UTC
from reliability.core.spout import Interval
from reliability.core.txids import parse_txids
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.inspect.different_rows import (
    DifferentRows,
    check_observable,
    check_target,
    rows_into,
)
from reliability.transaction.inspect.select import (
    Selected,
    interval_called,
    select_txids,
    with_intervals,
)

if TYPE_CHECKING:
    from reliability.deployment.airflow_api import Airflow

WATCH = "--watch"
WATCH_SECONDS = 5

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
ConnIds = Annotated[
    list[str] | None,
    typer.Option("--conn-id", help="Airflow's connection to Spark, if it is another; repeatable."),
]
Topology = Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's name.")]
OneOrAll = Annotated[str, typer.Argument(metavar="TOPOLOGY", help="One topology; by default all.")]
Reason = Annotated[str, typer.Option(help="The reason; recorded in the ledger.")]
ReasonOfChange = Annotated[
    str, typer.Option(help="The reason; recorded in the ledger. A dry run needs none.")
]
ReasonOfRequest = Annotated[str, typer.Option(help="The reason; recorded with the request.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Confirmed = Annotated[
    bool, typer.Option("--yes", "-y", help="Do it; without, only show what would be done.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only report what would change.")]
Watch = Annotated[
    float | None,
    typer.Option(
        WATCH,
        metavar="[SECONDS]",
        min=0.1,
        help=f"On a terminal, show it again every so many seconds ({WATCH_SECONDS}), until Ctrl-C.",
    ),
]
Module = Annotated[
    str, typer.Option(help="The topology's module, if it is not the one in the ledger.")
]
Master = Annotated[
    str, typer.Option(help="For spark-submit; by default that of spark-defaults.conf.")
]
Conf = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="For spark-submit; never a secret.")
]
Txids = Annotated[str, typer.Argument(metavar="TXIDS", help="3, 3..5 or 3,7..9.")]


# --- which txids ---------------------------------------------------------------------------------


def read_txids(text: str) -> list[int]:
    """Read `3`, `3..5` or `3,7..9` from the command line, ascending."""
    try:
        return parse_txids(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def read_interval(text: str, zone: str = UTC) -> Interval | None:
    """Read an interval from the command line, in a zone if it names none; None if none is given."""
    try:
        return Interval.parse(text, zone or UTC) if text else None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


@dataclass(frozen=True, slots=True)
class OfInterval:
    """Selects txids by their interval."""

    interval: Annotated[
        str,
        typer.Option(
            metavar="INTERVAL",
            help="Instead of txids: all whose interval lies in it. 2013, 2013-03, 2013-03-01, "
            "2013-03-01T06 or START/END, in the zone of the topology's intervals, or with another "
            "one behind it; END is not included.",
        ),
    ] = ""

    def __post_init__(self) -> None:
        _ = read_interval(self.interval)

    def interval_of(self, connection: LedgerConnection, topology: str) -> Interval | None:
        """Return the interval; None if none is given."""
        try:
            return interval_called(connection, topology, self.interval) if self.interval else None
        except ValueError as error:  # an hour that the topology's zone has twice, or not at all
            raise typer.BadParameter(str(error), param_hint="--interval") from None


@dataclass(frozen=True, slots=True)
class Contents(OfInterval):
    """Selects txids by what they have read."""

    file: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Instead of txids: all that read the file. A path, the end of a path, or a glob.",
        ),
    ] = ""

    def __bool__(self) -> bool:
        return bool(self.interval or self.file)

    def select(self, connection: LedgerConnection, topology: str) -> Selected:
        """Return the txids, and show them on stderr: the person may not know them.

        :raises NothingSelected: there are none
        """
        interval = self.interval_of(connection, topology)
        selected = select_txids(connection, topology, interval, self.file)
        say(f"{topology}: {selected}", err=True)
        return selected


@dataclass(frozen=True, slots=True)
class Selection(Contents):
    """Selects txids by their numbers, or by what they have read."""

    txids: Txids = ""

    def __post_init__(self) -> None:
        OfInterval.__post_init__(self)
        if self.txids and Contents.__bool__(self):
            raise typer.BadParameter(
                "name txids, or select them by --interval and --file, not both"
            )
        if self.txids:
            read_txids(self.txids)

    def __bool__(self) -> bool:
        return bool(self.txids) or Contents.__bool__(self)

    def select(self, connection: LedgerConnection, topology: str) -> Selected:
        """Return the txids; those that were named need not exist.

        :raises NothingSelected: nothing has the interval or the file
        """
        if self.txids:
            return with_intervals(connection, topology, read_txids(self.txids))
        return Contents.select(self, connection, topology)


@dataclass(frozen=True, slots=True)
class SomeTxids(Selection):
    """Selects txids; a verb needs some."""

    def __post_init__(self) -> None:
        Selection.__post_init__(self)
        if not self:
            raise typer.BadParameter("name txids, or select them by --interval or --file")


# --- a run of Spark ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spark:
    """How a replay runs Spark, and how long it waits."""

    master: Master = ""
    conf: Conf = None
    timeout: Annotated[
        int, typer.Option(metavar="SECONDS", help="How long to wait for the turn of a txid.")
    ] = 3600
    module: Module = ""


# --- which rows ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Diff:
    """Whether and where the rows that change are written."""

    diff: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write each row that changes, or would change, to a .csv, .jsonl or .parquet "
            "file.",
        ),
    ] = None
    diff_table: Annotated[
        str,
        typer.Option(
            metavar="SCHEMA.TABLE", help="Write them into a table of the ledger's database."
        ),
    ] = ""

    def __post_init__(self) -> None:
        try:
            check_target(self.diff, self.diff_table)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    def __bool__(self) -> bool:
        return bool(self.diff or self.diff_table)

    def __str__(self) -> str:
        return str(self.diff or self.diff_table)

    @contextmanager
    def opened(
        self, connection: LedgerConnection, topology: str, *, dry_run: bool
    ) -> Iterator[DifferentRows | None]:
        """Open it before Spark runs, and write it when the block ends; None if it is not asked for.

        :raises NotPossible: the states are in several databases, and it is no dry run
        """
        if not self:
            yield None
            return
        if not dry_run:
            check_observable(connection, topology)
        with rows_into(connection, topology, self.diff, self.diff_table) as rows:
            yield rows


# --- Airflow -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AirflowAddress:
    """Where Airflow is."""

    airflow: Annotated[
        str,
        typer.Option(metavar="URL", help="Airflow's address; by default RELIABILITY_AIRFLOW_URL."),
    ] = ""
    allow_http: Annotated[
        bool,
        typer.Option("--allow-http", help="Allow sending the token unencrypted to another host."),
    ] = False

    def client(self) -> Airflow:
        """Return a client; its token is in the environment or in a file.

        :raises NotPossible: an address or a token is missing
        """
        from reliability.deployment.airflow_api import Airflow

        return Airflow.of(self.airflow, allow_http=self.allow_http)
