"""Call a step's process function, and evaluate what it sets aside: for the driver and `check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reliability.core.definitions import Topology
from reliability.core.graph import Step
from reliability.core.set_aside import QUARANTINE, Kind, QuarantinedRow, SetAside
from reliability.core.state import State
from reliability.spark.accounting import hide_accounting
from reliability.spark.catalyst import in_session
from reliability.spark.one_evaluation import evaluate_once
from reliability.spark.reduce import accounted_frames
from reliability.spark.session import pin_new_sessions, pin_settings
from reliability.spark.set_aside_rows import (
    evaluate,
    marks_of,
    noting,
    set_malformed_aside,
    set_misfits_aside,
    used_calls,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Processed:
    """What a process function has made of its input.

    :param frames: state -> its frame, with `_x` and `_n`
    :param set_aside: mark -> what was set aside there
    :param quarantined: the rows that are kept in the ledger's quarantine
    :param left: mark -> the rows that were dropped or quarantined there, with `_x` and `_n`
    """

    frames: dict[str, DataFrame]
    set_aside: dict[str, list[SetAside]]
    quarantined: list[QuarantinedRow]
    left: dict[str, DataFrame]

    def left_before(self, frame: DataFrame) -> list[DataFrame]:
        """Return the rows that were dropped or quarantined on the way to a state's frame."""
        return [self.left[mark] for mark in marks_of(frame, list(self.left))]


def call_process(
    spark: SparkSession,
    topology: Topology,
    step: Step,
    states: Sequence[State],
    inputs: Sequence[DataFrame],
    emitted: int,
) -> Processed:
    """Call the process function once; its input hides the accounting, which its frames still have.

    :param states: those that the step feeds
    :param inputs: with `_x` and `_n`
    :param emitted: how many rows the batch has
    """
    pin_new_sessions(spark)
    with noting() as calls:
        readable = map(set_malformed_aside, inputs)
        returned = step.process(*map(hide_accounting, readable))
        pin_settings(spark)  # the function may have changed some
        frames = accounted_frames(returned, states)
        frames = {name: in_session(frame, spark) for name, frame in frames.items()}
        if topology.malformed == QUARANTINE:
            frames = {s.name: set_misfits_aside(frames[s.name], s) for s in states}
    calls = [
        replace(call, rows=in_session(call.rows, spark))
        for call in used_calls(calls, frames.values())
    ]
    once = evaluate_once(inputs, [*frames.values(), *(call.rows for call in calls)])
    frames = dict(zip(frames, once, strict=False))
    calls = [
        replace(call, rows=rows) for call, rows in zip(calls, once[len(frames) :], strict=True)
    ]
    set_aside, quarantined = evaluate(calls, topology.most_quarantined(emitted))
    return Processed(
        frames=frames,
        set_aside=set_aside,
        quarantined=quarantined,
        left={call.mark: call.rows for call in calls if call.kind is not Kind.FANNED_OUT},
    )
