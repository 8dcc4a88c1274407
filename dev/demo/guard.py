"""Takes the demo's services down if the demo ends without having done so, kill -9 included.

A process in a session of its own, which waits for the end of the demo's pipe.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_RELEASED = b"released\n"


class Guard:
    """Watches over the calling process until it is released."""

    def __init__(self, root: Path, state_dir: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dev.demo.guard", str(root), str(state_dir)],
            cwd=root,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def release(self) -> None:
        """Leave the services as they are when the demo ends."""
        self._process.communicate(_RELEASED)


def main(root: str, state_dir: str) -> None:
    """Wait for the demo's end, then take its services down unless it has released them."""
    from dev.services.environment import Environment  # before the folder of the code may be gone

    if sys.stdin.buffer.read() == _RELEASED:
        return
    Environment(Path(root), Path(state_dir), profile="demo").down()


if __name__ == "__main__":
    main(*sys.argv[1:])
