"""Output of commands: tables for people, a JSON document for programs; and how txids are parsed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import typer

from reliability.cli.parts import Line, Part, Table, show
from reliability.cli.terminal import HEADING
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
    from reliability.transaction.correct.rollback import RunToClear


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
    typer.echo(json.dumps(document, indent=2, default=plain))  # which escapes by itself


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


def print_line(text: str, *marks: str, hang: int = 2) -> None:
    """Print a line, which a terminal folds at words.

    :param marks: words in it to colour by their meaning
    """
    show([Line(text, marks, hang=hang)])


def entries_of(title: str, entries: Iterable[Sequence[str]], *marks: str) -> list[Part]:
    """Return a list whose entries are too long for a table: a line, and indented lines below it.

    In a pipe long lines are whole. A terminal folds them at words, never within a command.

    :param marks: words to colour by their meaning
    """
    lines: list[Part] = [
        Line(f"{'    ' if place else '  '}{line}", marks, hang=6 if place else 4)
        for entry in entries
        for place, line in enumerate(filter(None, entry))
    ]
    return [Line(title, style=HEADING), *lines] if lines else []


def print_entries(title: str, entries: Iterable[Sequence[str]], *marks: str) -> None:
    """Print such a list."""
    show(entries_of(title, entries, *marks))


def table_of(
    title: str,
    columns: Mapping[str, str],
    rows: Iterable[Sequence[object]],
    *,
    empty: str = "",
    hide_empty: bool = False,
    **layout: Any,
) -> Table:
    """Return a table; values are formatted.

    :param columns: heading -> "left" or "right"
    :param empty: what to print if there are no rows
    :param hide_empty: leave out columns in which no row has a value
    :param layout: for a terminal: `coloured`, `least` and `below` of `Table`
    """
    texts = [[format_value(value) for value in row] for row in rows]
    if hide_empty:
        filled = [any(row[place] for row in texts) for place in range(len(columns))]
        columns = {name: columns[name] for name, has in zip(columns, filled, strict=True) if has}
        texts = [[text for text, has in zip(row, filled, strict=True) if has] for row in texts]
    return Table(title=title, columns=columns, rows=texts, empty=empty, **layout)


def print_table(
    title: str, columns: Mapping[str, str], rows: Iterable[Sequence[object]], **options: Any
) -> None:
    """Print a table; the options are those of `table_of`."""
    show([table_of(title, columns, rows, **options)])


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


def format_span(span: timedelta | None) -> str:
    """Format how long something takes or has taken, in its two largest units.

    >>> format_span(timedelta(seconds=312)), format_span(timedelta(days=3, hours=4, minutes=5))
    ('5m 12s', '3d 4h')
    """
    if span is None:
        return ""
    parts: list[str] = []
    left = max(int(span.total_seconds()), 0)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or parts or unit == "s":
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def format_interval(row: Mapping[str, Any]) -> str:
    """Format the data interval of a row; empty for an untimed one."""
    from reliability.ledger.read_rows import interval_text

    return interval_text(row)


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
