"""What something takes of a processor, which others may have meanwhile."""

from __future__ import annotations

import time
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
