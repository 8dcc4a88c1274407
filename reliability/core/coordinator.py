"""The MasterBatchCoordinator: pure decisions over one snapshot of the ledger.

Storm's coordinator keeps its window in memory and moves it by messages. Here every Airflow task,
trigger and sweep asks the same questions of the same ledger rows::

    window    [curr_txid, curr_txid + max_spout_pending) may be processed, only curr_txid commits

    begin ──► PROCESSING ──► SEALING ──► PROCESSED ──► COMMITTED ──► REPLACED
                  │             │         │            │   (by a replay)
                  │             │         │            └► ROLLED_BACK
                  │             │         └► DRY_RUN (a dry run)
                  └─► FAILED, FENCED ◄─┘    begin again with attempt_id + 1

An attempt has one or more processing steps; a step that reads another step's staged rows runs after
it. With a transactional spout, a failed attempt affects no other. With an opaque spout, the later
txids' attempts fail with it, because their batches start where its batch ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from reliability.core.errors import (
    AuditFailed,
    BlockedTooLong,
    FileRefused,
    QuarantineFull,
    ReliabilityError,
    ReplayNotPossible,
    RequestClosed,
    RequestGivenUp,
    SchemaMismatch,
    SourceUnreadable,
    TxidBlocked,
    TxidHeld,
    UnexpectedAnswer,
    remedy_from_ledger,
)
from reliability.core.plan import Position
from reliability.core.remedy import Remedy
from reliability.core.request import Request, RequestKind, RequestStatus
from reliability.core.spout import Interval
from reliability.core.texts import printable, with_code
from reliability.core.waits import WaitReason, WaitsFor


class AttemptStatus(str, Enum):
    """The status of an attempt; the first three are live, at most one attempt per txid."""

    PROCESSING = "PROCESSING"
    SEALING = "SEALING"
    PROCESSED = "PROCESSED"
    COMMITTED = "COMMITTED"
    REPLACED = "REPLACED"
    DRY_RUN = "DRY_RUN"
    ROLLED_BACK = "ROLLED_BACK"
    FAILED = "FAILED"
    FENCED = "FENCED"


SEALED = frozenset(
    {
        AttemptStatus.PROCESSED,
        AttemptStatus.COMMITTED,
        AttemptStatus.REPLACED,
        AttemptStatus.DRY_RUN,
        AttemptStatus.ROLLED_BACK,
    }
)


class Goal(str, Enum):
    """What a task has to achieve; for both goals it does everything that is still missing (R4)."""

    PROCESSED = "processed"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of one task.

    :param task: the task that asks; what it claimed earlier and did not finish is from a dead try
    :param steps: the steps that the goal needs, each with the steps that it reads from, in an order
        in which they can run
    :param other_steps: the topology's steps that the goal does not need
    """

    goal: Goal
    task: str
    steps: Mapping[str, tuple[str, ...]]
    other_steps: frozenset[str] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data, to pass it to a trigger in another process."""
        steps = [[name, list(reads)] for name, reads in self.steps.items()]
        others = sorted(self.other_steps)
        return {"goal": self.goal.value, "task": self.task, "steps": steps, "other_steps": others}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Work:
        return cls(
            goal=Goal(data["goal"]),
            task=data["task"],
            steps={name: tuple(reads) for name, reads in data["steps"]},
            other_steps=frozenset(data["other_steps"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgress:
    """The progress of one step of the live attempt; `claimed_by` is None before it is claimed."""

    claimed_by: str | None
    is_done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveAttempt:
    """The one live attempt of a txid; `sealing_task` is the task that seals it.

    :param request_id: None for the empty attempt of a txid that was parked or skipped
    :param is_dry_run: it never commits, so only its own request can use it
    :param is_wanted: its request is open
    :param nonce: fences what the attempt's holder writes
    """

    attempt_id: int
    status: AttemptStatus
    request_id: int | None
    lease_expired: bool
    steps: Mapping[str, StepProgress]
    sealing_task: str | None = None
    is_dry_run: bool = False
    is_wanted: bool = True
    nonce: str = ""

    @property
    def is_processed(self) -> bool:
        return self.status is AttemptStatus.PROCESSED

    def has_the_steps_of(self, work: Work) -> bool:
        """Say whether its steps are the topology's; newly deployed code may have other steps."""
        return self.steps.keys() == work.steps.keys() | work.other_steps

    def was_claimed_by_earlier_try_of(self, task: str) -> bool:
        """Say whether an earlier try of the task died working on it, so that it cannot complete."""
        running = (step for step in self.steps.values() if not step.is_done)
        return self.sealing_task == task or any(step.claimed_by == task for step in running)


