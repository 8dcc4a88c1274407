"""A run of its own, without Airflow: it works on txids in threads, and waits by polling."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import Generic, TypeVar

from reliability.core.attempt import Grant
from reliability.core.coordinator import Wait
from reliability.core.definitions import Topology
from reliability.core.errors import ReliabilityError, RequestClosed, RunUnsatisfied
from reliability.core.names import COMMAND_LINE
from reliability.core.progress import TxidProgress
from reliability.core.request import TaskTry
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.commit.apply import Committed
from reliability.transaction.emit.requests import Run, TaskContact, close
from reliability.transaction.maintain.sweep import sweep
from reliability.transaction.process.attempt_messages import is_wanted
from reliability.transaction.process.begin import TransactionTask

logger = logging.getLogger(__name__)
POLL_INTERVAL_SECONDS = 0.5
SWEEP_INTERVAL_SECONDS = 10.0

RunStep = Callable[[Grant, str, Callable[[], bool]], None]
"""Runs a step to its end; the last argument says whether anybody still wants it."""
Result = TypeVar("Result")


class RunFailed(Exception):
    """A txid of the run failed; those behind it were given up.

    :param failures: by txid; 0 if it was interrupted
    :param left: the txids that are not done
    """

    def __init__(self, failures: Mapping[int, BaseException], left: Collection[int]) -> None:
        self.first = failures[min(failures)]
        super().__init__(str(self.first))
        self.others = [error for error in failures.values() if error is not self.first]
        self.left = left


def contact_of(task: str, by: str, *, is_dry_run: bool = False, reason: str = "") -> TaskContact:
    """Return who asks: a run that nothing else belongs to.

    :param by: who wants it; a part of the run's id
    """
    # Two calls with the same id would share their requests.
    now = datetime.now(timezone.utc).isoformat(timespec="microseconds")
    return TaskContact(
        run=Run(dag_id=COMMAND_LINE, run_id=f"{COMMAND_LINE} {by} {now}"),
        task=task,
        this_try=TaskTry(max_tries=0),
        is_dry_run=is_dry_run,
        reason=reason,
    )


class OwnRun(ABC, Generic[Result]):
    """A run that works on several txids at once; a subclass says what it does with one.

    :param who: see `contact_of`
    :param verb: the command that a person calls it by
    """

    def __init__(
        self,
        connection: LedgerConnection,
        topology: Topology,
        who: TaskContact,
        verb: str,
        progress: TxidProgress | None,
    ) -> None:
        self._connection = connection
        self._topology = topology.name
        self._who = who
        self._verb = verb
        self._progress = progress or TxidProgress()

    @abstractmethod
    def _work_on(self, connection: LedgerConnection, txid: int) -> Result:
        """Do what the run wants of a txid, in a session of its own."""

    def _give_up(self, txids: Collection[int], reason: str) -> None:
        """Close the unsatisfied requests for these txids, and fence their attempts.

        An unavailable ledger must not hide the first error; a sweep gives the requests up later.
        """
        try:
            for txid in sorted(txids):
                close(self._connection, self._topology, txid, self._who.run, reason)
        except ReliabilityError as error:
            logger.warning("ignored an error while closing requests: %s", error)

    def _work_on_all(self, txids: Sequence[int], at_once: int) -> list[Result]:
        """Work on the txids, so many at once.

        If one fails, lower ones go on to their end and higher ones are given up, so that what came
        before it is done.

        :raises RunFailed: one of them failed
        """
        done: dict[int, Result] = {}
        failed: dict[int, BaseException] = {}

        def work_on(txid: int) -> Result:
            if failed and min(failed) < txid:
                raise RequestClosed(f"txid {txid} is given up: txid {min(failed)} has failed")
            try:
                return self._in_session(txid)
            except BaseException as error:
                failed[txid] = error  # before this thread takes the next txid
                raise

        with ThreadPoolExecutor(at_once, "txid") as pool:
            running = {pool.submit(work_on, txid): txid for txid in txids}
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
            raise RunFailed(failed, set(txids) - done.keys()) from failed[min(failed)]
        return [done[txid] for txid in txids]

    def _give_up_from(self, first: int, running: Mapping[Future[Result], int]) -> None:
        later = {future: txid for future, txid in running.items() if txid >= first}
        for future in later:
            future.cancel()
        self._give_up(later.values(), f"{self._verb} ended without it")

    def _in_session(self, txid: int) -> Result:
        name = self._connection.application_name
        with LedgerConnection(self._connection.address, application_name=name) as connection:
            try:
                return self._work_on(connection, txid)
            except ReliabilityError as error:
                error.about(topology=self._topology, txid=txid)
                raise


@dataclass(slots=True)
class PollingExecutor:
    """Waits by polling, because it has no worker slot to leave.

    :param patience: how many seconds to wait for the txid's turn
    :param again: the command that goes on after that
    """

    connection: LedgerConnection
    task: TransactionTask
    run_step: RunStep
    patience: float
    progress: TxidProgress
    again: str
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
                remedy=f"look at `reliability status`, and run `{self.again}` again.",
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
