"""Convert rows of the ledger to values of the core."""

from __future__ import annotations

from reliability.core.acker import Sink
from reliability.core.coordinator import (
    AttemptStatus,
    Blocked,
    LiveAttempt,
    Snapshot,
    StepProgress,
)
from reliability.core.fold import Fold
from reliability.core.plan import Due, Position
from reliability.core.request import Request, RequestKind, RequestStatus, TaskTry
from reliability.core.skip import Skipped
from reliability.core.spout import BatchMeta, Interval, ItemPart, read_parts
from reliability.ledger.connection import Row


def request_of(row: Row) -> Request:
    """Convert a request."""
    return Request(
        request_id=row["request_id"],
        number=row["number"],
        kind=RequestKind(row["kind"]),
        status=RequestStatus(row["status"]),
        granted_after=row["granted_after"],
        reason=row["reason"],
        is_dry_run=row["is_dry_run"],
        tasks_ended=row.get("tasks_ended", False),
        downstream_has_worked=row.get("downstream_has_worked", False),
        dag_id=row.get("dag_id", ""),
        run_id=row.get("run_id", ""),
    )


def recorded_try_of(row: Row) -> TaskTry | None:
    """Convert the try in which a task first worked for a request; None if it never did."""
    if row["max_tries"] is None:
        return None
    return TaskTry(
        max_tries=row["max_tries"],
        try_id=row["try_id"],
        clear_number=row["clear_number"],
        run_started=row["run_started"],
    )


def snapshot_of(row: Row, blocked: Row | None, replay_refusal: str | None) -> Snapshot:
    """Convert a snapshot."""
    is_first = row["txid"] == 1
    return Snapshot(
        txid=row["txid"],
        position=position_of(row),
        max_spout_pending=row["max_spout_pending"],
        live=None if row["live_attempt_id"] is None else live_attempt_of(row),
        other_replays=tuple(row["other_replays"]),
        blocked=blocked_of(blocked),
        is_frozen=row["is_frozen"],
        paused=row["paused_reason"],
        is_throttled=row["is_throttled"],
        lacks_predecessor=(
            not row["is_frozen"] and not is_first and row["predecessor_attempt"] is None
        ),
        replay_refusal=replay_refusal,
        held=row["held_reason"],
        skipped=skipped_of(row),
        max_replay_pending=row["max_replay_pending"],
        interval=interval_of(row),
    )


def position_of(row: Row) -> Position:
    """Convert the position of a topology."""
    found = row["position"]
    return Position(**{**found, "processed": tuple(Due(**one) for one in found["processed"])})


def live_attempt_of(row: Row) -> LiveAttempt:
    """Convert a live attempt with its steps."""
    return LiveAttempt(
        attempt_id=row["live_attempt_id"],
        status=AttemptStatus(row["live_status"]),
        request_id=row["live_request_id"],
        lease_expired=row["live_lease_expired"],
        steps={
            step["step"]: StepProgress(claimed_by=step["claimed_by"], is_done=step["is_done"])
            for step in row["steps"]
        },
        sealing_task=row["sealing_task"],
        is_dry_run=row["live_is_dry_run"],
        is_wanted=row["live_is_wanted"],
        nonce=row["live_nonce"],
    )


def blocked_of(row: Row | None) -> Blocked | None:
    """Convert the blocked txid, if there is one."""
    if row is None:
        return None
    return Blocked(
        txid=row["txid"],
        run_id=row["run_id"],
        interval=interval_text(row),
        reason=row["reason"],
        reason_code=row["reason_code"] or "",
        requested_by=tuple((dag_id, run_id) for dag_id, run_id in row["requested_by"]),
        is_held=row["is_held"],
        is_released=row["is_released"],
        is_overdue=row["is_overdue"],
    )


def skipped_of(row: Row) -> Skipped | None:
    """Convert who skipped a txid and why; None if it is not skipped."""
    if row["skipped_at"] is None:
        return None
    return Skipped(
        topology=row["topology"],
        txid=row["txid"],
        interval=interval_text(row),
        by=row["skipped_by"],
        at=row["skipped_at"],
        reason=row["skipped_reason"],
    )


def interval_of(row: Row) -> Interval | None:
    """Convert a data interval; None for an untimed transaction."""
    if row["interval_start"] is None:
        return None
    return Interval(row["interval_start"], row["interval_end"])


def interval_text(row: Row) -> str:
    """Convert a data interval to text; empty for an untimed transaction."""
    interval = interval_of(row)
    return str(interval) if interval else ""


def sink_of(row: Row) -> Sink:
    """Convert the acker's record of a sink."""
    return Sink(
        name=row["sink"],
        step=row["step"],
        partitions=row["partitions"],
        acked_partitions=tuple(row["acked_partitions"]),
        unacked=Fold(row["ack_val"], row["unacked"]),
        set_aside=Fold(row["aside_xor"], row["aside_count"]),
    )


def batch_of(row: Row) -> BatchMeta:
    """Convert a batch."""
    return BatchMeta.from_json(row["batch_meta"], Fold(row["emitted_xor"], row["emitted_count"]))


def parts_of_batch(row: Row) -> tuple[ItemPart, ...]:
    """Convert what a commit needs of a batch; it needs no class of source items."""
    return read_parts(row["batch_meta"])
