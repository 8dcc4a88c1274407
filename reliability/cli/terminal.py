"""A terminal's console, and what colours mean there; a pipe or a file gets neither."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from typing import TextIO

import typer
from rich.console import Console

from reliability.core.texts import printable
from reliability.core.tones import tone_of

_WIDE = 1000  # columns in a file or a pipe: cut nothing off

_COLOURS = {"good": "green", "busy": "cyan", "bad": "bold red", "warn": "yellow", "past": "dim"}
COMMAND = "bold"
HEADING = "bold"
TOPOLOGY = "bold"
ASIDE = "dim"


#: The standard output of a verb that runs.
_STDOUT: ContextVar[TextIO | None] = ContextVar("stdout")


@contextmanager
def keeping_stdout() -> Iterator[None]:
    """Keep the standard output for what a verb says; what others print goes to standard error.

    Airflow, asked for a connection, logs to the standard output.
    """
    token = _STDOUT.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _STDOUT.reset(token)


def stdout() -> TextIO:
    """Return where a verb's answer goes."""
    # None if the caller has closed it, as some schedulers do; the exit code remains
    return _STDOUT.get(sys.stdout) or io.StringIO()


def style_of(text: str) -> str:
    """Return the style of what begins with a word that has a meaning; empty if it has none.

    >>> style_of("held"), style_of("parked: no header"), style_of("COMMITTED"), style_of("heldover")
    ('yellow', 'yellow', 'green', '')
    """
    word = text.replace(":", " ").replace(",", " ").partition(" ")[0]
    return _COLOURS.get(tone_of(word), "")


def say(*lines: str, err: bool = False) -> None:
    """Print lines; what would act on a terminal, or end a line, is escaped in each of them."""
    for line in lines:
        typer.echo(printable(line), file=None if err else stdout(), err=err)


def hanging(text: str) -> list[str]:
    """Return the lines of an error; all but the first are indented, and look like no other message.

    >>> hanging("no column price\\nfound: day")
    ['no column price', '  found: day']
    """
    return text.replace("\n", "\n  ").split("\n")


def console(*, stderr: bool = False) -> Console:
    """Return the console; unlimited in width and without colours if it is not a terminal.

    With NO_COLOR it has no escape codes at all, not even for bold.
    """
    file = (sys.stderr or io.StringIO()) if stderr else stdout()
    is_terminal = file.isatty()
    return Console(
        file=file,
        width=None if is_terminal else _WIDE,
        force_terminal=is_terminal,
        color_system="auto" if is_terminal and not os.environ.get("NO_COLOR") else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
