"""Read the position of a topology, for all tasks that wait for one of its txids."""

from __future__ import annotations

from collections.abc import Iterable

from reliability.core.request import Request
from reliability.core.standing import Standing
from reliability.ledger.connection import DatabaseTransaction, Row
from reliability.ledger.read_rows import (
    blocked_of,
    live_attempt_of,
    position_of,
    request_of,
    skipped_of,
)


def read_standing(tx: DatabaseTransaction, topology: str) -> Standing:
    """Read it without a lock, so it may be outdated at once.

    :raises LedgerCorruption: the ledger has no such topology
    """
    return _standing(tx, topology, tx.one("standing", topology=topology))


def find_standing(tx: DatabaseTransaction, topology: str) -> Standing | None:
    """Do the same for who only looks; None if there is no such topology, or no longer."""
    row = tx.first("standing", topology=topology)
    return None if row is None else _standing(tx, topology, row)


def _standing(tx: DatabaseTransaction, topology: str, row: Row) -> Standing:
    live = tx.all("live_attempts", topology=topology)
    position = position_of(row)
    others = tx.all("unfrozen_or_held", topology=topology, curr_txid=position.curr_txid)
    blocked = tx.first("blocked_txid", topology=topology, below=row["next_txid"])
    return Standing(
        position=position,
        max_spout_pending=row["max_spout_pending"],
        max_replay_pending=row["max_replay_pending"],
        paused=row["paused_reason"],
        is_throttled=row["is_throttled"],
        live={one["txid"]: live_attempt_of(one) for one in live},
        unfrozen=frozenset(one["txid"] for one in others if one["is_unfrozen"]),
        held={one["txid"]: one["held_reason"] for one in others if one["held_reason"] is not None},
        blocked=blocked_of(blocked),
        skipped={one["txid"]: found for one in others if (found := skipped_of(one))},
    )


def read_requests(
    tx: DatabaseTransaction, known: Iterable[int], unknown: Iterable[int]
) -> list[Request]:
    """Read those of these requests that are no longer open, and all whose status is unknown."""
    rows = tx.all("requests_that_changed", known=list(known), unknown=list(unknown))
    return [request_of(row) for row in rows]
