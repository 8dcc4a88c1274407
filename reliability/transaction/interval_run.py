"""Emit, process, commit and settle without Airflow: what a run of a DAG does, in one process."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reliability.core.attempt import TransactionAttempt
from reliability.core.definitions import Topology
from reliability.core.difference import Difference
from reliability.core.errors import SourceNotReady
from reliability.core.names import COMMAND_LINE
from reliability.core.progress import TxidProgress
from reliability.core.spout import Interval
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import lock_topology
from reliability.transaction.correct.resume_runs import undone_of_dag
from reliability.transaction.emit.emission import emit
from reliability.transaction.emit.requests import contact, contact_in, settle
from reliability.transaction.inspect.attempt_report import report_for_run
from reliability.transaction.maintain.sweep import sweep
from reliability.transaction.own_run import OwnRun, PollingExecutor, RunStep, contact_of
from reliability.transaction.process.begin import TransactionTask
from reliability.transaction.run import run_transaction

TASK = "run"
#: Airflow's limit of mapped tasks does not hold here.
MAX_BATCHES = 1_000_000
SOURCE_POLL_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run did with a txid.

    :param attempt: that counts; None for a txid that is skipped
    :param rows: state -> how many rows its contribution has
    :param differences: what changed, if the txid had committed before
    """

    txid: int
    attempt: TransactionAttempt | None
    commit_number: int | None
    rows: Mapping[str, int | None]
    differences: tuple[Difference, ...]


class IntervalRun(OwnRun[RunResult]):
    """A run of its own for an interval, or for what an untimed spout has.

    As with a run of Airflow, what has committed of the interval is replayed. It also does what
    other runs have left undone: it would wait for that, and nobody else might do it.

    :param run_step: called by several threads
    :param by: who wants it; a part of the run's id
    :param patience: how many seconds to wait for the source, and for a txid's turn
    """

    def __init__(
        self,
        connection: LedgerConnection,
        topology: Topology,
        interval: Interval | None,
        run_step: RunStep,
        *,
        by: str,
        patience: float,
        reason: str = "",
        progress: TxidProgress | None = None,
    ) -> None:
        who = contact_of(TASK, by, reason=reason)
        super().__init__(connection, topology, who, "reliability run", progress)
        self._code = topology
        self._interval = interval
        self._run_step = run_step
        self._patience = patience

    def run(self) -> Sequence[RunResult]:
        """Emit, and work on the txids, as many at once as the topology allows.

        If one fails, lower ones go on to their end and higher ones are given up: the next run
        takes them up.

        :raises ReliabilityError: the emission fails, or something is not done
        :raises RunFailed: a txid failed
        """
        emitted = self._emit()
        try:
            txids = sorted({*emitted, *self._request_undone(emitted)})
            self._progress.expect(len(txids))
            row = self._connection.one("topology_position", topology=self._topology)
            at_once = max(row["max_spout_pending"], row["max_replay_pending"])
        except BaseException:
            self._give_up(emitted, f"{self._verb} ended before it began")
            raise
        results = self._work_on_all(txids, at_once)
        settle(self._connection, self._topology, self._who.run, txids)
        return results

    def _emit(self) -> list[int]:
        until = time.monotonic() + self._patience
        key = self._connection, self._code, self._interval, self._who
        while True:
            try:
                return emit(*key, max_batches=MAX_BATCHES)
            except SourceNotReady as error:
                if time.monotonic() + SOURCE_POLL_SECONDS > until:
                    raise
                self._progress.say(str(error), 0)
            time.sleep(SOURCE_POLL_SECONDS)

    def _request_undone(self, emitted: Sequence[int]) -> list[int]:
        """Request the uncommitted txids on which no run works: this run would wait for them.

        Of runs without Airflow, one that is silent has died.
        """
        with self._connection.transaction() as tx:
            lock_topology(tx, self._topology)
            runs = undone_of_dag(tx, self._topology, COMMAND_LINE)
            left = {row["txid"] for row in tx.all("left_txids", topology=self._topology)}
            undone = left | {txid for run in runs for txid in run["undone"]}
            rows = tx.all(
                "emitted_txids", topology=self._topology, txids=sorted(undone - {*emitted})
            )
            txids = [row["txid"] for row in rows if not row["has_committed"]]
            for txid in txids:
                contact_in(tx, self._topology, txid, self._who, may_open_first=True)
        return txids

    def _work_on(self, connection: LedgerConnection, txid: int) -> RunResult:
        sweep(connection, self._topology)
        # All txids were requested together, maybe long ago: a sweep may have given this one up.
        request = contact(connection, self._topology, txid, self._who)
        work = self._code.work(TASK)
        task = TransactionTask(
            topology=self._code, txid=txid, request_id=request.request_id, work=work
        )
        again = f"{self._verb} {self._topology}"
        executor = PollingExecutor(
            connection, task, self._run_step, self._patience, self._progress, again
        )
        run_transaction(connection, task, executor)
        report = report_for_run(connection, self._topology, txid, self._who.run)
        assert report is not None  # the txid has committed
        return RunResult(
            txid=txid,
            attempt=report.attempt if report.verdict is None else None,
            commit_number=report.commit_number,
            rows={state["state"]: state["staged_rows"] for state in report.states},
            differences=report.differences,
        )
