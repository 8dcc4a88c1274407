"""What the studies of one question share: a server, seconds that are taken in turn, a table."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pandas as pd

from benchmarks.environment import describe_machine
from benchmarks.server import Server, scratch_server

Job = Callable[[], object]


def seconds_of(work: Job) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_turn(jobs: Mapping[str, Job], rounds: int) -> pd.DataFrame:
    """Return the seconds of each job, one after the other; the first round is not measured.

    A column is a job, and a row a round.
    """
    measured = [{name: seconds_of(job) for name, job in jobs.items()} for _ in range(rounds + 1)]
    return pd.DataFrame(measured[1:])


def spreads(measured: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each job: the median, the least and the most, and the ratio to the first."""
    found = measured.agg(["median", "min", "max"]).T
    return found.assign(ratio=found["median"] / found["median"].iloc[0])


def show(title: str, table: pd.DataFrame | Sequence[Mapping[str, Any]]) -> None:
    """Print a table; rows without names are not numbered."""
    frame = pd.DataFrame(table)
    is_named = frame.index.dtype == object
    print(
        f"\n{title}\n{frame.to_string(index=is_named, float_format='{:,.2f}'.format)}", flush=True
    )


@contextmanager
def study() -> Iterator[Server]:
    """Start a server, let this process be one of its workers, and say what it runs on."""
    print(describe_machine(), flush=True)
    with scratch_server() as server:
        os.environ.update(server.env())
        yield server


def run_parts(parts: Mapping[str, Callable[[Server], None]]) -> None:
    """Run the parts of a study that the command line names, by default all."""
    with study() as server:
        for part in sys.argv[1:] or parts:
            parts[part](server)


@contextmanager
def highest(count: Callable[[], Counter[str]], every: float) -> Iterator[Counter[str]]:
    """Count something again and again while the block runs; lend the most that there was of each.

    :param every: how many seconds apart
    """
    most, ended = Counter[str](), threading.Event()

    def count_again() -> None:
        nonlocal most
        while not ended.wait(every):
            most |= count()  # in its place

    thread = threading.Thread(target=count_again, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()