# What a file that is delivered again may mend. The txid's batch is frozen with the one before.
_CURED_BY_A_FILE = tuple(
    cause.code
    for cause in (
        AuditFailed,
        FileRefused,
        QuarantineFull,
        SchemaMismatch,
        SourceUnreadable,
        UnexpectedAnswer,
    )
)
_REDELIVERED = "If you deliver a file of it again, run {refreeze} first."
_RESUME = "{resume_runs} shows what to clear, and clears it with --yes."


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """An uncommitted txid that no run is working on; it blocks all later ones.

    :param dag_id, run_id: the run that emitted it
    :param remedy: that of the reason; empty if it is the one of its code
    :param requested_by: the runs, as (dag_id, run_id), that have ever requested it
    :param is_held: it was rolled back, and a person must release it
    :param is_released: it was rolled back and released, and no run has requested it since
    :param is_overdue: it has been blocked for longer than the topology's `blocked_timeout_seconds`
    """

    txid: int
    run_id: str
    interval: str
    reason: str
    reason_code: str = ""
    remedy: str = ""
    dag_id: str = ""
    requested_by: tuple[tuple[str, str], ...] = ()
    is_held: bool = False
    is_released: bool = False
    is_overdue: bool = False

    def describe(self) -> str:
        """Name the txid with its run and interval, and say why it is blocked."""
        interval = f", interval {self.interval}" if self.interval else ""
        why = with_code(self.reason_code, printable(self.reason))
        reason = f": {why}" if self.reason else ""
        return f"txid {self.txid} (run {self.run_id}{interval}) is blocked{reason}"

    def error(self, kind: type[ReliabilityError] = TxidBlocked) -> ReliabilityError:
        """Return it as an error, whose remedy is about this txid."""
        remedy = self._remedy() or kind.remedy
        return kind(self.describe(), remedy=remedy.about(txid=self.txid))

    def _remedy(self) -> Remedy | None:
        """Return the remedy of the error that ended the last attempt, and how the run goes on."""
        if self.is_held:
            return TxidHeld.remedy
        if self.is_released:
            return Remedy(_RESUME)
        remedy = remedy_from_ledger(self.reason_code, self.remedy)
        if remedy is None:
            return None
        resumes = remedy.runs("resume_runs")
        if self.reason_code in _CURED_BY_A_FILE and not remedy.runs("refreeze"):
            remedy = remedy.then(_REDELIVERED)
        return remedy if resumes else remedy.then(f"Then {_RESUME}")

    def advice(self, topology: str) -> str:
        return self.error().about(topology=topology).advice


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One consistent read of a topology and one of its txids.

    :param other_replays: the other committed txids whose replay is being processed
    :param is_frozen: the txid has its batch; an opaque spout's is cut when an attempt begins (E4)
    :param paused: why the topology is paused, None if it is not
    :param is_throttled: the last attempt of the topology began less than its emit interval ago
    :param lacks_predecessor: an opaque spout's batch cannot be cut yet, because the previous txid
        has no attempt to start from
    :param replay_refusal: why the topology's states cannot replace what this txid committed
    :param held: why a person must release the txid first: it was rolled back (H4)
    :param is_skipped: a person has skipped the txid, so that nothing processes it (C8)
    :param interval: the txid's data interval, None for an untimed one
    """

    txid: int
    position: Position
    max_spout_pending: int
    live: LiveAttempt | None
    other_replays: tuple[int, ...]
    blocked: Blocked | None
    max_replay_pending: int
    is_frozen: bool
    paused: str | None = None
    is_throttled: bool = False
    lacks_predecessor: bool = False
    replay_refusal: str | None = None
    held: str | None = None
    is_skipped: bool = False
    interval: Interval | None = None

    @property
    def curr_txid(self) -> int:
        return self.position.curr_txid

    @property
    def is_replay(self) -> bool:
        """Say whether a commit is a replay: position decides, not the kind of request (C2)."""
        return self.txid < self.curr_txid

    @property
    def may_process(self) -> bool:
        """Say whether the txid is inside the window, or is a replay and there is room for it."""
        if self.is_replay:
            return len(self.other_replays) < self.max_replay_pending
        return self.txid < self.curr_txid + self.max_spout_pending

    @property
    def may_commit(self) -> bool:
        return self.position.may_commit(self.txid)


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin an attempt."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit one processing step of the live attempt."""

    step: str


