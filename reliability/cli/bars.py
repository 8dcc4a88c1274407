"""Progress on stderr: bars on a terminal; elsewhere only the lines of a replay."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from reliability.cli.output import format_span
from reliability.cli.terminal import console
from reliability.core.progress import StateProgress
from reliability.core.texts import printable

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.progress import Progress, TaskID

Item = TypeVar("Item")


def followed(items: Iterable[Item], doing: str, what: str = "runs") -> Iterator[Item]:
    """Iterate with a bar if stderr is a terminal; a count if nobody knows how many there are."""
    err = console(stderr=True)
    if not err.is_terminal:
        yield from items
        return
    with _bar(err) as bar:
        total = len(items) if isinstance(items, Sized) else None
        task = bar.add_task(doing, total=total, what=what)
        yield from bar.track(items, total=total, task_id=task, description=doing)


def _bar(err: Console) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(separator=" of "),
        TextColumn("{task.fields[what]}"),
        TimeElapsedColumn(),
        console=err,
        transient=True,
    )


# --- states --------------------------------------------------------------------------------------


class _States(StateProgress):
    """A bar that counts states, and names the one at work; several topologies add to it."""

    def __init__(self, bar: Progress, doing: str) -> None:
        self._bar = bar
        self._doing = doing
        self._task: TaskID = bar.add_task(doing, total=0, what="states")
        self._total = self._begun = 0

    def more(self, states: int) -> None:
        self._total += states
        self._bar.update(self._task, total=self._total)

    def now(self, state: str) -> None:
        self._bar.update(self._task, completed=self._begun, description=f"{self._doing} {state}")
        self._begun += 1


@contextmanager
def states_followed(doing: str) -> Iterator[StateProgress]:
    """Show which state is worked on, if stderr is a terminal."""
    err = console(stderr=True)
    if not err.is_terminal:
        yield StateProgress()
        return
    with _bar(err) as bar:
        yield _States(bar, doing)


# --- txids ---------------------------------------------------------------------------------------


class TxidProgress:
    """How many txids of a replay are done, and what runs now; it may be told by several threads.

    On a terminal that is a bar, and a line for each txid at work. Elsewhere each message is a line,
    unless the txid's last one was the same.
    """

    def __init__(self, txids: int, err: Console) -> None:
        self._txids = txids
        self._err = err
        self._done = 0
        self._now: dict[int, tuple[str, float]] = {}
        self._lock = threading.Lock()
        self.bar = _bar(err)
        self._task = self.bar.add_task("replay", total=txids, what="txids")

    def expect(self, txids: int) -> None:
        """Note how many there are; some that were asked for may have nothing to replay."""
        self._txids = txids
        self.bar.update(self._task, total=txids)

    def say(self, text: str, txid: int = 0) -> None:
        """Tell what has happened or what is waited for, with a txid or all of them."""
        text = printable(text)
        with self._lock:
            before, _ = self._now.get(txid, ("", 0.0))
            if before == text:  # still waiting for the same thing
                return
            self._now[txid] = text, time.monotonic()
            if not self._err.is_terminal:
                self._err.print(text)

    def done(self, txid: int) -> None:
        """Count a txid as done."""
        with self._lock:
            self._done += 1
            self._now.pop(txid, None)
            self.bar.update(self._task, completed=self._done)
            if not self._err.is_terminal:
                self._err.print(f"{self._done} of {self._txids} txids are done")

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        with self._lock:
            now = sorted(self._now.items())
        ages = [timedelta(seconds=time.monotonic() - since) for _, (_, since) in now]
        lines = [
            Text(f"{format_span(age):>9}  {text}", no_wrap=True, overflow="ellipsis")
            for (_, (text, _)), age in zip(now, ages, strict=True)
        ]
        return Group(self.bar.get_renderable(), *lines)


@contextmanager
def txids_followed(txids: int) -> Iterator[TxidProgress]:
    """Show the progress of a replay on stderr."""
    from rich.live import Live

    err = console(stderr=True)
    progress = TxidProgress(txids, err)
    if not err.is_terminal:
        yield progress
        return
    with Live(progress, console=err, transient=True, refresh_per_second=4):
        yield progress
