"""What the page of one transaction shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reliability.core.attempt import TransactionAttempt
from reliability.core.difference import Difference
from reliability.core.spout import Interval
from reliability.core.statement_key import TxidKey
from reliability.ledger.locks import check_known
from reliability.ledger.read_rows import interval_of
from reliability.transaction.inspect.attempt_report import (
    AttemptReport,
    StepReport,
    attempt_report,
    outdated_code,
)
from reliability.transaction.inspect.story import story_of_txid
from reliability.transaction.inspect.txid_in_words import txid_with_state
from reliability_airflow.page.reading import difference_of, ledger
from reliability_airflow.page.timeline import Lane, Tick, axis_of, lane

#: attempts that are shown whole; older ones are listed
WHOLE = 12
#: items of a batch that are listed
ITEMS = 100
#: rows in quarantine that are shown
QUARANTINED = 20
#: phases of an attempt in order, each with what it is
PHASES = {
    "queue": "until a task took it up",
    "submit": "spark-submit and the cluster's queue",
    "read": "Spark read and transformed",
    "stage": "Spark staged the rows",
    "exit": "until the driver had ended",
    "seal": "the checks of what was staged",
    "wait": "until it was its turn",
    "commit": "the transaction that committed it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt, with the time of its phases in seconds; `warning` says that its code is old."""

    report: AttemptReport
    phases: Mapping[str, float]
    warning: str | None

    def ui_of(self, step: StepReport) -> str | None:
        """Return where Spark shows a step while it runs.

        The driver wrote it: only a web address becomes a link, for a script would run as Airflow's.
        """
        is_running = step.status == "RUNNING" and self.report.ended_at is None
        is_web = (step.ui_url or "").startswith(("http://", "https://"))
        return step.ui_url if is_running and is_web else None

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A line of the story."""

    at: datetime
    what: str
    why: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """Everything that the page shows of a txid.

    :param story: as `story_of_txid` returns it
    :param attempts: the newest first
    :param quarantined: the first of its rows in quarantine, each with how many there are
    """

    txid: int
    interval: Interval | None
    state: str
    why: str
    story: Mapping[str, Any]
    attempts: Sequence[Attempt]
    earlier: int
    lane: Lane
    ticks: Sequence[Tick]
    told: Sequence[Told]
    quarantined: Sequence[Mapping[str, Any]]
    last_txid: int
    is_committed: bool

    def differences_of(self, attempt_id: int) -> list[Difference]:
        """Return what an attempt changed, or would have changed."""
        name = str(TransactionAttempt(self.txid, attempt_id))
        return [difference_of(row) for row in self.story["differences"] if row["attempt"] == name]

    @property
    def items(self) -> Sequence[Mapping[str, Any]]:
        """Return what its batch has read."""
        return (self.story["items"] or ())[:ITEMS]

    @property
    def more_items(self) -> int:
        """Return how many items are not listed."""
        return max(len(self.story["items"] or ()) - ITEMS, 0)


def read_transaction(topology: str, txid: int) -> Transaction:
    """Read a transaction.

    :raises TopologyUnknown, AttemptUnknown: there is no such thing
    """
    with ledger() as connection:
        with connection.transaction() as tx:
            check_known(tx, topology)
        story = story_of_txid(connection, topology, txid)
        with connection.transaction() as tx:
            last = tx.one("topology_position", topology=topology)["next_txid"] - 1
            row, state, why = txid_with_state(tx, topology, txid)
            rows = tx.all("attempts_of_page", topology=topology, txids=[txid])
            key = {**TxidKey(topology, txid), "attempt_id": None}
            quarantined = tx.all("quarantine_of_page", **TxidKey(topology, txid), most=QUARANTINED)
            phases = {one["attempt_id"]: one for one in tx.all("timing_of_attempts", **key)}
        shown = sorted((one["attempt_id"] for one in rows), reverse=True)[:WHOLE]
        attempts = [
            Attempt(
                report=attempt_report(connection, topology, attempt),
                phases=_phases(phases[attempt.attempt_id]),
                warning=outdated_code(connection, topology, attempt),
            )
            for attempt in (TransactionAttempt(txid, number) for number in shown)
        ]
    axis = axis_of(rows)
    return Transaction(
        txid=txid,
        interval=interval_of(row),
        state="replayed" if state.startswith("replayed") else state,
        why=why,
        story=story,
        attempts=attempts,
        earlier=len(rows) - len(shown),
        lane=lane(axis, rows),
        ticks=[*axis.ticks()],
        told=_told(story, attempts),
        quarantined=quarantined,
        last_txid=last,
        is_committed=row["committed_attempt"] is not None,
    )


def _phases(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: max(row[name], 0.0) for name in PHASES if row[name] is not None}


def _told(story: Mapping[str, Any], attempts: Sequence[Attempt]) -> list[Told]:
    """Return the story in the order of time."""
    found = [Told(at=story["emitted_at"], what=f"emitted by run {story['run_id']}")]
    for asked in story["requests"]:
        kind = "a dry run of a replay" if asked["is_dry_run"] else f"a {asked['kind'].lower()}"
        what = f"run {asked['run_id']} asked for {kind}"
        # what ended the request takes the place of why it was opened
        is_over = asked["status"] in ("CLOSED", "GIVEN_UP")
        found.append(
            Told(at=asked["opened_at"], what=what, why="" if is_over else asked["reason"] or "")
        )
        if is_over:
            what = f"run {asked['run_id']} no longer asks for it"
            if asked["was_done"]:
                what = f"what run {asked['run_id']} asked for was done, and is rolled back"
            found.append(Told(at=asked["ended_at"], what=what, why=asked["reason"] or ""))
    for attempt in attempts:
        for event in attempt.report.events:
            code = f"{event.reason_code}: " if event.reason_code else ""
            status = event.status.value.lower().replace("_", " ")
            found.append(
                Told(
                    at=event.happened_at,
                    what=f"attempt {attempt.report.attempt} {_STATUS.get(status, status)}",
                    why=f"{code}{event.reason or ''}",
                    tone=status,
                )
            )
    for change in story["changes"]:
        if change["kind"] in ("ROLLBACK", "REPAIR"):
            kind = "rolled back" if change["kind"] == "ROLLBACK" else "repaired"
            what = f"{kind} as change {change['commit_number']}"
            found.append(Told(at=change["committed_at"], what=what, why=change["reason"] or ""))
    for row in story["refreezes"]:
        found.append(Told(at=row["refrozen_at"], what="refrozen", why=row["reason"]))
    for row in story["skips"]:
        what = f"skipped by {row['skipped_by']}"
        found.append(Told(at=row["skipped_at"], what=what, why=row["reason"]))
        if row["ended_at"]:
            what = f"unskipped by {row['ended_by']}"
            found.append(Told(at=row["ended_at"], what=what, why=row["ended_reason"]))
    for row in story["corrections"]:
        what = f"{row['rows']} rows corrected by {row['corrected_by']}"
        found.append(Told(at=row["corrected_at"], what=what, why=row["reason"]))
    return sorted(found, key=lambda one: one.at)


_STATUS = {
    "processing": "began",
    "sealing": "is being checked",
    "processed": "was processed and waits for its turn",
    "committed": "committed",
    "replaced": "was replaced by a replay",
    "failed": "failed",
    "fenced": "was fenced",
    "dry run": "was tried and changed nothing",
}
