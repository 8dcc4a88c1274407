"""Replay txids without Airflow: a run of its own, which waits by polling, in threads (G6)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial

from reliability.core.attempt import Grant, TransactionAttempt
from reliability.core.audits import AuditOutcome
from reliability.core.coordinator import Wait
from reliability.core.definitions import Topology
from reliability.core.difference import Difference
from reliability.core.errors import ReliabilityError, RequestClosed, RunUnsatisfied, TxidSkipped
from reliability.core.progress import TxidProgress
from reliability.core.request import Request, TaskTry
from reliability.core.statement_key import TxidKey
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import lock_topology
from reliability.ledger.read_rows import skipped_of
from reliability.states.kinds.stored import DifferenceObserver
from reliability.transaction.commit.apply import Committed
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
from reliability.transaction.process.attempt_messages import is_wanted
from reliability.transaction.process.begin import TransactionTask
from reliability.transaction.run import run_transaction

logger = logging.getLogger(__name__)
DAG_ID = "cli"
TASK = "replay"
POLL_INTERVAL_SECONDS = 0.5
SWEEP_INTERVAL_SECONDS = 10.0

RunStep = Callable[[Grant, str, Callable[[], bool]], None]
"""Runs a step to its end; the last argument says whether anybody still wants it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """What a person wants to be replayed.

    :param by: who wants it; a part of the run's id
    :param refreezes: the source was replaced on purpose: freeze its contents; a dry run reads them
    :param without: source items that a dry run leaves out
    :param patience: how many seconds to wait for a txid's turn
    """

    topology: Topology
    txids: Sequence[int]
    by: str
    reason: str = ""
    is_dry_run: bool = False
    refreezes: bool = False
    without: frozenset[str] = frozenset()
    patience: float = 3600


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a run of replays did.

    :param results: by txid
    :param to_clear: the runs that request what has not committed, and is refrozen
    """

    results: Sequence[ReplayResult] = ()
    to_clear: Sequence[RunToClear] = ()


class ReplaysFailed(Exception):
    """A replay failed; those behind it were given up.

    :param failures: by txid; 0 if it was interrupted
    :param left: the txids that were not replayed
    """

    def __init__(self, failures: Mapping[int, BaseException], left: Collection[int]) -> None:
        self.first = failures[min(failures)]
        super().__init__(str(self.first))
        self.others = [error for error in failures.values() if error is not self.first]
        self.left = left


class ReplayRun:
    """A run of its own for some txids of a topology; it does what their tasks in Airflow would.

    :param run_step: called by several threads
    :param observer: observes the rows that a dry run finds different, or that a commit changes
    """

    def __init__(
        self,
        connection: LedgerConnection,
        request: ReplayRequest,
        run_step: RunStep,
        progress: TxidProgress | None = None,
        observer: DifferenceObserver | None = None,
    ) -> None:
        self._connection = connection
        self._request = request
        self._topology = request.topology.name
        self._run_step = run_step
        self._progress = progress or TxidProgress()
        self._observer = observer
        # Two calls with the same id would share their requests.
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        self._who = TaskContact(
            run=Run(dag_id=DAG_ID, run_id=f"{DAG_ID} {request.by} {now}"),
            task=TASK,
            this_try=TaskTry(max_tries=0),
            is_dry_run=request.is_dry_run,
            reason=request.reason,
        )

    def run(self, asked: Callable[[Mapping[int, int]], object] = lambda _: None) -> Replayed:
        """Replay the txids, as many at once as the topology allows.

        If one fails, lower ones go on to their end and higher ones are given up, so that what came
        before it is done.

        :param asked: called before an attempt begins, with the requests: txid -> request_id
        :raises NothingToReplay: one of them has not committed; nothing was done
        :raises TxidSkipped: one of them is skipped; nothing was done
        :raises ReplaysFailed: one of them failed
        """
        to_clear = self._refreeze_uncommitted()
        uncommitted = {txid for run in to_clear for txid in run.txids}
        txids = sorted(set(self._request.txids) - uncommitted)
        self._progress.expect(len(txids))
        requests = self._ask(txids)
        try:
            asked({txid: request.request_id for txid, request in requests.items()})
        except BaseException:
            self._give_up(txids, "reliability replay ended before it began")
            raise
        return Replayed(results=self._replay_all(txids), to_clear=to_clear)

    # --- requests --------------------------------------------------------------------------------

    def _ask(self, txids: Sequence[int]) -> Mapping[int, Request]:
        """Open requests for all of these txids, or for none."""
        with self._connection.transaction() as tx:
            lock_topology(tx, self._topology)
            check_committed(tx, self._topology, txids)
            if skip := tx.first("skips_of_txids", txids=list(txids), topology=self._topology):
                raise TxidSkipped(str(skipped_of(skip)))
            return {
                txid: contact_in(tx, self._topology, txid, self._who, may_open_first=True)
                for txid in txids
            }

    def _give_up(self, txids: Collection[int], reason: str) -> None:
        """Close the unsatisfied requests for these txids, and fence their attempts.

        An unavailable ledger must not hide the first error; a sweep gives the requests up later.
        """
        try:
            for txid in sorted(txids):
                close(self._connection, self._topology, txid, self._who.run, reason)
        except ReliabilityError as error:
            logger.warning("ignored an error while closing requests: %s", error)

    # --- the source was replaced -----------------------------------------------------------------

    def _refreeze_uncommitted(self) -> list[RunToClear]:
        """Refreeze the txids that have not committed; return the runs that must process them."""
        if not self._freezes:
            return []
        with self._connection.transaction() as tx:
            txids = list(self._request.txids)
            rows = tx.all("emitted_txids", topology=self._topology, txids=txids)
            uncommitted = [row for row in rows if not row["has_committed"]]
            runs = runs_to_clear(tx, self._topology, uncommitted)
        for txid in sorted(txid for run in runs for txid in run.txids):
            self._refreeze(self._connection, txid)
        return runs

    @property
    def _freezes(self) -> bool:
        return self._request.refreezes and not self._request.is_dry_run

    def _refreeze(self, connection: LedgerConnection, txid: int) -> None:
        request = self._request
        if refreeze(connection, request.topology, txid, request.reason) is not None:
            self._progress.say(f"txid {txid} is refrozen", txid)

    # --- the txids -------------------------------------------------------------------------------

    def _replay_all(self, txids: Sequence[int]) -> list[ReplayResult]:
        done: dict[int, ReplayResult] = {}
        failed: dict[int, BaseException] = {}

        def replay_one(txid: int) -> ReplayResult:
            if failed and min(failed) < txid:
                raise RequestClosed(f"txid {txid} is given up: txid {min(failed)} has failed")
            try:
                return self._replay(txid)
            except BaseException as error:
                failed[txid] = error  # before this thread takes the next txid
                raise

        details = self._connection.one("topology_position", topology=self._topology)
        with ThreadPoolExecutor(details["max_replay_pending"], "replay") as pool:
            running = {pool.submit(replay_one, txid): txid for txid in txids}
            try:
                for future in as_completed(running):
                    txid = running[future]
                    if future.cancelled():
                        continue
                    if (failure := future.exception()) is not None:
                        failed[txid] = failure
                        self._give_up_from(txid, running)
                    else:
                        done[txid] = future.result()
                        self._progress.done(txid)
            except BaseException as error:  # interrupted: nobody waits for the others
                failed[0] = error
                self._give_up_from(0, running)
                for future in wait(running).done:
                    if not future.cancelled() and (failure := future.exception()) is not None:
                        failed[running[future]] = failure
        if failed:
            raise ReplaysFailed(failed, set(txids) - done.keys()) from failed[min(failed)]
        return [done[txid] for txid in txids]

    def _give_up_from(self, first: int, running: Mapping[Future[ReplayResult], int]) -> None:
        later = {future: txid for future, txid in running.items() if txid >= first}
        for future in later:
            future.cancel()
        self._give_up(later.values(), "reliability replay ended without it")

    def _replay(self, txid: int) -> ReplayResult:
        """Process the txid until it is replayed, in a session of its own."""
        name = self._connection.application_name
        with LedgerConnection(self._connection.address, application_name=name) as connection:
            try:
                if self._freezes:
                    self._refreeze(connection, txid)
                return self._replay_in(connection, txid)
            except ReliabilityError as error:
                error.about(topology=self._topology, txid=txid)
                raise

    def _replay_in(self, connection: LedgerConnection, txid: int) -> ReplayResult:
        sweep(connection, self._topology)
        wanted = self._request
        # All txids were requested together, maybe long ago: a sweep may have given this one up.
        request = contact(connection, self._topology, txid, self._who)
        task = TransactionTask(
            topology=wanted.topology,
            txid=txid,
            request_id=request.request_id,
            work=wanted.topology.work(TASK),
            without=wanted.without,
            as_refrozen=wanted.refreezes and wanted.is_dry_run,
        )
        executor = PollingExecutor(
            connection, task, self._run_step, wanted.patience, self._progress
        )
        tried = run_transaction(connection, task, executor, self._observer)
        if tried:
            attempt = tried.attempt
        else:
            key, after = TxidKey(self._topology, txid), request.granted_after
            first = connection.one("first_replay_after", granted_after=after, **key)
            attempt = TransactionAttempt(txid, first["attempt_id"])
        report = attempt_report(connection, self._topology, attempt)
        return ReplayResult(
            txid=txid,
            attempt=attempt,
            differences=tried.differences if tried else report.differences,
            audits=tuple(outcome for outcome in report.audits if outcome.is_violated),
            outdated_code=outdated_code(connection, self._topology, attempt),
        )


@dataclass(slots=True)
class PollingExecutor:
    """Waits by polling, because it has no worker slot to leave."""

    connection: LedgerConnection
    task: TransactionTask
    run_step: RunStep
    patience: float
    progress: TxidProgress
    _waits_since: float | None = field(default=None, init=False)

    def check(self) -> None:
        """Do nothing: what runs steps was found before any request was made."""

    def began(self, grant: Grant) -> None:
        self.report(f"attempt {grant.attempt} begins")

    def submit(self, grant: Grant, step: str) -> None:
        self.run_step(grant, step, partial(is_wanted, self.connection, grant))

    def wait(self, wait: Wait) -> None:
        now = time.monotonic()
        self._waits_since = self._waits_since or now
        waited = now - self._waits_since
        txid, topology = self.task.txid, self.task.topology.name
        if waited >= self.patience:
            raise RunUnsatisfied(
                f"it has waited {self.patience:g} s {wait}",
                txid=txid,
                remedy=f"look at `reliability status`, and run `reliability replay {topology} "
                f"{txid}` again.",
            )
        self.progress.say(f"txid {txid} waits {wait}", txid)
        if waited % SWEEP_INTERVAL_SECONDS < POLL_INTERVAL_SECONDS:
            sweep(self.connection, topology)
        time.sleep(POLL_INTERVAL_SECONDS)

    def committed(self, committed: Sequence[Committed]) -> None:
        """Do nothing: the ledger is asked at the end, whichever process committed."""

    def report(self, what: str, level: int = logging.INFO) -> None:
        self._waits_since = None  # any report ends the wait
        self.progress.say(what, self.task.txid)
