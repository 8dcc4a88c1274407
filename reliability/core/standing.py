"""The position of a whole topology: one read answers for all txids that tasks wait for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reliability.core.coordinator import AttemptStatus, Blocked, LiveAttempt, Snapshot
from reliability.core.skip import Skipped

PROCESSING = (AttemptStatus.PROCESSING, AttemptStatus.SEALING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Everything that decisions about a topology's txids need, except the history of a replay.

    :param is_gathering: the checkpoint interval since the last first commit has not passed
    :param live: txid -> its live attempt
    :param unfrozen: uncommitted txids whose batch is cut when they begin
    :param held: txid -> why a person must release it
    :param blocked: the oldest txid that no run is working on
    :param skipped: txids that a person has skipped
    """

    curr_txid: int
    max_spout_pending: int
    max_replay_pending: int
    paused: str | None
    is_throttled: bool
    is_gathering: bool
    live: Mapping[int, LiveAttempt]
    unfrozen: frozenset[int]
    held: Mapping[int, str]
    blocked: Blocked | None
    skipped: Mapping[int, Skipped]

    def snapshot(self, txid: int) -> Snapshot:
        """Return the snapshot of one txid."""
        blocked = self.blocked if self.blocked and self.blocked.txid < txid else None
        return Snapshot(
            txid=txid,
            curr_txid=self.curr_txid,
            max_spout_pending=self.max_spout_pending,
            live=self.live.get(txid),
            replays_processing=len(self.replays() - {txid}),
            blocked=blocked,
            paused=self.paused,
            is_throttled=self.is_throttled,
            is_frozen=txid not in self.unfrozen,
            is_gathering=self.is_gathering and txid == self.curr_txid,
            lacks_predecessor=txid in self.unfrozen and not self._has_predecessor(txid),
            held=self.held.get(txid),
            skipped=self.skipped.get(txid),
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
