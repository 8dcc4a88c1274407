"""psql's \\copy of binary files in two sessions: how fast Postgres takes rows at all."""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks import statements
from benchmarks.job import Job
from benchmarks.postgres import execute, load, transaction

SESSIONS = 2


def base_empty(job: Job) -> None:
    """Make the tables, and a binary file for each session unless they are there."""
    execute(job.database, *statements.TABLES)
    files = binary_files(job)
    if all(file.is_file() for file in files):
        return
    load(job.database, "orders", job.files("append/*.parquet"))
    files[0].parent.mkdir(exist_ok=True)
    for number, file in enumerate(files):
        part = f"SELECT * FROM orders WHERE id % {SESSIONS} = {number} ORDER BY id"
        with transaction(job.database) as cursor, file.open("wb") as rows:
            cursor.copy_expert(f"COPY ({part}) TO STDOUT WITH BINARY", rows)
    execute(job.database, "TRUNCATE orders")


def append(job: Job) -> None:
    psql = ["psql", "--no-psqlrc", "--quiet", "--dbname", job.database.libpq, "--command"]
    copies = [f"\\copy orders FROM '{file}' WITH BINARY" for file in binary_files(job)]
    codes = [each.wait() for each in [subprocess.Popen([*psql, copy]) for copy in copies]]
    if any(codes):
        raise RuntimeError(f"psql ended with {codes}")


def binary_files(job: Job) -> list[Path]:
    folder = job.home / "append-binary"
    return [folder / f"{number}.bin" for number in range(SESSIONS)]
