"""Output of commands: tables for people, a JSON document for programs; and how txids are parsed."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import typer

from reliability.core.difference import Difference
from reliability.core.texts import clear_command
from reliability.core.txids import (
    format_intervals,
    format_txids,
    name_txids,
    parse_txids,
    with_noun,
)

if TYPE_CHECKING:
    from rich.console import Console

    from reliability.transaction.correct.rollback import RunToClear

_WIDE = 1000  # columns in a file or a pipe: cut nothing off


# --- txids ---------------------------------------------------------------------------------------


def read_txids(text: str) -> list[int]:
    """Read `3`, `3..5` or `3,7..9` from the command line, ascending."""
    try:
        return parse_txids(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


# --- for a program -------------------------------------------------------------------------------


def print_json(document: Any) -> None:
    """Print one document; times are in UTC, numbers that JSON would round are strings."""
    typer.echo(json.dumps(document, indent=2, default=plain))


def plain(value: Any) -> Any:
    """Convert a value that json does not support to plain data."""
    match value:
        case datetime():
            return value.astimezone(timezone.utc).isoformat()
        case timedelta():
            return value.total_seconds()
        case Difference():
            return value.to_json()
        case Mapping():
            return dict(value)
        case bytes() | memoryview():
            return bytes(value).hex()
    if is_dataclass(value) and type(value).__str__ is object.__str__:
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return str(value)


# --- for a person --------------------------------------------------------------------------------


def print_entries(title: str, entries: Iterable[Sequence[str]]) -> None:
    """Print a list whose entries are too long for a table: a line, and indented lines below it.

    Long lines are left to the terminal, so that what a person copies is complete.
    """
    lines = [
        f"{'    ' if place else '  '}{line}"
        for entry in entries
        for place, line in enumerate(filter(None, entry))
    ]
    if lines:
        typer.echo("\n".join([title, *lines]))


def print_table(
    title: str,
    columns: Mapping[str, str],
    rows: Iterable[Sequence[object]],
    *,
    empty: str = "",
    hide_empty: bool = False,
) -> None:
    """Print a table.

    :param columns: heading -> "left" or "right"
    :param empty: what to print if there are no rows
    :param hide_empty: leave out columns in which no row has a value
    """
    from rich.table import Table
    from rich.text import Text

    rows = list(rows)
    if hide_empty:
        filled = [any(format_value(row[place]) for row in rows) for place in range(len(columns))]
        columns = {name: columns[name] for name, has in zip(columns, filled, strict=True) if has}
        rows = [[v for v, has in zip(row, filled, strict=True) if has] for row in rows]
    table = Table(title=title or None, title_justify="left")
    for heading, justify in columns.items():
        right = justify == "right"
        table.add_column(
            heading,
            justify="right" if right else "left",
            no_wrap=right,
            overflow="fold",  # keep values that a person copies complete
        )
    for row in rows:
        table.add_row(
            *(Text(format_value(value), style=_STYLES.get(str(value), "")) for value in row)
        )
    if table.row_count or not empty:
        console().print(table)
    else:
        typer.echo(empty)


_STYLES = {"ok": "green", "warning": "yellow", "FAIL": "bold red"}


def console(*, stderr: bool = False) -> Console:
    """Return the console; unlimited in width if it is not a terminal."""
    from rich.console import Console

    # None if the caller has closed it, as some schedulers do; the exit code remains
    file = (sys.stderr if stderr else sys.stdout) or io.StringIO()
    return Console(file=file, width=None if file.isatty() else _WIDE, highlight=False)


def followed(names: Sequence[str], doing: str) -> Iterable[str]:
    """Iterate over the topologies with a progress bar if this is a terminal."""
    from rich.progress import track

    err = console(stderr=True)
    return track(names, doing, console=err, transient=True, disable=not err.is_terminal)


def format_value(value: object) -> str:
    """Format a value for people; None is empty."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case datetime():
            return f"{value.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}"
        case timedelta():
            return str(value - timedelta(microseconds=value.microseconds))
        case int():
            return f"{value:,}"
    return str(value)


def format_interval(row: Mapping[str, Any]) -> str:
    """Format the data interval of a row; empty for an untimed one."""
    from reliability.ledger.records import interval_of

    interval = interval_of(row)
    return str(interval) if interval else ""


def format_differences(differences: Sequence[Difference]) -> Iterator[str]:
    """Format differences, one line per state, or one line if there are none."""
    if all(one.is_nothing for one in differences):
        yield "  nothing"
    else:
        yield from (f"  {one}" for one in differences)
    for one in differences:
        if one.by_hand is not None:
            yield f"  warning: {one.state}: {one.by_hand}"


# --- next steps ---------------------------------------------------------------------


def commands_to_clear(runs: Iterable[RunToClear]) -> Iterator[str]:
    """Format the commands that clear runs, in the order in which to run them."""
    for run in runs:
        also = f", and replays {with_noun(format_txids(run.replays))}" if run.replays else ""
        named = name_txids(run.txids, run.intervals)
        yield f"  {clear_command(run.dag_id, run.run_id)}  # {named}{also}"


def what_to_clear(topology: str, runs: Sequence[RunToClear]) -> Iterator[str]:
    """Say how the runs are made to process what they lack, in the order in which to do it."""
    yield f"  reliability resume-runs {topology}  # shows what they lack, and clears it with --yes"
    yield "Or clear the whole runs, in this order:"
    yield from commands_to_clear(runs)


def plain_run(run: RunToClear) -> dict[str, str | None]:
    """Return one of these commands as plain data."""
    return {
        "dag_id": run.dag_id,
        "run_id": run.run_id,
        "txids": format_txids(run.txids),
        "replays": format_txids(run.replays),
        "interval": format_intervals(run.intervals) or None,
        "command": clear_command(run.dag_id, run.run_id),
    }
