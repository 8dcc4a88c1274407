"""Why a txid waits: what ends the wait, and who is ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from reliability.core.texts import printable
from reliability.core.txids import format_txids

_NAMED = 5  # txids that are named one by one


class WaitsFor(str, Enum):
    """What ends the wait of a task."""

    PLACE = "place"  # max_spout_pending txids are between begin and commit
    REPLAY_PLACE = "replay_place"  # max_replay_pending replays are processed
    TURN = "turn"  # txids commit in order
    PREDECESSOR = "predecessor"  # an opaque batch starts where another one ends
    RESUME = "resume"  # the topology is paused
    EMIT_INTERVAL = "emit_interval"
    CHECKPOINT_INTERVAL = "checkpoint_interval"
    SOURCE = "source"
    OTHER_REQUEST = "other_request"  # another request's attempt is processed
    OTHER_TASK = "other_task"  # another task of the run works on the attempt
    DRY_RUN = "dry_run"  # a dry run has to be reported


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitReason:
    """Why a txid waits; as a text, it goes on after "waits".

    :param behind: the txids that have to come first
    :param most: how many may be processed at once
    :param detail: why the topology is paused; or the attempt that is waited for, with its steps

    >>> print(WaitReason(what=WaitsFor.PLACE, behind=range(4, 7), most=3))
    behind 4, 5, 6: at most 3 at once (max_spout_pending)
    >>> print(WaitReason(what=WaitsFor.TURN, behind=[4]))
    behind 4: txids commit in order
    """

    what: WaitsFor
    behind: Sequence[int] = ()
    most: int | None = None
    detail: str = ""

    def is_next(self, txid: int) -> bool:
        """Say whether it is this txid's turn after one more txid."""
        is_in_order = self.what is not WaitsFor.REPLAY_PLACE
        return is_in_order and bool(self.behind) and self.behind[-1] == txid - 1

    def __str__(self) -> str:
        return _TEXTS[self.what].format(
            behind=_names(self.behind), most=self.most, detail=printable(self.detail)
        )


_TEXTS = {
    WaitsFor.PLACE: "behind {behind}: at most {most} at once (max_spout_pending)",
    WaitsFor.REPLAY_PLACE: (
        "behind the replay of {behind}: at most {most} at once (max_replay_pending)"
    ),
    WaitsFor.TURN: "behind {behind}: txids commit in order",
    WaitsFor.PREDECESSOR: "behind {behind}: its batch starts where that one ends",
    WaitsFor.RESUME: "for the topology to be resumed (paused: {detail})",
    WaitsFor.EMIT_INTERVAL: "for the emit interval to pass (emit_interval_seconds)",
    WaitsFor.CHECKPOINT_INTERVAL: (
        "for the checkpoint interval to pass (checkpoint_interval_seconds)"
    ),
    WaitsFor.SOURCE: "for the source to be ready",
    WaitsFor.OTHER_REQUEST: "for attempt {detail} of another request, which is processing",
    WaitsFor.OTHER_TASK: "for another task of this run, which works on attempt {detail}",
    WaitsFor.DRY_RUN: "for dry run {detail} to be reported",
}


def _names(txids: Sequence[int]) -> str:
    if len(txids) > _NAMED:
        return format_txids(txids)
    return ", ".join(map(str, txids))
