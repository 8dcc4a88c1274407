"""pgbench's simple update: how fast one client can commit small transactions."""

from __future__ import annotations

import subprocess

from benchmarks.job import Job


def base_txids(job: Job) -> None:
    run(job, "--initialize", "--quiet", "--scale", "10")


def txids(job: Job) -> None:
    """Run as many transactions as the others commit txids."""
    count = str(job.sizes["txids"])
    run(job, "--skip-some-updates", "--no-vacuum", "--client", "1", "--transactions", count)


def run(job: Job, *options: str) -> None:
    subprocess.run(["pgbench", *options, job.database.libpq], check=True)
