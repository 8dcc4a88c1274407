"""One statement over rows that are in the database already: how fast a commit could apply them."""

from __future__ import annotations

from benchmarks import statements
from benchmarks.job import Job
from benchmarks.postgres import execute, load

STAGED = f"CREATE TABLE staged ({statements.ROW})"


def base_append(job: Job) -> None:
    execute(job.database, *statements.TABLES, STAGED)
    load(job.database, "staged", job.files("append/*.parquet"))
    execute(job.database, "ANALYZE staged")


def append(job: Job) -> None:
    execute(job.database, statements.APPEND)


def base_upsert(job: Job) -> None:
    """Load the table that the upsert changes, and stage the rows of the upsert."""
    execute(job.database, *statements.TABLES, STAGED)
    load(job.database, "orders", job.files("upsert/2026-01/*.parquet"))
    load(job.database, "staged", job.files("upsert/2026-02/*.parquet"))
    execute(job.database, "ALTER TABLE orders ADD PRIMARY KEY (id)", "ANALYZE orders, staged")


def upsert(job: Job) -> None:
    execute(job.database, statements.UPSERT)
