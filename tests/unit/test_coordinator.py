"""The coordinator's decisions, as a table of situations."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from reliability.core.coordinator import (
    AttemptStatus,
    Begin,
    Blocked,
    Commit,
    CommitEmpty,
    Done,
    DryRun,
    Fail,
    Goal,
    LiveAttempt,
    Seal,
    Snapshot,
    StepProgress,
    Submit,
    Wait,
    Work,
    next_action,
    why_waits,
)
from reliability.core.errors import (
    BlockedTooLong,
    ReplayNotPossible,
    RequestClosed,
    TxidBlocked,
    TxidHeld,
)
from reliability.core.plan import Due, Position
from reliability.core.request import Request, RequestKind, RequestStatus
from reliability.core.skip import Skipped
from reliability.core.waits import WaitReason, WaitsFor

PROCESSING, SEALING = AttemptStatus.PROCESSING, AttemptStatus.SEALING
PROCESSED = AttemptStatus.PROCESSED
OWN, OTHERS = 1, 2


def request(kind=RequestKind.COMMIT, status=RequestStatus.OPEN, granted_after=-1):
    own: dict[str, Any] = {"request_id": OWN, "number": 1, "is_dry_run": False}
    return Request(kind=kind, status=status, granted_after=granted_after, **own)


def live(status=PROCESSING, attempt_id=0, request_id=OWN, lease_expired=False, **steps):
    """A live attempt; a step is 'running by …', 'done' or None where nobody has taken it up."""
    progress = {
        name: StepProgress(claimed_by=said and said.split()[-1], is_done=said == "done")
        for name, said in (steps or {"process": "running by me"}).items()
    }
    return LiveAttempt(
        attempt_id=attempt_id,
        status=status,
        request_id=request_id,
        lease_expired=lease_expired,
        steps=progress,
        sealing_task="me" if status is SEALING else None,
    )


def snapshot(txid=1, curr_txid=1, pending=3, attempt=None, replays=0, blocked=None, **facts):
    is_gathering = facts.pop("is_gathering", False)
    processed: tuple[Due, ...] = ()
    if attempt is not None and attempt.is_processed and not attempt.is_dry_run:
        processed = (Due(txid=txid, attempt_id=0, nonce="", committed_attempt=None, staged_rows=1),)
    return Snapshot(
        txid=txid,
        position=Position(curr_txid=curr_txid, is_gathering=is_gathering, processed=processed),
        max_spout_pending=pending,
        live=attempt,
        other_replays=tuple(range(101, 101 + replays)),
        blocked=blocked,
        **{"is_frozen": True, "max_replay_pending": 1, **facts},
    )


def work(goal, *, task="me", steps=None, others=()):
    return Work(goal=goal, task=task, steps=steps or {"process": ()}, other_steps=frozenset(others))


BLOCKED = Blocked(txid=1, run_id="scheduled__1997-02-01", interval="[1997-01, 1997-02)", reason="")
OF_OWN_RUN = replace(BLOCKED, requested_by=(("shop", "other"), ("shop", "own")))
REPLAY = request(RequestKind.REPLAY, granted_after=0)
EXPIRED = live(request_id=OTHERS, lease_expired=True)
BY_OTHERS = live(PROCESSED, request_id=OTHERS)


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
        # a commit waits for more to gather
        (snapshot(1, attempt=live(PROCESSED), is_gathering=True), request(), Goal.PROCESSED, Done),
        (snapshot(1, attempt=live(PROCESSED), is_gathering=True), request(), Goal.COMMITTED, Wait),
        # R2: what a dead try of this request left behind is fenced at once
        (snapshot(1, attempt=live(PROCESSING)), request(), Goal.PROCESSED, Begin),
        (snapshot(1, attempt=live(SEALING)), request(), Goal.PROCESSED, Begin),
        # R2: another request's attempt is waited for while it has its lease
        (snapshot(1, attempt=live(request_id=OTHERS)), request(), Goal.PROCESSED, Wait),
        (snapshot(1, attempt=EXPIRED), request(), Goal.PROCESSED, Begin),
        # R2: another request's PROCESSED attempt is taken as one's own
        (snapshot(1, attempt=BY_OTHERS), request(), Goal.PROCESSED, Done),
        (snapshot(1, attempt=BY_OTHERS), request(), Goal.COMMITTED, Commit),
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
        # E2: behind what nobody works on, a task waits
        (snapshot(4, blocked=BLOCKED), request(), Goal.PROCESSED, Wait),
        (snapshot(2, attempt=live(PROCESSED), blocked=BLOCKED), request(), Goal.COMMITTED, Wait),
    ],
)
def test_next_action(situation, asked, goal, expected):
    assert isinstance(next_action(situation, asked, work(goal)), expected)


def test_a_blocked_wait_names_txid_interval_and_run():
    """E2: a wait that names nobody lasts for days, and nobody sees it."""
    action = next_action(snapshot(4, blocked=BLOCKED), request(), work(Goal.PROCESSED))
    assert isinstance(action, Wait)
    assert action.blocked == BLOCKED
    for part in ("txid 1", "scheduled__1997-02-01", "[1997-01, 1997-02)"):
        assert part in action.blocked.describe()
    assert "resume-runs shop" in BLOCKED.advice("shop")
    assert "release shop" in replace(BLOCKED, is_held=True).advice("shop")
    released = replace(BLOCKED, is_released=True, reason_code="SOURCE_CHANGED").advice("shop")
    assert "What to do: `reliability resume-runs shop` shows what to clear" in released


def test_what_is_blocked_says_the_remedy_of_its_own_error():
    """E2: to run resume-runs again and again does not help where a file was replaced."""
    said = replace(BLOCKED, reason_code="SOURCE_CHANGED", reason="a.csv").advice("shop")
    assert "is blocked: [SOURCE_CHANGED] a.csv" in said
    assert "`reliability replay shop 1 --refreeze --reason" in said
    said = replace(BLOCKED, reason_code="ROWS_UNACCOUNTED", reason="2 rows").advice("shop")
    assert "look for an inner join" in said.lower() or "join" in said
    assert "resume-runs shop" in said


def test_what_a_file_may_cure_names_the_way_to_take_the_file():
    """E2: who cast, or delivered the file again, and ran resume-runs met SOURCE_CHANGED."""
    for code in ("SCHEMA_MISMATCH", "FILE_REFUSED", "AUDIT_FAILED", "UNEXPECTED_ANSWER"):
        said = replace(BLOCKED, reason_code=code, reason="x").advice("shop")
        assert "`reliability replay shop 1 --refreeze --reason" in said
        assert said.index("--refreeze") > said.index("What to do")
        assert "resume-runs shop" in said
    assert "refreeze" not in replace(BLOCKED, reason_code="EVALUATED_TWICE").advice("shop")


@pytest.mark.parametrize(
    ("situation", "asked", "error"),
    [
        # E2: a run that waits for what it gave up itself would never end, and nobody would see it
        (
            snapshot(4, blocked=OF_OWN_RUN),
            replace(request(), dag_id="shop", run_id="own"),
            TxidBlocked,
        ),
        # E2: a topology may end its waits
        (snapshot(4, blocked=replace(BLOCKED, is_overdue=True)), request(), BlockedTooLong),
        (snapshot(1), request(status=RequestStatus.CLOSED), RequestClosed),
        (snapshot(1, held="a wrong delivery"), request(), TxidHeld),  # until a person releases it
        # before it runs
        (snapshot(1, 5, replay_refusal="totals keeps no history"), REPLAY, ReplayNotPossible),
    ],
)
def test_what_cannot_be_done_fails_at_once(situation, asked, error):
    action = next_action(situation, asked, work(Goal.PROCESSED))
    assert isinstance(action, Fail)
    assert isinstance(action.error, error)


# --- several steps --------------------------------------------------------------------------------

CHAIN = {"clean": (), "rollup": ("clean",)}
SIDE = {"left": (), "right": ()}


@pytest.mark.parametrize(
    ("attempt", "steps", "goal", "expected"),
    [
        # a step comes after what it reads from
        (live(clean=None, rollup=None), {"clean": ()}, Goal.PROCESSED, Submit("clean")),
        (live(clean="done", rollup=None), {"clean": ()}, Goal.PROCESSED, Done()),
        (live(clean="done", rollup=None), CHAIN, Goal.PROCESSED, Submit("rollup")),
        (live(clean="running by other", rollup=None), CHAIN, Goal.PROCESSED, Wait),
        # R4: a task runs what its goal lacks, another task's step too
        (live(clean=None, rollup=None), CHAIN, Goal.PROCESSED, Submit("clean")),
        (live(left=None, right=None), SIDE, Goal.COMMITTED, Submit("left")),
        # two steps run beside each other; what one's own earlier try left behind is begun anew
        (live(left="running by other", right=None), {"right": ()}, Goal.PROCESSED, Submit("right")),
        (live(left="done", right="running by me"), {"right": ()}, Goal.PROCESSED, Begin()),
        (live(left="running by other", right="done"), {"right": ()}, Goal.PROCESSED, Done()),
        # the whole tree is done: whoever comes seals
        (live(left="done", right="done"), {"right": ()}, Goal.PROCESSED, Seal()),
        (live(left="done", right="done"), SIDE, Goal.COMMITTED, Seal()),
        # code that was deployed meanwhile names other steps
        (live(clean="done"), {"scrub": ()}, Goal.PROCESSED, Begin()),
    ],
)
def test_the_steps_of_an_attempt(attempt, steps, goal, expected):
    asked = work(goal, steps=steps, others=attempt.steps.keys() - steps.keys())
    action = next_action(snapshot(1, attempt=attempt), request(), asked)
    assert isinstance(action, Wait) if expected is Wait else action == expected


def test_a_step_that_the_code_has_no_more_is_not_waited_for():
    left = live(left="done", right=None)
    asked = work(Goal.COMMITTED, steps={"left": ()})
    assert next_action(snapshot(1, attempt=left), request(), asked) == Begin()


def test_who_waits_for_another_task_is_told_which_steps_are_lacking():
    for attempt, lacking in (
        (live(clean="running by other", rollup=None), "clean, rollup"),
        (live(SEALING, clean="done", rollup="done"), "its seal"),
    ):
        asked = work(Goal.COMMITTED, task="another", steps=CHAIN)
        action = next_action(snapshot(1, attempt=attempt), request(), asked)
        assert isinstance(action, Wait)
        assert str(action).endswith(f"works on attempt 1:0: {lacking}")


def test_work_survives_the_way_to_the_triggerer():
    asked = work(Goal.PROCESSED, steps=CHAIN, others=["side"])
    assert Work.from_json(json.loads(json.dumps(asked.to_json()))) == asked


# --- why a txid waits ----------------------------------------------------------------------------

SITUATIONS = {
    "behind 4, 5, 6: at most 3 at once (max_spout_pending)": snapshot(7, 4),
    "behind 4..9: at most 6 at once (max_spout_pending); 4 is blocked": snapshot(
        16, 4, pending=6, blocked=replace(BLOCKED, txid=4)
    ),
    "behind 4: txids commit in order; 4 is held": snapshot(
        6, 4, attempt=live(PROCESSED), blocked=replace(BLOCKED, txid=4, is_held=True)
    ),
    "behind the replay of 101, 102: at most 2 at once (max_replay_pending)": snapshot(
        1, curr_txid=5, replays=2, max_replay_pending=2
    ),
    "behind 4: its batch starts where that one ends": snapshot(5, 4, lacks_predecessor=True),
    "for the emit interval to pass (emit_interval_seconds)": snapshot(4, 4, is_throttled=True),
    "for the checkpoint interval to pass (checkpoint_interval_seconds)": snapshot(
        4, 4, attempt=live(PROCESSED), is_gathering=True
    ),
    r"for the topology to be resumed (paused: a\nb)": snapshot(4, 4, paused="a\nb"),
}


@pytest.mark.parametrize("text", SITUATIONS)
def test_who_looks_is_told_what_the_task_logs(text):
    """`status` said "waits to begin" where the log named the window, and nothing who was ahead."""
    situation = SITUATIONS[text]
    kind = REPLAY if situation.is_replay else request()
    action = next_action(situation, kind, work(Goal.COMMITTED))
    assert why_waits(situation) == action
    assert str(action) == text


@pytest.mark.parametrize(("status", "verb"), [("PARKED", "replay"), ("CLOSED", "resume-runs")])
def test_what_a_person_has_parked_is_replayed_and_what_has_ended_is_resumed(status, verb):
    """C7: resume-runs was named of both, and had nothing to clear of a parked txid."""
    asked = request(status=RequestStatus[status])
    action = next_action(snapshot(1), asked, work(Goal.COMMITTED))
    assert isinstance(action, Fail)
    assert f"reliability {verb}" in str(action.error)


def test_a_reason_of_others_stays_one_line_of_a_log():
    reason = "late\n2026-11-23 INFO all is well\x1b[2J"
    closed = replace(request(status=RequestStatus.CLOSED), reason=reason)
    for asked, situation in (
        (closed, snapshot(1)),
        (request(), snapshot(1, held=reason)),
        (request(), snapshot(1, paused=reason)),
        (replace(request(), run_id="r"), snapshot(5, blocked=blocked_by("r", reason))),
    ):
        action = next_action(situation, asked, work(Goal.COMMITTED))
        said = {Fail: "error", Wait: "reason"}[type(action)]
        assert r"late\n2026-11-23 INFO all is well\x1b[2J" in str(getattr(action, said))
        assert str(getattr(action, said)).isprintable()
    skipped = Skipped(
        topology="shop", txid=1, interval="", by="ann", at=datetime(2026, 11, 22), reason=reason
    )
    assert str(skipped).isprintable()


def blocked_by(run_id, reason):
    return replace(BLOCKED, reason=reason, requested_by=(("", run_id),))


@pytest.mark.parametrize(
    "situation",
    [
        snapshot(4, 4),
        snapshot(4, 4, attempt=live(PROCESSED)),
        snapshot(4, 4, attempt=live(PROCESSING)),
        snapshot(9, 4, attempt=live(SEALING)),
    ],
)
def test_what_may_go_on_or_is_processed_does_not_wait(situation):
    assert why_waits(situation) is None


# --- what holds back a begin, and nothing else ------------------------------------------------


@pytest.mark.parametrize(
    "facts", [{"paused": "a migration"}, {"is_throttled": True}, {"lacks_predecessor": True}]
)
def test_what_holds_back_a_begin_lets_the_rest_drain(facts):
    held = snapshot(1, **facts)
    assert isinstance(next_action(held, request(), work(Goal.PROCESSED)), Wait)
    processed = snapshot(1, attempt=live(PROCESSED), **facts)
    assert next_action(processed, request(), work(Goal.COMMITTED)) == Commit()
    running = snapshot(1, attempt=live(process=None), **facts)
    assert next_action(running, request(), work(Goal.PROCESSED)) == Submit("process")


def test_only_a_wait_for_the_source_asks_the_source():
    asks = [what for what in WaitsFor if Wait(WaitReason(what=what)).for_source]
    assert asks == [WaitsFor.SOURCE]


def test_who_is_ahead_is_named_while_they_are_few():
    few, more = (WaitReason(what=WaitsFor.TURN, behind=range(4, end)) for end in (9, 10))
    assert str(few).startswith("behind 4, 5, 6, 7, 8:")
    assert str(more).startswith("behind 4..9:")


@pytest.mark.parametrize(
    ("what", "behind", "is_next"),
    [
        (WaitsFor.TURN, (6,), True),
        (WaitsFor.PLACE, range(4, 7), True),
        (WaitsFor.PLACE, (6, 5), False),
        (WaitsFor.TURN, (5,), False),
        (WaitsFor.TURN, (8,), False),
        (WaitsFor.SOURCE, (), False),
        (WaitsFor.REPLAY_PLACE, (6,), False),  # the lowest goes next
    ],
)
def test_who_is_next_in_line(what, behind, is_next):
    """R5: only such a task first waits in its slot."""
    assert WaitReason(what=what, behind=behind).is_next(7) is is_next


def test_replays_have_a_window_of_their_own():
    """A long backfill takes no place of today's run."""
    fresh = snapshot(5, curr_txid=5, replays=9, max_replay_pending=2)
    assert isinstance(next_action(fresh, request(), work(Goal.PROCESSED)), Begin)
    for replays, expected in ((1, Begin), (2, Wait)):
        one = snapshot(1, curr_txid=5, pending=1, replays=replays, max_replay_pending=2)
        assert isinstance(next_action(one, REPLAY, work(Goal.PROCESSED)), expected)


