"""How a data interval is written: 2013-03 is the month, 2013-03-01T06 the hour, in UTC.

In another time zone its name follows: `2026-03-29 Europe/Berlin` is a day of 23 hours. An hour that
occurs twice is written with its offset: `2026-10-25T02+02:00 Europe/Berlin` is the first one.
Without an offset it is refused, and so is an hour that a clock change leaves out.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

UTC = "UTC"
_PERIOD = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:[T ](\d\d)"
    r"(?::(\d\d)(?::([0-5]\d(?:\.\d{1,6})?))?)?)?)?)?(Z|[+-]\d\d:[0-5]\d)?"
)
_IN_ZONE = re.compile(r"(.*?)\s+([A-Za-z][\w+-]*(?:/[\w+-]+)*)\s*")
_HOW = "write an interval as 2013, 2013-03, 2013-03-01, 2013-03-01T06 or START/END"
_PARTS = (4, 7, 10, 13)  # characters of a year, a month, a day, an hour


class ClockChange(ValueError):
    """A wall time occurs twice, or never."""


def zone_called(name: str) -> tzinfo:
    """Return a time zone by its name, such as Europe/Berlin.

    :raises ValueError: this host knows none of this name
    """
    try:
        return timezone.utc if name == UTC else ZoneInfo(name)  # a host may lack the zones' data
    except (KeyError, ValueError, OSError) as error:  # of a folder of zones, for example
        raise ValueError(f"there is no time zone {name!r}") from error


def format_period(start: datetime, end: datetime, zone: str = UTC) -> str:
    """Write a period as short as it is unambiguous, in a time zone.

    >>> march, april = (datetime(2013, month, 1, tzinfo=timezone.utc) for month in (3, 4))
    >>> format_period(march, april), format_period(march, march + timedelta(days=7))
    ('2013-03', '2013-03-01/2013-03-08')
    >>> format_period(*(datetime(year, 1, 1, tzinfo=timezone.utc) for year in (2013, 2014)))
    '2013'
    >>> format_period(march, april, "Asia/Tokyo")
    '2013-03-01T09:00/2013-04-01T09:00 Asia/Tokyo'
    """
    within = zone_called(zone)
    suffix = "" if zone == UTC else f" {zone}"
    first, last = start.astimezone(within), end.astimezone(within)
    for length in _PARTS:
        text = first.isoformat()[:length] + (_offset(first) if length == _PARTS[-1] else "")
        with suppress(ValueError):  # an hour that lasts 90 minutes, or the year 9999
            if _read(text, within) == (start, end):
                return text + suffix
    return f"{_format_moment(first)}/{_format_moment(last)}{suffix}"


def _format_moment(moment: datetime) -> str:
    text = moment.replace(tzinfo=None).isoformat()
    if offset := _offset(moment):
        return text.removesuffix(":00") + offset
    return text.removesuffix(":00").removesuffix("T00:00")


def _offset(moment: datetime) -> str:
    """Return the offset of a moment from UTC if its wall time occurs twice; otherwise nothing."""
    other = moment.replace(fold=1 - moment.fold)
    text = moment.isoformat()
    return "" if other.utcoffset() == moment.utcoffset() else text[text.rindex(":") - 3 :]


def read_period(text: str, zone: str = UTC) -> tuple[datetime, datetime, str]:
    """Read a period: [start, end) in UTC, and its zone. The END of START/END does not belong to it.

    >>> [str(end) for end in read_period("2013-01/2013-04")[:2]]
    ['2013-01-01 00:00:00+00:00', '2013-04-01 00:00:00+00:00']
    >>> [f"{end:%d %H}" for end in read_period("2026-03-29 Europe/Berlin")[:2]]
    ['28 23', '29 22']

    :param zone: the time zone of a period that names none
    :raises ValueError: it is not written like that, or ends before it starts
    """
    if match := _IN_ZONE.fullmatch(text.strip()):
        text, zone = match.groups()
    within = zone_called(zone)
    first, slash, last = text.strip().partition("/")
    start, end = _read(first, within)
    if slash:
        end = _read(last, within)[0]
    if end < start:
        raise ValueError(f"{text!r} ends before it starts")
    return start, end, zone


def _read(text: str, zone: tzinfo) -> tuple[datetime, datetime]:
    """Read one period, in UTC; a moment with minutes lasts a minute, one with seconds no time.

    Of a day that begins twice this is the first time. If a clock change leaves its begin out, it
    begins at the change.

    :raises ClockChange: which hour or minute is meant is not clear
    """
    match = _PERIOD.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{_HOW}, not {text!r}")
    *parts, offset = match.groups()
    year, month, day, hour, minute, second = parts
    try:
        if offset:
            zone = _zone_of_offset(offset)
        wall = datetime(
            int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0)
        ) + timedelta(seconds=float(second or 0))
        wall_end = _end_of(wall, sum(part is not None for part in parts))
        start, end = _in_utc(wall, zone), _in_utc(wall_end, zone)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{_HOW}, not {text!r}: {error}") from error
    if hour and (_offset(wall.replace(tzinfo=zone)) or end - start != wall_end - wall):
        raise ClockChange(
            f"{text!r} occurs twice or not at all, because the clocks change: "
            "write its offset too, as in 2026-10-25T02+02:00"
        )
    return start, end


def _zone_of_offset(offset: str) -> tzinfo:
    """Read Z, +02:00 or -03:30."""
    hours, minutes = (0, 0) if offset == "Z" else map(int, offset[1:].split(":"))
    length = timedelta(hours=hours, minutes=minutes)
    return timezone(-length if offset[0] == "-" else length)


def _in_utc(wall_time: datetime, zone: tzinfo) -> datetime:
    return wall_time.replace(tzinfo=zone).astimezone(timezone.utc)


def _end_of(start: datetime, parts: int) -> datetime:
    match parts:
        case 1:
            return start.replace(year=start.year + 1)
        case 2:
            return (start + timedelta(days=31)).replace(day=1)
    lengths = {3: timedelta(days=1), 4: timedelta(hours=1), 5: timedelta(minutes=1)}
    return start + lengths.get(parts, timedelta())
