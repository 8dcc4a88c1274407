"""TransactionRunner: the calls of the product for one topology and one session, for tests.

From top to bottom it is the way of a batch: emit, contact, next_action, begin, claim_step,
end_step, seal, commit, close, settle, sweep. Every call is a short piece of ledger work and
harmless when repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

from reliability.core.attempt import Grant, TransactionAttempt
from reliability.core.coordinator import Action, Snapshot, Submit, Work
from reliability.core.definitions import Topology
from reliability.core.errors import ReliabilityError
from reliability.core.leases import Leases
from reliability.core.request import Request
from reliability.core.schedule import Schedule
from reliability.core.spout import BatchMeta, Interval
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.commit.drain import drain
from reliability.transaction.commit.dry_run import DryRunResult
from reliability.transaction.commit.next_plan import Committed
from reliability.transaction.emit import requests as request
from reliability.transaction.emit.emission import emit
from reliability.transaction.emit.refreeze import refreeze
from reliability.transaction.emit.requests import Run, TaskContact
from reliability.transaction.inspect.attempt_report import outdated_code
from reliability.transaction.maintain.sweep import Swept, sweep
from reliability.transaction.process import attempt_messages, begin, seal
from reliability.transaction.run import Executor, TransactionTask, decide, run_transaction
from reliability.transaction.topology.databases import open_ledger
from reliability.transaction.topology.lifecycle import pause, resume


class TransactionRunner:
    """One topology, one session with the ledger."""

    def __init__(
        self, topology: Topology, connection: LedgerConnection, leases: Leases | None = None
    ) -> None:
        self.topology = topology
        self.connection = connection
        self.leases = leases or Leases()

    @classmethod
    def open(cls, topology: Topology, purpose: str = "") -> TransactionRunner:
        """Open the ledger that RELIABILITY_DSN names, and check that this release fits it."""
        return cls(topology, open_ledger(f"{topology.name} {purpose}"))

    def __enter__(self) -> TransactionRunner:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def emit(
        self,
        interval: Interval | None,
        who: TaskContact,
        *,
        max_batches: int,
        refreeze: bool = False,
        replay: Sequence[int] | None = None,
        schedule: Schedule | None = None,
    ) -> list[int]:
        """Give the interval's items their txids and open the run's requests.

        :param refreeze: freeze what the source has now of the batches that the interval has
        :param replay: request exactly these txids, and emit nothing
        """
        return emit(
            self.connection,
            self.topology,
            interval,
            who,
            max_batches=max_batches,
            refreeze=refreeze,
            replay=replay,
            schedule=schedule,
        )

    def refreeze(self, txid: int, reason: str) -> BatchMeta | None:
        """Freeze what the source has now of a txid's items; None if nothing has changed."""
        return refreeze(self.connection, self.topology, txid, reason)

    def contact(self, txid: int, who: TaskContact) -> Request:
        """Return the request that a task works for."""
        return request.contact(self.connection, self.topology.name, txid, who)

    def next_action(self, txid: int, request_id: int, work: Work) -> Action:
        """Read the ledger and decide what is to be done next."""
        return decide(self.connection, self.task(txid, request_id, work))[1]

    def task(
        self, txid: int, request_id: int, work: Work, *, as_refrozen: bool = False
    ) -> TransactionTask:
        """Return what a task has to get done."""
        return TransactionTask(
            topology=self.topology,
            txid=txid,
            request_id=request_id,
            work=work,
            leases=self.leases,
            as_refrozen=as_refrozen,
        )

    def run(
        self,
        txid: int,
        request_id: int,
        work: Work,
        executor: Executor,
        *,
        as_refrozen: bool = False,
    ) -> DryRunResult | None:
        """Do what an Airflow task does."""
        task = self.task(txid, request_id, work, as_refrozen=as_refrozen)
        return run_transaction(self.connection, task, executor)

    def begin(self, txid: int, request_id: int, work: Work) -> Grant | None:
        """Grant the next attempt, if that is what is to be done now."""
        return begin.begin_attempt(
            self.connection,
            self.topology,
            self._seen(txid, request_id),
            request_id,
            work,
            self.leases,
        )

    def claim_step(self, txid: int, request_id: int, step: str, work: Work) -> Grant | None:
        """Take up a step of the live attempt, if that is what is to be done now."""
        seen, action = decide(self.connection, self.task(txid, request_id, work))
        if action != Submit(step):
            return None
        return begin.claim_step(
            self.connection, self.topology, seen, request_id, step, work.task, self.leases
        )

    def end_step(self, grant: Grant, step: str) -> None:
        """Mark a step done, or fail the attempt and raise why."""
        seal.end_step(self.connection, self.topology, grant, step)

    def seal(self, grant: Grant, task: str) -> None:
        """Make a complete attempt PROCESSED, or raise why it is not."""
        seal.seal(self.connection, self.topology, grant, task)

    def live_grant(self, txid: int, request_id: int) -> Grant | None:
        """Return the grant of the request's own live attempt."""
        seen = self._seen(txid, request_id)
        if seen.live is None or seen.live.is_processed or seen.live.request_id != request_id:
            return None
        return begin.grant_of(self.topology.name, seen)

    def _seen(self, txid: int, request_id: int) -> Snapshot:
        topology = self.topology
        seen, _ = begin.read_snapshot(
            self.connection, topology.name, txid, request_id, topology.states
        )
        return seen

    def end_attempt(self, grant: Grant, error: ReliabilityError, *, fence: bool = False) -> bool:
        """Fail or fence an unsealed attempt."""
        return attempt_messages.end_attempt(self.connection, grant, error, fence=fence)

    def error_of(self, grant: Grant) -> ReliabilityError:
        """Return why an attempt ended."""
        return attempt_messages.error_of(self.connection, grant)

    def commit(self, txid: int) -> list[Committed]:
        """Commit everything whose turn it is; raise if `txid` was among it and failed."""
        return drain(self.connection, self.topology.name, own_txid=txid)

    def outdated_code(self, attempt: TransactionAttempt) -> str | None:
        """Say that a replay has run the old code once more, though there is newer; else None."""
        return outdated_code(self.connection, self.topology.name, attempt)

    def close(self, txid: int, run: Run, reason: str) -> bool:
        """Close the run's request for a txid if it is not satisfied."""
        return request.close(self.connection, self.topology.name, txid, run, reason)

    def settle(self, run: Run, txids: Sequence[int]) -> list[int]:
        """Return the txids that the run has committed; raise if not all it asked for is done."""
        return request.settle(self.connection, self.topology.name, run, txids)

    def pause(self, reason: str) -> None:
        """Begin no more attempts; what is in flight drains."""
        pause(self.connection, self.topology.name, reason)

    def resume(self) -> None:
        """Begin attempts again."""
        resume(self.connection, self.topology.name)

    def sweep(self) -> Swept:
        """Find what died silently."""
        return sweep(self.connection, self.topology.name, self.leases)
