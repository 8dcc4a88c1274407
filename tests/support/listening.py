"""Which addresses processes listen on."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import psutil


def listening_addresses(pids: Iterable[int]) -> set[tuple[str, int]]:
    """Return the TCP addresses (ip, port) that any of the processes listens on."""
    found: set[tuple[str, int]] = set()
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            for connection in psutil.Process(pid).net_connections(kind="tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    found.add((connection.laddr.ip, connection.laddr.port))
    return found
