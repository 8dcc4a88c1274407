"""What a careful person writes in 40 lines: DuckDB reads, ADBC stages, one transaction decides.

Each batch has an id. The transaction inserts the id first; if it is there already, the batch has
been loaded, and the transaction fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi
import duckdb

from benchmarks import statements
from benchmarks.job import Job

ROWS_AT_ONCE = 65_536


@contextmanager
def batch(job: Job, batch_id: str = "") -> Iterator[Any]:
    """Open a transaction that loads a batch once; it commits when the block ends."""
    with (
        adbc_driver_postgresql.dbapi.connect(job.database.libpq) as connection,
        connection.cursor() as cursor,
    ):
        if batch_id:
            cursor.execute("INSERT INTO batches VALUES ($1)", (batch_id,))
        yield cursor
        connection.commit()


def base_empty(job: Job) -> None:
    with batch(job) as cursor:
        for table in statements.TABLES:
            cursor.execute(table)


def append(job: Job) -> None:
    with batch(job, "append") as cursor:
        cursor.adbc_ingest("orders", rows(job, "append/*.parquet"), mode="append")


def base_upsert(job: Job) -> None:
    base_empty(job)
    with batch(job, "base") as cursor:
        cursor.adbc_ingest("orders", rows(job, "upsert/2026-01/*.parquet"), mode="append")
        cursor.execute("ALTER TABLE orders ADD PRIMARY KEY (id)")


def upsert(job: Job) -> None:
    with batch(job, "upsert") as cursor:
        stage(cursor, rows(job, "upsert/2026-02/*.parquet"))
        cursor.execute(statements.UPSERT)


def lineitem(job: Job) -> None:
    with batch(job, "lineitem") as cursor:
        stage(cursor, grouped("lineitem", job.files("lineitem/*.parquet")))
        cursor.execute(statements.ADD_PARTS)


def orders(job: Job) -> None:
    with batch(job, "orders") as cursor:
        stage(cursor, grouped("orders", job.files("orders/*.parquet")))
        cursor.execute(statements.ADD_CUSTOMERS)


def txids(job: Job) -> None:
    """Read, stage, add and commit each small file in a transaction of its own."""
    with (
        adbc_driver_postgresql.dbapi.connect(job.database.libpq) as connection,
        connection.cursor() as cursor,
    ):
        for path in job.files("txids/*.parquet"):
            cursor.execute("INSERT INTO batches VALUES ($1)", (Path(path).name,))
            stage(cursor, grouped("totals", [path]))
            cursor.execute(statements.ADD_TOTALS)
            cursor.execute("DROP TABLE staged")
            connection.commit()


def base_history(job: Job) -> None:
    """Load the files of the cases `replay` and `rollback`."""
    base_empty(job)
    rebuild(job, job.files("history/*.parquet"))


def replay(job: Job) -> None:
    """Rebuild the table from all files: it cannot take one file's part out."""
    rebuild(job, job.files("history/*.parquet"))


def rollback(job: Job) -> None:
    """Rebuild the table without the last tenth of the files."""
    files = job.files("history/*.parquet")
    rebuild(job, files[: len(files) - len(files) // 10])


def rebuild(job: Job, files: list[str]) -> None:
    with batch(job) as cursor:
        cursor.execute("TRUNCATE totals")
        cursor.adbc_ingest("totals", grouped("totals", files), mode="append")


def stage(cursor: Any, found: Any) -> None:
    cursor.adbc_ingest("staged", found, mode="create", temporary=True)


def rows(job: Job, pattern: str) -> Any:
    read = duckdb.read_parquet(job.files(pattern))
    return read.select("id, customer_id, amount, ts, kind, qty").to_arrow_reader(ROWS_AT_ONCE)


def grouped(statement: str, files: list[str]) -> Any:
    """Aggregate files by one of the statements that others use too."""
    read = duckdb.read_parquet(files)
    return read.query(
        "files", statements.GROUPED[statement].format(source="files")
    ).to_arrow_table()
