"""Emit, process and commit the txids of a topology, as Airflow's tasks do, and time the phases."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from reliability import Topology
from reliability.core.attempt import Grant
from reliability.core.coordinator import Work
from reliability.core.graph import THE_STEP
from reliability.core.request import TaskTry
from reliability.core.spout import Interval
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.emit.requests import Run, TaskContact
from tests.support.runner import TransactionRunner, Unattended

MOST_BATCHES = 100_000
Submit = Callable[[LedgerConnection, Topology, Grant, str], None]
"""Processes one step of an attempt."""


class Stopwatch:
    def __init__(self) -> None:
        self.phases: dict[str, float] = defaultdict(float)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the block's seconds towards a phase."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] += time.perf_counter() - started


@dataclass
class Transactions(Unattended):
    """One run of a topology.

    It is the executor of its runner. What happens between the end of a submission and the next
    report is the seal.

    :param submit: how steps are processed
    """

    connection: LedgerConnection
    topology: Topology
    submit_step: Submit
    watch: Stopwatch = field(default_factory=Stopwatch)
    run: Run = field(default_factory=lambda: Run(dag_id="benchmark", run_id="run"))

    def __post_init__(self) -> None:
        self.runner = TransactionRunner(self.topology, self.connection)

    def emit(self, interval: Interval | None = None) -> list[int]:
        with self.watch.phase("emit"):
            return self.runner.emit(interval, self._contact("emit"), max_batches=MOST_BATCHES)

    def process(self, txid: int) -> None:
        work = self.topology.work("process", THE_STEP)
        with self.watch.phase("process"):
            self._go(txid, work)

    def commit(self) -> None:
        with self.watch.phase("commit"):
            self.runner.commit(0)

    def transact(self, interval: Interval | None = None) -> None:
        """Do all of it for an interval, one txid after the other."""
        for txid in self.emit(interval):
            self.process(txid)
            self.commit()

    def _go(self, txid: int, work: Work) -> None:
        request = self.runner.contact(txid, self._contact(work.task))
        self.runner.run(txid, request.request_id, work, self)

    def _contact(self, task: str) -> TaskContact:
        this_try = TaskTry(max_tries=0, try_id=task)
        return TaskContact(run=self.run, task=task, this_try=this_try)

    def submit(self, grant: Grant, step: str) -> None:
        """Process a step, as the executor; count it as staging."""
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
