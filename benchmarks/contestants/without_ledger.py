"""This project's own way to Postgres, without what makes it exactly-once: what that costs.

The same session, encoder and statements, but no ledger, acks, fence, accounting or digest: tried
again, it doubles its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import statements, topologies
from benchmarks.contestants.spark_jdbc import base_empty as base_empty
from benchmarks.job import Job
from benchmarks.postgres import execute, transaction
from benchmarks.project.spark import session
from reliability.ledger.connection import COPY_CHUNK_BYTES
from reliability.spark.stage.encode import Chunks, encode
from reliability.spark.stage.spool import spooled

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

PARTS = {
    "part": "bigint",
    "lines": "bigint",
    "quantity": "numeric(20,2)",
    "revenue": "numeric(20,4)",
    "last_shipped": "date",
}


def append(job: Job) -> None:
    """Stage the files' rows in a table, copy them into another, and drop the first."""
    rows = session().read.parquet(*job.files("append/*.parquet"))
    stage(rows.select(*topologies.ROWS), topologies.ROWS, job)
    execute(job.database, statements.APPEND, "DROP TABLE staged")


def lineitem(job: Job) -> None:
    lines = session().read.parquet(*job.files("lineitem/*.parquet"))
    grouped = session().sql(statements.GROUPED["lineitem"].format(source="{lines}"), lines=lines)
    stage(grouped.select(*PARTS), PARTS, job)
    execute(job.database, statements.ADD_PARTS, "DROP TABLE staged")


def stage(frame: DataFrame, types: Mapping[str, str], job: Job) -> None:
    """Copy a frame into a new table, a session for each partition."""
    columns = ", ".join(f"{name} {type_}" for name, type_ in types.items())
    execute(job.database, f"CREATE TABLE staged ({columns})")
    frame.mapInArrow(Copy(job, types), "copied int").collect()


@dataclass(frozen=True, slots=True)
class Copy:
    job: Job
    types: Mapping[str, str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        copy = f"COPY staged ({', '.join(self.types)}) FROM STDIN WITH (FORMAT binary)"
        with spooled(batches) as ready, transaction(self.job.database) as cursor:
            rows = Chunks(encode(ready, self.types))
            # psycopg2's stubs require readline too; its code only calls read
            cursor.copy_expert(copy, rows, COPY_CHUNK_BYTES)  # type: ignore[arg-type]
        yield pa.RecordBatch.from_pydict({"copied": pa.array([1], pa.int32())})
