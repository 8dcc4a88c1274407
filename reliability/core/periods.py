"""How a data interval is written: 2013-03 is the month, 2013-03-01T06 the hour, all in UTC."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

_PERIOD = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:[T ](\d\d)"
    r"(?::(\d\d)(?::(\d\d(?:\.\d{1,6})?))?)?)?)?)?(?:Z|\+00:00)?"
)
_HOW = "write an interval as 2013, 2013-03, 2013-03-01, 2013-03-01T06 or START/END"


def format_period(start: datetime, end: datetime) -> str:
    """Write a period as short as it is unambiguous; both ends are in UTC.

    >>> march = datetime(2013, 3, 1), datetime(2013, 4, 1)
    >>> format_period(*march), format_period(march[0], datetime(2013, 3, 8))
    ('2013-03', '2013-03-01/2013-03-08')
    """
    for length in (4, 7, 10, 13):
        text = start.isoformat()[:length]
        if _read(text) == (start.replace(tzinfo=timezone.utc), end.replace(tzinfo=timezone.utc)):
            return text
    return f"{_format_moment(start)}/{_format_moment(end)}"


def _format_moment(moment: datetime) -> str:
    text = moment.replace(tzinfo=None).isoformat()
    return text.removesuffix(":00").removesuffix("T00:00")


def read_period(text: str) -> tuple[datetime, datetime]:
    """Read a period: [start, end), in UTC. The END of START/END does not belong to it.

    >>> [str(end.date()) for end in read_period("2013-01/2013-04")]
    ['2013-01-01', '2013-04-01']

    :raises ValueError: it is not written like that, or ends before it starts
    """
    first, slash, last = text.strip().partition("/")
    start, end = _read(first)
    if slash:
        end = _read(last)[0]
    if end < start:
        raise ValueError(f"{text!r} ends before it starts")
    return start, end


def _read(text: str) -> tuple[datetime, datetime]:
    """Read one period; a moment with minutes lasts a minute, one with seconds no time."""
    match = _PERIOD.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{_HOW}, not {text!r}")
    year, month, day, hour, minute, second = match.groups()
    try:
        start = datetime(
            int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0)
        ).replace(tzinfo=timezone.utc) + timedelta(seconds=float(second or 0))
        return start, _end_of(start, sum(part is not None for part in match.groups()))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{_HOW}, not {text!r}: {error}") from error


def _end_of(start: datetime, parts: int) -> datetime:
    match parts:
        case 1:
            return start.replace(year=start.year + 1)
        case 2:
            return (start + timedelta(days=31)).replace(day=1)
    lengths = {3: timedelta(days=1), 4: timedelta(hours=1), 5: timedelta(minutes=1)}
    return start + lengths.get(parts, timedelta())
