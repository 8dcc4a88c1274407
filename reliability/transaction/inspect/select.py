"""Select txids by their number, by their interval, or by a file that they read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import NothingSelected
from reliability.core.periods import UTC
from reliability.core.spout import Interval
from reliability.core.texts import with_code
from reliability.core.txids import name_txids
from reliability.deployment.settings import home
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.read_rows import ends_of, interval_of

_IN_BRACKETS = re.compile(".-.|.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """The txids that a person means, ascending, with their intervals.

    :param intervals: txid -> interval; a txid that was never emitted has none
    """

    topology: str
    txids: tuple[int, ...]
    intervals: Mapping[int, Interval | None]

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


def with_intervals(connection: LedgerConnection, topology: str, txids: Iterable[int]) -> Selected:
    """Return these txids with their intervals; they need not exist."""
    wanted = tuple(txids)
    intervals = _intervals(connection, topology, txids=list(wanted))
    return Selected(topology=topology, txids=wanted, intervals=intervals)


def interval_called(connection: LedgerConnection, topology: str, text: str) -> Interval:
    """Read an interval, in the time zone of the topology's intervals if it names none.

    :raises ValueError: it is not written as an interval
    """
    row = connection.one("zone_of_intervals", topology=topology)
    return Interval.parse(text, row["interval_zone"] or UTC)


def select_txids(
    connection: LedgerConnection, topology: str, interval: Interval | None, file: str = ""
) -> Selected:
    """Return the txids that lie in the interval and read the file.

    :param file: a path, the end of one, or a glob; empty for any
    :raises NothingSelected: there are none
    """
    intervals = _intervals(connection, topology, interval=interval, file=file)
    if not intervals:
        raise _nothing(connection, topology, interval, file)
    return Selected(topology=topology, txids=tuple(intervals), intervals=intervals)


def _intervals(
    connection: LedgerConnection,
    topology: str,
    *,
    txids: Sequence[int] | None = None,
    interval: Interval | None = None,
    file: str = "",
) -> dict[int, Interval | None]:
    rows = connection.all(
        "selected_txids",
        topology=topology,
        txids=txids,
        file=file_pattern(file) if file else None,
        **ends_of(interval),
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
        is_negated = part[1] == "!"
        inside = "".join(map(_characters, _IN_BRACKETS.findall(part[1 + is_negated : -1])))
        if is_negated:
            return f"[^/{inside}]"
        return f"[{inside}]" if inside else "(?!.*)"
    return re.sub(r"([^\w\s/])", r"\\\1", part)


def _characters(part: str) -> str:
    """Return a character or a range as brackets have it; a range that runs backwards is empty."""
    if len(part) == 1:
        return f"\\{part}" if part in r"\[]^-" else part
    first, last = part[0], part[-1]
    return f"{_characters(first)}-{_characters(last)}" if first <= last else ""


def _as_stored(file: str) -> str:
    """Return the path relative to RELIABILITY_HOME, as the ledger has it; or as it was given."""
    try:
        return str(Path(file).relative_to(home())) if file.startswith("/") else file
    except ValueError:
        return file


# --- nothing -------------------------------------------------------------------------------------


def _nothing(
    connection: LedgerConnection, topology: str, interval: Interval | None, file: str
) -> NothingSelected:
    parts = ([f"lies in {interval}"] if interval else []) + ([f"reads {file}"] if file else [])
    sentences = [f"no txid of {topology} {' and '.join(parts)}"]
    if interval:
        rows = connection.all("intervals_beside", topology=topology, moment=interval.start)
        near = " and ".join(f"{interval_of(row)} (txid {row['txid']})" for row in rows)
        sentences.append(_last_run(connection, topology, interval))
        sentences.append(f"the nearest are {near}" if near else "none has an interval")
    else:
        rows = connection.all("files_of_topology", topology=topology)
        if rows:
            items = ", ".join(row["item"] for row in rows)
            sentences.append(f"it has read, for example, {items}")
    return NothingSelected("; ".join(sentences), topology=topology)


def _last_run(connection: LedgerConnection, topology: str, interval: Interval) -> str:
    row = connection.first("last_run_of_interval", topology=topology, **ends_of(interval))
    if row is None:
        return "no run has emitted it"
    if row["reason_code"]:
        why = with_code(row["reason_code"], row["reason"])
        return f"run {row['run_id']} did not emit it: {why}"
    if row["status"] == "EMITTING":
        return f"run {row['run_id']} is emitting it"
    return f"run {row['run_id']} emitted it without txids"
