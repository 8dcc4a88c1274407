"""R1: a clear raises ti.max_tries, a retry does not."""

from __future__ import annotations

import pytest

from reliability.core.request import (
    Contact,
    Request,
    RequestKind,
    RequestStatus,
    judge_contact,
    kind_of_new_request,
)


def latest(status=RequestStatus.OPEN):
    return Request(request_id=1, number=1, kind=RequestKind.COMMIT, status=status, granted_after=-1)


@pytest.mark.parametrize(
    ("status", "recorded", "max_tries", "expected"),
    [
        (RequestStatus.OPEN, None, 2, Contact.KEEP),  # a task's first contact adopts
        (RequestStatus.OPEN, 2, 2, Contact.KEEP),  # a retry
        (RequestStatus.OPEN, 2, 3, Contact.OPEN_NEXT),  # a clear
        (RequestStatus.SATISFIED, 2, 2, Contact.KEEP),  # a retry after a lost success answer
        (RequestStatus.SATISFIED, 2, 3, Contact.OPEN_NEXT),
        (RequestStatus.SATISFIED, None, 5, Contact.KEEP),  # cleared with another task's request
        (RequestStatus.CLOSED, 2, 2, Contact.KEEP),
        (RequestStatus.CLOSED, 2, 3, Contact.OPEN_NEXT),
        (RequestStatus.CLOSED, None, 2, Contact.OPEN_NEXT),  # it never ran before: it was cleared
        (RequestStatus.GIVEN_UP, 2, 2, Contact.REOPEN),  # the run was heard of again
        (RequestStatus.GIVEN_UP, 2, 4, Contact.OPEN_NEXT),
    ],
)
def test_contact(status, recorded, max_tries, expected):
    assert judge_contact(latest(status), recorded, max_tries) is expected


def test_a_request_for_a_committed_txid_is_a_replay():
    assert kind_of_new_request(None) is RequestKind.COMMIT
    assert kind_of_new_request(0) is RequestKind.REPLAY
