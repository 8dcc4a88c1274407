"""What a task of one txid reads from the position of the whole topology."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reliability.core.coordinator import AttemptStatus, Blocked, LiveAttempt
from reliability.core.plan import Due, Position
from reliability.core.standing import Standing

PROCESSING, SEALING = AttemptStatus.PROCESSING, AttemptStatus.SEALING
PROCESSED = AttemptStatus.PROCESSED


def standing(live=None, **facts):
    """A topology whose txids 1 to 4 have committed, with the live attempts txid -> status."""
    usual: dict[str, Any] = {
        "position": Position(curr_txid=5),
        "max_spout_pending": 3,
        "max_replay_pending": 2,
        "paused": None,
        "is_throttled": False,
        "held": {},
        **dict.fromkeys(["unfrozen", "skipped"], frozenset()),
    }
    of_all: dict[str, Any] = {"attempt_id": 0, "request_id": 1, "lease_expired": False, "steps": {}}
    attempts = {txid: LiveAttempt(status=each, **of_all) for txid, each in (live or {}).items()}
    return Standing(**{**usual, **facts}, live=attempts)


def test_time_that_passes_is_no_news_for_who_waits():
    """The poller looks at all waiting tasks again when the standing has changed."""
    due = Due(txid=5, attempt_id=0, nonce="n", committed_attempt=None, staged_rows=1)
    one, later, other = (
        standing(position=Position(curr_txid=5, processed=(each,)))
        for each in (due, replace(due, age=1.0), replace(due, attempt_id=1))
    )
    assert one == later
    assert one != other


def test_a_txid_is_told_its_own_facts():
    one = standing({6: PROCESSING}, held={5: "a wrong delivery"}, skipped=frozenset({6}))
    five, six = one.snapshot(5), one.snapshot(6)
    assert (five.held, five.is_skipped, five.live) == ("a wrong delivery", False, None)
    assert (six.held, six.is_skipped, six.live) == (None, True, one.live[6])
    assert (six.curr_txid, six.max_spout_pending, six.max_replay_pending) == (5, 3, 2)


def test_only_those_behind_a_blocked_txid_wait_for_it():
    """E2."""
    blocked = Blocked(txid=5, run_id="r", interval="", reason="")
    one = standing(blocked=blocked)
    assert [one.snapshot(txid).blocked for txid in (4, 5, 6)] == [None, None, blocked]


def test_an_opaque_batch_starts_where_a_live_or_committed_one_ends():
    """E4."""
    one = standing({6: PROCESSING}, unfrozen=frozenset({4, 5, 6, 7, 9}))
    assert [txid for txid in range(3, 10) if one.snapshot(txid).lacks_predecessor] == [6, 9]
    assert [txid for txid in range(3, 10) if one.snapshot(txid).is_frozen] == [3, 8]


def test_other_replays_take_a_place_while_spark_works_for_them():
    one = standing({4: SEALING, 3: PROCESSED, 2: PROCESSING, 1: PROCESSING, 5: PROCESSING})
    assert one.replays() == {1, 2, 4}
    assert one.snapshot(2).other_replays == (1, 4)
    assert not one.snapshot(3).may_process


@pytest.mark.parametrize(
    ("live", "waiting", "called", "admitted"),
    [
        ({}, [3, 1, 2], set(), {1, 2}),
        ({4: PROCESSING}, [3, 1, 2], set(), {1}),
        ({4: PROCESSING}, [3, 1, 2], {4}, {1}),  # it has begun
        ({}, [3, 1, 2], {1}, {2}),
        ({3: PROCESSING, 4: SEALING}, [1, 2], set(), set()),
        ({2: SEALING, 3: SEALING, 4: SEALING}, [0, 1], set(), set()),  # `max_replay_pending` fell
    ],
)
def test_the_lowest_waiting_replays_are_let_in(live, waiting, called, admitted):
    assert standing(live).admitted(waiting, called) == admitted
