"""The position of a whole topology: one read answers for all txids that tasks wait for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reliability.core.coordinator import AttemptStatus, Blocked, LiveAttempt, Snapshot
from reliability.core.plan import Position

PROCESSING = (AttemptStatus.PROCESSING, AttemptStatus.SEALING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Everything that decisions about a topology's txids need, except the history of a replay.

    :param live: txid -> its live attempt
    :param unfrozen: uncommitted txids whose batch is cut when they begin
    :param held: txid -> why a person must release it
    :param skipped: the txids that a person has skipped
    :param blocked: the oldest txid that no run is working on
    """

    position: Position
    max_spout_pending: int
    max_replay_pending: int
    paused: str | None
    is_throttled: bool
    live: Mapping[int, LiveAttempt]
    unfrozen: frozenset[int]
    held: Mapping[int, str]
    skipped: frozenset[int]
    blocked: Blocked | None = None

    @property
    def curr_txid(self) -> int:
        return self.position.curr_txid

    def snapshot(self, txid: int) -> Snapshot:
        blocked = self.blocked if self.blocked and self.blocked.txid < txid else None
        return Snapshot(
            txid=txid,
            position=self.position,
            max_spout_pending=self.max_spout_pending,
            live=self.live.get(txid),
            other_replays=tuple(sorted(self.replays() - {txid})),
            blocked=blocked,
            paused=self.paused,
            is_throttled=self.is_throttled,
            is_frozen=txid not in self.unfrozen,
            lacks_predecessor=txid in self.unfrozen and not self._has_predecessor(txid),
            held=self.held.get(txid),
            is_skipped=txid in self.skipped,
            max_replay_pending=self.max_replay_pending,
        )

    def replays(self) -> set[int]:
        """Return the committed txids that are being replayed."""
        return {
            txid
            for txid, attempt in self.live.items()
            if txid < self.curr_txid and attempt.status in PROCESSING
        }

    def admitted(self, waiting: Iterable[int], called: set[int]) -> set[int]:
        """Return which of the waiting replays may begin: the lowest, as many as there is room for.

        :param waiting: txids whose replay could begin now
        :param called: txids that were told to begin before and have not begun yet
        """
        room = self.max_replay_pending - len(self.replays() | called)
        return set(sorted(set(waiting) - called)[: max(room, 0)])

    def _has_predecessor(self, txid: int) -> bool:
        return txid <= self.curr_txid or txid - 1 in self.live
