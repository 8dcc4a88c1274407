"""A Spark session with the JDBC driver, and the options with which the peers write."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from benchmarks.job import Job
from benchmarks.places import JDBC_JAR

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 10_000


@cache
def session() -> SparkSession:
    """Return the one session of this process, as this project's but for the driver's jar."""
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[2]")
        .appName("benchmark")
        .config("spark.jars", str(JDBC_JAR))
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )


def append(frame: DataFrame, job: Job, table: str) -> None:
    """Append a frame to a table that exists."""
    write(frame, job, table, "append")


def replace(frame: DataFrame, job: Job, table: str) -> None:
    """Truncate a table that exists, and fill it."""
    write(frame, job, table, "overwrite")


def write(frame: DataFrame, job: Job, table: str, mode: str) -> None:
    """Write a frame: batches of INSERTs of many rows, a transaction a partition."""
    properties = {
        "user": job.database.user,
        "password": job.database.password,
        "driver": "org.postgresql.Driver",
        "batchsize": str(BATCH_ROWS),
        "truncate": "true",
    }
    frame.write.mode(mode).jdbc(job.database.jdbc, table, properties=properties)
