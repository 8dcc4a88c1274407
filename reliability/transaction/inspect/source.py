"""The source beside the ledger: what has no txid, what has changed since, exclusions to replay."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from reliability.core.definitions import Topology
from reliability.core.errors import NothingToEmit
from reliability.core.keys import read_ranges
from reliability.core.names import COMMAND_LINE
from reliability.core.remedy import COMMANDS
from reliability.core.spout import AllocatedItems, BatchMeta, Interval, SourceItem, SpoutKind
from reliability.core.statement_key import TxidKey
from reliability.core.texts import how_to_run_again
from reliability.core.txids import format_txids
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
from reliability.ledger.read_rows import batch_of, ends_of, interval_of
from reliability.transaction.emit.source_items import LedgerItems, with_batches
from reliability.transaction.inspect.intervals import IntervalReport, IntervalState

Batches = Mapping[int, tuple[Interval | None, BatchMeta]]


# --- items without a txid ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutTxid:
    """Items of the source that have no txid.

    :param interval: a past one, after whose emission they came; None for an untimed spout
    :param second_deliveries: those that look like an item that has counted, each with that item
    """

    interval: Interval | None
    items: Sequence[str]
    rows: int
    second_deliveries: Mapping[str, str]

    def __str__(self) -> str:
        count = f"{self.rows:,} rows in {len(self.items):,} items"
        return f"{count}, the first {self.items[0]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What was found in the source of a topology; None if it could not be read, and why.

    :param has_failed: it could not be read, although its module can be imported
    :param first: the first interval that was looked at, if earlier ones were not
    """

    without_txid: Sequence[WithoutTxid] | None
    error: str | None
    has_failed: bool = False
    first: Interval | None = None

    @property
    def late(self) -> list[WithoutTxid]:
        """Those of past intervals."""
        return [items for items in self.without_txid or () if items.interval]


def look_at(
    connection: LedgerConnection,
    topology: Topology,
    most: int | None = None,
    wanted: Interval | None = None,
) -> Source:
    """Look for items of the source that have no txid: of past intervals, or of an untimed spout.

    :param most: look at no more than the last ones of the intervals
    :param wanted: look at those that lie in it; None for all
    :raises ReliabilityError: the source cannot be read
    """
    past: list[Interval | None] = [None]
    if topology.spout.timed:
        rows = connection.all(
            "closed_intervals",
            topology=topology.name,
            most=most and most + 1,
            **ends_of(wanted),
        )
        past = [interval_of(row) for row in reversed(rows)]
    is_cut = most is not None and len(past) > most
    looked_at = past[1:] if is_cut else past
    return Source(
        without_txid=list(_without_txid(connection, topology, looked_at)),
        error=None,
        first=looked_at[0] if is_cut else None,
    )


def _without_txid(
    connection: LedgerConnection, topology: Topology, intervals: Iterable[Interval | None]
) -> Iterator[WithoutTxid]:
    allocated = _allocated(connection, topology)
    for interval in intervals:
        try:
            items = topology.spout.plan(interval, allocated)
        except NothingToEmit:  # all its files were archived
            continue
        if items:
            yield WithoutTxid(
                interval=interval,
                items=[item.identity for item in items],
                rows=sum(item.rows for item in items),
                second_deliveries=_second_deliveries(connection, topology, interval, items),
            )


def _second_deliveries(
    connection: LedgerConnection,
    topology: Topology,
    interval: Interval | None,
    items: Sequence[SourceItem],
) -> Mapping[str, str]:
    """Return which new items of an interval look like one of it that has counted."""
    from reliability.spouts.changed_files import second_deliveries

    if interval is None:  # it would be compared with everything that was ever read
        return {}
    with connection.transaction() as tx:
        counted = committed_batches(tx, topology.name, interval)
    return second_deliveries(items, [item for _, meta in counted.values() for item in meta.items])


def _allocated(connection: LedgerConnection, topology: Topology) -> AllocatedItems:
    """Return the allocated items; an opaque batch belongs to its attempt until it commits."""
    committed = LedgerItems(connection, topology.name)
    if topology.spout.kind is SpoutKind.TRANSACTIONAL:
        return committed
    row = connection.one("topology_position", topology=topology.name)
    key = TxidKey(topology.name, row["next_txid"])
    live = connection.all("uncommitted_batches_before", **key)
    return with_batches(committed, [batch_of(row) for row in live])


