"""`reliability show --timing`: where the time of an attempt went, and that of a topology's last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reliability.cli.app import rows_of
from reliability.cli.output import print_json, print_table
from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import AttemptUnknown

if TYPE_CHECKING:
    from reliability.ledger.connection import LedgerConnection

MAX_TXIDS = 1000
PHASES = {
    "emit": "the emit task lists the source and freezes the batches",
    "queue": "until a task takes the txid up: Airflow, and the window of max_spout_pending",
    "submit": "spark-submit, the cluster's queue and the JVM, until the driver's first message",
    "read": "Spark reads and transforms, until the first rows are staged",
    "stage": "from the first row to the last ack; Spark still computes meanwhile",
    "exit": "until the driver has ended",
    "seal": "the checks and audits of what was staged",
    "wait": "until it is its turn to commit",
    "commit": "the transaction that commits it, with the wait for the topology's lock",
    "total": "from emission or request to commit",
}


def show_timing(
    connection: LedgerConnection, topology: str, txid: int, attempt_id: int | None, *, as_json: bool
) -> None:
    """Print the phases of one attempt, or of all attempts at a txid.

    :raises AttemptUnknown: there is none
    """
    key = {"topology": topology, "txid": txid, "attempt_id": attempt_id}
    rows = rows_of(connection, "timing_of_attempts", **key)
    if not rows:
        which = (
            f"attempt {TransactionAttempt(txid, attempt_id)}"
            if attempt_id is not None
            else f"txid {txid}"
        )
        raise AttemptUnknown(f"{topology} has no {which}")
    if as_json:
        return print_json([{"attempt": f"{txid}:{row['attempt_id']}", **row} for row in rows])
    attempts = [f"{txid}:{row['attempt_id']} {row['status']}" for row in rows]
    print_table(
        f"where the time of {topology} {txid} went, in seconds",
        {"phase": "left", **dict.fromkeys(attempts, "right"), "what it is": "left"},
        [(name, *(_seconds(row[name]) for row in rows), what) for name, what in PHASES.items()],
    )


def show_percentiles(connection: LedgerConnection, topology: str, *, as_json: bool) -> None:
    """Print the phases of the attempts that committed the last txids."""
    (position,) = rows_of(connection, "topology_position", topology=topology)
    first = position["curr_txid"] - MAX_TXIDS
    rows = rows_of(connection, "timing_of_topology", topology=topology, first=first)
    if as_json:
        return print_json(rows)
    print_table(
        f"where the time of {topology}'s last {MAX_TXIDS:,} txids went, in seconds",
        dict(zip(("phase", "attempts", "median", "p90", "longest"), _SIDES, strict=True)),
        [
            (r["phase"], r["attempts"], *(_seconds(r[k]) for k in ("median", "p90", "longest")))
            for r in rows
        ],
        empty=f"{topology} has committed nothing yet",
    )


_SIDES = ("left", "right", "right", "right", "right")


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
