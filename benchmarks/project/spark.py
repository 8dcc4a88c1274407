"""Process a step in a spark-submit of its own, or in a session of this process."""

from __future__ import annotations

import sys
from functools import cache
from shutil import which
from typing import TYPE_CHECKING

from reliability import Topology
from reliability.core.attempt import Grant
from reliability.ledger.connection import LedgerConnection
from reliability.spark.driver import process_with
from reliability.spark.launch import SparkSubmit, run_with_log
from reliability.spark.session import session_builder
from reliability.spark.submission import Submission

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"


@cache
def session() -> SparkSession:
    """Return the one session of this process, configured as the project's driver does it."""
    return session_builder("benchmark").master(MASTER).getOrCreate()


def in_session(connection: LedgerConnection, topology: Topology, grant: Grant, step: str) -> None:
    """Do what the driver does once its session is there."""
    with LedgerConnection(connection.dsn, f"reliability {grant} driver") as own:
        process_with(session(), own, topology, grant, step)


def by_spark_submit(
    connection: LedgerConnection, topology: Topology, grant: Grant, step: str
) -> None:
    """Do what an Airflow task does: start spark-submit, which finds the ledger by itself."""
    submission = Submission(module=topology.module, grant=grant, step=step)
    run_with_log(spark_submit(), submission, lambda: True)


def spark_submit() -> SparkSubmit:
    program = which("spark-submit")
    assert program is not None
    return SparkSubmit(program=program, master=MASTER, code=sys.path[:1])
