"""A pipeline on real files, real Spark and a real ledger, driven as Airflow's tasks drive it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from reliability import Count, FileSpout, Max, Min, State, Sum, Topology
from reliability.core.attempt import Grant
from reliability.core.coordinator import Begin, Work
from reliability.core.definitions import SUBMIT, WARM
from reliability.core.errors import ReliabilityError
from reliability.core.graph import THE_STEP
from reliability.core.request import TaskTry
from reliability.core.spout import Interval
from reliability.deployment.lazy import pa, pq
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.emit.requests import Run, TaskContact
from reliability.transaction.process.attempt_messages import end_attempt
from tests.support.pool import PooledConnection
from tests.support.python_driver import process_in_python
from tests.support.runner import TransactionRunner, Unattended

TWENTY = [
    {"customer": n % 3, "day": date(1997, 1, 1 + n % 5), "price": Decimal(n)} for n in range(20)
]


#: How many orders there are, and what they come to.
ORDERS: dict[str, Any] = {"orders": Count(), "revenue": Sum("price", "numeric(14,2)")}


def january(year: int = 1997) -> Interval:
    return month(year, 1)


def month(year: int, number: int) -> Interval:
    after = (year, number + 1) if number < 12 else (year + 1, 1)
    return Interval(
        datetime(year, number, 1, tzinfo=timezone.utc), datetime(*after, 1, tzinfo=timezone.utc)
    )


def write_parquet(path: Path, rows: Sequence[Any], schema: Any = None) -> Path:
    """Write rows (customer, day, price) as one Parquet file."""
    schema = schema or pa.schema(
        [("customer", pa.int64()), ("day", pa.date32()), ("price", pa.decimal128(10, 2))]
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path)
    return path


def both(batch: Any) -> dict[str, Any]:
    """The process function of most tests."""
    return {"per_customer": batch, "per_day": batch}


def shop(
    folder: Path | str, process: Callable[..., Any] = both, *, files: int = 1, pending: int = 3
) -> Topology:
    """A topology over `folder`/YYYY-MM, with a state of each kind of replay."""
    days = {"first_day": Min("day", "date"), "last_day": Max("day", "date")}
    return Topology(
        "shop",
        FileSpout(f"{folder}/{{data_interval_start:%Y-%m}}/*.parquet", max_files_per_batch=files),
        [
            State("per_customer", key={"customer": "bigint"}, values=ORDERS | days),
            State("per_day", key={"day": "date"}, values=ORDERS),
        ],
        process,
        max_spout_pending=pending,
    )


@dataclass
class Pipeline(Unattended):
    """Drives a topology through its runner the way the operator does, one step at a time."""

    runner: TransactionRunner
    spark: Any
    run: Run = field(default_factory=lambda: Run(dag_id="shop", run_id="scheduled__1997-01"))
    max_tries: int = 2

    def who(self, task: str) -> TaskContact:
        """Return a task in its first try since the run was made or cleared."""
        this_try = TaskTry(max_tries=self.max_tries, try_id=f"{task} {self.max_tries}")
        return TaskContact(run=self.run, task=task, this_try=this_try)

    def emit(self, interval: Interval | None, *, max_batches: int = 1000) -> list[int]:
        return self.runner.emit(interval, self.who("emit"), max_batches=max_batches)

    def request(self, txid: int, task: str = "process") -> int:
        return self.runner.contact(txid, self.who(task)).request_id

    def work(self, step: str | None = THE_STEP, task: str | None = None) -> Work:
        """What a task is there for: a step, or (step=None) the commit."""
        return self.runner.topology.work(task or step or "commit", step)

    def try_begin(self, txid: int, step: str = THE_STEP, task: str | None = None) -> Grant | None:
        """Begin if need be and take up the step, as a task that comes for the first time."""
        work = self.work(step, task)
        request_id = self.request(txid, work.task)
        if isinstance(self.runner.next_action(txid, request_id, work), Begin):
            self.runner.begin(txid, request_id, work)
        return self.runner.claim_step(txid, request_id, step, work)

    def begin(self, txid: int, step: str = THE_STEP) -> Grant:
        grant = self.try_begin(txid, step)
        assert grant is not None
        return grant

    def run_step(self, grant: Grant, step: str = THE_STEP) -> None:
        """A step's spark-submit, in this process's Spark session, or without one in Python."""
        from reliability.spark.driver import process_with, raised_by_task

        connection = PooledConnection(self.runner.connection.dsn)
        try:
            if self.spark is None:
                process_in_python(connection, self.runner.topology, grant, step)
            else:
                process_with(self.spark, connection, self.runner.topology, grant, step)
        except Exception as error:
            told = error if isinstance(error, ReliabilityError) else raised_by_task(error)
            if told:  # as the driver's main does
                end_attempt(connection, grant, told)
            raise
        finally:
            connection.close()

    def seal(self, grant: Grant) -> None:
        """End the only step, and seal."""
        self.runner.end_step(grant, THE_STEP)
        self.runner.seal(grant, THE_STEP)

    def process(self, txid: int) -> Grant:
        """Begin, run the only step and seal."""
        grant = self.begin(txid)
        self.run_step(grant)
        self.seal(grant)
        return grant

    def transact(self, txid: int, step: str | None = None, task: str | None = None) -> None:
        """Go the way of the txid until the goal is reached."""
        work = self.work(step, task)
        self.runner.run(txid, self.request(txid, work.task), work, self)

    def take_in(self, interval: Interval | None = None) -> Pipeline:
        """Emit the only batch, and go its way."""
        assert self.emit(interval) == [1]
        self.transact(1)
        return self

    def replay(self, txid: int) -> None:
        """Clear the run once more, and go the way of the txid again."""
        self.max_tries += 1
        self.transact(txid)

    def again(self, run_id: str | None = None) -> Pipeline:
        """The same run cleared (its max_tries rise), or another run."""
        run = self.run if run_id is None else Run(dag_id=self.run.dag_id, run_id=run_id)
        raised = self.max_tries + (1 if run_id is None else 0)
        return replace(self, run=run, max_tries=raised)

    # --- the executor ----------------------------------------------------------------------------

    def submit(self, grant: Grant, step: str) -> None:
        self.run_step(grant, step)


def pipeline_of(topology: Topology, connection: LedgerConnection, spark: Any = None) -> Pipeline:
    """Return what drives a topology; without a Spark session, its rows are Python's."""
    return Pipeline(TransactionRunner(topology, connection), spark)


in_both_engines = pytest.mark.parametrize(
    "pipeline", [SUBMIT, pytest.param(WARM, marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture
def pipeline(connection, request) -> Callable[[Topology], Pipeline]:
    """Make a pipeline of a topology; marked with `in_both_engines`, in the warm one too.

    The driver of a spark-submit is this process, on its session; that of the warm engine a process.
    """
    if getattr(request, "param", SUBMIT) == WARM:
        warm: Callable[[Topology], Pipeline] = request.getfixturevalue("warm_pipeline")
        return warm
    spark = request.getfixturevalue("spark")
    return lambda topology: pipeline_of(topology, connection, spark)


@pytest.fixture
def python_pipeline(connection) -> Callable[[Topology], Pipeline]:
    """Make a pipeline of a topology whose rows are Python's: it needs no Spark."""
    return lambda topology: pipeline_of(topology, connection)