def late_report(connection: LedgerConnection, topology: str, late: WithoutTxid) -> IntervalReport:
    """Report items that came after the emission of their interval."""
    run = connection.first("last_run_of_interval", topology=topology, **ends_of(late.interval))
    if run is None:  # its id was used again, for another interval
        run = {"dag_id": COMMAND_LINE, "run_id": ""}
    why = f"{late.rows:,} rows in {len(late.items):,} items came after its emission"
    why += f", the first {late.items[0]}"
    way = how_to_run_again(topology, run["dag_id"], run["run_id"], late.interval)
    step = f"to take them in: {way}"
    second = late.second_deliveries
    for again, first in list(second.items())[:1]:
        others = f", and {len(second) - 1:,} more like it" if len(second) > 1 else ""
        why += f"; {again} looks like a second delivery of {first}, which has counted{others}"
        leave_out = f"reliability exclude {topology} {shlex.quote(again)} --reason '…'"
        step = f"if it is a second delivery, first `{leave_out}`; {step}"
    return IntervalReport(
        topology=topology,
        state=IntervalState.LATE,
        interval=late.interval,
        dag_id=run["dag_id"],
        run_id=run["run_id"],
        why=why,
        next_step=step,
    )


# --- what was read -------------------------------------------------------------------------------


def committed_batches(
    tx: DatabaseTransaction, topology: str, wanted: Interval | None = None
) -> Batches:
    """Return what the committed txids have read, all of them or those of an interval, by txid.

    :raises SourceItemUnknown: this process does not know the spout's class of items
    """
    rows = tx.all("committed_batches", topology=topology, **ends_of(wanted))
    return {row["txid"]: (interval_of(row), batch_of(row)) for row in rows}


def changed_intervals(topology: str, batches: Batches) -> Iterator[IntervalReport]:
    """Yield the intervals of which a file is other than when it was read.

    :raises OSError: the source cannot be read
    """
    from reliability.spouts.changed_files import changed_since

    changed = dict(changed_since(item for _, meta in batches.values() for item in meta.items))
    reasons = (
        (txid, f"{path} has changed since it was read: {changed[path]}")
        for txid, (_, meta) in batches.items()
        for path in dict.fromkeys(getattr(item, "path", "") for item in meta.items)
        if path in changed
    )
    refreeze = COMMANDS["refreeze"].format(topology=topology, txid="{}")
    step = f"if what is there now is to count: {refreeze}"
    return _reports(topology, IntervalState.CHANGED, batches, reasons, step)


def intervals_to_replay(
    topology: str, rows: Sequence[Row], batches: Batches
) -> Iterator[IntervalReport]:
    """Yield the intervals that count an excluded item, or lack an included one, until a replay.

    :param rows: as the query `items_to_replay` returns them
    """
    reasons = (
        (txid, f"{row['item']} is {'excluded and still' if row['is_excluded'] else 'not'} counted")
        for row in rows
        for first, end in read_ranges(row["txids"])
        for txid in range(first, end)
        if txid in batches
    )
    step = f"to make the tables agree: reliability replay {topology} {{}}"
    return _reports(topology, IntervalState.TO_REPLAY, batches, reasons, step)


def _reports(
    topology: str,
    state: IntervalState,
    batches: Batches,
    reasons: Iterable[tuple[int, str]],
    step: str,
) -> Iterator[IntervalReport]:
    """Yield a report for each interval, with the first reason and how many more there are."""
    by_interval: dict[Interval | None, list[tuple[int, str]]] = {}
    for txid, why in reasons:
        by_interval.setdefault(batches[txid][0], []).append((txid, why))
    for interval, own in by_interval.items():
        txids = sorted({txid for txid, _ in own})
        more = f"; and {len(own) - 1:,} more" if len(own) > 1 else ""
        yield IntervalReport(
            topology=topology,
            state=state,
            interval=interval,
            txids=tuple(txids),
            why=own[0][1] + more,
            next_step=step.format(format_txids(txids)),
        )
