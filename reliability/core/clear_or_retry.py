"""Whether a task that returns was cleared or is tried again, and so makes a new request (R1).

What happens when a committed run is cleared is decided here.
"""

from __future__ import annotations

from enum import Enum

from reliability.core.request import Request, RequestKind, RequestStatus, TaskTry


class Contact(str, Enum):
    """What a task's contact means for the run's latest request for a txid."""

    KEEP = "KEEP"
    OPEN_NEXT = "OPEN_NEXT"
    REOPEN = "REOPEN"


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
