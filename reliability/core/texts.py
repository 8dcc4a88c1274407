"""Convert texts to what a database can store, and to what a terminal or a log shows as it is."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from reliability.core.names import COMMAND_LINE

# Free text must reach the ledger whatever characters it has.
PROSE = frozenset({"reason", "verdict_reason", "remedy", "problem", "what", "advice"})
# Control characters, line and paragraph separators, and what turns the direction of text.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)


def signed(reason: str, by: str) -> str:
    """Add who gives a reason to it: many records have no other place for that.

    >>> signed("it was delivered twice", "ann@etl-1")
    'it was delivered twice (ann@etl-1)'
    """
    return f"{reason} ({by})"


def as_json(value: object) -> str:
    """Write plain data as JSON without escaping characters.

    A database that is not in UTF-8 rejects JSON's character escapes.
    """
    return json.dumps(value, ensure_ascii=False)


def parse_exact(text: str) -> Any:
    """Read JSON without rounding a number.

    >>> as_exact_json(parse_exact('{"a": 1.10, "b": [0.10000000000000000001], "c": "1.10"}'))
    '{"a": 1.10, "b": [0.10000000000000000001], "c": "1.10"}'
    """
    return json.loads(text, parse_float=Decimal)


def parse_unambiguous(text: str) -> Any:
    """Read JSON that a person has written, as `parse_exact` does.

    :raises ValueError: it is not JSON, has NaN without quotes or a name twice, is not UTF-8, or has
        a number too large for a Decimal, or brackets too deep for Python
    """
    try:
        value = json.loads(
            text, parse_float=Decimal, parse_constant=_refuse_constant, object_pairs_hook=_once_each
        )
        as_exact_json(value).encode()  # half of a surrogate pair
    except (ArithmeticError, RecursionError) as error:
        raise ValueError("a number is too large, or brackets are too deep") from error
    return value


def _refuse_constant(text: str) -> None:
    raise ValueError(f'write "{text}"')


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError(f"a name is there twice in {[name for name, _ in pairs]}")
    return values


def as_exact_json(value: object) -> str:
    """Write what `parse_exact` has read, each number as it was.

    >>> as_exact_json({"a": Decimal("1.10"), "b": "#1.10"})
    '{"a": 1.10, "b": "#1.10"}'
    """
    mark = "#"
    while mark in json.dumps(value, ensure_ascii=False, default=str):
        mark += "#"
    marked = json.dumps(value, ensure_ascii=False, default=lambda number: f"{mark}{number}")
    return re.sub(f'"{mark}([^"]*)"', r"\1", marked)


def is_same(one: object, other: object) -> bool:
    """Compare what `parse_exact` has read: numbers by their value, and true is not 1.

    >>> is_same([Decimal("1.10")], [Decimal("1.1")]), is_same({"a": 1}, {"a": True})
    (True, False)
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def printable(text: str) -> str:
    r"""Return a text as one line in which nothing acts on the terminal or the log that shows it.

    Reasons, run ids, file names and keys come from others: an escape code in them could rewrite the
    lines above, and a line end could add a line that nobody has written.

    >>> print(printable("late\x1b[2J\r\n7 is committed\u202e"))
    late\x1b[2J\r\n7 is committed\u202e
    """
    return _UNPRINTABLE.sub(lambda character: ascii(character[0])[1:-1], text)


def printable_json(text: str) -> str:
    r"""Return JSON of one line in the same way: it is read as what it was.

    >>> printable_json('"a\x9b"')
    '"a\\u009b"'
    """
    return _UNPRINTABLE.sub(lambda character: f"\\u{ord(character[0]):04x}", text)


def storable(text: str, encoding: str) -> str:
    """Escape the characters that a database with this encoding cannot store.

    :param encoding: Postgres's name of the encoding

    >>> storable("Zoë owes 5 €", "LATIN1"), storable("Zoë owes 5 €", "UTF8")
    ('Zoë owes 5 \\\\u20ac', 'Zoë owes 5 €')
    """
    codec = "latin-1" if encoding == "LATIN1" else "utf-8"
    return text.replace("\0", "\\0").encode(codec, "backslashreplace").decode(codec)


def with_storable_prose(parameters: Mapping[str, Any], encoding: str) -> Mapping[str, Any]:
    """Return a statement's parameters with their free text made storable."""
    if PROSE.isdisjoint(parameters):
        return parameters
    return {
        name: storable(value, encoding) if name in PROSE and isinstance(value, str) else value
        for name, value in parameters.items()
    }


def how_to_run_again(topology: str, dag_id: str, run_id: str, interval: object = None) -> str:
    """Say how a run that has ended does its work again; no command of Airflow 3.0 clears one.

    :param interval: that of the run, if it has one

    >>> how_to_run_again("shop", "sales", "scheduled__2013-04-01T00:00:00+00:00")
    'clear run scheduled__2013-04-01T00:00:00+00:00 of DAG sales in Airflow'
    >>> how_to_run_again("shop", "cli", "cli ann@etl-1", "2013-04")
    "reliability run shop --interval '2013-04'"
    """
    if dag_id == COMMAND_LINE:
        named = "" if interval is None else f" --interval '{interval}'"
        return f"reliability run {topology}{named}"
    return f"clear run {shlex.quote(run_id)} of DAG {dag_id} in Airflow"


def backfill_command(dag_id: str, first: datetime, last: datetime, reprocessing: str) -> str:
    """Return the command by which Airflow makes the runs from one date to another; in UTC."""
    return (
        f"airflow backfill create --dag-id {dag_id} --from-date {first:%Y-%m-%dT%H:%M:%S}+00:00 "
        f"--to-date {last:%Y-%m-%dT%H:%M:%S}+00:00 --reprocess-behavior {reprocessing}"
    )


def with_code(code: str | None, reason: str | None) -> str:
    """Put the code of an error before its reason; either may be missing.

    >>> with_code("FILE_REFUSED", "no header"), with_code(None, "the driver died")
    ('[FILE_REFUSED] no header', 'the driver died')
    """
    return " ".join(filter(None, (code and f"[{code}]", reason)))


def format_length(seconds: float) -> str:
    """Format a length of time for people.

    >>> [format_length(s) for s in (0.0042, 0.42, 12.3, 75, 3700, 200000)]
    ['4 ms', '420 ms', '12.3 s', '1 min 15 s', '1 h 1 min', '2 d 7 h']
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, name, lower, lower_name in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= unit:
            more = whole % unit // lower
            return f"{whole // unit} {name}" + (f" {more} {lower_name}" if more else "")
    return f"{whole} s"
