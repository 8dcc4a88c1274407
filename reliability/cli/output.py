"""How values are printed: as JSON for a program, and for a person."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import typer

from reliability.cli.terminal import stdout
from reliability.core.difference import Difference
from reliability.core.errors import ReliabilityError
from reliability.core.names import COMMAND_LINE
from reliability.core.txids import format_txids, name_txids, with_noun
from reliability.transaction.correct.rollback import RunToClear

MOST_EXACT = 2**53  # JavaScript, and jq, round integers beyond it

# --- for a program -------------------------------------------------------------------------------


def print_json(document: Any) -> None:
    """Print one document; times are in UTC, numbers that JSON would round are strings."""
    exact = json.loads(json.dumps(document, default=plain), parse_int=_exact, parse_constant=str)
    typer.echo(json.dumps(exact, indent=2), stdout())  # which escapes by itself


def _exact(digits: str) -> int | str:
    return int(digits) if abs(int(digits)) <= MOST_EXACT else digits


def plain(value: Any) -> Any:
    """Convert a value that json does not support to plain data; json converts what is in it.

    A value that is read from a text, such as an attempt, is its text.
    """
    match value:
        case datetime():
            return _in_utc(value).isoformat()
        case timedelta():
            return value.total_seconds()
        case Mapping():
            return dict(value)
        case bytes() | memoryview():
            return bytes(value).hex()
        case ReliabilityError():
            return {"code": value.code, "what": value.message, "todo": value.what_to_do}
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value) and not hasattr(value, "parse"):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return str(value)


def _in_utc(value: datetime) -> datetime:
    """Return a moment in UTC; that of a user's column without a time zone as it is.

    >>> str(_in_utc(datetime(2026, 1, 2)))
    '2026-01-02 00:00:00'
    """
    return value.astimezone(timezone.utc) if value.tzinfo else value


# --- for a person --------------------------------------------------------------------------------


def format_value(value: object) -> str:
    """Format a value for people; None is empty."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case datetime():
            return f"{_in_utc(value):%Y-%m-%d %H:%M:%S}"
        case timedelta():
            return str(value - timedelta(microseconds=value.microseconds))
        case int():
            return f"{value:,}"
    return str(value)


def format_differences(differences: Sequence[Difference]) -> Iterator[str]:
    """Format differences, one line per state, or one line if there are none."""
    if all(difference.is_nothing for difference in differences):
        yield "  nothing"
    else:
        yield from (f"  {difference}" for difference in differences)
    for difference in differences:
        if difference.by_hand is not None:
            yield f"  warning: {difference.state}: {difference.by_hand}"


# --- next steps ---------------------------------------------------------------------


def each_to_clear(runs: Iterable[RunToClear]) -> Iterator[str]:
    """Say of each run how it is cleared, in the order in which to do it."""
    for run in runs:
        also = f", and replays {with_noun(format_txids(run.replays))}" if run.replays else ""
        named = name_txids(run.txids, run.intervals)
        then = "  #" if run.dag_id == COMMAND_LINE else ":"  # behind a command, or a sentence
        yield f"  {run.next_step}{then} {named}{also}"


def what_to_clear(topology: str, runs: Sequence[RunToClear]) -> Iterator[str]:
    """Say how the runs are made to process what they lack, in the order in which to do it."""
    yield f"  reliability resume-runs {topology}  # shows what they lack, and clears it with --yes"
    yield "Or clear the whole runs, in this order:"
    yield from each_to_clear(runs)
