"""Txids as a person sees them: the state of each in words, and what its batch has read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reliability.core.coordinator import why_waits
from reliability.core.errors import LedgerCorruption, SourceItemUnknown
from reliability.core.fold import Fold
from reliability.core.spout import BatchMeta, Interval
from reliability.core.standing import Standing
from reliability.ledger.connection import DatabaseTransaction, Row
from reliability.ledger.read_rows import interval_of, made_of
from reliability.transaction.inspect.intervals import why_open
from reliability.transaction.topology.read_standing import read_standing


@dataclass(frozen=True, slots=True, kw_only=True)
class TxidState:
    """A txid that was emitted.

    :param why: why it is not simply committed; None if it is
    :param rows: None if its batch is not cut yet
    """

    txid: int
    interval: Interval | None
    state: str
    why: str | None
    replays: int
    rows: int | None
    files: Sequence[str]
    dag_id: str
    run_id: str
    emitted_at: datetime
    committed_at: datetime | None


def page_of_txids(
    tx: DatabaseTransaction,
    topology: str,
    before: int,
    most: int,
    txids: Sequence[int] | None = None,
) -> list[TxidState]:
    """Return the last txids before one, the latest first.

    :param txids: only these of them; None for any
    """
    standing = read_standing(tx, topology)
    rows = tx.all(
        "page_of_txids",
        topology=topology,
        before=before,
        page=most,
        txids=None if txids is None else list(txids),
    )
    states = []
    for row in rows:
        state, why = _state_and_why(row, standing)
        files, interval = files_of(row["items"] or ()), interval_of(row)
        states.append(
            made_of(TxidState, row, interval=interval, state=state, why=why or None, files=files)
        )
    return states


def state_of(tx: DatabaseTransaction, topology: str, txid: int) -> TxidState:
    """Return the state of a txid that was emitted."""
    [state] = page_of_txids(tx, topology, txid + 1, 1, [txid])
    return state


def _state_and_why(row: Row, standing: Standing) -> tuple[str, str]:
    """Return the state of a txid, and why it is not simply committed."""
    if row["committed_attempt"] is None:
        open_txid = why_open(row, standing)
        return open_txid.state.value, open_txid.why
    wait = why_waits(standing.snapshot(row["txid"])) if row["is_requested"] else None
    replay = f"its replay waits {wait}" if wait is not None else ""
    if row["verdict"]:
        why = "; ".join(filter(None, (row["verdict_reason"], replay)))
        return "skipped" if row["is_skipped"] else "parked", why
    if row["replays"]:
        return f"replayed {row['replays']} time{'s' * (row['replays'] > 1)}", replay
    return "committed", replay


def files_of(items: Sequence[Any]) -> list[str]:
    """Return the names of source items: files with their parts, or ranges of keys.

    The items of a spout that is not installed here are returned as the ledger has them.
    """
    try:
        return [item.identity for item in BatchMeta.from_json(items, Fold()).items]
    except (LedgerCorruption, SourceItemUnknown):
        return [str(item) for item in items]