def test_a_skipped_txid_is_passed_over_in_its_turn_and_never_begun():
    """C8."""
    commits = work(Goal.COMMITTED)
    assert next_action(snapshot(1, is_skipped=True), request(), commits) == CommitEmpty()
    assert isinstance(next_action(snapshot(2, is_skipped=True), request(), commits), Wait)
    held = next_action(snapshot(1, is_skipped=True, held="back"), request(), commits)
    assert isinstance(held, Fail)
    done = request(status=RequestStatus.SATISFIED)
    assert next_action(snapshot(1, curr_txid=5, is_skipped=True), done, commits) == Done()


def test_a_dry_run_is_of_use_to_its_own_request_alone():
    dry = replace(request(RequestKind.REPLAY, granted_after=0), is_dry_run=True)
    own = replace(live(PROCESSED), is_dry_run=True)
    others = replace(live(PROCESSED, request_id=OTHERS), is_dry_run=True)
    at = {"curr_txid": 5}
    assert next_action(snapshot(1, attempt=own, **at), dry, work(Goal.PROCESSED)) == Done()
    assert next_action(snapshot(1, attempt=own, **at), dry, work(Goal.COMMITTED)) == DryRun()
    waits = next_action(snapshot(1, attempt=others, **at), REPLAY, work(Goal.COMMITTED))
    assert isinstance(waits, Wait)  # else two dry runs would end each other's finished work
    assert why_waits(snapshot(1, attempt=others, **at)) == waits
    assert str(waits) == "for dry run 1:0 to be reported"
    left = replace(others, is_wanted=False)
    assert next_action(snapshot(1, attempt=left, **at), REPLAY, work(Goal.COMMITTED)) == Begin()
    assert why_waits(snapshot(1, attempt=left, **at)) is None
    processing = replace(live(PROCESSING, request_id=OTHERS), is_dry_run=True)
    waits = next_action(snapshot(1, attempt=processing, **at), REPLAY, work(Goal.COMMITTED))
    assert isinstance(waits, Wait)
