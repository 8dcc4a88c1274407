"""The state of a txid in words, and the names of what its batch has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reliability.core.coordinator import why_waits
from reliability.core.standing import Standing
from reliability.ledger.connection import DatabaseTransaction, Row
from reliability.transaction.inspect.intervals import why_open
from reliability.transaction.topology.read_standing import read_standing


def state_of_txid(row: Row, standing: Standing) -> tuple[str, str]:
    """Return the state of a txid, and why it is not simply committed."""
    if row["committed_attempt"] is None:
        found = why_open(row, standing)
        return found.state.value, found.why
    wait = why_waits(standing.snapshot(row["txid"])) if row["is_requested"] else None
    replay = f"its replay waits {wait}" if wait is not None else ""
    if row["verdict"]:
        why = "; ".join(filter(None, (row["verdict_reason"], replay)))
        return "skipped" if row["is_skipped"] else "parked", why
    if row["replays"]:
        return f"replayed {row['replays']} time{'s' * (row['replays'] > 1)}", replay
    return "committed", replay


def txid_with_state(tx: DatabaseTransaction, topology: str, txid: int) -> tuple[Row, str, str]:
    """Return the row of a txid that was emitted, its state, and why it is not simply committed."""
    row = tx.one("page_of_txids", topology=topology, before=txid + 1, txids=[txid], page=1)
    return (row, *state_of_txid(row, read_standing(tx, topology)))


def files_of(items: Sequence[Any]) -> list[str]:
    """Return the names of source items: files with their parts, or ranges of keys.

    The items of a spout that is not installed here are returned as the ledger has them.
    """
    from reliability.core.errors import LedgerCorruption, SourceItemUnknown
    from reliability.core.fold import Fold
    from reliability.core.spout import BatchMeta

    try:
        return [item.identity for item in BatchMeta.from_json(items, Fold()).items]
    except (LedgerCorruption, SourceItemUnknown):
        return [str(item) for item in items]
