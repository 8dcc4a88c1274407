"""This project, driven without Airflow.

Cold, a step is a spark-submit of its own, as users have it. Warm, it runs in a session that has
done the same in another database: that shows what remains without the start of a JVM.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

from benchmarks import topologies
from benchmarks.job import Job, Phases
from benchmarks.project.spark import by_spark_submit, in_session
from benchmarks.project.staging import DirectStaging
from benchmarks.project.transactions import Transactions, phases_of
from reliability import Topology
from reliability.core.attempt import Grant
from reliability.core.spout import Interval
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.migrations import migrate
from reliability.transaction.correct.rollback import roll_back
from reliability.transaction.replay import ReplayRequest, ReplayRun


def base_empty(job: Job) -> None:
    with ledger(job) as connection:
        migrate(connection)


def txids_one_by_one(job: Job) -> Phases:
    return transact_small(job, topologies.txids, is_grouped=False)


def txids_grouped(job: Job) -> Phases:
    return transact_small(job, topologies.txids, is_grouped=True)


def history_of(topology: Topology) -> Callable[[Job], None]:
    """Return an operation that commits the txids of the cases `replay` and `rollback`."""

    def base(job: Job) -> None:
        base_empty(job)
        transact_small(job, topology, is_grouped=True)

    return base


def replay(job: Job) -> Phases | None:
    """Replay the txid in the middle, as `reliability replay` does."""
    middle = int(job.sizes["txids"]) // 2
    request = ReplayRequest(topology=topologies.history, txids=[middle], by="benchmark")
    with ledger(job) as connection:
        process = by_spark_submit if job.is_cold else in_session

        def run_step(grant: Grant, step: str, _: Callable[[], bool]) -> None:
            process(connection, topologies.history, grant, step)

        ReplayRun(connection, request, run_step).run()
    return None


def rollback_of(topology: Topology) -> Callable[[Job], None]:
    """Return an operation that takes out the last tenth of the txids, as `reliability rollback`."""

    def rollback(job: Job) -> None:
        txids = int(job.sizes["txids"])
        with ledger(job) as connection:
            roll_back(connection, topology.name, txids - txids // 10, "a benchmark")

    return rollback


def transact(job: Job, topology: Topology, interval: Interval | None = None) -> Phases:
    with ledger(job) as connection:
        submit = by_spark_submit if job.is_cold else in_session
        transactions = Transactions(connection, topology, submit)
        transactions.transact(interval)
    return phases_of(transactions.watch)


def transact_small(job: Job, topology: Topology, *, is_grouped: bool) -> Phases:
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
    start, end = (datetime(2026, n, 1, tzinfo=timezone.utc) for n in (number, number + 1))
    return Interval(start, end)


def one_txid(topology: Topology, interval: Interval | None = None) -> Callable[[Job], Phases]:
    """Return an operation that does all files of an interval as one txid."""
    return lambda job: transact(job, topology, interval)


def first_month(topology: Topology) -> Callable[[Job], None]:
    """Return an operation that loads the table that an upsert changes."""

    def load(job: Job) -> None:
        base_empty(job)
        transact(job, topology, month(1))

    return load


append = one_txid(topologies.append)
append_as_view = one_txid(topologies.append_as_view)
lineitem = one_txid(topologies.lineitem)
orders = one_txid(topologies.orders)
base_upsert = first_month(topologies.upsert)
upsert = one_txid(topologies.upsert, month(2))
base_history = history_of(topologies.history)
base_history_max = history_of(topologies.history_max)
base_history_latest = history_of(topologies.history_latest)
base_history_upsert = history_of(topologies.history_upsert)
rollback = rollback_of(topologies.history)
rollback_max = rollback_of(topologies.history_max)
rollback_latest = rollback_of(topologies.history_latest)
rollback_upsert = rollback_of(topologies.history_upsert)
base_upsert_without_history = first_month(topologies.upsert_without_history)
upsert_without_history = one_txid(topologies.upsert_without_history, month(2))
