"""Requests in the ledger: opened by emit or by a cleared task, renewed, closed, settled."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from reliability.core.clear_or_retry import Contact, judge_contact, kind_of_new_request
from reliability.core.errors import NoRequest, NothingToReplay, ReliabilityError, RunUnsatisfied
from reliability.core.request import Request, RequestKind, RequestStatus, TaskTry
from reliability.core.statement_key import StatementKey, TxidKey
from reliability.core.texts import with_code
from reliability.core.txids import format_txids, with_noun
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
from reliability.ledger.locks import hold_topology
from reliability.ledger.read_rows import recorded_try_of, request_of

ASKED_AGAIN = "the run asked again"
UNHEARD = "it was cleared, and its tasks ended before they reached the ledger"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(StatementKey):
    """One run of one DAG, which emits and makes requests."""

    dag_id: str
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContact:
    """A task of a run that works for a txid.

    :param this_try: the current try, which distinguishes a clear from a retry
    :param later_tasks: all tasks downstream of it in its run
    :param is_dry_run: the run only wants to know what a replay would change
    :param began_at: by the ledger's clock, if it did long work before; None if it begins with this
    :param reason: why a person wants it; recorded with each request that it opens
    """

    run: Run
    task: str
    this_try: TaskTry
    is_dry_run: bool = False
    later_tasks: frozenset[str] = frozenset()
    began_at: datetime | None = None
    reason: str = ""


def contact(
    connection: LedgerConnection, topology: str, txid: int, contact: TaskContact
) -> Request:
    """Return the request that a task works for, opening the next one if it was cleared (R1)."""
    with connection.transaction() as tx:
        hold_topology(tx, topology)
        request = contact_in(tx, topology, txid, contact)
        take_up_run(tx, request)
        return request


def take_up_run(tx: DatabaseTransaction, request: Request) -> None:
    """Renew all requests of the run of one, also what was given up of it (R3)."""
    tx.queue("reopen_requests_of_run", request_id=request.request_id)
    tx.queue("renew_requests_of_runs", request_ids=[request.request_id])


def contact_in(
    tx: DatabaseTransaction,
    topology: str,
    txid: int,
    contact: TaskContact,
    *,
    may_open_first: bool = False,
) -> Request:
    """Do the same in a transaction that holds the topology's lock."""
    key = TxidKey(topology, txid)
    row = tx.first(
        "latest_request",
        task=contact.task,
        later_tasks=sorted(contact.later_tasks),
        began_at=contact.began_at,
        **key,
        **contact.run,
    )
    if row is not None:
        latest = request_of(row)
        judgement = judge_contact(latest, recorded_try_of(row), contact.this_try)
        if judgement is Contact.OPEN_NEXT:
            request = _open_next(tx, key, contact)
        elif judgement is Contact.REOPEN:
            reopened = tx.first("reopen_request", request_id=latest.request_id)
            if reopened is None:  # its run's end has closed it since it was read
                return contact_in(tx, topology, txid, contact, may_open_first=may_open_first)
            request = request_of(reopened)
        else:
            request = latest
    elif may_open_first:
        request = _open_next(tx, key, contact)
    else:
        raise NoRequest(f"run {contact.run.run_id} has no request for it", txid=txid)
    task, request_id = contact.task, request.request_id
    tx.queue("record_contact", request_id=request_id, task=task, **contact.this_try)
    return request


def _open_next(tx: DatabaseTransaction, key: TxidKey, contact: TaskContact) -> Request:
    for superseded in tx.all("end_superseded_requests", reason=ASKED_AGAIN, **key, **contact.run):
        # No task waits for the attempt of a task that was cleared while it ran.
        tx.run("end_attempt_of_request", request_id=superseded["request_id"], reason=ASKED_AGAIN)
    facts = tx.one("facts_for_request", **key)
    kind = kind_of_new_request(facts["committed_attempt"])
    if contact.is_dry_run and kind is not RequestKind.REPLAY:
        raise NothingToReplay(
            "it has not committed, and the run's conf makes it a dry run",
            remedy="a backfill of its date with --dag-run-conf '{\"dry_run\": false}' "
            "processes it.",
            **key,
        )
    opened = tx.one(
        "open_request",
        kind=kind.value,
        granted_after=facts["newest_attempt"],
        is_dry_run=contact.is_dry_run,
        is_skipped=facts["is_skipped"],
        reason=contact.reason or None,
        **key,
        **contact.run,
    )
    return request_of(opened)


def check_committed(tx: DatabaseTransaction, topology: str, txids: Sequence[int]) -> None:
    """Check that all of these txids can be replayed.

    :raises NothingToReplay: some have not committed, or were never emitted; names them
    """
    emitted = tx.all("emitted_txids", topology=topology, txids=list(txids))
    uncommitted = [row["txid"] for row in emitted if not row["has_committed"]]
    unknown = set(txids) - {row["txid"] for row in emitted}
    missing = {"has not committed": uncommitted, "has never emitted": unknown}
    if told := [f"{what} {with_noun(format_txids(of))}" for what, of in missing.items() if of]:
        raise NothingToReplay(f"{topology} {', and '.join(told)}")


