"""What has become of the source of committed txids since: changed files, exclusions to replay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from reliability.core.keys import read_ranges
from reliability.core.spout import BatchMeta, Interval
from reliability.core.txids import format_txids
from reliability.ledger.connection import DatabaseTransaction, Row
from reliability.ledger.read_rows import batch_of, interval_of
from reliability.transaction.inspect.intervals import IntervalReport, IntervalState

Batches = Mapping[int, tuple[Interval | None, BatchMeta]]


def committed_batches(
    tx: DatabaseTransaction, topology: str, wanted: Interval | None = None
) -> Batches:
    """Return what the committed txids have read, all of them or those of an interval, by txid.

    :raises SourceItemUnknown: this process does not know the spout's class of items
    """
    rows = tx.all(
        "committed_batches",
        topology=topology,
        start=wanted and wanted.start,
        end=wanted and wanted.end,
    )
    return {row["txid"]: (interval_of(row), batch_of(row)) for row in rows}


def changed_intervals(topology: str, batches: Batches) -> Iterator[IntervalReport]:
    """Yield the intervals of which a file is other than when it was read.

    :raises OSError: the source cannot be read
    """
    from reliability.spouts.redelivered import changed_since

    changed = dict(changed_since(item for _, meta in batches.values() for item in meta.items))
    found = (
        (txid, f"{path} has changed since it was read: {changed[path]}")
        for txid, (_, meta) in batches.items()
        for path in dict.fromkeys(getattr(item, "path", "") for item in meta.items)
        if path in changed
    )
    step = (
        f"if what is there now is to count: reliability replay {topology} {{}} --refreeze"
        " --reason '…'"
    )
    return _reports(IntervalState.CHANGED, batches, found, step)


def intervals_to_replay(
    topology: str, rows: Sequence[Row], batches: Batches
) -> Iterator[IntervalReport]:
    """Yield the intervals that count an excluded item, or lack an included one, until a replay.

    :param rows: as the query `items_to_replay` returns them
    """
    found = (
        (txid, f"{row['item']} is {'excluded and still' if row['is_excluded'] else 'not'} counted")
        for row in rows
        for first, end in read_ranges(row["txids"])
        for txid in range(first, end)
        if txid in batches
    )
    step = f"to make the tables agree: reliability replay {topology} {{}}"
    return _reports(IntervalState.TO_REPLAY, batches, found, step)


def _reports(
    state: IntervalState, batches: Batches, found: Iterable[tuple[int, str]], step: str
) -> Iterator[IntervalReport]:
    """Yield a report for each interval, with the first reason and how many more there are."""
    by_interval: dict[Interval | None, list[tuple[int, str]]] = {}
    for txid, why in found:
        by_interval.setdefault(batches[txid][0], []).append((txid, why))
    for interval, own in by_interval.items():
        txids = sorted({txid for txid, _ in own})
        more = f"; and {len(own) - 1:,} more" if len(own) > 1 else ""
        yield IntervalReport(
            state=state,
            interval=interval,
            txids=tuple(txids),
            why=own[0][1] + more,
            next_step=step.format(format_txids(txids)),
        )
