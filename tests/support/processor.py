"""What something takes of a processor, which others may have meanwhile."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable

import psutil

from reliability.ledger.connection import LedgerConnection
from tests.support.fix_postgres import rows


def processor_seconds(connection: LedgerConnection, do: Callable[[], object]) -> float:
    """Return what it takes in this thread, and in the session's process of the server."""
    server = psutil.Process(rows(connection, "SELECT pg_backend_pid()")[0][0])
    before = time.thread_time() + sum(server.cpu_times()[:2])
    do()
    return time.thread_time() + sum(server.cpu_times()[:2]) - before


def slowness() -> float:
    """Return how many times longer than stated a machine as slow as this one today may take."""
    took = timeit.repeat("sum(range(2_500_000))", timer=time.thread_time, number=1, repeat=9)
    return max(1.0, min(took) / 0.025)
