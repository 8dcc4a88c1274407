"""Spark's JDBC writer: no staging, no batch id."""

from __future__ import annotations

from benchmarks import statements
from benchmarks.job import Job
from benchmarks.peers import jdbc
from benchmarks.postgres import execute


def base_empty(job: Job) -> None:
    """Make the tables."""
    execute(job.database, *statements.TABLES)


def append(job: Job) -> None:
    """Append the files."""
    jdbc.append(jdbc.session().read.parquet(str(job.home / "append")), job, "orders")
