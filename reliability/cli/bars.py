"""Progress on stderr: bars on a terminal; elsewhere only the lines of a replay."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from reliability.cli.terminal import console
from reliability.core.progress import StateProgress, TxidProgress
from reliability.core.texts import printable

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
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(separator=" of "),
        TextColumn("{task.fields[what]}", markup=False),
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


class TxidLines(TxidProgress):
    """Prints what becomes of txids: each message is a line, unless the txid's last was the same."""

    def __init__(self, txids: int, err: Console) -> None:
        self._total, self._done = txids, 0
        self._err = err
        self._last: dict[int, str] = {}
        self._lock = threading.Lock()

    def expect(self, txids: int) -> None:
        self._total = txids

    def say(self, text: str, txid: int) -> None:
        with self._lock:
            if self._last.get(txid) != text:  # otherwise it still waits for the same thing
                self._last[txid] = text
                self._err.print(printable(text))

    def done(self, txid: int) -> None:
        with self._lock:
            self._done += 1
            self._err.print(f"{self._done} of {self._total} txids are done")


class TxidBar(TxidProgress):
    """A bar that counts the txids that are done, and a line for each one at work."""

    def __init__(self, txids: int, err: Console, doing: str = "replay") -> None:
        self._bar = _bar(err)
        self._task = self._bar.add_task(doing, total=txids, what="txids")
        text = TextColumn("{task.description}", markup=False)
        self._now = Progress(TimeElapsedColumn(), text, console=err)
        self._lines: dict[int, tuple[str, TaskID]] = {}
        self._lock = threading.Lock()

    def expect(self, txids: int) -> None:
        self._bar.update(self._task, total=txids)

    def say(self, text: str, txid: int) -> None:
        with self._lock:
            if self._lines.get(txid, ("",))[0] != text:
                self._forget(txid)
                self._lines[txid] = text, self._now.add_task(printable(text), total=None)

    def done(self, txid: int) -> None:
        with self._lock:
            self._forget(txid)
            self._bar.advance(self._task)

    def _forget(self, txid: int) -> None:
        if txid in self._lines:
            self._now.remove_task(self._lines.pop(txid)[1])

    def __rich__(self) -> Group:
        return Group(self._bar, self._now)


@contextmanager
def txids_followed(txids: int, doing: str = "replay") -> Iterator[TxidProgress]:
    """Show the progress of a replay, or of a run, on stderr."""
    err = console(stderr=True)
    if not err.is_terminal:
        yield TxidLines(txids, err)
        return
    bar = TxidBar(txids, err, doing)
    with Live(bar, console=err, transient=True, refresh_per_second=4):
        yield bar
