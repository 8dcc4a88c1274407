"""Whether a replay that comes later can still process a txid: others may commit before it (H5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from reliability.core.state import State, replay_refusal
from reliability.ledger.connection import Ledger, LedgerConnection
from reliability.states.headers import compacted_through
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.declare import states_of


@dataclass(frozen=True, slots=True)
class Replayable:
    """What decides it: the states of a topology, in every database."""

    topology: str
    states: tuple[State, ...]

    @classmethod
    def of(cls, connection: LedgerConnection, topology: str) -> Replayable:
        with TopologyDatabases.of(connection, topology) as databases:
            return cls(topology, tuple(states_of(databases)))

    def refused(
        self, ledger: Ledger, txids: Iterable[int], *, at_once: bool = False
    ) -> Iterator[tuple[int, str]]:
        """Yield the txids that a replay could not process once they have committed, and why.

        :param ledger: the coordinator's; decide under its lock what has to hold when it is recorded
        :param at_once: the replay follows now; otherwise as if the next txid commits before it
        """
        curr_txid = ledger.one("topology_position", topology=self.topology)["curr_txid"]
        through = compacted_through(ledger, self.topology)
        for txid in txids:
            behind = curr_txid if at_once else max(curr_txid, txid + 2)
            if why := replay_refusal(self.states, txid, behind, through):
                yield txid, why

    def refusal(self, ledger: Ledger, txid: int) -> str | None:
        """Return why a later replay could not process a txid once that has committed, or None."""
        return next((why for _, why in self.refused(ledger, [txid])), None)
