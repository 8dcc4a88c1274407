"""The report of an attempt: its request, the code that ran, its result, and what it replaced.

All of it is read from the ledger and remains there after staged rows are deleted: it proves that
the attempt ran, with which code and on which batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from reliability.core.attempt import Grant, TransactionAttempt
from reliability.core.audits import AuditOutcome, Of, Severity
from reliability.core.coordinator import AttemptStatus
from reliability.core.definitions import Topology
from reliability.core.difference import Difference
from reliability.core.errors import AttemptUnknown
from reliability.core.request import RequestKind
from reliability.core.set_aside import Kind
from reliability.core.statement_key import AttemptKey
from reliability.ledger.connection import LedgerConnection, Row
from reliability.ledger.read_rows import difference_of, made_of
from reliability.transaction.emit.requests import Run
from reliability.transaction.topology.databases import TopologyDatabases

#: phases of an attempt in order, each with what it is
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The rows of a batch and a state: emitted = applied + dropped + quarantined (V8).

    All in tuples of the source.

    :param verdict: how the emitted side is verified; None for a batch of the attempt's own
    :param added_rows: how many more rows than tuples a fan-out has made
    :param reasons: kind, reason and count of all that was set aside
    """

    state: str
    verdict: str | None
    emitted: int
    applied: int
    dropped: int
    quarantined: int
    added_rows: int
    reasons: Sequence[Mapping[str, Any]]

    def __str__(self) -> str:
        parts = [f"{self.applied:,} applied"]
        parts += [
            f"{reason['count']:,} {kind.value.lower()} ({reason['reason']})"
            for kind in (Kind.DROPPED, Kind.QUARANTINED)
            for reason in self.reasons
            if reason["kind"] == kind.value
        ]
        more = f", as {self.applied + self.added_rows:,} rows" if self.added_rows else ""
        return f"{self.state}: {self.emitted:,} emitted = {' + '.join(parts)}{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReport:
    """The request that the attempt worked for."""

    kind: RequestKind
    dag_id: str
    run_id: str
    number: int
    is_dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A change of the attempt's status."""

    status: AttemptStatus
    reason_code: str | None
    reason: str | None
    happened_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """The attempt that a replay replaced or would have replaced; None means unknown.

    :param changed_code: the modules and packages that differ
    :param same_contribution: by state
    """

    attempt: TransactionAttempt
    same_code: bool | None
    changed_code: tuple[str, ...]
    same_batch: bool | None
    same_contribution: Mapping[str, bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReport:
    """Everything that the ledger keeps of an attempt.

    :param verdict: PARKED or SKIPPED for an empty attempt, which has no request
    :param items: the items of its batch, as its spout recorded them
    :param steps: where each ran, and with what code, as the query `story_steps` returns them; empty
        if no driver has started the step
    :param states: what it staged for each, as the query `story_states` returns them; rows and
        digest were recorded when it was sealed
    :param differences: what it changed in the rows of each state, or, as a dry run, would have
    :param unavailable: why databases could not be read: what is there of their states is left out
    """

    topology: str
    attempt: TransactionAttempt
    status: AttemptStatus
    reason_code: str | None
    reason: str | None
    verdict: str | None
    verdict_reason: str | None
    request: RequestReport | None
    granted_at: datetime
    processed_at: datetime | None
    ended_at: datetime | None
    commit_number: int | None
    batch_digest: str | None
    items: Sequence[Mapping[str, Any]]
    steps: Sequence[Row]
    states: Sequence[Row]
    accounts: tuple[Account, ...]
    audits: tuple[AuditOutcome, ...]
    replaced: Replaced | None
    events: tuple[Event, ...]
    differences: tuple[Difference, ...]
    unavailable: tuple[str, ...]


def attempt_report(
    connection: LedgerConnection,
    topology: str,
    attempt: TransactionAttempt,
    *,
    as_far_as_available: bool = False,
) -> AttemptReport:
    """Read everything that the ledger keeps of an attempt, in every database of its topology.

    :param as_far_as_available: leave out databases that cannot be read, otherwise raise
    :raises AttemptUnknown: the ledger has no such attempt
    """
    with TopologyDatabases.of(connection, topology) as databases:
        if as_far_as_available:
            databases.leave_out_unavailable()
        return report_from(databases, attempt)


def report_from(databases: TopologyDatabases, attempt: TransactionAttempt) -> AttemptReport:
    """Read the same from sessions that are open, for many attempts."""
    report, replaced_attempt = _read(databases, attempt)
    if replaced_attempt is None:
        return report
    before, _ = _read(databases, TransactionAttempt(attempt.txid, replaced_attempt))
    return replace(report, replaced=_compare(report, before))


def report_for_run(
    connection: LedgerConnection, topology: str, txid: int, run: Run
) -> AttemptReport | None:
    """Read the attempt that a run got for a txid; if it needed none, the one that counts.

    :return: None if there is no such attempt
    """
    row = connection.first("attempt_of_run", topology=topology, txid=txid, **run)
    if row is None or row["attempt_id"] is None:
        return None
    return attempt_report(connection, topology, TransactionAttempt(txid, row["attempt_id"]))


def _read(
    databases: TopologyDatabases, attempt: TransactionAttempt
) -> tuple[AttemptReport, int | None]:
    """Read an attempt, and which one it has replaced; rows about a state are in its database."""
    topology, ledger = databases.topology, databases.coordinator
    key = AttemptKey(topology, attempt.txid, attempt.attempt_id)
    row = ledger.first("story_attempt", **key)
    if row is None:
        raise AttemptUnknown(f"{topology} has no attempt {attempt}")
    this = {"txids": [attempt.txid], "attempt_ids": [attempt.attempt_id]}
    changed = databases.rows_of_all("differences_of_attempts", topology=topology, **this)
    request = made_of(RequestReport, row, kind=RequestKind(row["kind"])) if row["kind"] else None
    report = made_of(
        AttemptReport,
        row,
        topology=topology,
        attempt=attempt,
        status=AttemptStatus(row["status"]),
        request=request,
        items=row["items"] or (),
        steps=ledger.all("story_steps", **key),
        states=databases.rows_of_all("story_states", **key),
        accounts=tuple(Account(**one) for one in databases.rows_of_all("accounts", **key)),
        audits=tuple(
            AuditOutcome(**{**one, "of": Of(one["of"]), "severity": Severity(one["severity"])})
            for one in databases.rows_of_all("audits_of_attempt", **key)
        ),
        replaced=None,
        events=tuple(
            made_of(Event, one, status=AttemptStatus(one["status"]))
            for one in ledger.all("events_of_txid", **key)
        ),
        differences=tuple(map(difference_of, changed)),
        unavailable=databases.unavailable,
    )
    return report, row["replaced_attempt"]


def accounts_of(connection: LedgerConnection, topology: Topology, grant: Grant) -> list[Account]:
    """Return the accounts of a sealed attempt, in the order of the topology's states."""
    key = AttemptKey(topology.name, grant.attempt.txid, grant.attempt.attempt_id)
    with TopologyDatabases.of_code(connection, topology) as databases:
        rows = databases.rows_of_all("accounts", **key)
    by_state = {row["state"]: Account(**row) for row in rows}
    return [by_state[state.name] for state in topology.states if state.name in by_state]


def outdated_code(connection: LedgerConnection, report: AttemptReport) -> str | None:
    """Return a warning that a replay may have run old code; None if there is no sign of it.

    The sign: it ran the same code as the attempt that it replaces, although an earlier attempt of
    the topology, at any txid, had run code that the ledger first saw later.
    """
    attempt, replaced = report.attempt, report.replaced
    key = AttemptKey(report.topology, attempt.txid, attempt.attempt_id)
    row = connection.first("newer_code", **key)
    if replaced is None or not replaced.same_code or row is None:
        return None
    ran = TransactionAttempt(row["txid"], row["attempt_id"])
    seen_at = f"{row['seen_at'].astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC"
    return (
        f"attempt {attempt} ran the same code as {replaced.attempt}, although {ran} had run newer "
        f"code before, first seen {seen_at}. Where DAG bundles "
        "are versioned, Airflow runs a cleared run with its original DAG and code, unless it is "
        "cleared with run_on_latest_version (“Run with latest bundle version”), or the DAG has "
        "rerun_with_latest_version=True."
    )


# --- the replaced attempt ------------------------------------------------------------------------


def _compare(report: AttemptReport, before: AttemptReport) -> Replaced:
    code, code_before = _code_of(report), _code_of(before)
    contributions = {s["state"]: s["contribution_digest"] for s in before.states}
    ran_both = code.keys() & code_before.keys()
    changed = {name for step in ran_both for name in _changed(code[step], code_before[step])}
    return Replaced(
        attempt=before.attempt,
        same_code=not changed if ran_both else None,
        changed_code=tuple(sorted(changed)),
        same_batch=_is_same(report.batch_digest, before.batch_digest),
        same_contribution={
            s["state"]: _is_same(s["contribution_digest"], contributions.get(s["state"]))
            for s in report.states
        },
    )


def _code_of(report: AttemptReport) -> dict[str, Mapping[str, Mapping[str, str]]]:
    return {step["step"]: step["code"] for step in report.steps if step["code"] is not None}


def _changed(
    code: Mapping[str, Mapping[str, str]], before: Mapping[str, Mapping[str, str]]
) -> set[str]:
    return {
        name
        for part in code.keys() | before.keys()
        for name, _ in code.get(part, {}).items() ^ before.get(part, {}).items()
    }


def _is_same(one: str | None, other: str | None) -> bool | None:
    return None if one is None or other is None else one == other
