"""A view on a terminal that is read again every few seconds, until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, Group
from rich.live import Live
from rich.segment import Segment

from reliability.cli.app import signals_as_errors
from reliability.cli.parts import Line, Part, show
from reliability.cli.terminal import ASIDE, console
from reliability.core.errors import Transient


@dataclass(frozen=True, slots=True)
class _Screen:
    """Parts, cut off where the terminal ends, with a line that says so."""

    parts: Sequence[Part]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        height = console.size.height
        lines = console.render_lines(Group(*self.parts), options.update(height=None), pad=False)
        hidden = len(lines) - height + 1
        for number, line in enumerate(lines[: height - 1] if hidden > 1 else lines):
            yield from [Segment.line()] if number else []
            yield from line
        if hidden > 1:
            yield Segment.line()
            yield Line(f"{hidden} more lines; a taller terminal shows them", style=ASIDE)


def follow(
    page: Callable[[], Sequence[Part]],
    seconds: float,
    *,
    as_json: bool = False,
    otherwise: str = "without --watch it is printed once",
) -> None:
    """Show a page, and read it again every so many seconds; the last one stays on the terminal.

    While the ledger does not answer, the page stays as it is, with a line that says so.
    """
    out = console()
    if as_json:
        raise typer.BadParameter("--watch is for people: leave it out, or --json")
    if not out.is_terminal or out.is_dumb_terminal:
        raise typer.BadParameter(f"there is no terminal to watch it on; {otherwise}")
    shown, trouble = page(), ""
    with (
        suppress(KeyboardInterrupt),
        signals_as_errors(),
        Live(console=out, screen=True, auto_refresh=False) as live,
    ):
        while True:
            live.update(_Screen([_head(seconds, trouble), *shown]), refresh=True)
            time.sleep(seconds)
            try:
                shown, trouble = page(), ""
            except Transient as error:
                trouble = str(error)
    show(shown)


def _head(seconds: float, trouble: str) -> Line:
    now = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    if trouble:
        return Line(f"{now}, failed to read it again: {trouble}", ["failed"])
    return Line(f"{now}, again every {seconds:g} s; Ctrl-C ends", style=ASIDE)
