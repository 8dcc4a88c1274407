"""Emit, process and commit the txids of a topology, as Airflow's tasks do, and time the phases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.stopwatch import Stopwatch
from reliability import Topology
from reliability.core.attempt import Grant
from reliability.core.coordinator import Work
from reliability.core.graph import THE_STEP
from reliability.core.request import TaskTry
from reliability.core.spout import Interval
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.commit.committer import drain
from reliability.transaction.emit.emission import emit
from reliability.transaction.emit.requests import Run, TaskContact, contact
from reliability.transaction.process.begin import TransactionTask
from reliability.transaction.run import run_transaction
from tests.support.runner import Unattended

MOST_BATCHES = 100_000
Submit = Callable[[LedgerConnection, Topology, Grant, str], None]
"""Processes one step of an attempt."""


@dataclass
class Transactions(Unattended):
    """One run of a topology.

    It is the executor of `run_transaction`. What happens between the end of a submission and the
    next report is the seal.

    :param submit: how steps are processed
    """

    connection: LedgerConnection
    topology: Topology
    submit_step: Submit
    watch: Stopwatch = field(default_factory=Stopwatch)
    run: Run = field(default_factory=lambda: Run(dag_id="benchmark", run_id="run"))

    def emit(self, interval: Interval | None = None) -> list[int]:
        """Give the source's new items their txids."""
        who = self._contact("emit")
        with self.watch.phase("emit"):
            return emit(self.connection, self.topology, interval, who, max_batches=MOST_BATCHES)

    def process(self, txid: int) -> None:
        """Process a txid and seal it."""
        work = self.topology.work("process", THE_STEP)
        with self.watch.phase("process"):
            self._go(txid, work)

    def commit(self) -> None:
        """Commit all that is processed."""
        with self.watch.phase("commit"):
            drain(self.connection, self.topology.name)

    def transact(self, interval: Interval | None = None) -> None:
        """Do all of it for an interval, one txid after the other."""
        for txid in self.emit(interval):
            self.process(txid)
            self.commit()

    def _go(self, txid: int, work: Work) -> None:
        request = contact(self.connection, self.topology.name, txid, self._contact(work.task))
        task = TransactionTask(
            topology=self.topology, txid=txid, request_id=request.request_id, work=work
        )
        run_transaction(self.connection, task, self)

    def _contact(self, task: str) -> TaskContact:
        this_try = TaskTry(max_tries=0, try_id=task)
        return TaskContact(run=self.run, task=task, this_try=this_try)

    # --- the executor ----------------------------------------------------------------------------

    def submit(self, grant: Grant, step: str) -> None:
        """Process a step; count it as staging."""
        with self.watch.phase("stage"):
            self.submit_step(self.connection, self.topology, grant, step)


def phases_of(watch: Stopwatch, read: float = 0.0) -> dict[str, float]:
    """Return the phases in their order: what processing does besides staging is begin and seal.

    :param read: the part of staging that reads the source, if it is known
    """
    process, stage = watch.phases["process"], watch.phases["stage"]
    return {
        "emit": watch.phases["emit"],
        **({"read": read} if read else {}),
        "stage": stage - read,
        "begin and seal": process - stage,
        "commit": watch.phases["commit"],
    }
