"""The story of a txid: its batch, who asked for it, its attempts, and what each change did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import AttemptUnknown
from reliability.core.statement_key import TxidKey
from reliability.core.texts import with_code
from reliability.ledger.connection import LedgerConnection, Row
from reliability.transaction.inspect.txid_state import state_of
from reliability.transaction.topology.databases import TopologyDatabases

#: what the story has of a txid, each from a query of its own
_PARTS = {
    "refreezes": "refreezes_of_txid",
    "corrections": "corrections_of_txid",
    "skips": "skips_of_txid",
    "exclusions": "exclusions_of_txid",
    "requests": "requests_of_txid",
    "attempts": "attempts_of_txid",
    "events": "events_of_txid",
    "changes": "changes_of_txid",
}


def story_of_txid(connection: LedgerConnection, topology: str, txid: int) -> dict[str, Any]:
    """Return everything that the ledger has of a txid, as plain data.

    What is in databases that cannot be read now is left out; `unavailable` says why.

    :raises AttemptUnknown: it was never emitted
    """
    with TopologyDatabases.of(connection, topology) as databases:
        databases.leave_out_unavailable()
        return story_from(databases, txid)


def story_from(databases: TopologyDatabases, txid: int) -> dict[str, Any]:
    """Read the same from sessions that are open."""
    connection, topology = databases.coordinator, databases.topology
    key = TxidKey(topology, txid)
    details = connection.first("transaction_details", **key)
    if details is None:
        remedy = f"`reliability status` shows how many txids {topology} has emitted."
        raise AttemptUnknown(f"{topology} has no txid {txid}", remedy=remedy)
    with connection.transaction() as tx:
        now = state_of(tx, topology, txid)
    parts = {part: connection.all(q, attempt_id=None, **key) for part, q in _PARTS.items()}
    parts["differences"] = _differences(databases, txid, parts["changes"])
    return {
        "topology": topology,
        **details,
        "state": now.state,
        "why": now.why,
        **{part: [_named(row, txid) for row in rows] for part, rows in parts.items()},
        "unavailable": databases.unavailable,
        "lacking": [
            f"{row['state']}.{row['value']}" for row in connection.all("values_without_txid", **key)
        ],
    }


def _differences(databases: TopologyDatabases, txid: int, changes: Sequence[Row]) -> list[Row]:
    """Read them in the databases of their states, those of rollbacks and repairs too."""
    numbers = [row["commit_number"] for row in changes if row["attempt_id"] is None]
    key = TxidKey(databases.topology, txid)
    rows = databases.rows_of_all("differences_of_txid", commit_numbers=numbers, **key)
    return sorted(
        rows,
        key=lambda row: (
            row["attempt_id"] is None,
            row["attempt_id"] or row["commit_number"],
            row["state"],
        ),
    )


def _named(row: Row, txid: int) -> dict[str, Any]:
    """Format attempts as 7:2."""
    columns = {"attempt_id": "attempt", "replaced_attempt": "replaced"}
    return {
        columns.get(column, column): (
            str(TransactionAttempt(txid, value))
            if column in columns and value is not None
            else value
        )
        for column, value in row.items()
    }


# --- in the order of time ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """Something that happened with a txid.

    :param tone: the status that an attempt has got; empty if it is about something else
    """

    at: datetime
    what: str
    why: str = ""
    tone: str = ""


def what_happened(story: Mapping[str, Any]) -> list[Happened]:
    """Return a story in the order of time."""
    return sorted(_happened(story), key=lambda event: event.at)


def _happened(story: Mapping[str, Any]) -> Iterator[Happened]:
    run = f"run {story['run_id']} ({story['dag_id']})"
    yield Happened(at=story["emitted_at"], what=f"emitted by {run}")
    for request in story["requests"]:
        yield from _request(request)
    commits = {row["attempt"]: row for row in story["changes"] if row["attempt"]}
    runs = {row["attempt"]: row["run_id"] for row in story["attempts"]}
    for event in story["events"]:
        yield _event(event, runs.get(event["attempt"]), commits.get(event["attempt"]))
    for row in story["changes"]:
        if row["attempt"] is None:
            kind = "rolled back" if row["kind"] == "ROLLBACK" else "repaired"
            what = f"{kind} as c={row['commit_number']}"
            yield Happened(at=row["committed_at"], what=what, why=row["reason"] or "")
    for row in story["refreezes"]:
        yield Happened(at=row["refrozen_at"], what="refrozen", why=row["reason"])
    for row in story["corrections"]:
        what = f"{row['rows']:,} rows corrected by {row['corrected_by']}"
        yield Happened(at=row["corrected_at"], what=what, why=row["reason"])
    for row in story["skips"]:
        yield Happened(
            at=row["skipped_at"], what=f"skipped by {row['skipped_by']}", why=row["reason"]
        )
        yield from _ended(row, "unskipped")
    for row in story["exclusions"]:
        what = f"{row['item']} excluded by {row['excluded_by']}"
        yield Happened(at=row["excluded_at"], what=what, why=row["reason"])
        yield from _ended(row, f"{row['item']} included")


def _request(row: Mapping[str, Any]) -> Iterator[Happened]:
    number = f", request {row['number']} of it" if row["number"] > 1 else ""
    run = f"run {row['run_id']} ({row['dag_id']}{number})"
    kind = "a dry run of a replay" if row["is_dry_run"] else f"a {row['kind'].lower()}"
    problem = with_code(row["problem_code"], row["problem"])
    is_over = row["status"] in ("CLOSED", "GIVEN_UP")
    # what ended the request takes the place of why it was opened
    why = "" if is_over else row["reason"] or ""
    asked = f"{run} asked for {kind}"
    yield Happened(at=row["opened_at"], what=asked, why="; ".join(filter(None, (why, problem))))
    if is_over:
        what = f"{run} no longer asks for it"
        if row["was_done"]:
            what = f"{kind} that {run} asked for was done, and is rolled back"
        yield Happened(at=row["ended_at"], what=what, why=row["reason"] or "")


def _event(
    row: Mapping[str, Any], run_id: str | None, commit: Mapping[str, Any] | None
) -> Happened:
    status = row["status"].lower().replace("_", " ")
    what = f"attempt {row['attempt']} {_STATUS.get(status, f'is {status}')}"
    if status == "processing" and run_id:
        what += f" for run {run_id}"
    if status == "committed" and commit:
        what += f" as c={commit['commit_number']}"
        what += f", and replaced {commit['replaced']}" if commit["replaced"] else ""
    why = with_code(row["reason_code"], row["reason"])
    return Happened(at=row["happened_at"], what=what, why=why, tone=status)


_STATUS = {
    "processing": "began",
    "sealing": "is being checked",
    "processed": "was processed and waits for its turn",
    "committed": "committed",
    "replaced": "was replaced by a replay",
    "failed": "failed",
    "fenced": "was fenced",
    "dry run": "was tried and changed nothing",
    "rolled back": "was rolled back",
}


def _ended(row: Mapping[str, Any], what: str) -> Iterator[Happened]:
    if row["ended_at"] is not None:
        by = f"{what} by {row['ended_by']}"
        yield Happened(at=row["ended_at"], what=by, why=row["ended_reason"])
