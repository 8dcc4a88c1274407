"""R1: a clear is told from a retry."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reliability.core.request import (
    Contact,
    Request,
    RequestKind,
    RequestStatus,
    TaskTry,
    judge_contact,
    kind_of_new_request,
)

FIRST = TaskTry(max_tries=2, try_id="a", clear_number=0, run_started="noon", is_first=True)


def latest(status=RequestStatus.OPEN, *, tasks_ended=False):
    return Request(
        request_id=1,
        number=1,
        kind=RequestKind.COMMIT,
        status=status,
        granted_after=-1,
        tasks_ended=tasks_ended,
    )


def later(**changes):
    """Another try of the same task: a retry, unless something else says more."""
    return replace(FIRST, **{"try_id": "b", "is_first": False, **changes})


RETRY = later()


@pytest.mark.parametrize(
    ("status", "recorded", "now", "expected"),
    [
        (RequestStatus.OPEN, None, FIRST, Contact.KEEP),  # a task's first contact adopts
        (RequestStatus.OPEN, FIRST, RETRY, Contact.KEEP),
        (RequestStatus.OPEN, FIRST, later(max_tries=3, is_first=True), Contact.OPEN_NEXT),
        (RequestStatus.SATISFIED, FIRST, RETRY, Contact.KEEP),  # after a lost success answer
        (RequestStatus.SATISFIED, FIRST, later(max_tries=3), Contact.OPEN_NEXT),
        (RequestStatus.SATISFIED, None, later(max_tries=5), Contact.KEEP),  # with another task
        (RequestStatus.CLOSED, FIRST, RETRY, Contact.KEEP),
        (RequestStatus.CLOSED, FIRST, later(max_tries=3), Contact.OPEN_NEXT),
        (RequestStatus.CLOSED, None, FIRST, Contact.OPEN_NEXT),  # it never ran: it was cleared
        (RequestStatus.GIVEN_UP, FIRST, RETRY, Contact.REOPEN),  # the run was heard of again
        (RequestStatus.GIVEN_UP, FIRST, later(max_tries=4), Contact.OPEN_NEXT),
        (RequestStatus.PARKED, FIRST, RETRY, Contact.KEEP),
        (RequestStatus.PARKED, None, FIRST, Contact.KEEP),
    ],
)
def test_contact(status, recorded, now, expected):
    assert judge_contact(latest(status), recorded, now) is expected


@pytest.mark.parametrize("status", [RequestStatus.OPEN, RequestStatus.SATISFIED])
@pytest.mark.parametrize(
    ("what", "now", "expected"),
    [
        ("a clear with fewer retries", later(max_tries=1, is_first=True), Contact.OPEN_NEXT),
        (
            "a clear with retries lowered by just the tries so far",
            later(clear_number=1, is_first=True),
            Contact.OPEN_NEXT,
        ),
        ("a retry, and another task was cleared", later(clear_number=1), Contact.KEEP),
        (
            "a wait that ends, and another task was cleared",
            replace(FIRST, clear_number=1),
            Contact.KEEP,
        ),
        ("a run made again under its run_id", later(run_started="one", is_first=True), "next"),
        ("the same, cleared before", later(clear_number=0, run_started="one"), "next"),
    ],
)
def test_a_clear_is_told_from_a_retry_by_no_counter_alone(status, what, now, expected):
    expected = Contact.OPEN_NEXT if expected == "next" else expected
    assert judge_contact(latest(status), FIRST, now) is expected, what


def test_a_run_that_was_cleared_deleted_and_made_again_is_another_run():
    before = replace(FIRST, clear_number=2)
    assert judge_contact(latest(), before, later(is_first=True)) is Contact.OPEN_NEXT


@pytest.mark.parametrize("status", list(RequestStatus))
@pytest.mark.parametrize("recorded", [None, FIRST])
def test_whoever_comes_after_all_tasks_had_ended_was_cleared(status, recorded):
    assert judge_contact(latest(status, tasks_ended=True), recorded, RETRY) is Contact.OPEN_NEXT


@pytest.mark.parametrize("status", list(RequestStatus))
def test_a_task_that_comes_first_when_a_later_one_has_come_was_cleared_alone(status):
    further = replace(latest(status), downstream_has_worked=True)
    assert judge_contact(further, None, RETRY) is Contact.OPEN_NEXT
    retried = judge_contact(further, FIRST, RETRY)
    assert retried is judge_contact(latest(status), FIRST, RETRY)


@pytest.mark.parametrize("status", [RequestStatus.OPEN, RequestStatus.SATISFIED])
def test_a_new_task_that_comes_after_a_later_one_was_not_cleared(status):
    """R1: Airflow starts the tasks that a clear adds before those upstream of them."""
    further = replace(latest(status), downstream_has_worked=True)
    assert judge_contact(further, None, replace(FIRST, is_new=True)) is Contact.KEEP


def test_a_task_that_outlived_the_end_of_its_transaction_opens_nothing():
    ended = latest(RequestStatus.CLOSED, tasks_ended=True)
    assert judge_contact(ended, FIRST, FIRST) is Contact.KEEP


def test_a_ledger_from_before_knows_of_tries_what_it_recorded():
    before = TaskTry(max_tries=2)
    assert judge_contact(latest(), before, later()) is Contact.KEEP
    assert judge_contact(latest(), before, later(max_tries=3)) is Contact.OPEN_NEXT


def test_a_request_for_a_committed_txid_is_a_replay():
    assert kind_of_new_request(None) is RequestKind.COMMIT
    assert kind_of_new_request(0) is RequestKind.REPLAY
