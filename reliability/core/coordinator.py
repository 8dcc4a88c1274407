"""The MasterBatchCoordinator: pure decisions over one snapshot of the ledger.

Storm's coordinator keeps its window in memory and moves it by messages; here every party, an
Airflow task, a trigger, a sweep, asks the same questions of the same ledger rows::

    window    [curr_txid, curr_txid + max_spout_pending) may be processed, only curr_txid commits

    begin ──► PROCESSING ──► SEALING ──► PROCESSED ──► COMMITTED ──► REPLACED
                  │             │                          (by a replay)
                  └─► FAILED, FENCED ◄─┘    begin again with attempt_id + 1
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from reliability.core.errors import (
    ReliabilityError,
    RequestClosed,
    RequestGivenUp,
    TxidBlocked,
)
from reliability.core.request import Request, RequestKind, RequestStatus


class AttemptStatus(str, Enum):
    """Where an attempt stands; the first three are live, at most one such per txid."""

    PROCESSING = "PROCESSING"
    SEALING = "SEALING"
    PROCESSED = "PROCESSED"
    COMMITTED = "COMMITTED"
    REPLACED = "REPLACED"
    FAILED = "FAILED"
    FENCED = "FENCED"


SEALED = frozenset({AttemptStatus.PROCESSED, AttemptStatus.COMMITTED, AttemptStatus.REPLACED})


class Goal(str, Enum):
    """What a task is there for; both goals do whatever is lacking on the way to it (R4)."""

    PROCESSED = "processed"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveAttempt:
    """The one live attempt of a txid."""

    attempt_id: int
    status: AttemptStatus
    request_id: int
    lease_expired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """An uncommitted txid that nobody works on: it holds up every later one."""

    txid: int
    run_id: str
    interval: str
    reason: str

    def error(self) -> TxidBlocked:
        interval = f", interval {self.interval}" if self.interval else ""
        reason = f": {self.reason}" if self.reason else ""
        return TxidBlocked(f"txid {self.txid} (run {self.run_id}{interval}) is blocked{reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What one statement read of a topology and one of its txids."""

    txid: int
    curr_txid: int
    max_spout_pending: int
    committed_attempt: int | None
    live: LiveAttempt | None
    replays_processing: int
    blocked: Blocked | None

    @property
    def is_replay(self) -> bool:
        """Position decides, not the kind of request (C2): below curr_txid a commit is a swap."""
        return self.txid < self.curr_txid

    @property
    def may_process(self) -> bool:
        """Say whether the txid is inside the window, or a replay that finds room."""
        if self.is_replay:
            return self.replays_processing < self.max_spout_pending
        return self.txid < self.curr_txid + self.max_spout_pending

    @property
    def may_commit(self) -> bool:
        """Say whether the txid's PROCESSED attempt may commit now."""
        processed = self.live is not None and self.live.status is AttemptStatus.PROCESSED
        return processed and self.txid <= self.curr_txid


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin an attempt and submit its processing."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit: it is the txid's turn."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait without holding a worker slot."""

    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """The goal is reached."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The goal cannot be reached by this request."""

    error: ReliabilityError


Action = Begin | Commit | Wait | Done | Fail


def next_action(snapshot: Snapshot, request: Request, goal: Goal) -> Action:
    """Decide what a task that works for `request` does next; harmless when asked again."""
    if request.status is RequestStatus.SATISFIED:
        return Done()
    if request.status is not RequestStatus.OPEN:
        return Fail(_closed(snapshot.txid, request))
    live = snapshot.live
    if live is not None and live.status is AttemptStatus.PROCESSED:
        if goal is Goal.PROCESSED and _serves(live, request):
            return Done()
        return _commit_in_turn(snapshot)
    if live is not None and live.request_id != request.request_id and not live.lease_expired:
        return Wait(f"attempt {snapshot.txid}:{live.attempt_id} of another request is processing")
    # What is live now is unsealed and either this request's own, left behind by a try that
    # died, or silent past its lease: begin_attempt fences it (R2).
    return _begin_in_window(snapshot)


def _serves(live: LiveAttempt, request: Request) -> bool:
    # A replay wants Spark to run again: an attempt from before the request is not its own.
    return request.kind is RequestKind.COMMIT or live.attempt_id > request.granted_after


def _commit_in_turn(snapshot: Snapshot) -> Action:
    if snapshot.may_commit:
        return Commit()
    return _wait(snapshot, f"txid {snapshot.curr_txid} to commit first")


def _begin_in_window(snapshot: Snapshot) -> Action:
    if snapshot.may_process:
        return Begin()
    if snapshot.is_replay:
        return _wait(snapshot, f"{snapshot.replays_processing} other replays to be processed")
    return _wait(
        snapshot,
        f"the window [{snapshot.curr_txid}, "
        f"{snapshot.curr_txid + snapshot.max_spout_pending}) to reach txid {snapshot.txid}",
    )


def _wait(snapshot: Snapshot, reason: str) -> Action:
    # A wait for what nobody works on would never end (E2).
    if snapshot.blocked is not None:
        return Fail(snapshot.blocked.error())
    return Wait(reason)


def _closed(txid: int, request: Request) -> ReliabilityError:
    if request.status is RequestStatus.GIVEN_UP:
        return RequestGivenUp(f"request {request.number} for txid {txid} was given up")
    return RequestClosed(f"request {request.number} for txid {txid} was closed: {request.reason}")
