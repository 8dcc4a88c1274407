"""Spark's JDBC writer: no staging, no batch id."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from benchmarks import statements
from benchmarks.job import Job
from benchmarks.places import JDBC_JAR
from benchmarks.postgres import execute

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 10_000
NO_JAR = "the JDBC driver is not installed: apt-get install libpostgresql-jdbc-java"


def base_empty(job: Job) -> None:
    execute(job.database, *statements.TABLES)


def append(job: Job) -> None:
    write(session().read.parquet(str(job.home / "append")), job, "orders")


@cache
def session() -> SparkSession:
    """Return the one session of this process, as this project's but for the driver's jar."""
    from pyspark.sql import SparkSession

    if not JDBC_JAR.is_file():
        raise RuntimeError(NO_JAR)
    return (
        SparkSession.builder.master("local[2]")
        .appName("benchmark")
        .config("spark.jars", str(JDBC_JAR))
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )


def write(frame: DataFrame, job: Job, table: str, mode: str = "append") -> None:
    """Write a frame to a table that exists: INSERTs of many rows, a transaction a partition."""
    properties = {
        "user": job.database.user,
        "password": job.database.password,
        "driver": "org.postgresql.Driver",
        "batchsize": str(BATCH_ROWS),
        "truncate": "true",
    }
    frame.write.mode(mode).jdbc(job.database.jdbc, table, properties=properties)
