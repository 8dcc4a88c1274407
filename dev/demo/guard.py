"""Takes the demo's services down when the demo ends, however it ends, kill -9 included.

A process in a session of its own, which waits for the end of the demo's pipe. The demo itself ends
with its parent, such as a `make` that is killed.
"""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_KEEP = b"keep\n"
_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Be interrupted by Ctrl-C, a plain kill, a hangup, and the end of the process's parent."""
    for stop in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(stop, signal.default_int_handler)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def die_with_parent() -> None:
    """Be killed when the process's parent ends: there is nothing to be cleared up."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Guard:
    """Watches over the calling process until that ends."""

    def __init__(self, root: Path, state_dir: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dev.demo.guard", str(root), str(state_dir)],
            cwd=root,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def end(self, *, keep: bool) -> None:
        """Let it take the services down, or leave them as they are; wait until it has done so.

        A second Ctrl-C ends the waiting, not the guard.
        """
        with suppress(KeyboardInterrupt):
            self._process.communicate(_KEEP if keep else b"")


def main(root: str, state_dir: str) -> None:
    """Wait for the demo's end, then take its services down unless it keeps them."""
    from dev.services.environment import Environment  # before the folder of the code may be gone

    if sys.stdin.buffer.read() != _KEEP:
        Environment(Path(root), Path(state_dir)).down()


if __name__ == "__main__":
    main(*sys.argv[1:])
