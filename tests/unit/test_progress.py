"""The progress of a replay, told by several threads."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

from reliability.cli.bars import TxidLines


class Pipe:
    """Not a terminal; `next` happens while it prints."""

    is_terminal = False

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.next: Callable[[], None] = lambda: None

    def print(self, text: str) -> None:
        self.next()
        self.lines.append(text)


def test_each_count_is_printed_once_and_in_order():
    """Two threads that were done at once both printed the count of the second."""
    pipe: Any = Pipe()
    progress = TxidLines(2, pipe)
    other = Thread(target=progress.done, args=(2,))

    def meanwhile() -> None:
        pipe.next = lambda: None
        other.start()
        other.join(0.2)  # it has to wait for this line

    pipe.next = meanwhile
    progress.done(1)
    other.join()
    assert pipe.lines == ["1 of 2 txids are done", "2 of 2 txids are done"]
