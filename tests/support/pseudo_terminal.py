"""A program in a terminal of a given size, as a person sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.fix_postgres import ROOT

CTRL_C = b"\x03"
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PATIENCE_SECONDS = 60


class Terminal:
    """A terminal in which a program runs; `raw` is all that it has written, escape codes too."""

    def __init__(self, program: subprocess.Popen[bytes], controller: int) -> None:
        self._program, self._controller = program, controller
        self._written = b""

    @property
    def raw(self) -> str:
        return self._written.decode(errors="replace").replace("\r", "")

    @property
    def text(self) -> str:
        return _ESCAPE.sub("", self.raw)

    def type(self, keys: bytes) -> None:
        os.write(self._controller, keys)

    def wait_for(self, text: str) -> None:
        """Wait until the program has written this, since the call."""
        start, deadline = len(self.text), time.monotonic() + _PATIENCE_SECONDS
        while text not in self.text[start:]:
            assert time.monotonic() < deadline, f"{text!r} does not come:\n{self.text}"
            assert self._read(), f"it has ended without {text!r}:\n{self.text}"

    def wait(self) -> int:
        """Wait until the program has ended, and return its exit code."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self._read():
            assert time.monotonic() < deadline, f"it does not end:\n{self.text}"
        return self._program.wait(_PATIENCE_SECONDS)

    def _read(self) -> bool:
        """Read what there is, or wait a little; False if the program has ended."""
        if not select.select([self._controller], [], [], 0.1)[0]:
            return True
        try:
            self._written += os.read(self._controller, 65536)
        except OSError:  # EIO: no process has the terminal open any more
            return False
        return True


@contextmanager
def terminal(
    *arguments: str, columns: int = 80, rows: int = 50, **environment: str
) -> Iterator[Terminal]:
    """Run Python with these arguments in a terminal of this size."""
    controller, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    own = {**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **environment}
    for name in {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"} - environment.keys():
        own.pop(name, None)
    program = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=own,
        stdin=end,
        stdout=end,
        stderr=end,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C reaches it
    )
    os.close(end)
    try:
        yield Terminal(program, controller)
    finally:
        program.kill()
        program.wait()
        os.close(controller)
