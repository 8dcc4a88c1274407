"""Structured Streaming: foreachBatch writes by JDBC; a batch id makes a statement run once.

The rows are staged in an unlogged table. One transaction then inserts the batch's id and, if it was
new, applies the staged rows. The checkpoint of the stream is a folder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks import statements
from benchmarks.contestants.spark_jdbc import base_empty as base_empty
from benchmarks.contestants.spark_jdbc import session, write
from benchmarks.job import Job
from benchmarks.postgres import execute, load, transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INSERT_ID = "INSERT INTO batches VALUES (%s) ON CONFLICT DO NOTHING"


def with_staging(table: str) -> Callable[[Job], None]:
    """Return an operation that makes the tables, and one for staging rows of one of them."""
    staged = f"CREATE UNLOGGED TABLE staged (LIKE {table})"
    return lambda job: execute(job.database, *statements.TABLES, staged)


base_lineitem = with_staging("parts")
base_orders = with_staging("customers")


def base_upsert(job: Job) -> None:
    with_staging("orders")(job)
    load(job.database, "orders", job.files("upsert/2026-01/*.parquet"))
    execute(job.database, "ALTER TABLE orders ADD PRIMARY KEY (id)")


def append(job: Job) -> None:
    """Append each micro-batch as it is: a batch that is tried again is there twice."""
    stream(job, "append", lambda batch, _: write(batch, job, "orders"))


def upsert(job: Job) -> None:
    stream(job, "upsert/2026-02", once(job, statements.UPSERT))


def lineitem(job: Job) -> None:
    stream(job, "lineitem", once(job, statements.ADD_PARTS, statements.GROUPED["lineitem"]))


def orders(job: Job) -> None:
    stream(job, "orders", once(job, statements.ADD_CUSTOMERS, statements.GROUPED["orders"]))


def once(job: Job, apply: str, grouped: str = "") -> Callable[[DataFrame, int], None]:
    """Return a function that stages a micro-batch, and applies it if its id is new."""

    def apply_once(batch: DataFrame, batch_id: int) -> None:
        if grouped:
            batch = batch.sparkSession.sql(grouped.format(source="{batch}"), batch=batch)
        write(batch, job, "staged", mode="overwrite")
        with transaction(job.database) as cursor:
            cursor.execute(INSERT_ID, (str(batch_id),))
            if cursor.rowcount:
                cursor.execute(apply)

    return apply_once


def stream(job: Job, folder: str, do: Callable[[DataFrame, int], None]) -> None:
    """Run a stream over the files that are there, as one micro-batch."""
    spark, source = session(), str(job.home / folder)
    schema = spark.read.parquet(source).schema
    (
        spark.readStream.schema(schema)
        .parquet(source)
        .writeStream.foreachBatch(do)
        .option("checkpointLocation", str(job.scratch / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
