"""The parent of the Python workers: it imports once, before it forks, what staging tasks need.

Otherwise each worker would import pyarrow, pandas and psycopg2 itself, which takes a second or more
of a small batch.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from importlib import import_module

from reliability.spark.imports import find_code, prefer_installed_pyspark

IDLE_SECONDS = 600
NEEDED = ("pandas", "pgpq", "psycopg2", "pyarrow.compute", "reliability.spark.stage.stage_task")


def run() -> None:
    """Import the modules and run pyspark's own daemon."""
    prefer_installed_pyspark(sys.path)
    find_code(sys.path)
    for module in NEEDED:
        import_module(module)
    _end_when_idle()
    from pyspark import daemon

    daemon.manager()


def _end_when_idle() -> None:
    """End this process when it has forked nothing for a while and no worker runs.

    A warm engine has a daemon for each folder of code, such as each version of a DAG bundle, and
    Spark would keep them all. If it needs an ended one again, it starts another.
    """
    last = time.monotonic()

    def has_forked() -> None:
        nonlocal last
        last = time.monotonic()

    def end_if_idle(*_: object) -> None:
        if time.monotonic() - last >= IDLE_SECONDS and not _has_children():
            os.kill(os.getpid(), signal.SIGTERM)

    os.register_at_fork(after_in_parent=has_forked)
    signal.signal(signal.SIGALRM, end_if_idle)
    signal.setitimer(signal.ITIMER_REAL, IDLE_SECONDS, IDLE_SECONDS)  # a child inherits no timer


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


if __name__ == "__main__":
    run()
