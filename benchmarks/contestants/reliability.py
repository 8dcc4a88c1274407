"""This project, driven without Airflow.

Cold, a step is a spark-submit of its own, as users have it. Warm, it runs in a session that has
done the same in another database: that shows what remains without the start of a JVM.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

from benchmarks import topologies
from benchmarks.job import Job
from benchmarks.project.spark import by_spark_submit, in_session, spark_submit
from benchmarks.project.staging import DirectStaging
from benchmarks.project.transactions import Transactions, phases_of
from reliability import Topology
from reliability.cli.replay_run import ReplayRun
from reliability.core.spout import Interval
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.migrations import migrate
from reliability.spark.submission import Submission
from reliability.transaction.correct.rollback import roll_back
from reliability.transaction.emit.requests import Run

Phases = dict[str, float]


def base_empty(job: Job) -> None:
    """Make the ledger."""
    with ledger(job) as connection:
        migrate(connection)


def append(job: Job) -> Phases:
    """Append the files as one txid."""
    return transact(job, topologies.append)


def append_as_view(job: Job) -> Phases:
    """Append the files as one txid; readers have a view of them."""
    return transact(job, topologies.append_as_view)


def lineitem(job: Job) -> Phases:
    """Aggregate the lines as one txid."""
    return transact(job, topologies.lineitem)


def orders(job: Job) -> Phases:
    """Aggregate the orders as one txid."""
    return transact(job, topologies.orders)


def base_upsert(job: Job) -> None:
    """Load the table that the upsert changes."""
    base_empty(job)
    transact(job, topologies.upsert, month(1))


def upsert(job: Job) -> Phases:
    """Upsert a month into a table that keeps its history."""
    return transact(job, topologies.upsert, month(2))


def base_upsert_without_history(job: Job) -> None:
    """Load the table that the upsert changes."""
    base_empty(job)
    transact(job, topologies.upsert_without_history, month(1))


def upsert_without_history(job: Job) -> Phases:
    """Upsert a month into a table that keeps no history."""
    return transact(job, topologies.upsert_without_history, month(2))


def txids_one_by_one(job: Job) -> Phases:
    """Stage and commit each small txid before the next."""
    return transact_small(job, topologies.txids, is_grouped=False)


def txids_grouped(job: Job) -> Phases:
    """Stage all small txids, then commit them in groups."""
    return transact_small(job, topologies.txids, is_grouped=True)


def base_history(job: Job) -> None:
    """Commit the txids of the cases `replay` and `rollback`."""
    base_empty(job)
    transact_small(job, topologies.history, is_grouped=True)


def replay(job: Job) -> Phases | None:
    """Replay the txid in the middle, as `reliability replay` does."""
    middle = int(job.sizes["txids"]) // 2
    run = Run(dag_id="benchmark", run_id="replay")
    with ledger(job) as connection:
        submit = spark_submit() if job.is_cold else SessionSubmit(connection, topologies.history)
        replaying = ReplayRun(
            connection, topologies.history, submit, run, module=topologies.__name__
        )
        replaying.ask([middle])
        replaying.replay(middle)
    return None


def rollback(job: Job) -> None:
    """Take out the last tenth of the txids, as `reliability rollback` does."""
    txids = int(job.sizes["txids"])
    with ledger(job) as connection:
        roll_back(connection, "history", txids - txids // 10, "a benchmark")


class SessionSubmit:
    """Runs a replay's step in the session of this process."""

    def __init__(self, connection: LedgerConnection, topology: Topology) -> None:
        self._connection = connection
        self._topology = topology

    def __call__(self, submission: Submission, is_wanted: object) -> None:
        """Do what the driver does once its session is there."""
        in_session(self._connection, self._topology, submission.grant, submission.step)


def transact(job: Job, topology: Topology, interval: Interval | None = None) -> Phases:
    """Emit, process and commit the txids of an interval."""
    with ledger(job) as connection:
        submit = by_spark_submit if job.is_cold else in_session
        transactions = Transactions(connection, topology, submit)
        for txid in transactions.emit(interval):
            transactions.process(txid)
            transactions.commit()
    return phases_of(transactions.watch)


def transact_small(job: Job, topology: Topology, *, is_grouped: bool) -> Phases:
    """Emit, stage without Spark and commit all small txids."""
    staging = DirectStaging()
    with ledger(job) as connection:
        transactions = Transactions(connection, topology, staging)
        for txid in transactions.emit():
            transactions.process(txid)
            if not is_grouped:
                transactions.commit()
        transactions.commit()
    return phases_of(transactions.watch, read=staging.watch.phases["read"])


@contextmanager
def ledger(job: Job) -> Iterator[LedgerConnection]:
    """Open the ledger in the job's database, also for the processes that are started meanwhile."""
    os.environ["RELIABILITY_DSN"] = job.database.libpq
    os.environ["RELIABILITY_HOME"] = str(job.home)
    with LedgerConnection(job.database.libpq, "benchmark") as connection:
        yield connection


def month(number: int) -> Interval:
    """Return a month of 2026."""
    start, end = (datetime(2026, n, 1, tzinfo=timezone.utc) for n in (number, number + 1))
    return Interval(start, end)
