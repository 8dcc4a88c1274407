"""`reliability replay` without Airflow: its own run, and its own executor."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from reliability.core.attempt import Grant, TransactionAttempt
from reliability.core.audits import AuditOutcome
from reliability.core.coordinator import Wait, Work
from reliability.core.definitions import Topology
from reliability.core.difference import Difference
from reliability.core.errors import (
    ReliabilityError,
    RunUnsatisfied,
    Transient,
    TxidSkipped,
)
from reliability.core.request import Request, TaskTry
from reliability.core.spout import BatchMeta
from reliability.core.statement_key import TxidKey
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import lock_topology
from reliability.ledger.read_rows import skipped_of
from reliability.spark.submission import Submission
from reliability.states.kinds.stored import DifferenceObserver
from reliability.transaction.commit.next_plan import Committed
from reliability.transaction.correct.rollback import RunToClear, runs_to_clear
from reliability.transaction.emit.refreeze import refreeze
from reliability.transaction.emit.requests import (
    Run,
    TaskContact,
    check_committed,
    close,
    contact,
    contact_in,
)
from reliability.transaction.inspect.attempt_report import attempt_report, outdated_code
from reliability.transaction.maintain.sweep import sweep
from reliability.transaction.process.attempt_messages import is_processing
from reliability.transaction.run import TransactionTask, run_transaction

logger = logging.getLogger(__name__)
TASK = "replay"
POLL_INTERVAL_SECONDS = 0.5
SWEEP_INTERVAL_SECONDS = 10.0

Report = Callable[[str, int], None]
"""Is told what happens, and with which txid."""

SubmitStep = Callable[[Submission, Callable[[], bool]], None]
"""Runs a step to its end; the second argument says whether anybody still wants it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """What a replay changed, or, as a dry run, would change.

    :param audits: those that are violated; an error would refuse the commit of a dry run
    :param outdated_code: a warning if it may have run old code
    """

    txid: int
    attempt: TransactionAttempt
    differences: tuple[Difference, ...]
    audits: tuple[AuditOutcome, ...]
    outdated_code: str | None


