"""Why a txid waits: what ends the wait, and who is ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from reliability.core.texts import printable
from reliability.core.txids import format_txids

_NAMED = 5  # txids that are named one by one


class WaitsFor(str, Enum):
    """What ends the wait of a task; its text goes on after "waits"."""

    text: str

    PLACE = "place", "behind {behind}: at most {most} at once (max_spout_pending)"
    REPLAY_PLACE = (
        "replay_place",
        "behind the replay of {behind}: at most {most} at once (max_replay_pending)",
    )
    TURN = "turn", "behind {behind}: txids commit in order"
    PREDECESSOR = "predecessor", "behind {behind}: its batch starts where that one ends"
    RESUME = "resume", "for the topology to be resumed (paused: {detail})"
    EMIT_INTERVAL = "emit_interval", "for the emit interval to pass (emit_interval_seconds)"
    CHECKPOINT_INTERVAL = (
        "checkpoint_interval",
        "for the checkpoint interval to pass (checkpoint_interval_seconds)",
    )
    SOURCE = "source", "for the source to be ready"
    OTHER_REQUEST = "other_request", "for attempt {detail} of another request, which is processing"
    OTHER_TASK = "other_task", "for another task of this run, which works on attempt {detail}"
    DRY_RUN = "dry_run", "for dry run {detail} to be reported"

    def __new__(cls, value: str, text: str) -> WaitsFor:
        member = str.__new__(cls, value)
        member._value_, member.text = value, text
        return member


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
        is_long = len(self.behind) > _NAMED
        behind = format_txids(self.behind) if is_long else ", ".join(map(str, self.behind))
        return self.what.text.format(behind=behind, most=self.most, detail=printable(self.detail))
