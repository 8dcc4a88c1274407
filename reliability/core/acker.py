"""Decide whether an attempt is complete: all partitions acked, and every row staged exactly once.

A sink is one state. Storm's acker checks only that ack_val is 0. Here all declared partitions must
have acked, and the fold of the rows staged in Postgres must equal what the source emitted. Each
sink is checked on its own: across two sinks, XOR could cancel a loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from reliability.core.errors import AttemptIncomplete, RowsUnaccounted
from reliability.core.fold import Fold
from reliability.core.spout import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """What the ledger knows of one sink of an attempt.

    :param step: the processing step that feeds it
    :param partitions: how many partitions the driver declared, None while the write runs
    :param acked_partitions: the partitions that acked, ascending
    :param unacked: emitted minus acked; its xor is Storm's ack_val
    :param set_aside: what was dropped or quarantined on the way to it, which counts as acked
    :param digests: those of the rows of each partition that acked
    :param table_id: the number of the attempt's own table, None if it has none
    """

    name: str
    step: str
    partitions: int | None
    acked_partitions: tuple[int, ...]
    unacked: Fold
    set_aside: Fold = field(default_factory=Fold)
    digests: Sequence[int] = ()
    table_id: int | None = None


def check_acked(sinks: Sequence[Sink]) -> None:
    """Raise AttemptIncomplete unless each sink's acks are exactly 0 … n - 1 (A5).

    ack_val alone proves nothing: it is also 0 at the start of an empty batch.
    """
    for sink in sinks:
        if sink.partitions is None:
            raise AttemptIncomplete(f"state {sink.name}: its write did not finish")
        if sink.acked_partitions != tuple(range(sink.partitions)):
            raise AttemptIncomplete(
                f"state {sink.name}: {len(sink.acked_partitions)} of {sink.partitions} "
                "partitions acked"
            )


def check_accounting(
    emitted: Fold, sinks: Sequence[Sink], staged: dict[str, Fold], verdict: Verdict = Verdict.EXACT
) -> None:
    """Raise RowsUnaccounted unless emitted = acked = staged + set aside, for every sink (V1, V8).

    The XOR of a COUNTED batch is not known at the source, so only the count of the emitted side is
    compared. Acked and staged rows must still agree in both.
    """
    for sink in sinks:
        accounted = staged[sink.name] + sink.set_aside
        check_emitted(sink.name, emitted, accounted, verdict)
        acked = emitted - sink.unacked
        if acked != accounted:
            raise AttemptIncomplete(
                f"state {sink.name}: acked and staged rows differ "
                f"({abs(acked.count - accounted.count)} rows difference, ack_val "
                f"{sink.unacked.xor})"
            )


def check_emitted(name: str, emitted: Fold, accounted: Fold, verdict: Verdict) -> None:
    """Raise RowsUnaccounted unless a state accounts for what was emitted.

    :param accounted: what was staged for it, and set aside on the way to it
    """
    if emitted.count == accounted.count and (
        emitted.xor == accounted.xor or verdict is Verdict.COUNTED
    ):
        return
    missing = emitted.count - accounted.count
    if missing > 0:
        what = f"{missing} of {emitted.count} emitted rows did not reach it"
    elif missing < 0:
        what = f"{-missing} more rows reached it than the {emitted.count} emitted"
    else:
        what = f"the {emitted.count} rows that reached it are not those that were emitted"
    raise RowsUnaccounted(f"state {name}: {what}")