@dataclass(frozen=True, slots=True)
class Seal:
    """Seal the live attempt: all its steps are done."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit: it is the txid's turn."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """Replay to find the difference only; all changes are rolled back."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait without holding a worker slot; as a text, it goes on after "waits".

    :param blocked: the txid that a person must act on, None if the wait ends by itself
    """

    reason: WaitReason
    blocked: Blocked | None = None

    @property
    def for_source(self) -> bool:
        """Say whether only the source can end the wait."""
        return self.reason.what is WaitsFor.SOURCE

    def __str__(self) -> str:
        if self.blocked is None:
            return str(self.reason)
        is_ = "is held" if self.blocked.is_held else "is blocked"
        return f"{self.reason}; {self.blocked.txid} {is_}"


@dataclass(frozen=True, slots=True)
class CommitEmpty:
    """Commit a skipped txid as empty."""


@dataclass(frozen=True, slots=True)
class Done:
    """The goal is reached."""


@dataclass(frozen=True, slots=True)
class Fail:
    """This request cannot reach the goal."""

    error: ReliabilityError


Action = Begin | Submit | Seal | Commit | DryRun | CommitEmpty | Wait | Done | Fail


def next_action(snapshot: Snapshot, request: Request, work: Work) -> Action:
    """Decide what a task that works for `request` does next; a pure function."""
    if request.status is RequestStatus.SATISFIED:
        return Done()
    if request.status is RequestStatus.GIVEN_UP:
        what = f"request {request.number} was given up"
        return Fail(RequestGivenUp(what, txid=snapshot.txid))
    if request.status is not RequestStatus.OPEN:
        what = f"request {request.number} was closed: {printable(request.reason)}"
        is_parked = request.status is RequestStatus.PARKED
        remedy = Remedy("process it by {replay}, or clear this task.") if is_parked else None
        return Fail(RequestClosed(what, txid=snapshot.txid, remedy=remedy))
    live = snapshot.live
    if live is None:
        return _begin_in_turn(snapshot, request)
    is_own = live.request_id == request.request_id
    if live.is_dry_run and live.is_processed:
        if is_own:
            return Done() if work.goal is Goal.PROCESSED else DryRun()
        if live.is_wanted:
            return Wait(_dry_run(snapshot.txid, live))
        return _begin_in_turn(snapshot, request)  # no other request can use its rows
    if live.is_processed:
        # A replay needs a new run of Spark: an attempt granted before the request does not count.
        serves = request.kind is RequestKind.COMMIT or live.attempt_id > request.granted_after
        if work.goal is Goal.PROCESSED and serves:
            return Done()
        reason = _wait_to_commit(snapshot)
        return Commit() if reason is None else _wait(snapshot, request, reason)
    if not is_own and not live.lease_expired:
        attempt = f"{snapshot.txid}:{live.attempt_id}"
        return Wait(WaitReason(what=WaitsFor.OTHER_REQUEST, detail=attempt))
    if (
        live.lease_expired
        or live.was_claimed_by_earlier_try_of(work.task)
        or not live.has_the_steps_of(work)
    ):
        # begin_attempt fences it (R2)
        return _begin_in_turn(snapshot, request)
    return _carry_on(snapshot.txid, live, work)


def _carry_on(txid: int, live: LiveAttempt, work: Work) -> Action:
    """Do what the live attempt of the task's own request still needs."""
    done = {name for name, step in live.steps.items() if step.is_done}
    if live.status is AttemptStatus.PROCESSING and done == live.steps.keys():
        return Seal()
    if work.goal is Goal.PROCESSED and done >= work.steps.keys():
        return Done()
    for name, reads in work.steps.items():
        if live.steps[name].claimed_by is None and done.issuperset(reads):
            return Submit(name)
    lacking = ", ".join(sorted(work.steps.keys() - done)) or "its seal"
    detail = f"{txid}:{live.attempt_id}: {lacking}"
    return Wait(WaitReason(what=WaitsFor.OTHER_TASK, detail=detail))


