"""Requests for txids, and whether a returning task makes a new request (R1)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from reliability.core.statement_key import StatementKey


class RequestKind(str, Enum):
    """COMMIT requests an uncommitted txid; REPLAY requests a committed one again."""

    COMMIT = "COMMIT"
    REPLAY = "REPLAY"


class RequestStatus(str, Enum):
    """OPEN is in progress; the other statuses are final, except that GIVEN_UP can be reopened.

    PARKED was closed by a person who parked the txid: only a clear makes a new request (C7).
    """

    OPEN = "OPEN"
    SATISFIED = "SATISFIED"
    CLOSED = "CLOSED"
    GIVEN_UP = "GIVEN_UP"
    PARKED = "PARKED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request; an attempt newer than `granted_after` was granted after the request was made.

    A dry run is a replay request that reports what would change and changes nothing.

    :param dag_id, run_id: the run that made it
    :param tasks_ended: all tasks of the run for the txid have ended since
    :param downstream_has_worked: a task downstream of the asking one has already worked for it
    """

    request_id: int
    number: int
    kind: RequestKind
    status: RequestStatus
    granted_after: int
    reason: str = ""
    is_dry_run: bool = False
    tasks_ended: bool = False
    downstream_has_worked: bool = False
    dag_id: str = ""
    run_id: str = ""


class Contact(str, Enum):
    """What a task's contact means for the run's latest request for a txid."""

    KEEP = "KEEP"
    OPEN_NEXT = "OPEN_NEXT"
    REOPEN = "REOPEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTry(StatementKey):
    """One try of an Airflow task; it distinguishes a clear from a retry.

    :param max_tries: a clear sets it to the number of tries so far plus the task's retries
    :param try_id: Airflow's id of the try; a retry and a clear change it, a deferral does not
    :param clear_number: of the run; it increases when any of its tasks is cleared
    :param run_started: when the run began; changes if the run was deleted and created again
    :param is_first: the task counts it as its first try since it was created or cleared
    :param is_new: it is the first try that the task has ever had
    """

    max_tries: int
    try_id: str = ""
    clear_number: int = 0
    run_started: str = ""
    is_first: bool = False
    is_new: bool = False

    def is_of_another_run(self, recorded: TaskTry) -> bool:
        """Say whether the run was deleted and created again with the same run_id."""
        if self.clear_number == recorded.clear_number:
            return recorded.run_started not in ("", self.run_started)
        return self.clear_number < recorded.clear_number


def judge_contact(latest: Request, recorded: TaskTry | None, now: TaskTry) -> Contact:
    """Decide what a task's contact means: continue with the latest request, or open the next (R1).

    :param recorded: the try in which this task first worked for the latest request, None if never
    """
    if _was_cleared(latest, recorded, now):
        return Contact.OPEN_NEXT
    if latest.status is RequestStatus.GIVEN_UP:
        return Contact.REOPEN
    return Contact.KEEP


def _was_cleared(latest: Request, recorded: TaskTry | None, now: TaskTry) -> bool:
    """Say whether the task was cleared or its run created again: a person wants the work repeated.

    A clear of another task of the run also increases clear_number. So clear_number counts only in
    the first try after a clear, which `max_tries` alone would miss if `retries` was lowered.
    """
    if recorded is not None and now.try_id and now.try_id == recorded.try_id:
        return False  # the same try, after a wait
    if latest.tasks_ended:
        return True
    if recorded is None:
        # The request is closed and this task never worked for it: keeping it could only fail. Or
        # the downstream tasks were cleared without this one, and now this one without them. A new
        # task was never cleared: Airflow has started the downstream task before it.
        return latest.status is RequestStatus.CLOSED or (
            latest.downstream_has_worked and not now.is_new
        )
    return (
        now.max_tries != recorded.max_tries
        or now.is_of_another_run(recorded)
        or (now.clear_number > recorded.clear_number and now.is_first)
    )


def kind_of_new_request(committed_attempt: int | None) -> RequestKind:
    """Decide a new request's kind; otherwise a retry after a lost answer would be a replay."""
    return RequestKind.COMMIT if committed_attempt is None else RequestKind.REPLAY
