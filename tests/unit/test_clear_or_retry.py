"""R1: a clear is told from a retry."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reliability.core.clear_or_retry import Contact, judge_contact, kind_of_new_request
from reliability.core.request import Request, RequestKind, RequestStatus, TaskTry

S = RequestStatus
KEEP, OPEN_NEXT, REOPEN = Contact.KEEP, Contact.OPEN_NEXT, Contact.REOPEN
FIRST = TaskTry(max_tries=2, try_id="a", clear_number=0, run_started="noon", is_first=True)


def latest(status=S.OPEN, **facts):
    return Request(
        request_id=1,
        number=1,
        kind=RequestKind.COMMIT,
        status=status,
        granted_after=-1,
        is_dry_run=False,
        **facts,
    )


def later(**changes):
    """Another try of the same task: a retry, unless something else says more."""
    return replace(FIRST, **{"try_id": "b", "is_first": False, **changes})


RETRY = later()


@pytest.mark.parametrize(
    ("status", "recorded", "now", "expected"),
    [
        (S.OPEN, None, FIRST, KEEP),  # a task's first contact adopts
        (S.OPEN, FIRST, RETRY, KEEP),
        (S.OPEN, FIRST, later(max_tries=3, is_first=True), OPEN_NEXT),
        (S.SATISFIED, FIRST, RETRY, KEEP),  # after a lost success answer
        (S.SATISFIED, FIRST, later(max_tries=3), OPEN_NEXT),
        (S.SATISFIED, None, later(max_tries=5), KEEP),  # with another task
        (S.CLOSED, FIRST, RETRY, KEEP),
        (S.CLOSED, FIRST, later(max_tries=3), OPEN_NEXT),
        (S.CLOSED, None, FIRST, OPEN_NEXT),  # it never ran: it was cleared
        (S.GIVEN_UP, FIRST, RETRY, REOPEN),  # the run was heard of again
        (S.GIVEN_UP, FIRST, later(max_tries=4), OPEN_NEXT),
        (S.PARKED, FIRST, RETRY, KEEP),
        (S.PARKED, None, FIRST, KEEP),
    ],
)
def test_contact(status, recorded, now, expected):
    assert judge_contact(latest(status), recorded, now) is expected


@pytest.mark.parametrize("status", [S.OPEN, S.SATISFIED])
@pytest.mark.parametrize(
    ("what", "before", "now", "expected"),
    [
        ("a clear with fewer retries", FIRST, later(max_tries=1, is_first=True), OPEN_NEXT),
        ("a clear with retries lowered by just the tries so far", FIRST,
         later(clear_number=1, is_first=True), OPEN_NEXT),
        ("a retry, and another task was cleared", FIRST, later(clear_number=1), KEEP),
        ("a wait that ends, and another task was cleared", FIRST,
         replace(FIRST, clear_number=1), KEEP),
        ("a run made again under its run_id", FIRST,
         later(run_started="one", is_first=True), OPEN_NEXT),
        ("the same, cleared before", FIRST, later(clear_number=0, run_started="one"), OPEN_NEXT),
        ("a run that was cleared, deleted and made again", replace(FIRST, clear_number=2),
         later(is_first=True), OPEN_NEXT),
        ("a first try that is begun twice", FIRST, later(is_first=True), KEEP),
        ("a try that says no more, and another task was cleared", FIRST,
         TaskTry(max_tries=2, run_started="noon", clear_number=1), KEEP),
        ("a try that says no more", FIRST, TaskTry(max_tries=2, run_started="noon"), KEEP),
        ("a retry, in a ledger from before", TaskTry(max_tries=2), later(), KEEP),
        ("a clear, in a ledger from before", TaskTry(max_tries=2), later(max_tries=3), OPEN_NEXT),
    ],
)  # fmt: skip
def test_a_clear_is_told_from_a_retry_by_no_counter_alone(status, what, before, now, expected):
    assert judge_contact(latest(status), before, now) is expected, what


@pytest.mark.parametrize("status", list(RequestStatus))
@pytest.mark.parametrize("recorded", [None, FIRST])
def test_whoever_comes_after_all_tasks_had_ended_was_cleared(status, recorded):
    assert judge_contact(latest(status, tasks_ended=True), recorded, RETRY) is OPEN_NEXT


@pytest.mark.parametrize("status", list(RequestStatus))
def test_a_task_that_comes_first_when_a_later_one_has_come_was_cleared_alone(status):
    further = replace(latest(status), downstream_has_worked=True)
    assert judge_contact(further, None, RETRY) is OPEN_NEXT
    retried = judge_contact(further, FIRST, RETRY)
    assert retried is judge_contact(latest(status), FIRST, RETRY)


@pytest.mark.parametrize("status", [S.OPEN, S.SATISFIED])
def test_a_new_task_that_comes_after_a_later_one_was_not_cleared(status):
    """R1: Airflow starts the tasks that a clear adds before those upstream of them."""
    further = replace(latest(status), downstream_has_worked=True)
    assert judge_contact(further, None, replace(FIRST, is_new=True)) is KEEP


def test_a_task_that_outlived_the_end_of_its_transaction_opens_nothing():
    ended = latest(S.CLOSED, tasks_ended=True)
    assert judge_contact(ended, FIRST, FIRST) is KEEP


def test_a_request_for_a_committed_txid_is_a_replay():
    assert kind_of_new_request(None) is RequestKind.COMMIT
    assert kind_of_new_request(0) is RequestKind.REPLAY