def _dry_run(txid: int, live: LiveAttempt) -> WaitReason:
    return WaitReason(what=WaitsFor.DRY_RUN, detail=f"{txid}:{live.attempt_id}")


def _begin_in_turn(snapshot: Snapshot, request: Request) -> Action:
    if snapshot.held is not None:
        return Fail(TxidHeld(f"it is held: {printable(snapshot.held)}", txid=snapshot.txid))
    if snapshot.is_replay and snapshot.replay_refusal is not None:
        return Fail(ReplayNotPossible(snapshot.replay_refusal, txid=snapshot.txid))
    reason = _wait_to_begin(snapshot)
    if reason is not None:
        return _wait(snapshot, request, reason)
    return CommitEmpty() if _is_left_out(snapshot) else Begin()


# --- why a txid waits ----------------------------------------------------------------------------


def why_waits(snapshot: Snapshot) -> Wait | None:
    """Say what a requested txid waits for, as its task does; a pure function.

    :return: None if it is being processed, or its task may go on; only that task can know whether
        the source is ready
    """
    live = snapshot.live
    if live is None or (live.is_dry_run and live.is_processed and not live.is_wanted):
        reason = _wait_to_begin(snapshot)
    elif not live.is_processed:
        return None
    elif live.is_dry_run:
        reason = _dry_run(snapshot.txid, live)
    else:
        reason = _wait_to_commit(snapshot)
    return None if reason is None else Wait(reason, blocked=snapshot.blocked)


def _wait_to_begin(snapshot: Snapshot) -> WaitReason | None:
    if snapshot.paused is not None:
        return WaitReason(what=WaitsFor.RESUME, detail=snapshot.paused)
    if _is_left_out(snapshot):
        return None if snapshot.txid == snapshot.curr_txid else _turn(snapshot)
    if not snapshot.may_process:
        return _place(snapshot)
    if snapshot.lacks_predecessor:
        return WaitReason(what=WaitsFor.PREDECESSOR, behind=(snapshot.txid - 1,))
    return WaitReason(what=WaitsFor.EMIT_INTERVAL) if snapshot.is_throttled else None


def _wait_to_commit(snapshot: Snapshot) -> WaitReason | None:
    if snapshot.may_commit:
        return None
    if snapshot.txid == snapshot.curr_txid:
        return WaitReason(what=WaitsFor.CHECKPOINT_INTERVAL)
    return _turn(snapshot)


def _is_left_out(snapshot: Snapshot) -> bool:
    """Say whether nothing processes the txid, and it commits as empty in its turn (C8)."""
    return snapshot.is_skipped and not snapshot.is_replay


def _turn(snapshot: Snapshot) -> WaitReason:
    return WaitReason(what=WaitsFor.TURN, behind=(snapshot.curr_txid,))


def _place(snapshot: Snapshot) -> WaitReason:
    if snapshot.is_replay:
        most, behind = snapshot.max_replay_pending, snapshot.other_replays
        return WaitReason(what=WaitsFor.REPLAY_PLACE, behind=behind, most=most)
    first, most = snapshot.curr_txid, snapshot.max_spout_pending
    return WaitReason(what=WaitsFor.PLACE, behind=range(first, first + most), most=most)


def _wait(snapshot: Snapshot, request: Request, reason: WaitReason) -> Action:
    """Wait, and name the txid that a person must act on (E2).

    A run that waits for what it gave up itself would never end and never turn red.
    """
    blocked = snapshot.blocked
    if blocked is not None and (request.dag_id, request.run_id) in blocked.requested_by:
        return Fail(blocked.error())
    if blocked is not None and blocked.is_overdue:
        return Fail(blocked.error(BlockedTooLong))
    return Wait(reason, blocked=blocked)
