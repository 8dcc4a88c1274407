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
    """

    request_id: int
    number: int
    kind: RequestKind
    status: RequestStatus
    granted_after: int
    reason: str = ""
    is_dry_run: bool = False


class Contact(str, Enum):
    """What a task's contact means for the run's latest request of a txid."""

    KEEP = "KEEP"
    OPEN_NEXT = "OPEN_NEXT"
    REOPEN = "REOPEN"


def judge_contact(latest: Request, recorded: int | None, max_tries: int) -> Contact:
    """Tell a retry from a clear by `ti.max_tries`: a clear raises it, a retry does not.

    :param recorded: max_tries when this task first worked for the latest request, None if never
    """
    if recorded is not None and max_tries > recorded:
        return Contact.OPEN_NEXT
    # A request is closed when all tasks of its transaction have ended. A task that comes for the
    # first time after that was cleared; to adopt the closed request could only fail it.
    if recorded is None and latest.status is RequestStatus.CLOSED:
        return Contact.OPEN_NEXT
    if latest.status is RequestStatus.GIVEN_UP:
        return Contact.REOPEN
    return Contact.KEEP


def kind_of_new_request(committed_attempt: int | None) -> RequestKind:
    """Decide a new request's kind; without it a retry after a lost answer would be a replay."""
    return RequestKind.COMMIT if committed_attempt is None else RequestKind.REPLAY
