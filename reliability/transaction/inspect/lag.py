"""What of a topology lacks a commit: txids, intervals, and items of the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from reliability.core.txids import format_txids
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.inspect.intervals import IntervalReport, intervals_without_commit
from reliability.transaction.inspect.source import Source, WithoutTxid, late_report

_COUNTED = frozenset({"missing", "failed", "emitting", "waiting"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """What of a topology lacks a commit.

    :param txids: the uncommitted ones
    :param without_txid: items of the source; None if it could not be read
    :param expected_unknown: why the missing intervals are unknown; None if they are known
    :param is_cut: there are more missing intervals than are named
    """

    topology: str
    uncommitted: int
    txids: str
    oldest_emitted_at: datetime | None
    oldest_age_seconds: float | None
    without_txid: Sequence[WithoutTxid] | None
    source_error: str | None
    intervals: Sequence[IntervalReport]
    expected_unknown: str | None
    is_cut: bool

    def is_over(self, seconds: float) -> bool:
        """Say whether a txid or an interval has lacked a commit for longer, or items are late.

        What an untimed spout has not emitted is left to the next run.
        """
        ages = [
            report.age.total_seconds()
            for report in self.intervals
            if report.state.value in _COUNTED
        ]
        is_late = any(items.interval for items in self.without_txid or ())
        return is_late or max([self.oldest_age_seconds or 0, *ages]) > seconds


def lag_of(connection: LedgerConnection, topology: str, source: Source) -> Lag:
    """Return what lacks a commit."""
    row = connection.one("lag", topology=topology)
    with connection.transaction() as tx:
        lacking = intervals_without_commit(tx, topology)
    late = [late_report(connection, topology, items) for items in source.late]
    return Lag(
        topology=topology,
        uncommitted=row["uncommitted"],
        txids=format_txids(range(row["curr_txid"], row["next_txid"])),
        oldest_emitted_at=row["emitted_at"],
        oldest_age_seconds=row["age"].total_seconds() if row["age"] else None,
        without_txid=source.without_txid,
        source_error=source.error,
        intervals=[*lacking.reports, *late],
        expected_unknown=lacking.unknown,
        is_cut=lacking.is_cut,
    )
