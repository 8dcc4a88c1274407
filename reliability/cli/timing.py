"""`reliability show --timing`: where the time of an attempt went, and that of a topology's last."""

from __future__ import annotations

from reliability.cli.parts import Table, answer, right
from reliability.core.errors import AttemptUnknown
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.inspect.attempt_report import PHASES

MAX_TXIDS = 1000


def show_timing(
    connection: LedgerConnection, topology: str, txid: int, attempt_id: int | None, *, as_json: bool
) -> None:
    """Print the phases of one attempt, or of all attempts at a txid.

    :raises AttemptUnknown: there is none
    """
    key = {"topology": topology, "txid": txid, "attempt_id": attempt_id}
    rows = connection.all("timing_of_attempts", **key)
    if not rows:
        which = f"txid {txid}" if attempt_id is None else f"attempt {txid}:{attempt_id}"
        raise AttemptUnknown(f"{topology} has no {which}")
    attempts = [f"{txid}:{row['attempt_id']} {row['status']}" for row in rows]
    page = Table(
        ("phase", *right(attempts), "what it is"),
        [(name, *(_seconds(row[name]) for row in rows), what) for name, what in PHASES.items()],
        title=f"where the time of {topology} {txid} went, in seconds",
    )
    document = [{"attempt": f"{txid}:{row['attempt_id']}", **row} for row in rows]
    answer(document, [page], as_json=as_json)


def show_percentiles(connection: LedgerConnection, topology: str, *, as_json: bool) -> None:
    """Print the phases of the attempts that committed the last txids."""
    position = connection.one("topology_position", topology=topology)
    first = position["curr_txid"] - MAX_TXIDS
    rows = connection.all("timing_of_topology", topology=topology, first=first)
    page = Table(
        ("phase", ">attempts", ">median", ">p90", ">longest"),
        [
            (r["phase"], r["attempts"], *(_seconds(r[k]) for k in ("median", "p90", "longest")))
            for r in rows
        ],
        title=f"where the time of {topology}'s last {MAX_TXIDS:,} txids went, in seconds",
        empty=f"{topology} has committed nothing yet",
    )
    answer(rows, [page], as_json=as_json)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
