"""A verb of the command line in a terminal of a given size, as a person sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NoReturn

from reliability.cli import app

CTRL_C = b"\x03"
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PATIENCE_SECONDS = 60


class Terminal:
    """A terminal in which a program runs; `raw` is all that it has written, escape codes too."""

    def __init__(self, program: int, controller: int) -> None:
        self._program, self._controller = program, controller
        self._written = b""
        self._code: int | None = None

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
        if self._code is None:
            _, status = os.waitpid(self._program, 0)
            self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def close(self) -> None:
        """End the program if it still runs."""
        if self._code is None:
            os.kill(self._program, signal.SIGKILL)
            os.waitpid(self._program, 0)
        os.close(self._controller)

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
    """Call a verb of the command line in a terminal of this size.

    It is called in a fork of this process: to start Python and import it takes much longer.
    """
    program, controller = pty.fork()
    if program == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        _call(arguments, environment)
    opened = Terminal(program, controller)
    try:
        yield opened
    finally:
        opened.close()


def _call(arguments: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Be a process that was started in this terminal."""
    code: object = 1
    try:
        for name in {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"}:
            os.environ.pop(name, None)
        os.environ.update({"TERM": "xterm-256color", **environment})
        sys.stdin = os.fdopen(0)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8")
        sys.stderr = os.fdopen(2, "w", encoding="utf-8")
        app(list(arguments), prog_name="reliability")
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)
