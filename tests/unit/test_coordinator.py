"""The coordinator's decisions, as a table of situations."""

from __future__ import annotations

import pytest

from reliability.core.coordinator import (
    AttemptStatus,
    Begin,
    Blocked,
    Commit,
    Done,
    Fail,
    Goal,
    LiveAttempt,
    Snapshot,
    Wait,
    next_action,
)
from reliability.core.errors import RequestClosed, TxidBlocked
from reliability.core.request import Request, RequestKind, RequestStatus

PROCESSING, SEALING, PROCESSED = (
    AttemptStatus.PROCESSING,
    AttemptStatus.SEALING,
    AttemptStatus.PROCESSED,
)
OWN, OTHERS = 1, 2


def request(kind=RequestKind.COMMIT, status=RequestStatus.OPEN, granted_after=-1):
    return Request(request_id=OWN, number=1, kind=kind, status=status, granted_after=granted_after)


def live(status=PROCESSING, attempt_id=0, request_id=OWN, lease_expired=False):
    return LiveAttempt(
        attempt_id=attempt_id, status=status, request_id=request_id, lease_expired=lease_expired
    )


def snapshot(txid=1, curr_txid=1, pending=3, attempt=None, replays=0, blocked=None):
    return Snapshot(
        txid=txid,
        curr_txid=curr_txid,
        max_spout_pending=pending,
        committed_attempt=0 if txid < curr_txid else None,
        live=attempt,
        replays_processing=replays,
        blocked=blocked,
    )


BLOCKED = Blocked(txid=1, run_id="scheduled__1997-02-01", interval="[1997-01, 1997-02)", reason="")
REPLAY = request(RequestKind.REPLAY, granted_after=0)


@pytest.mark.parametrize(
    ("situation", "asked", "goal", "expected"),
    [
        # the window [curr_txid, curr_txid + max_spout_pending)
        (snapshot(1), request(), Goal.PROCESSED, Begin),
        (snapshot(3), request(), Goal.PROCESSED, Begin),
        (snapshot(4), request(), Goal.PROCESSED, Wait),
        (snapshot(2, pending=1), request(), Goal.PROCESSED, Wait),
        # only curr_txid commits
        (snapshot(1, attempt=live(PROCESSED)), request(), Goal.PROCESSED, Done),
        (snapshot(1, attempt=live(PROCESSED)), request(), Goal.COMMITTED, Commit),
        (snapshot(2, attempt=live(PROCESSED)), request(), Goal.COMMITTED, Wait),
        # R2: what a dead try of this request left behind is fenced at once
        (snapshot(1, attempt=live(PROCESSING)), request(), Goal.PROCESSED, Begin),
        (snapshot(1, attempt=live(SEALING)), request(), Goal.PROCESSED, Begin),
        # R2: another request's attempt is waited for while it has its lease
        (snapshot(1, attempt=live(request_id=OTHERS)), request(), Goal.PROCESSED, Wait),
        (
            snapshot(1, attempt=live(request_id=OTHERS, lease_expired=True)),
            request(),
            Goal.PROCESSED,
            Begin,
        ),
        # R2: another request's PROCESSED attempt is taken as one's own
        (snapshot(1, attempt=live(PROCESSED, request_id=OTHERS)), request(), Goal.PROCESSED, Done),
        (
            snapshot(1, attempt=live(PROCESSED, request_id=OTHERS)),
            request(),
            Goal.COMMITTED,
            Commit,
        ),
        # R4: a commit task whose attempt fell begins the next one itself
        (snapshot(1), request(), Goal.COMMITTED, Begin),
        # replays: position decides, and Spark really runs again
        (snapshot(1, curr_txid=5), REPLAY, Goal.PROCESSED, Begin),
        (snapshot(1, curr_txid=5, replays=3), REPLAY, Goal.PROCESSED, Wait),
        (snapshot(1, 5, attempt=live(PROCESSED, attempt_id=1)), REPLAY, Goal.PROCESSED, Done),
        (snapshot(1, 5, attempt=live(PROCESSED, attempt_id=1)), REPLAY, Goal.COMMITTED, Commit),
        # R2: an attempt from before the request is committed first, not taken for the replay
        (snapshot(1, 5, attempt=live(PROCESSED, attempt_id=0)), REPLAY, Goal.PROCESSED, Commit),
        # requests that have ended
        (snapshot(1), request(status=RequestStatus.SATISFIED), Goal.COMMITTED, Done),
        (snapshot(1), request(status=RequestStatus.CLOSED), Goal.COMMITTED, Fail),
        (snapshot(1), request(status=RequestStatus.GIVEN_UP), Goal.COMMITTED, Fail),
        # E2: waiting for what nobody works on would never end
        (snapshot(4, blocked=BLOCKED), request(), Goal.PROCESSED, Fail),
        (snapshot(2, attempt=live(PROCESSED), blocked=BLOCKED), request(), Goal.COMMITTED, Fail),
    ],
)
def test_next_action(situation, asked, goal, expected):
    assert isinstance(next_action(situation, asked, goal), expected)


def test_a_blocked_wait_names_txid_interval_and_run():
    action = next_action(snapshot(4, blocked=BLOCKED), request(), Goal.PROCESSED)
    assert isinstance(action, Fail)
    assert isinstance(action.error, TxidBlocked)
    for part in ("txid 1", "scheduled__1997-02-01", "[1997-01, 1997-02)"):
        assert part in str(action.error)


def test_a_closed_request_fails_without_retry():
    action = next_action(snapshot(1), request(status=RequestStatus.CLOSED), Goal.PROCESSED)
    assert isinstance(action, Fail)
    assert isinstance(action.error, RequestClosed)