def renew(connection: LedgerConnection, *request_ids: int) -> None:
    """Renew all requests of the runs of these, to show that the runs are alive (R3)."""
    connection.run("renew_requests_of_runs", request_ids=list(request_ids))


def close(
    connection: LedgerConnection,
    topology: str,
    txid: int,
    run: Run,
    reason: str,
    *,
    has_failed: bool = False,
) -> bool:
    """Close the run's request for a txid unless it is satisfied; return whether it was closed.

    All of the run's tasks for the txid have ended, so a task that comes later was cleared. Tasks
    that wait for the request fail at once. Its attempt is ended only if it is not sealed.

    :param has_failed: whether the commit task has, in Airflow
    """
    key = TxidKey(topology, txid)
    with connection.transaction() as tx:
        row = _latest(tx, key, run)
        if row is not None and has_failed and row["is_done_in_airflow"]:
            _close_unheard(tx, key, run)
        tx.run("record_tasks_ended", has_succeeded=not has_failed, **key, **run)
        return row is not None and _close_in(tx, row["request_id"], reason)


def _latest(tx: DatabaseTransaction, key: TxidKey, run: Run) -> Row | None:
    return tx.first("latest_request", task="", later_tasks=[], began_at=None, **key, **run)


def _close_unheard(tx: DatabaseTransaction, key: TxidKey, run: Run) -> None:
    """Ask for what was cleared although no task lives to ask for it: the run is not done (R1).

    A task that was cleared again may have asked while this one waited for the lock (C1).
    """
    hold_topology(tx, key.topology)
    row = _latest(tx, key, run)
    if row is None or not row["is_done_in_airflow"]:
        return
    never = TaskTry(max_tries=0)
    who = TaskContact(run=run, task="", this_try=never, is_dry_run=row["is_dry_run"])
    _close_in(tx, _open_next(tx, key, who).request_id, UNHEARD)


def _close_in(tx: DatabaseTransaction, request_id: int, reason: str) -> bool:
    if tx.first("close_request", request_id=request_id, reason=reason) is None:
        return False
    tx.run("end_attempt_of_request", request_id=request_id, reason=reason)
    return True


def record_problem(connection: LedgerConnection, request_id: int, error: ReliabilityError) -> None:
    """Record why a task failed before an attempt had begun; no attempt can tell it."""
    connection.run("record_problem", request_id=request_id, **error.to_ledger())


def settle(
    connection: LedgerConnection,
    topology: str,
    run: Run,
    txids: Sequence[int],
    failed: Collection[int] = (),
) -> list[int]:
    """Check that what the run requested last of each txid is done; if not, close and raise (R3).

    :param failed: the txids whose commit tasks have failed in Airflow
    :returns: the txids that the run has committed; none for a dry run
    """
    with connection.transaction() as tx:
        rows = tx.all("latest_requests_of_run", topology=topology, **run)
        if unheard := [row for row in rows if _is_unheard(row, failed)]:
            for row in unheard:
                _close_unheard(tx, TxidKey(topology, row["txid"]), run)
            rows = tx.all("latest_requests_of_run", topology=topology, **run)
        tx.run("record_tasks_ended", topology=topology, txid=None, has_succeeded=False, **run)
        requests = {row["txid"]: row["request_id"] for row in rows}
        asked = [requests[txid] for txid in _undone(rows, txids) if txid in requests]
        closed = [_close_in(tx, request, "the run ended without it") for request in asked]
        if not all(closed):  # one was satisfied since it was read
            rows = tx.all("latest_requests_of_run", topology=topology, **run)
    return _committed(topology, run, rows, txids)


def settled(
    connection: LedgerConnection,
    topology: str,
    run: Run,
    txids: Sequence[int],
    failed: Collection[int] = (),
) -> list[int]:
    """Check and return the same, and change nothing."""
    rows = connection.all("latest_requests_of_run", topology=topology, **run)
    seen = [{**row, "is_done": row["is_done"] and not _is_unheard(row, failed)} for row in rows]
    return _committed(topology, run, seen, txids)


def _is_unheard(row: Row, failed: Collection[int]) -> bool:
    """Say whether a txid's commit task had succeeded, and has failed since a clear."""
    return row["is_done_in_airflow"] and row["txid"] in failed


def _undone(rows: Sequence[Row], txids: Sequence[int]) -> list[int]:
    done = {row["txid"] for row in rows if row["is_done"]}
    return sorted({*txids, *(row["txid"] for row in rows)} - done)


def _committed(topology: str, run: Run, rows: Sequence[Row], txids: Sequence[int]) -> list[int]:
    if undone := _undone(rows, txids):
        named, why = with_noun(format_txids(undone)), ""
        for row in rows:  # why its last try failed, if that is known
            if row["txid"] == undone[0] and row["problem"] is not None:
                why = f"; txid {undone[0]}: {with_code(row['problem_code'], row['problem'])}"
        raise RunUnsatisfied(
            f"run {run.run_id} of {run.dag_id}: {named} not done{why}",
            remedy=RunUnsatisfied.remedy.about(topology=topology, txid=undone[0]),
        )
    return [
        row["txid"]
        for row in rows
        if RequestStatus(row["status"]) is RequestStatus.SATISFIED and not row["is_dry_run"]
    ]
