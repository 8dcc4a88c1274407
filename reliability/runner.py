"""TransactionRunner: all that an Airflow task or the command line does for one topology.

From top to bottom it is the way of a batch: emit, contact, next_action, begin, seal, commit,
close, settle, sweep. Every call is one short piece of ledger work and harmless when repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

from reliability.core.attempt import Grant
from reliability.core.coordinator import Action, Goal, next_action
from reliability.core.definitions import Topology
from reliability.core.errors import ReliabilityError
from reliability.core.request import Request
from reliability.core.spout import Interval
from reliability.ledger.door import Door
from reliability.ledger.migrations import check_migrated
from reliability.settings import Leases, ledger_dsn
from reliability.transaction import attempt, request
from reliability.transaction.commit import Committed, drain
from reliability.transaction.emit import emit
from reliability.transaction.request import Run, TaskContact
from reliability.transaction.sweep import Swept, sweep


class TransactionRunner:
    """One topology, one session with the ledger."""

    def __init__(self, topology: Topology, door: Door, leases: Leases | None = None) -> None:
        self.topology = topology
        self.door = door
        self.leases = leases or Leases()

    @classmethod
    def open(cls, topology: Topology, purpose: str = "") -> TransactionRunner:
        """Open the ledger that RELIABILITY_DSN names, and check that this release fits it."""
        name = f"reliability {topology.name} {purpose}".strip()
        runner = cls(topology, Door(ledger_dsn(), application_name=name))
        check_migrated(runner.door)
        return runner

    def __enter__(self) -> TransactionRunner:
        return self

    def __exit__(self, *error: object) -> None:
        self.door.close()

    def emit(self, interval: Interval | None, who: TaskContact, *, most_batches: int) -> list[int]:
        """Give the interval's items their txids and open the run's requests."""
        return emit(self.door, self.topology, interval, who, most_batches=most_batches)

    def contact(self, txid: int, who: TaskContact) -> Request:
        """Return the request that a task works for."""
        return request.contact(self.door, self.topology.name, txid, who)

    def next_action(self, txid: int, request_id: int, goal: Goal) -> Action:
        """Read the ledger and decide what is to be done next."""
        snapshot, latest = attempt.read_snapshot(self.door, self.topology.name, txid, request_id)
        return next_action(snapshot, latest, goal)

    def begin(self, txid: int, request_id: int) -> Grant | None:
        """Grant the next attempt, if that is what is to be done now."""
        return attempt.begin_attempt(self.door, self.topology, txid, request_id, self.leases)

    def seal(self, grant: Grant) -> None:
        """Make a complete attempt PROCESSED, or raise why it is not."""
        attempt.seal(self.door, self.topology, grant)

    def end_attempt(self, grant: Grant, error: ReliabilityError, *, fence: bool = False) -> bool:
        """Fail or fence an unsealed attempt."""
        return attempt.end_attempt(self.door, grant, error, fence=fence)

    def error_of(self, grant: Grant) -> ReliabilityError:
        """Return why an attempt ended."""
        return attempt.error_of(self.door, grant)

    def commit(self, txid: int) -> list[Committed]:
        """Commit everything whose turn it is; raise if `txid` was among it and failed."""
        return drain(self.door, self.topology.name, own_txid=txid)

    def close(self, txid: int, run: Run, reason: str) -> bool:
        """Close the run's request for a txid if it is not satisfied."""
        return request.close(self.door, self.topology.name, txid, run, reason)

    def settle(self, run: Run, txids: Sequence[int]) -> None:
        """Return if all that the run asked for is done, else raise."""
        request.settle(self.door, self.topology.name, run, txids)

    def sweep(self) -> Swept:
        """Find what died silently."""
        return sweep(self.door, self.topology.name, self.leases)
