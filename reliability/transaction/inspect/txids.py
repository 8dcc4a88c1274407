"""The state of a txid in words, and the names of what its batch has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reliability.ledger.connection import Row
from reliability.transaction.inspect.intervals import why_open


def state_of_txid(row: Row) -> tuple[str, str]:
    """Return the state of a txid, and why it is not simply committed."""
    if row["committed_attempt"] is None:
        state, why = why_open(row)
        return state.value, why
    if row["verdict"]:
        return "skipped" if row["is_skipped"] else "parked", row["verdict_reason"]
    if row["replays"]:
        return f"replayed {row['replays']} time{'s' * (row['replays'] > 1)}", ""
    return "committed", ""


def files_of(items: Sequence[Any]) -> list[str]:
    """Return the names of source items: files with their parts, or ranges of keys.

    The items of a spout that is not installed here are returned as the ledger has them.
    """
    import reliability  # noqa: F401  # registers the spouts of this package
    from reliability.core.errors import LedgerCorruption, SourceItemUnknown
    from reliability.core.fold import Fold
    from reliability.core.spout import BatchMeta

    try:
        return [item.identity for item in BatchMeta.from_json(items, Fold()).items]
    except (LedgerCorruption, SourceItemUnknown):
        return [str(item) for item in items]
