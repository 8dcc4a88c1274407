"""psql's \\copy of binary files in two sessions: how fast Postgres takes rows at all."""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks import statements
from benchmarks.job import Job
from benchmarks.postgres import execute, load

SESSIONS = 2


def base_empty(job: Job) -> None:
    """Make the tables, and the binary files unless they are there."""
    execute(job.database, *statements.TABLES)
    files = binary_files(job)
    if not all(file.is_file() for file in files):
        write_binary(job, files)


def append(job: Job) -> None:
    """Copy a file in each session."""
    copies = [start(job, f"\\copy orders FROM '{file}' WITH BINARY") for file in binary_files(job)]
    check([copy.wait() for copy in copies])


def binary_files(job: Job) -> list[Path]:
    """Return the path of each session's file."""
    folder = job.home / "append-binary"
    return [folder / f"{number}.bin" for number in range(SESSIONS)]


def write_binary(job: Job, files: list[Path]) -> None:
    """Load the rows, copy each session's part out, and empty the table again."""
    load(job.database, "orders", job.files("append/*.parquet"))
    files[0].parent.mkdir(exist_ok=True)
    for number, file in enumerate(files):
        part = f"SELECT * FROM orders WHERE id % {SESSIONS} = {number} ORDER BY id"
        check([start(job, f"\\copy ({part}) TO '{file}' WITH BINARY").wait()])
    execute(job.database, "TRUNCATE orders")


def start(job: Job, command: str) -> subprocess.Popen[bytes]:
    """Start a psql for one command."""
    options = ["--no-psqlrc", "--quiet", "--dbname", job.database.libpq]
    return subprocess.Popen(["psql", *options, "--command", command])


def check(codes: list[int]) -> None:
    """Raise if a psql has failed."""
    if any(codes):
        raise RuntimeError(f"psql ended with {codes}")
