"""Select txids by their number, by their interval, or by a file that they read.

Every verb that takes txids calls `select_txids`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reliability.cli.app import rows_of
from reliability.cli.output import read_txids
from reliability.cli.terminal import say
from reliability.core.errors import NothingSelected
from reliability.core.spout import Interval
from reliability.core.txids import name_txids

if TYPE_CHECKING:
    from reliability.core.attempt import TransactionAttempt
    from reliability.ledger.connection import LedgerConnection

IntervalOption = Annotated[
    str,
    typer.Option(
        "--interval",
        metavar="INTERVAL",
        help="Instead of txids: all whose interval lies in it. 2013, 2013-03, 2013-03-01, "
        "2013-03-01T06 or START/END, in UTC; END is not included.",
    ),
]
FileOption = Annotated[
    str,
    typer.Option(
        "--file",
        metavar="NAME",
        help="Instead of txids: all that read the file. A path, the end of a path, or a glob.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """The txids that a person means, ascending, with their intervals.

    :param intervals: txid -> interval; a txid that was never emitted has none
    :param by_content: they were selected by interval or file, and the person may not know them
    """

    topology: str
    txids: tuple[int, ...]
    intervals: Mapping[int, Interval | None]
    by_content: bool = False

    def __str__(self) -> str:
        return self.named(self.txids)

    def named(self, txids: Iterable[int]) -> str:
        """Name some of them: `txid 5 (1997-03)`."""
        wanted = sorted(txids)
        return name_txids(wanted, [self.intervals.get(txid) for txid in wanted])

    def with_interval(self, attempt: TransactionAttempt) -> str:
        """Name an attempt at one of them: `5:1 (1997-03)`."""
        interval = self.intervals.get(attempt.txid)
        return f"{attempt} ({interval})" if interval else str(attempt)

    def show(self) -> None:
        """Show on stderr what was selected, unless it was named by its number."""
        if self.by_content:
            say(f"{self.topology}: {self}", err=True)


def check_selection(txids: str, interval: str, file: str, *, optional: bool = False) -> None:
    """Refuse a call that names txids in two ways, or in none; before anything is done."""
    if txids and (interval or file):
        raise typer.BadParameter("name txids, or select them by --interval and --file, not both")
    if not (txids or interval or file or optional):
        raise typer.BadParameter("name txids, or select them by --interval or --file")
    if interval:
        read_interval(interval)
    if txids:
        read_txids(txids)


def select_txids(
    connection: LedgerConnection, topology: str, txids: str, interval: str = "", file: str = ""
) -> Selected:
    """Return the txids that were named, or those that lie in the interval and read the file.

    Txids that were named need not exist: the verb says what it cannot do with them.

    :raises NothingSelected: nothing lies in the interval, or reads the file
    """
    if txids:
        named = read_txids(txids)
        return with_intervals(connection, topology, named)
    wanted = read_interval(interval) if interval else None
    found = _rows(connection, topology, None, wanted, file)
    if not found:
        raise _nothing(connection, topology, wanted, interval, file)
    return Selected(topology=topology, txids=tuple(found), intervals=found, by_content=True)


def with_intervals(connection: LedgerConnection, topology: str, txids: Sequence[int]) -> Selected:
    """Return these txids with their intervals."""
    found = _rows(connection, topology, list(txids), None, "")
    return Selected(topology=topology, txids=tuple(txids), intervals=found)


def read_interval(text: str) -> Interval:
    """Read --interval: a year, month, day or hour, or two starts with a slash between."""
    try:
        return Interval.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _rows(
    connection: LedgerConnection,
    topology: str,
    txids: list[int] | None,
    interval: Interval | None,
    file: str,
) -> dict[int, Interval | None]:
    from reliability.ledger.read_rows import interval_of

    rows = rows_of(
        connection,
        "selected_txids",
        topology=topology,
        txids=txids,
        interval_start=interval and interval.start,
        interval_end=interval and interval.end,
        file=file_pattern(file) if file else None,
    )
    return {row["txid"]: interval_of(row) for row in rows}


# --- files ---------------------------------------------------------------------------------------


def file_pattern(file: str) -> str:
    """Return the regular expression of Postgres for a path, the end of a path, or a glob.

    >>> re.search(file_pattern("2013-*.csv"), "flights/2013-03.csv") is not None
    True
    >>> re.search(file_pattern("13-03.csv"), "flights/2013-03.csv") is None
    True
    """
    parts = re.split(r"(\*\*|\*|\?|\[[^]]+\])", _as_stored(file))
    return "(^|/)" + "".join(map(_part, parts)) + "$"


def _part(part: str) -> str:
    match part:
        case "**":
            return ".*"
        case "*":
            return "[^/]*"
        case "?":
            return "[^/]"
    if part.startswith("[") and part.endswith("]"):
        return "[^" + part[2:] if part[1] == "!" else part
    return re.sub(r"([^\w\s/])", r"\\\1", part)


def _as_stored(file: str) -> str:
    """Return the path relative to RELIABILITY_HOME, as the ledger has it; or as it was given."""
    from reliability.deployment.settings import home

    try:
        return str(Path(file).relative_to(home())) if file.startswith("/") else file
    except ValueError:
        return file


# --- nothing -------------------------------------------------------------------------------------


def _nothing(
    connection: LedgerConnection,
    topology: str,
    wanted: Interval | None,
    interval: str,
    file: str,
) -> NothingSelected:
    parts = ([f"lies in {interval}"] if wanted else []) + ([f"reads {file}"] if file else [])
    what = f"no txid of {topology} {' and '.join(parts)}"
    beside = _beside(connection, topology, wanted) if wanted else _files(connection, topology)
    failure = _failure(connection, topology, wanted) if wanted else ""
    return NothingSelected("; ".join(filter(None, (what, failure, beside))))


def _beside(connection: LedgerConnection, topology: str, wanted: Interval) -> str:
    from reliability.ledger.read_rows import interval_of

    rows = rows_of(connection, "intervals_beside", topology=topology, moment=wanted.start)
    nearest = [f"{interval_of(row)} (txid {row['txid']})" for row in rows]
    return f"the nearest are {' and '.join(nearest)}" if nearest else "none has an interval"


def _files(connection: LedgerConnection, topology: str) -> str:
    items = [row["item"] for row in rows_of(connection, "files_of_topology", topology=topology)]
    return f"it has read, for example, {', '.join(items)}" if items else ""


def _failure(connection: LedgerConnection, topology: str, wanted: Interval) -> str:
    from reliability.transaction.inspect.intervals import IntervalKey

    key = IntervalKey.of(topology, wanted)
    for row in rows_of(connection, "last_run_of_interval", **key):
        if row["reason_code"]:
            return f"run {row['run_id']} did not emit it: [{row['reason_code']}] {row['reason']}"
        if row["status"] == "EMITTING":
            return f"run {row['run_id']} is emitting it"
        return f"run {row['run_id']} emitted it without txids"
    return "no run has emitted it"
