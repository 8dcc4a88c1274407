"""What vectors are played on: two databases with a ledger, topologies of their own, one Spark."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from psycopg2.sql import SQL

from reliability import Topology
from reliability.core.attempt import Grant
from reliability.ledger.connection import LedgerConnection, Row
from reliability.ledger.migrations import migrate
from reliability.spark.stage.stage_task import stage_task
from reliability.states.tables import StateTables
from reliability.transaction.emit.requests import Run
from reliability.transaction.process.attempt_messages import start_step
from tests.support.fix_pipeline import Pipeline, pipeline_of
from tests.support.fix_postgres import new_session
from tests.support.python_driver import THIS_DRIVER
from tests.support.spark_rows import spark_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ELSEWHERE = "elsewhere"  # the database that only takes part


class Bench:
    """One run's databases; each vector has topologies of its own in them."""

    def __init__(self, dsn: str, spark: Callable[[], SparkSession | None]) -> None:
        self.dsn = dsn
        self.spark = spark
        self._numbers = itertools.count(1)
        self._vector = ExitStack()
        self.connection = LedgerConnection(dsn, application_name="conformance")

    def name(self) -> str:
        """Return a name for a topology."""
        return f"v{next(self._numbers)}"

    def new_door(self) -> LedgerConnection:
        """Open a session that ends with the vector."""
        connection = LedgerConnection(self.dsn, application_name="conformance")
        self._vector.callback(connection.close)
        return connection

    def ends_with_vector(self, close: Callable[[], object]) -> None:
        """Have something closed when the vector is over."""
        self._vector.callback(close)

    def clear(self) -> None:
        """End what a vector had open."""
        self._vector.close()

    def close(self) -> None:
        """End everything."""
        self.clear()
        self.connection.close()

    def pipeline(self, topology: Topology, *, run_id: str = "run", spark: Any = None) -> Pipeline:
        """Return what drives a topology, with a session of its own."""
        run = Run(dag_id=topology.name, run_id=run_id)
        return replace(pipeline_of(topology, self.new_door(), spark), run=run)

    def all(self, statement: str, **parameters: Any) -> list[Row]:
        """Look into the ledger or the target tables."""
        with self.connection.transaction() as tx:
            return tx.all(SQL(statement), **parameters)

    def run(self, statement: str, **parameters: Any) -> None:
        """Do what no op of the product does: let time pass, break something."""
        with self.connection.transaction() as tx:
            tx.run(SQL(statement), **parameters)


def start(grant: Grant, connection: LedgerConnection, step: str = "process") -> None:
    """Send the driver's first message: from here on the lease is renewed by progress."""
    start_step(connection, grant, step, THIS_DRIVER)


def stage(
    connection: LedgerConnection,
    tables: StateTables,
    grant: Grant,
    partition: int,
    rows: list[dict[str, Any]],
    *,
    write_id: str,
) -> None:
    """Stage one partition in the transaction of a Spark task, without Spark.

    :raises AttemptFenced: the attempt was ended, or was never there
    """
    batches = [spark_batch(tables, rows)] if rows else []
    task = replace(stage_task(connection, tables, grant), write_id=write_id)
    task.stage(partition, iter(batches))


def staged_row(
    tables: StateTables, grant: Grant, *, x: int, n: int, **values: Any
) -> dict[str, Any]:
    """Return a staged row; what is not given, a key of no columns or a count, is 1."""
    own = {"_txid": grant.attempt.txid, "_attempt_id": grant.attempt.attempt_id, "_x": x, "_n": n}
    given: Mapping[str, Any] = {"_key": True, **values, **own}
    return {name: given.get(name, 1) for name in tables.contribution_columns()}


@contextmanager
def open_bench(spark: Callable[[], SparkSession | None]) -> Iterator[Bench]:
    """Make the databases, in the server that the environment names; drop them at the end."""
    with new_session() as here, new_session() as elsewhere:
        for connection in (here, elsewhere):
            migrate(connection)
            connection.close()
        own = {"RELIABILITY_DSN": here.dsn, f"RELIABILITY_DSN_{ELSEWHERE.upper()}": elsewhere.dsn}
        with patch.dict(os.environ, own):
            bench = Bench(here.dsn, spark)
            try:
                yield bench
            finally:
                bench.close()
