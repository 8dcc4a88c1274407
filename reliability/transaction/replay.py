"""Replay txids without Airflow: a run of its own, which waits by polling, in threads (G6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from reliability.core.attempt import TransactionAttempt
from reliability.core.audits import AuditOutcome
from reliability.core.definitions import Topology
from reliability.core.difference import Difference
from reliability.core.errors import TxidSkipped
from reliability.core.progress import TxidProgress
from reliability.core.statement_key import TxidKey
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.locks import lock_topology
from reliability.ledger.read_rows import skipped_of
from reliability.states.kinds.stored import DifferenceObserver
from reliability.transaction.correct.rollback import RunToClear, runs_to_clear
from reliability.transaction.emit.refreeze import refreeze
from reliability.transaction.emit.requests import check_committed, contact, contact_in
from reliability.transaction.inspect.attempt_report import attempt_report, outdated_code
from reliability.transaction.maintain.sweep import sweep
from reliability.transaction.own_run import OwnRun, PollingExecutor, RunStep, contact_of
from reliability.transaction.process.begin import TransactionTask
from reliability.transaction.run import run_transaction
from reliability.transaction.topology.declare import check_tables, declared_tables

TASK = "replay"
Asked = Callable[[DatabaseTransaction, Mapping[int, int]], object]
"""Called with the requests that a transaction has opened: txid -> request_id."""


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


class ReplayRun(OwnRun[ReplayResult]):
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
        who = contact_of(TASK, request.by, is_dry_run=request.is_dry_run, reason=request.reason)
        super().__init__(connection, request.topology, who, "reliability replay", progress)
        self._request = request
        self._run_step = run_step
        self._observer = observer

    def run(self, asked: Asked | None = None) -> Replayed:
        """Replay the txids, as many at once as the topology allows.

        If one fails, lower ones go on to their end and higher ones are given up, so that what came
        before it is done.

        :param asked: called in the transaction that opens the requests, under the topology's lock:
            no attempt can satisfy them before what it writes is there
        :raises NothingToReplay: one of them has not committed; nothing was done
        :raises StateDefinitionChanged: somebody has altered a table; nothing was done
        :raises TxidSkipped: one of them is skipped; nothing was done
        :raises RunFailed: one of them failed
        """
        to_clear = self._refreeze_uncommitted()
        uncommitted = {txid for run in to_clear for txid in run.txids}
        txids = sorted(set(self._request.txids) - uncommitted)
        self._progress.expect(len(txids))
        self._ask(txids, asked)
        at_once = self._connection.one("topology_position", topology=self._topology)
        results = self._work_on_all(txids, at_once["max_replay_pending"])
        return Replayed(results=results, to_clear=to_clear)

    # --- requests --------------------------------------------------------------------------------

    def _ask(self, txids: Sequence[int], asked: Asked | None) -> None:
        """Open requests for all of these txids, or for none."""
        with self._connection.transaction() as tx:
            lock_topology(tx, self._topology)
            self._check(tx, txids)
            requests = {
                txid: contact_in(tx, self._topology, txid, self._who, may_open_first=True)
                for txid in txids
            }
            if asked is not None:
                asked(tx, {txid: request.request_id for txid, request in requests.items()})

    def _check(self, tx: DatabaseTransaction, txids: Sequence[int]) -> None:
        """Check that these txids can be replayed, and that none that is wanted is skipped."""
        check_committed(tx, self._topology, txids)
        for tables in declared_tables(tx, self._topology):  # as each emission does
            check_tables(tx, tables)
        wanted = list(self._request.txids)
        if skip := tx.first("skips_of_txids", txids=wanted, topology=self._topology):
            raise TxidSkipped(str(skipped_of(skip)))

    # --- the source was replaced -----------------------------------------------------------------

    def _refreeze_uncommitted(self) -> list[RunToClear]:
        """Refreeze the txids that have not committed; return the runs that must process them."""
        if not self._freezes:
            return []
        with self._connection.transaction() as tx:
            txids = list(self._request.txids)
            rows = tx.all("emitted_txids", topology=self._topology, txids=txids)
            uncommitted = [row for row in rows if not row["has_committed"]]
            others = set(txids) - {row["txid"] for row in uncommitted}
            self._check(tx, sorted(others))  # before anything is frozen
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

    def _work_on(self, connection: LedgerConnection, txid: int) -> ReplayResult:
        if self._freezes:
            self._refreeze(connection, txid)
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
        again = f"{self._verb} {self._topology} {txid}"
        executor = PollingExecutor(
            connection, task, self._run_step, wanted.patience, self._progress, again
        )
        tried = run_transaction(connection, task, executor, self._observer)
        if tried:
            attempt = tried.attempt
        else:
            key, after = TxidKey(self._topology, txid), request.granted_after
            first = connection.first("first_replay_after", granted_after=after, **key)
            if first is None:  # somebody has skipped it since
                skip = connection.first("skips_of_txids", txids=[txid], topology=self._topology)
                raise TxidSkipped(str(skipped_of(skip)) if skip else "")
            attempt = TransactionAttempt(txid, first["attempt_id"])
        report = attempt_report(connection, self._topology, attempt)
        return ReplayResult(
            txid=txid,
            attempt=attempt,
            differences=tried.differences if tried else report.differences,
            audits=tuple(outcome for outcome in report.audits if outcome.is_violated),
            outdated_code=outdated_code(connection, report),
        )
