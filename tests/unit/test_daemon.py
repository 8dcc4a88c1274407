"""The parent of the Python workers ends itself only if nobody needs it."""

from __future__ import annotations

import subprocess
import sys

FORKS = """
import os, signal, sys, time
from reliability.spark import daemon

daemon.IDLE_SECONDS = 0.05
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as pyspark's daemon does
daemon._end_when_idle()
if os.fork() == 0:
    time.sleep(0.2)
    os.write(1, b"the worker has ended; ")
    os._exit(0)
signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"so its parent ends"), os._exit(0)))
time.sleep(60)
"""


def test_a_daemon_without_workers_ends_after_a_while():
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60)
    assert done.stdout == "the worker has ended; so its parent ends", done.stderr