class ReplayRun:
    """One call of `reliability replay`: a run of its own for some txids of a topology.

    :param module: the module that spark-submit imports
    :param patience: how many seconds to wait for a txid's turn
    :param report: called with progress messages
    :param observer: observes the rows that a dry run finds different, or that a commit changes
    :param without: source items that a dry run leaves out
    :param as_refrozen: a dry run reads what a refreeze would freeze
    """

    def __init__(
        self,
        connection: LedgerConnection,
        topology: Topology,
        submit: SubmitStep,
        run: Run,
        *,
        module: str,
        is_dry_run: bool = False,
        patience: float = 3600,
        report: Report = lambda text, txid: logger.info(text),
        observer: DifferenceObserver | None = None,
        without: frozenset[str] = frozenset(),
        as_refrozen: bool = False,
    ) -> None:
        self._without = without
        self._as_refrozen = as_refrozen
        self._connection = connection
        self._definition = topology
        self._topology = topology.name
        self._work: Work = topology.work(TASK)
        self._submit_step = submit
        self._who = TaskContact(
            run=run, task=TASK, this_try=TaskTry(max_tries=0), is_dry_run=is_dry_run
        )
        self._module = module
        self._patience = patience
        self._report = report
        self._observer = observer
        self._requests: Mapping[int, Request] = {}

    def ask(self, txids: Sequence[int], reason: str = "") -> None:
        """Open requests for all of these txids, or for none.

        :raises NothingToReplay: one of them has not committed
        :raises TxidSkipped: one of them is skipped
        """
        with self._connection.transaction() as tx:
            lock_topology(tx, self._topology)
            check_committed(tx, self._topology, txids)
            if skip := tx.first("skips_of_txids", txids=list(txids), topology=self._topology):
                raise TxidSkipped(str(skipped_of(skip)))
            who = replace(self._who, reason=reason)
            self._requests = {
                txid: contact_in(tx, self._topology, txid, who, may_open_first=True)
                for txid in txids
            }

    def requests(self) -> dict[int, int]:
        """Return the requests that `ask` has opened: txid -> request_id."""
        return {txid: request.request_id for txid, request in self._requests.items()}

    def uncommitted(self, txids: Sequence[int]) -> list[RunToClear]:
        """Return the runs that request those of the txids that have not committed."""
        with self._connection.transaction() as tx:
            rows = tx.all("uncommitted_txids", topology=self._topology, txids=list(txids))
            return runs_to_clear(tx, self._topology, rows)

    def refreeze(self, txid: int, reason: str) -> BatchMeta | None:
        """Freeze the current source of a txid's items; None if nothing has changed."""
        with self._session() as connection:
            return refreeze(connection, self._definition, txid, reason)

    def window(self) -> int:
        """Return how many txids of the topology may be replayed at once."""
        with self._connection.transaction() as tx:
            row = tx.one("topology_details", topology=self._topology)
        return int(row["max_replay_pending"])

    def replay(self, txid: int) -> ReplayResult:
        """Process the txid until it is replayed, and return what that changed.

        It has a session of its own: several txids may be replayed at once, each in a thread.
        """
        with self._session() as connection:
            try:
                return self._replay(connection, txid)
            except ReliabilityError as error:
                error.fill_in(topology=self._topology, txid=txid)
                raise

    def _session(self) -> LedgerConnection:
        name = self._connection.application_name
        return LedgerConnection(self._connection.dsn, application_name=name)

    def _replay(self, connection: LedgerConnection, txid: int) -> ReplayResult:
        sweep(connection, self._topology)
        # All txids were requested together, maybe long ago: a sweep may have given this one up.
        request = contact(connection, self._topology, txid, self._who)
        task = TransactionTask(
            topology=self._definition,
            txid=txid,
            request_id=request.request_id,
            work=self._work,
            without=self._without,
            as_refrozen=self._as_refrozen,
        )
        executor = CommandLineExecutor(
            connection, task, self._submit_step, self._module, self._patience, self._report
        )
        found = run_transaction(connection, task, executor, self._observer)
        attempt = self._replaying(connection, txid, request) if found is None else found.attempt
        report = attempt_report(connection, self._topology, attempt)
        return ReplayResult(
            txid=txid,
            attempt=attempt,
            differences=report.differences if found is None else found.differences,
            audits=tuple(outcome for outcome in report.audits if outcome.is_violated),
            outdated_code=outdated_code(connection, self._topology, attempt),
        )

    def give_up(self, reason: str, txids: Collection[int]) -> None:
        """Close the unsatisfied requests for these txids, and fence their attempts.

        An unavailable ledger must not hide the first error; a sweep gives the requests up later.
        """
        try:
            for txid in sorted(self._requests.keys() & set(txids)):
                close(self._connection, self._topology, txid, self._who.run, reason)
        except ReliabilityError as error:
            logger.warning("ignored an error while closing requests: %s", error)

    def _replaying(
        self, connection: LedgerConnection, txid: int, request: Request
    ) -> TransactionAttempt:
        key = TxidKey(self._topology, txid)
        with connection.transaction() as tx:
            row = tx.one("first_replay_after", granted_after=request.granted_after, **key)
        return TransactionAttempt(txid, row["attempt_id"])


@dataclass(slots=True)
class CommandLineExecutor:
    """Waits by polling, because it has no worker slot to leave.

    :param patience: how many seconds to wait for a txid's turn
    """

    connection: LedgerConnection
    task: TransactionTask
    submit_step: SubmitStep
    module: str
    patience: float
    print_progress: Report
    _waits_since: float | None = field(default=None, init=False)

    def check(self) -> None:
        """Do nothing: spark-submit was found before any request was made."""

    def began(self, grant: Grant) -> None:
        self.report(f"attempt {grant.attempt} begins")

    def submit(self, grant: Grant, step: str) -> None:
        submission = Submission(module=self.module, grant=grant, step=step)
        self.submit_step(submission, partial(self._is_wanted, grant))

    def wait(self, wait: Wait) -> None:
        now = time.monotonic()
        self._waits_since = self._waits_since or now
        waited = now - self._waits_since
        txid, topology = self.task.txid, self.task.topology.name
        if waited >= self.patience:
            raise RunUnsatisfied(
                f"txid {txid} of {topology} has waited {self.patience:g} s {wait}",
                remedy=f"look at `reliability status`, and run `reliability replay {topology} "
                f"{txid}` again.",
            )
        self.print_progress(f"txid {txid} waits {wait}", txid)
        if waited % SWEEP_INTERVAL_SECONDS < POLL_INTERVAL_SECONDS:
            sweep(self.connection, topology)
        time.sleep(POLL_INTERVAL_SECONDS)

    def committed(self, committed: Sequence[Committed]) -> None:
        """Do nothing: the ledger is asked at the end, whichever process committed."""

    def report(self, what: str, level: int = logging.INFO) -> None:
        self._waits_since = None  # any report ends the wait
        self.print_progress(what, self.task.txid)

    def _is_wanted(self, grant: Grant) -> bool:
        try:
            return is_processing(self.connection, grant)
        except Transient as error:
            logger.warning("cannot watch attempt %s now: %s", grant, error)
            return True
