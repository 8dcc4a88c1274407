"""The product's own calls, for tests: one topology, one session, no Airflow.

From top to bottom `TransactionRunner` is the way of a batch: emit, contact, next_action, begin,
claim_step, end_step, seal, commit, close, settle, sweep. Every call is a short piece of ledger
work and harmless when repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from reliability.core.attempt import Grant
from reliability.core.coordinator import Action, Submit, Wait, Work
from reliability.core.definitions import Topology
from reliability.core.errors import ReliabilityError
from reliability.core.leases import Leases
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.commit.apply import Committed
from reliability.transaction.commit.committer import drain
from reliability.transaction.commit.dry_run import DryRunResult
from reliability.transaction.emit import emission, requests
from reliability.transaction.emit import refreeze as refreezing
from reliability.transaction.maintain.sweep import Swept, sweep
from reliability.transaction.process import attempt_messages
from reliability.transaction.process import begin as beginning
from reliability.transaction.process import seal as sealing
from reliability.transaction.process.begin import TransactionTask
from reliability.transaction.run import Executor, decide, run_transaction
from reliability.transaction.topology import lifecycle
from reliability.transaction.topology.read_standing import read_txid

P = ParamSpec("P")
R = TypeVar("R")


def of_topology(
    call: Callable[Concatenate[LedgerConnection, Topology, P], R],
) -> Callable[Concatenate[TransactionRunner, P], R]:
    """Make a method of a call that begins with a session and a topology."""

    def method(runner: TransactionRunner, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return call(runner.connection, runner.topology, *args, **kwargs)

    return method


def of_name(
    call: Callable[Concatenate[LedgerConnection, str, P], R],
) -> Callable[Concatenate[TransactionRunner, P], R]:
    """Make a method of a call that begins with a session and a topology's name."""

    def method(runner: TransactionRunner, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return call(runner.connection, runner.topology.name, *args, **kwargs)

    return method


class TransactionRunner:
    """One topology, one session with the ledger."""

    def __init__(
        self, topology: Topology, connection: LedgerConnection, leases: Leases | None = None
    ) -> None:
        self.topology = topology
        self.connection = connection
        self.leases = leases or Leases()

    emit = of_topology(emission.emit)
    refreeze = of_topology(refreezing.refreeze)
    contact = of_name(requests.contact)

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
        task, topology = self.task(txid, request_id, work), self.topology
        seen, _, _ = read_txid(self.connection, topology, txid, request_id)
        return beginning.begin_attempt(self.connection, task, seen)

    def claim_step(self, txid: int, request_id: int, step: str, work: Work) -> Grant | None:
        """Take up a step of the live attempt, if that is what is to be done now."""
        task = self.task(txid, request_id, work)
        seen, action = decide(self.connection, task)
        return (
            beginning.claim_step(self.connection, task, seen, step)
            if action == Submit(step)
            else None
        )

    end_step = of_topology(sealing.end_step)
    seal = of_topology(sealing.seal)

    def end_attempt(self, grant: Grant, error: ReliabilityError, *, fence: bool = False) -> bool:
        """Fail or fence an unsealed attempt."""
        return attempt_messages.end_attempt(self.connection, grant, error, fence=fence)

    def error_of(self, grant: Grant) -> ReliabilityError:
        """Return why an attempt ended."""
        return attempt_messages.error_of(self.connection, grant)

    def commit(self, txid: int) -> list[Committed]:
        """Commit everything whose turn it is; raise if `txid` was among it and failed."""
        return drain(self.connection, self.topology.name, own_txid=txid)

    close = of_name(requests.close)
    settle = of_name(requests.settle)
    pause = of_name(lifecycle.pause)
    resume = of_name(lifecycle.resume)

    def sweep(self) -> Swept:
        """Find what died silently."""
        return sweep(self.connection, self.topology.name, self.leases)


class Unattended:
    """What an executor does where nobody listens, and nobody else works."""

    def check(self) -> None:
        """There is no connection that could lack."""

    def began(self, grant: Grant) -> None:
        """Nobody listens."""

    def wait(self, wait: Wait) -> None:
        raise AssertionError(f"nobody else works here, and it waits: {wait.reason}")

    def committed(self, committed: Sequence[Committed]) -> None:
        """The tests ask the tables."""

    def report(self, what: str, level: int = logging.INFO) -> None:
        """Nobody listens."""
