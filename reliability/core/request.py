"""Requests: who wants a txid done, and whether a task that comes again asks anew (R1)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class RequestKind(str, Enum):
    """A commit request wants an uncommitted txid committed; a replay request wants it again."""

    COMMIT = "COMMIT"
    REPLAY = "REPLAY"


class RequestStatus(str, Enum):
    """OPEN is being worked on; the others are ends, of which GIVEN_UP can be opened again.

    PARKED is closed by a person who parked the txid: only a clear asks for it anew (C7).
    """

    OPEN = "OPEN"
    SATISFIED = "SATISFIED"
    CLOSED = "CLOSED"
    GIVEN_UP = "GIVEN_UP"
    PARKED = "PARKED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request; an attempt newer than `granted_after` was granted after the request came.

    A dry run is a replay request that wants to know what would change, and changes nothing.

    :param tasks_ended: all of the run's tasks for the txid have ended since
    :param is_further: a task that comes after the asking one has worked for it
    """

    request_id: int
    number: int
    kind: RequestKind
    status: RequestStatus
    granted_after: int
    reason: str = ""
    is_dry_run: bool = False
    tasks_ended: bool = False
    is_further: bool = False


class Contact(str, Enum):
    """What a task's contact means for the run's latest request of a txid."""

    KEEP = "KEEP"
    OPEN_NEXT = "OPEN_NEXT"
    REOPEN = "REOPEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTry:
    """One try of a task of Airflow's: what tells a clear from a retry.

    :param max_tries: a clear sets it to the tries so far and the retries that the task has by then
    :param try_id: Airflow's id of the try; a retry and a clear change it, a deferral does not
    :param clear_number: the run's; it rises when any of its tasks is cleared
    :param run_started: when the run began; one that was deleted and made again began anew
    :param is_first: by its own count the first try since the task was created or cleared
    """

    max_tries: int
    try_id: str = ""
    clear_number: int = 0
    run_started: str = ""
    is_first: bool = False

    def is_of_another_run(self, recorded: TaskTry) -> bool:
        """Say whether the run was deleted, and made again under the same run_id."""
        if self.clear_number == recorded.clear_number:
            return recorded.run_started not in ("", self.run_started)
        return self.clear_number < recorded.clear_number


def judge_contact(latest: Request, recorded: TaskTry | None, now: TaskTry) -> Contact:
    """Decide what a task's contact means: go on with the latest request, or open the next (R1).

    :param recorded: the try in which this task first worked for the latest request, None if never
    """
    if _was_cleared(latest, recorded, now):
        return Contact.OPEN_NEXT
    if latest.status is RequestStatus.GIVEN_UP:
        return Contact.REOPEN
    return Contact.KEEP


def _was_cleared(latest: Request, recorded: TaskTry | None, now: TaskTry) -> bool:
    """Say whether the task was cleared, or its run made again: a person wants its work done anew.

    A clear of another task of the run raises clear_number, too. So it counts only with the first
    try after a clear, which retries that were lowered by just the tries so far would hide.
    """
    if recorded is not None and now.try_id and now.try_id == recorded.try_id:
        return False  # a wait that has ended
    if latest.tasks_ended:
        return True
    if recorded is None:
        # Closed, and this task has never come: to adopt the request could only fail it. Or those
        # behind it were cleared without it, and now it is cleared without them.
        return latest.status is RequestStatus.CLOSED or latest.is_further
    return (
        now.max_tries != recorded.max_tries
        or now.is_of_another_run(recorded)
        or (now.clear_number > recorded.clear_number and now.is_first)
    )


def kind_of_new_request(committed_attempt: int | None) -> RequestKind:
    """Decide a new request's kind; without it a retry after a lost answer would be a replay."""
    return RequestKind.COMMIT if committed_attempt is None else RequestKind.REPLAY
