"""The loop for a txid: ask the pure `next_action` what to do next, do it, ask again.

Airflow's tasks and `reliability replay` use the same loop, so the same rules fence them: a sweep
gives up the work of a dead process, and another run that wants the txid waits. They differ in
their executor: how it submits a step, how it waits, and where it reports.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Protocol

from reliability.core.attempt import Grant
from reliability.core.coordinator import (
    Action,
    Begin,
    Commit,
    CommitEmpty,
    Done,
    DryRun,
    Fail,
    Seal,
    Snapshot,
    Submit,
    Wait,
    next_action,
)
from reliability.core.definitions import Topology
from reliability.core.errors import (
    NOT_ANSWERING,
    AttemptIncomplete,
    LedgerRefusedLogin,
    PredecessorFailed,
    ReliabilityError,
)
from reliability.core.waits import WaitReason, WaitsFor
from reliability.ledger.connection import LedgerConnection
from reliability.states.kinds.stored import DifferenceObserver
from reliability.transaction.commit.apply import Committed
from reliability.transaction.commit.committer import drain
from reliability.transaction.commit.dry_run import DryRunResult, dry_run_replay
from reliability.transaction.correct.park import read_skip, skip_again
from reliability.transaction.emit.requests import record_problem, renew
from reliability.transaction.inspect.attempt_report import accounts_of
from reliability.transaction.process.attempt_messages import end_attempt, error_of
from reliability.transaction.process.begin import (
    TransactionTask,
    begin_attempt,
    claim_step,
    grant_of,
    interval,
)
from reliability.transaction.process.seal import end_step, seal
from reliability.transaction.topology.read_standing import read_txid

logger = logging.getLogger(__name__)
RENEWALS_PER_LEASE = 20


class Executor(Protocol):
    """The part in which an Airflow task and the command line differ."""

    def check(self) -> None:
        """Raise if nothing can be submitted; called before an attempt begins."""

    def began(self, grant: Grant) -> None:
        """Report an attempt that begins."""

    def submit(self, grant: Grant, step: str) -> None:
        """Run a step on Spark until it ends; raise if it failed. Success alone proves nothing."""

    def wait(self, wait: Wait) -> None:
        """Return when it is time to ask again; or leave, and run again later."""

    def committed(self, committed: Sequence[Committed]) -> None:
        """Report what was committed: this txid, and others that were due with it."""

    def report(self, what: str, level: int = logging.INFO) -> None:
        """Report what happens."""


def run_transaction(
    connection: LedgerConnection,
    task: TransactionTask,
    executor: Executor,
    observer: DifferenceObserver | None = None,
) -> DryRunResult | None:
    """Do everything that is missing until the task is done, even another task's part (R4).

    :param observer: called with the rows that a dry run finds different, or that a commit changes
    :return: what a dry run has found
    :raises ReliabilityError: the task cannot be completed now, or at all; a retry starts again here
    """
    topology = task.topology.name
    with _naming_interval(connection, task), _renewing(connection, task):
        while True:
            seen, action = decide(connection, task)
            match action:
                case Done():
                    if seen.is_skipped:
                        executor.report(str(read_skip(connection, topology, task.txid)))
                    return None
                case Fail(error=error):
                    raise error
                case Wait():
                    executor.wait(action)
                case Commit():
                    committed = drain(connection, topology, own_txid=task.txid, observer=observer)
                    executor.committed(committed)  # if nothing, another process was faster
                case CommitEmpty():
                    skip_again(connection, topology, task.txid)
                case DryRun():
                    return dry_run_replay(
                        connection, topology, task.txid, task.request_id, observer
                    )
                case Begin() | Submit() | Seal():
                    try:
                        _process(connection, task, executor, seen, action)
                    except PredecessorFailed as error:
                        # this txid did not fail: it waits for its predecessor and begins again
                        executor.report(str(error), logging.WARNING)


@contextmanager
def _renewing(connection: LedgerConnection, task: TransactionTask) -> Iterator[None]:
    """Renew the task's request beside its work, any statement of which may take hours (R3)."""
    own = LedgerConnection(connection.address, f"{connection.application_name} renews")
    has_ended = threading.Event()

    def renew_often() -> None:
        with closing(own):
            while not has_ended.wait(task.leases.request / RENEWALS_PER_LEASE):
                try:
                    renew(own, task.request_id)
                except ReliabilityError as error:
                    logger.warning("request %s is renewed later: %s", task.request_id, error)

    thread = threading.Thread(target=renew_often, name="renew", daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join(timeout=10)


@contextmanager
def _naming_interval(connection: LedgerConnection, task: TransactionTask) -> Iterator[None]:
    """Name the txid's interval in errors: Airflow's run id has the date of the interval's end."""
    try:
        yield
    except NOT_ANSWERING:  # it cannot be asked
        raise
    except ReliabilityError as error:
        error.about(topology=task.topology.name, txid=task.txid)
        with suppress(ReliabilityError):  # it must not hide the first error
            if (own := interval(connection, task.topology.name, task.txid)) is not None:
                error.about(txid=task.txid, interval=str(own))
        raise


def decide(connection: LedgerConnection, task: TransactionTask) -> tuple[Snapshot, Action]:
    """Read the ledger and decide what to do next; also return what was read.

    The source is checked before each attempt, also of a replay, as in Trident's isReady.
    """
    topology, txid = task.topology, task.txid
    snapshot, request, _ = read_txid(connection, topology, txid, task.request_id)
    action = next_action(snapshot, request, task.work)
    if isinstance(action, Begin) and not topology.spout.is_ready(txid, snapshot.interval):
        return snapshot, Wait(WaitReason(what=WaitsFor.SOURCE))
    return snapshot, action


def _process(
    connection: LedgerConnection,
    task: TransactionTask,
    executor: Executor,
    seen: Snapshot,
    action: Begin | Submit | Seal,
) -> None:
    """Do one action of the processing phase, unless it is no longer due."""
    match action:
        case Begin():
            with _recording_problem(connection, task.request_id):
                executor.check()
                grant = begin_attempt(connection, task, seen)
            if grant is not None:
                executor.began(grant)
        case Submit(step=step):
            grant = claim_step(connection, task, seen, step)
            if grant is not None:
                executor.report(f"attempt {grant.attempt}: step {step} runs on Spark")
                _submit(connection, task.topology, executor, grant, step)
        case Seal():
            grant = grant_of(task.topology.name, seen)
            sealed = seal(connection, task.topology, grant, task.work.task)
            what = f"attempt {grant.attempt} is processed"
            if sealed is not None:
                applied = "" if sealed.has_set_aside else ", all applied to each state"
                what += f": {sealed.emitted:,} rows emitted{applied}"
            executor.report(what)
            if sealed is not None and sealed.has_set_aside:
                for account in accounts_of(connection, task.topology, grant):
                    executor.report(str(account))


@contextmanager
def _recording_problem(connection: LedgerConnection, request_id: int) -> Iterator[None]:
    """Record what prevents an attempt: otherwise only the log of the task would say it."""
    try:
        yield
    except (*NOT_ANSWERING, PredecessorFailed):  # the task waits, and tries again
        raise
    except ReliabilityError as error:
        with suppress(ReliabilityError):  # it must not hide the first error
            record_problem(connection, request_id, error)
        raise


def _submit(
    connection: LedgerConnection, topology: Topology, executor: Executor, grant: Grant, step: str
) -> None:
    """Run a step, then end it according to the ledger."""
    try:
        executor.submit(grant, step)
    except Exception as error:
        # The JVM is gone but its Python may still run: fence it before trying anything else.
        first_line = str(error).split("\n", 1)[0][:300]
        what = f"its driver ended before the attempt was complete ({first_line})"
        end_attempt(connection, grant, AttemptIncomplete(what), fence=True)
        ended = error_of(connection, grant)
        if isinstance(ended, LedgerRefusedLogin):
            # The executors' login, not this process's: without a retry it could go on for ever.
            what = f"{ended.what} [{ended.code}]"
            ended = AttemptIncomplete(what, remedy=ended.remedy)
        raise ended from error
    end_step(connection, topology, grant, step)
