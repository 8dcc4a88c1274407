"""Progress that a person can read: a live bar on a terminal, a line per step elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)


class Steps:
    """Steps done of a known total."""

    def __init__(self, console: Console, what: str, total: int) -> None:
        self._console = console
        self._what = what
        self._total = total
        self._done = 0
        self._task: TaskID | None = None
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("txids committed"),
            TimeElapsedColumn(),
            console=console,
        )

    def __enter__(self) -> Steps:
        if self._console.is_terminal:
            self._progress.start()
            self._task = self._progress.add_task(self._what, total=self._total)
        return self

    def __exit__(self, *error: object) -> None:
        if self._task is not None:
            self._progress.stop()

    def reached(self, done: int) -> None:
        """Show how many steps are done, if that is news."""
        if done == self._done:
            return
        self._done = done
        if self._task is not None:
            self._progress.update(self._task, completed=done)
        else:
            self._console.print(f"{self._what}: {done} of {self._total} txids committed")
