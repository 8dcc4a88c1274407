"""The votes of a checkpoint's driver, a participant's verdict, and the plan (C2, C5, C6).

The table of CheckpointState is recorded: tests/conformance plays it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.core.checkpoint import (
    COORDINATOR,
    Answer,
    CheckpointAction,
    CheckpointState,
    Drive,
    Message,
    Phase,
    judge,
)
from reliability.core.errors import CheckpointMismatch, CheckpointTakenOver, LedgerCorruption
from reliability.core.plan import (
    MAX_ROWS,
    ChangeKind,
    Due,
    PlannedChange,
    Position,
    dropped_by,
    is_group_of_first_commits,
    next_plan,
    planned_from_json,
)

P, C, D = Phase.PREPARING, Phase.COMMITTING, Phase.COMMITTED
PREPARE, COMMIT = CheckpointAction.PREPARE, CheckpointAction.COMMIT
ROLLBACK, INIT_STATE = CheckpointAction.ROLLBACK, CheckpointAction.INIT_STATE


def test_a_group_goes_forward_and_back_as_a_whole():
    """C5: participants move from c to c + k in one step."""
    preparing = CheckpointState(D, 4).next_state(recovering=False, size=3)
    assert preparing == CheckpointState(P, 7, 3)
    assert preparing.next_state(recovering=True) == CheckpointState(D, 4)
    committing = preparing.next_state(recovering=False)
    assert committing == CheckpointState(C, 7, 3)
    assert committing.next_state(recovering=True) == CheckpointState(D, 7)
    assert CheckpointState(D, 4).next_state(recovering=False) == CheckpointState(P, 5, 1)


def test_what_a_participant_may_have_applied_in_each_phase():
    at = [CheckpointState(phase, 7, 3, dropped=2).participants_at for phase in (D, P, C)]
    assert at == [(7,), (4,), (2, 3, 4, 7)]


# --- the driver ----------------------------------------------------------------------------------


def drive(phase=D, c=4, *, others=("east", "west"), recovering=False):
    return Drive(
        state=CheckpointState(phase, c),
        epoch=9,
        participants=frozenset({*others, COORDINATOR}),
        recovering=recovering,
    )


def all_vote(driver):
    message = driver.asked
    for name in driver.participants:
        driver = driver.ack(message, name)
    return driver.go_on()


def test_a_checkpoint_goes_on_only_when_every_source_has_voted():
    """Storm 4.3.12: a count would let one participant's second vote stand for another's."""
    driver = drive().begin(1).ask()
    message = driver.asked
    assert (message.action, message.commit_number) == (PREPARE, 5)
    for name in ("east", "east", "east", "nobody"):
        driver = driver.ack(message, name)
    assert driver.lacks == {"west", COORDINATOR}
    assert driver.go_on() is driver
    driver = driver.ack(message, "west").ack(message, COORDINATOR).go_on()
    assert driver.state == CheckpointState(C, 5)
    driver = driver.ask()
    assert driver.asked.action is COMMIT
    assert all_vote(driver).is_idle


def test_an_ack_of_another_action_skips_no_phase():
    """Storm C8: an ack of PREPARE that comes twice is taken for the ack of COMMIT."""
    driver = drive().begin(1).ask()
    prepare = driver.asked
    driver = all_vote(driver).ask()
    for name in driver.participants:
        driver = driver.ack(prepare, name)
    assert driver.votes == frozenset()


def test_a_stale_fail_triggers_no_recovery():
    """Storm C6: any fail rolls back what is under way."""
    driver = drive().begin(1).ask()
    prepare = driver.asked
    driver = all_vote(driver).ask()
    assert driver.fail(prepare) is driver
    older = Message(action=COMMIT, commit_number=5, size=1, epoch=8)
    assert driver.fail(older) is driver


def test_a_failed_vote_rolls_back_and_the_same_c_is_used_again():
    """Storm C6, C7: ROLLBACK until all have done it, INIT_STATE, then PREPARE of the same c."""
    driver = drive().begin(1).ask()
    driver = driver.fail(driver.asked).ask()
    assert driver.asked.action is ROLLBACK
    driver = driver.fail(driver.asked).ask()
    assert driver.asked.action is ROLLBACK
    driver = all_vote(driver).ask()
    assert (driver.asked.action, driver.asked.commit_number) == (INIT_STATE, 4)
    driver = all_vote(driver)
    assert driver.is_idle
    assert driver.begin(1).ask().asked.commit_number == 5


def test_a_failed_commit_is_committed_again():
    driver = all_vote(drive().begin(1).ask()).ask()
    driver = driver.fail(driver.asked).ask()
    assert driver.asked.action is COMMIT
    driver = all_vote(driver)
    assert driver.state == CheckpointState(D, 5)
    assert driver.ask().asked.action is INIT_STATE


def test_nothing_is_asked_while_a_message_is_under_way():
    driver = drive(recovering=True).ask()
    assert driver.ask() is driver


def test_a_driver_begins_with_recovery_and_is_idle_when_all_is_done():
    begun = Drive(state=CheckpointState(P, 5), epoch=9, participants=frozenset({COORDINATOR}))
    assert begun.ask().asked == asks(ROLLBACK, 5)
    assert drive().is_idle
    for busy in (drive().ask(), drive(recovering=True), drive().begin(1)):
        assert not busy.is_idle


@given(
    st.lists(st.tuples(st.sampled_from(["ack", "fail", "ask"]), st.integers(0, 6), st.booleans())),
    st.sampled_from(list(Phase)),
)
def test_whatever_comes_nothing_decided_is_rolled_back(events, phase):
    """Any mix of acks, fails, stale ones among them: COMMITTING(c) ends as COMMITTED(c) only."""
    driver = drive(phase, 5, recovering=True)
    seen: list[Message] = []
    for event, pick, current in events:
        before = driver.state
        message = driver.asked if current or not seen else seen[pick % len(seen)]
        match event:
            case "ask":
                driver = (driver.begin(1) if driver.is_idle else driver).ask()
                seen.append(driver.asked)
            case "fail" if message is not None:
                driver = driver.fail(message)
            case "ack" if message is not None:
                for name in driver.participants:
                    driver = driver.ack(message, name)
                driver = driver.go_on()
        if before.phase is C and driver.state != before:
            assert driver.state == CheckpointState(D, before.commit_number)
        if driver.state.phase is C and before.phase is not C:
            assert before.phase is P


# --- a participant -------------------------------------------------------------------------------


def asks(action, c, *, size=1, epoch=9, **dropped):
    return Message(action=action, commit_number=c, size=size, epoch=epoch, **dropped)


@pytest.mark.parametrize("action", [PREPARE, COMMIT])
def test_who_may_lack_what_was_dropped(action):
    """C6: c=5 to 7 were decided, and c=8 is the rollback that takes their place."""
    rollback = asks(action, 8, dropped=3)
    for last in (4, 5, 6, 7):
        assert judge(rollback, last=last, known_epoch=9) is Answer.APPLY
    assert judge(rollback, last=8, known_epoch=9) is Answer.DONE
    with pytest.raises(CheckpointMismatch, match="c=3"):
        judge(rollback, last=3, known_epoch=9)


def test_what_is_decided_gives_way_to_a_decision_only():
    driver = drive(C, 5, recovering=True)
    driver = driver.replace_by_rollback(dropped=1).ask()
    assert (driver.asked.action, driver.asked.commit_number) == (COMMIT, 6)
    assert driver.asked.dropped == 1
    driver = all_vote(driver)
    assert driver.state == CheckpointState(D, 6)
    assert driver.ask().asked.action is INIT_STATE
    for phase in (P, D):
        with pytest.raises(CheckpointMismatch):
            drive(phase, 5).replace_by_rollback(dropped=1)


@pytest.mark.parametrize("action", [PREPARE, COMMIT])
@pytest.mark.parametrize(
    ("last", "c", "size", "verdict"),
    [
        (4, 5, 1, Answer.APPLY),
        (4, 7, 3, Answer.APPLY),
        (5, 5, 1, Answer.DONE),
        (6, 5, 1, Answer.DONE),
        (7, 7, 3, Answer.DONE),
    ],
)
def test_a_participant_applies_c_iff_its_last_is_c_minus_1(action, last, c, size, verdict):
    assert judge(asks(action, c, size=size), last=last, known_epoch=9) is verdict


@pytest.mark.parametrize("action", [PREPARE, COMMIT])
@pytest.mark.parametrize(("last", "c", "size"), [(3, 5, 1), (5, 7, 3), (0, 7, 3)])
def test_a_participant_refuses_a_gap(action, last, c, size):
    lacking = f"c={last}, but is asked for c={c - size + 1} to {c}"
    with pytest.raises(CheckpointMismatch, match=lacking):
        judge(asks(action, c, size=size), last=last, known_epoch=9)


@pytest.mark.parametrize("action", list(CheckpointAction))
def test_a_participant_refuses_whoever_was_given_up(action):
    with pytest.raises(CheckpointTakenOver):
        judge(asks(action, 5, epoch=8), last=4, known_epoch=9)


def test_a_commit_may_come_before_the_participant_has_heard_of_the_epoch():
    """Storm E5: what is decided is rolled forward, before anything is initialised."""
    assert judge(asks(COMMIT, 5), last=4, known_epoch=8) is Answer.APPLY
    with pytest.raises(CheckpointMismatch, match="initialised in epoch 8"):
        judge(asks(PREPARE, 5), last=4, known_epoch=8)


def test_a_rollback_is_done_at_once():
    assert judge(asks(ROLLBACK, 5), last=4, known_epoch=9) is Answer.DONE


@pytest.mark.parametrize("last", [3, 5])
def test_init_state_compares_the_commit_numbers(last):
    assert judge(asks(INIT_STATE, 4), last=4, known_epoch=8) is Answer.DONE
    with pytest.raises(CheckpointMismatch, match=f"c={last}.*c=4"):
        judge(asks(INIT_STATE, 4), last=last, known_epoch=8)


# --- the plan ------------------------------------------------------------------------------------


def due(txid, *, replaces=None, rows=1):
    return Due(txid=txid, attempt_id=0, nonce="n", committed_attempt=replaces, staged_rows=rows)


def planned(found, *, one_by_one=0, **facts):
    """Return the plan, of which the coordinator says the same: only its first txid may commit."""
    position = Position(curr_txid=3, commit_number=10, processed=tuple(found), **facts)
    plan = next_plan(position, one_by_one=one_by_one)
    if not one_by_one:
        assert [position.may_commit(p.txid) for p in plan] == [p is plan[0] for p in plan]
    return [(p.commit_number, p.txid) for p in plan]


def test_consecutive_first_commits_share_a_physical_commit():
    assert planned([due(3), due(4), due(5)]) == [(11, 3), (12, 4), (13, 5)]


def test_the_first_txid_of_all_shares_and_waits_like_any_other():
    """C5: none has been refused."""
    position = Position(curr_txid=1, processed=(due(1), due(2)))
    assert [p.txid for p in next_plan(position)] == [1, 2]
    assert not replace(position, is_gathering=True).may_commit(1)


def test_a_gap_ends_the_group():
    assert planned([due(3), due(5)]) == [(11, 3)]
    assert planned([due(4), due(5)]) == []


def test_a_replay_is_never_grouped_and_waits_for_first_commits():
    replays = [due(1, replaces=0), due(2, replaces=0)]
    assert planned([*replays, due(3), due(4)]) == [(11, 3), (12, 4)]
    assert planned([*replays, due(5)]) == [(11, 1)]


def test_a_group_is_bounded_by_txids_and_by_rows():
    assert len(planned([due(t) for t in range(3, 300)])) == 100
    assert planned([due(3, rows=MAX_ROWS - 1), due(4)]) == [(11, 3), (12, 4)]
    assert planned([due(3, rows=MAX_ROWS), due(4)]) == [(11, 3)]
    assert planned([due(3, rows=MAX_ROWS + 1)]) == [(11, 3)]


def test_first_commits_and_replays_take_turns():
    found = [due(1, replaces=0), due(2, replaces=0), due(3), due(4)]
    assert planned(found, last_was_first_commit=True) == [(11, 1)]
    assert planned(found, last_was_first_commit=False) == [(11, 3), (12, 4)]
    assert planned([due(3)], last_was_first_commit=True) == [(11, 3)]


def test_first_commits_wait_for_the_checkpoint_interval_and_replays_do_not():
    """C5: also where txids never share a commit, so that the coordinator and a sweep agree."""
    for groups in (True, False):
        facts = {"is_gathering": True, "groups_commits": groups}
        assert planned([due(3), due(4)], **facts) == []
        assert planned([due(1, replaces=0), due(3)], **facts) == [(11, 1)]
    assert planned([due(3), due(4)], groups_commits=False) == [(11, 3)]


def test_only_the_txids_of_a_refused_group_are_tried_one_by_one_and_at_once():
    """C5."""
    both = [due(3), due(4)]
    for last in (3, 4):
        assert planned(both, one_by_one=last, is_gathering=True) == [(11, 3)]
    assert planned(both, one_by_one=2) == [(11, 3), (12, 4)]
    assert planned(both, one_by_one=2, is_gathering=True) == []


def test_a_sweep_leaves_a_young_txid_to_its_own_task():
    old, young = replace(due(3), age=11.0), replace(due(4), age=10.0)
    position = Position(curr_txid=3, processed=(old, young))
    assert [p.txid for p in next_plan(position, overdue=10)] == [3]
    assert next_plan(replace(position, processed=(replace(old, age=9.0),)), overdue=10) == ()


def test_a_plan_is_plain_data_and_an_unreadable_one_corruption():
    [one] = next_plan(Position(curr_txid=3, processed=(due(3),)))
    assert one.commit_number == 1  # the first of all
    back = PlannedChange(
        topology="shop", kind=ChangeKind.ROLLBACK, commit_number=7, txid=3, reason="wrong"
    )
    assert dropped_by((one, replace(back, dropped=2))) == 2
    assert is_group_of_first_commits((one, one))
    assert not is_group_of_first_commits((back,))
    assert one.of_state("days") == replace(one, state="days")
    for change in (one, back):
        assert planned_from_json(json.loads(json.dumps(asdict(change)))) == change
    with pytest.raises(LedgerCorruption):
        planned_from_json({"txid": 3})
