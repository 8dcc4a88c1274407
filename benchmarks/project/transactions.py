"""Emit, process and commit the txids of a topology, as Airflow's tasks do, and time the phases."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.stopwatch import Stopwatch
from reliability import Topology
from reliability.core.attempt import Grant
from reliability.core.coordinator import Wait, Work
from reliability.core.graph import THE_STEP
from reliability.core.request import TaskTry
from reliability.core.spout import Interval
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.commit.drain import drain
from reliability.transaction.commit.next_plan import Committed
from reliability.transaction.emit.emission import emit
from reliability.transaction.emit.requests import Run, TaskContact, contact
from reliability.transaction.run import TransactionTask, run_transaction

MOST_BATCHES = 100_000
Submit = Callable[[LedgerConnection, Topology, Grant, str], None]
"""Processes one step of an attempt."""


@dataclass
class Transactions:
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

    def check(self) -> None:
        """Everything that is needed is there."""

    def began(self, grant: Grant) -> None:
        """Nobody listens."""

    def submit(self, grant: Grant, step: str) -> None:
        """Process a step; count it as staging."""
        with self.watch.phase("stage"):
            self.submit_step(self.connection, self.topology, grant, step)

    def wait(self, wait: Wait) -> None:
        """Nobody else works here, so there is nothing to wait for."""
        raise RuntimeError(f"waits {wait}")

    def committed(self, committed: Sequence[Committed]) -> None:
        """The tables are checked instead."""

    def report(self, what: str, level: int = logging.INFO) -> None:
        """Nobody listens."""


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
