"""Call a step's process function, and evaluate what it sets aside: for the driver and `check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reliability.core.definitions import Topology
from reliability.core.erasure import NOBODY, ErasedKeys
from reliability.core.graph import Step
from reliability.core.set_aside import QUARANTINE, QuarantinedRow, SetAside
from reliability.spark.frames.accounting import hide_accounting
from reliability.spark.frames.jvm import in_session
from reliability.spark.frames.one_evaluation import evaluate_once
from reliability.spark.frames.set_aside_rows import (
    Noted,
    evaluate,
    noting,
    set_erased_aside,
    set_malformed_aside,
    set_unstorable_aside,
    used_calls,
)
from reliability.spark.session import pin_new_sessions, pin_settings, pin_zone_of_workers
from reliability.spark.stage.reduce import accounted_frames
from reliability.spark.supported import check_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The applications of this process whose Spark was checked
_CHECKED = set[str]()


@dataclass(frozen=True, slots=True, kw_only=True)
class Processed:
    """What a process function has made of its input.

    :param frames: state -> its frame, with `_x` and `_n`
    :param set_aside: mark -> what was set aside there
    :param quarantined: the rows that are kept in the ledger's quarantine
    :param calls: all that have set rows aside, also those that are on the way to no state
    """

    frames: dict[str, DataFrame]
    set_aside: dict[str, list[SetAside]]
    quarantined: list[QuarantinedRow]
    calls: list[Noted]


def prepare(spark: SparkSession) -> None:
    """Pin the settings of a session, and of those that a process function makes of it (V7).

    :raises SparkNotSupported: this Spark does not do what the accounting relies on
    """
    pin_settings(spark)
    pin_new_sessions(spark)
    pin_zone_of_workers(spark)
    application = spark.sparkContext.applicationId
    if application not in _CHECKED:
        check_spark(spark)
        _CHECKED.add(application)


def call_process(
    spark: SparkSession,
    topology: Topology,
    step: Step,
    inputs: Sequence[DataFrame],
    emitted: int,
    erased: ErasedKeys = NOBODY,
) -> Processed:
    """Call the process function once; its input hides the accounting, which its frames still have.

    :param inputs: with `_x` and `_n`
    :param emitted: how many rows the batch has
    :param erased: whose rows no state gets, nor the quarantine
    """
    states = [state for state in topology.states if state.name in step.feeds]
    with noting() as calls:
        readable = map(set_malformed_aside, inputs)
        returned = step.process(*map(hide_accounting, readable))
        pin_settings(spark)  # the function may have changed some
        frames = accounted_frames(returned, states)
        frames = {name: in_session(frame, spark) for name, frame in frames.items()}
        frames = {s.name: set_erased_aside(frames[s.name], s, erased) for s in states}
        if topology.malformed == QUARANTINE:
            frames = {s.name: set_unstorable_aside(frames[s.name], s) for s in states}
    calls = [replace(call, rows=in_session(call.rows, spark)) for call in calls]
    calls, unused = used_calls(calls, frames.values())
    once = evaluate_once(inputs, [*frames.values(), *(call.rows for call in calls)])
    frames = dict(zip(frames, once, strict=False))
    calls = [
        replace(call, rows=rows) for call, rows in zip(calls, once[len(frames) :], strict=True)
    ]
    set_aside, quarantined = evaluate(calls, topology.most_quarantined(emitted), erased)
    return Processed(
        frames=frames,
        set_aside=set_aside,
        quarantined=quarantined,
        calls=calls + unused,
    )
