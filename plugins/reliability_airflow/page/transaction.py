"""What the page of one transaction shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reliability.core.attempt import TransactionAttempt
from reliability.core.statement_key import TxidKey
from reliability.ledger.connection import Row
from reliability.ledger.read_rows import interval_of
from reliability.transaction.inspect.attempt_report import (
    PHASES,
    AttemptReport,
    outdated_code,
    report_from,
)
from reliability.transaction.inspect.story import story_from, what_happened
from reliability.transaction.inspect.txid_state import files_of
from reliability.transaction.topology.databases import TopologyDatabases
from reliability_airflow.page.reading import last_txid, ledger, short_state
from reliability_airflow.page.timeline import axis_of, lane

#: attempts that are shown whole; older ones are listed
WHOLE = 12
#: items of a batch that are listed
ITEMS = 100
#: rows in quarantine that are shown
QUARANTINED = 20
#: phases of an attempt that its bar shows
_SHOWN = [phase for phase in PHASES if phase not in ("emit", "total")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt, with the time of its phases in seconds; `warning` says that its code is old."""

    report: AttemptReport
    phases: Mapping[str, float]
    warning: str | None

    def ui_of(self, step: Row) -> str | None:
        """Return where Spark shows a step while it runs.

        The driver wrote it: only a web address becomes a link, for a script would run as Airflow's.
        """
        is_running = step["status"] == "RUNNING" and self.report.ended_at is None
        place: str = step["ui_url"] or ""
        return place if is_running and place.startswith(("http://", "https://")) else None

    @property
    def total(self) -> float:
        """Return the seconds of all phases."""
        return sum(self.phases.values())

    @property
    def parts(self) -> Iterator[tuple[str, float, float, float]]:
        """Yield each phase with its seconds, and where its bar begins and ends, in percents."""
        at = 0.0
        for name, seconds in self.phases.items():
            width = 100.0 * seconds / (self.total or 1.0)
            yield name, seconds, at, width
            at += width


def read_transaction(topology: str, txid: int) -> dict[str, Any]:
    """Read everything that the page shows of a txid; its attempts are the newest first.

    :raises TopologyUnknown, AttemptUnknown: there is no such thing
    """
    with (
        ledger(topology) as connection,
        TopologyDatabases.of(connection, topology) as databases,
    ):
        databases.leave_out_unavailable()  # once: each look at one that does not answer takes time
        story = story_from(databases, txid)
        with connection.transaction() as tx:
            last = last_txid(tx, topology)
            rows = tx.all("attempts_of_page", topology=topology, txids=[txid])
            key = TxidKey(topology, txid)
            quarantined = tx.all("quarantine_of_page", **key, most=QUARANTINED)
            timings = tx.all("timing_of_attempts", **key, attempt_id=None)
        phases = {timing["attempt_id"]: _phases(timing) for timing in timings}
        shown = sorted((row["attempt_id"] for row in rows), reverse=True)[:WHOLE]
        attempts = [
            Attempt(
                report=report,
                phases=phases[report.attempt.attempt_id],
                warning=outdated_code(connection, report),
            )
            for report in (
                report_from(databases, TransactionAttempt(txid, number)) for number in shown
            )
        ]
    axis, items = axis_of(rows), story["items"] or ()
    return {
        "txid": txid,
        "interval": interval_of(story),
        "state": short_state(story["state"]),
        "story": story,
        "attempts": attempts,
        "earlier": len(rows) - len(shown),
        "lane": lane(axis, rows),
        "ticks": [*axis.ticks()],
        "items": [
            (name, item.get("rows"))
            for item, name in zip(items[:ITEMS], files_of(items[:ITEMS]), strict=True)
        ],
        "more_items": max(len(items) - ITEMS, 0),
        "happened": what_happened(story),
        "quarantined": quarantined,
        "last_txid": last,
    }


def _phases(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: max(row[name], 0.0) for name in _SHOWN if row[name] is not None}
