"""Convert rows of the ledger to values of the core."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

from reliability.core.acker import Sink
from reliability.core.coordinator import AttemptStatus, Blocked, LiveAttempt, StepProgress
from reliability.core.difference import Difference
from reliability.core.fold import Fold
from reliability.core.periods import UTC
from reliability.core.plan import Due, Position
from reliability.core.request import Request, RequestKind, RequestStatus, TaskTry
from reliability.core.skip import Skipped
from reliability.core.spout import BatchMeta, Interval, ItemPart, read_parts
from reliability.core.standing import Standing
from reliability.core.texts import as_json
from reliability.ledger.connection import DatabaseTransaction, Row

Value = TypeVar("Value")


def made_of(made: type[Value], row: Row, /, **converted: Any) -> Value:
    """Make a value of the columns that are called like its fields, and of what is converted."""
    own = {field.name for field in fields(made)}  # type: ignore[arg-type]
    return made(**{name: value for name, value in row.items() if name in own} | converted)


AnswersOfTopology = Mapping[str, Sequence[Row]]
"""Named query -> the rows of one topology."""


def ask_of_topologies(
    tx: DatabaseTransaction, names: Sequence[str], topology: str | None
) -> Mapping[str, AnswersOfTopology]:
    """Ask each of these queries once for one topology, or for all; return the answers of each.

    :param names: of queries whose rows say of which topology they are
    """
    answers: dict[str, dict[str, list[Row]]] = defaultdict(lambda: {name: [] for name in names})
    for name in names:
        for row in tx.all(name, topology=topology):
            answers[row["topology"]][name].append(row)
    return answers


def difference_of(row: Row) -> Difference:
    """Convert what a change did to the rows of a state."""
    columns = ("state", "rows_added", "rows_changed", "rows_removed", "moved", "by_hand")
    return Difference.from_json({name: row[name] for name in columns})


def request_of(row: Row) -> Request:
    kind, status = RequestKind(row["kind"]), RequestStatus(row["status"])
    return made_of(Request, row, kind=kind, status=status)


def recorded_try_of(row: Row) -> TaskTry | None:
    """Convert the try in which a task first worked for a request; None if it never did."""
    return None if row["max_tries"] is None else made_of(TaskTry, row)


def standing_of(row: Row) -> Standing:
    """Convert the position of a topology, but for what blocks it."""
    return made_of(
        Standing,
        row,
        position=position_of(row),
        live={live["txid"]: live_attempt_of(live) for live in row["live"]},
        unfrozen=frozenset(row["unfrozen"]),
        held={int(txid): reason for txid, reason in row["held"].items()},
        skipped=frozenset(row["skipped"]),
    )


def position_of(row: Row) -> Position:
    """Convert what decides the next commit of a topology."""
    return Position(**row["position"], processed=tuple(Due(**due) for due in row["processed"]))


def live_attempt_of(row: Row) -> LiveAttempt:
    """Convert a live attempt with its steps."""
    steps = {step["step"]: made_of(StepProgress, step) for step in row["steps"]}
    return made_of(LiveAttempt, row, status=AttemptStatus(row["status"]), steps=steps)


def blocked_of(row: Row | None) -> Blocked | None:
    if row is None:
        return None
    return made_of(
        Blocked,
        row,
        interval=interval_text(row),
        reason_code=row["reason_code"] or "",
        remedy=row["remedy"] or "",
        requested_by=tuple((dag_id, run_id) for dag_id, run_id in row["requested_by"]),
    )


def skipped_of(row: Row) -> Skipped:
    return made_of(Skipped, row, interval=interval_text(row))


def interval_of(row: Row) -> Interval | None:
    """Convert a data interval; None for an untimed transaction."""
    if row["interval_start"] is None:
        return None
    zone = row.get("interval_zone") or UTC
    return Interval(row["interval_start"], row["interval_end"], zone)


def ends_of(interval: Interval | None) -> dict[str, datetime | str | None]:
    """Return a data interval as the parameters of a statement, the reverse of `interval_of`."""
    start, end = (interval.start, interval.end) if interval else (None, None)
    zone = interval.zone if interval and interval.zone != UTC else None
    return {"interval_start": start, "interval_end": end, "interval_zone": zone}


def interval_text(row: Row) -> str:
    """Convert a data interval to text; empty for an untimed transaction."""
    interval = interval_of(row)
    return str(interval) if interval else ""


def sink_of(row: Row) -> Sink:
    return made_of(
        Sink,
        row,
        name=row["sink"],
        acked_partitions=tuple(row["acked_partitions"]),
        unacked=Fold(row["ack_val"], row["unacked"]),
        set_aside=Fold(row["aside_xor"], row["aside_count"]),
    )


def batch_of(row: Row) -> BatchMeta:
    return BatchMeta.from_json(row["batch_meta"], Fold(row["emitted_xor"], row["emitted_count"]))


def stored_batch(batch: BatchMeta | None) -> dict[str, Any]:
    """Return a batch as the parameters of a statement, the reverse of `batch_of`."""
    return {
        "batch_meta": batch and as_json(batch.to_json()),
        "emitted_xor": batch and batch.emitted.xor,
        "emitted_count": batch and batch.emitted.count,
    }


def parts_of_batch(row: Row) -> tuple[ItemPart, ...]:
    """Convert what a commit needs of a batch; it needs no class of source items."""
    return read_parts(row["batch_meta"])
