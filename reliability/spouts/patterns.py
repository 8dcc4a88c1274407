"""Patterns of file names, with the same meaning for local folders and remote listings.

A pattern is a glob as Python's `glob` reads it, component by component: `*`, `?` and `[…]` match
within a component, `**` matches any number of folders. A wildcard does not match the names that
Spark hides: jobs and tools that are still writing use them, as in `_temporary`, `_delta_log` and
`part-0.csv._COPYING_`.

`{data_interval_start:%Y-%m}` and `{data_interval_end:…}` stand for the run's interval. A pattern
must have no other opening brace: a misspelled placeholder, or a choice, would match nothing, and
with `allow_empty` nobody would notice. `[{]` matches a brace.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from fnmatch import fnmatchcase

from reliability.core.errors import InvalidDefinition
from reliability.core.periods import UTC, zone_called
from reliability.core.spout import Interval

ANY_FOLDERS = "**"
_GLOB = re.compile(r"[*?[]")
_COPYING = "._COPYING_"
_PLACE = re.compile(r"\{data_interval_(?:start|end)\b[^{}]*\}")
_FLAGS = r"%[-_0^#\d]*"  # how a directive of strftime begins
#: The seconds since 1970 as strftime counts them: those of the wall time in the process's own zone.
_EPOCH = re.compile(rf"{_FLAGS}[EO]?s")
_PLACES = re.compile(f"(?:{_PLACE.pattern})+")
_DIRECTIVE = re.compile(rf"(?:{_FLAGS}[EO:]?.)+")
_METHOD = "<built-in method "  # what Python writes for one, with its place in memory
_CLASS = re.compile(r"\[[^\]/]+\]")
# They differ in everything that strftime can format: a constant placeholder is the same for both.
_ONE, _OTHER = (
    Interval(moment, moment)
    for moment in (
        datetime(2001, 2, 3, 4, 5, 6, 7, tzinfo=timezone.utc),
        datetime(2012, 11, 22, 20, 30, 40, 50, tzinfo=timezone.utc),
    )
)
_NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def is_timed(pattern: str) -> bool:
    """Say whether a pattern reads by data interval."""
    return _PLACE.search(pattern) is not None


def for_interval(pattern: str, interval: Interval | None, zone: str = UTC) -> str:
    """Replace the placeholders by a run's interval, in the local time of a zone.

    >>> for_interval("in/{data_interval_start:%Y-%m}/[{]a}.csv", _ONE)
    'in/2001-02/[{]a}.csv'
    >>> for_interval("{data_interval_start:%d %H%z}", _ONE, "Asia/Tokyo")
    '03 13+0900'
    """
    if interval is None:
        return pattern
    within = zone_called(zone)
    return _filled(pattern, interval.start.astimezone(within), interval.end.astimezone(within))


def _filled(pattern: str, start: datetime, end: datetime) -> str:
    ends = {"data_interval_start": start, "data_interval_end": end}
    return _PLACE.sub(lambda place: place[0].format(**ends), pattern)


def tells_hours(pattern: str) -> bool:
    """Say whether a pattern names the hours of a day.

    >>> tells_hours("{data_interval_start.hour}"), tells_hours("{data_interval_start:%d-%M}")
    (True, False)
    """
    return _tells(pattern, _NOON, _NOON + timedelta(hours=1))


def tells_offsets(pattern: str) -> bool:
    """Say whether a pattern tells apart the two hours that have the same wall time.

    >>> tells_offsets("{data_interval_start:%H%z}"), tells_offsets("{data_interval_start:%H}")
    (True, False)
    """
    return _tells(pattern, _NOON, _NOON.replace(tzinfo=timezone(timedelta(hours=1))))


def _tells(pattern: str, one: datetime, other: datetime) -> bool:
    return _filled(pattern, one, one) != _filled(pattern, other, other)


def match_any_interval(pattern: str) -> str:
    """Return a glob that matches the files of every interval, and maybe others.

    >>> match_any_interval("in/{data_interval_start:%Y/%m}/a-{data_interval_end:%d}.csv")
    'in/*/*/a-*.csv'
    >>> match_any_interval("{data_interval_start.year:04d}{data_interval_start:%_m}.csv")
    '*.csv'
    """
    return _PLACES.sub(lambda places: _any_of(places[0]), pattern)


def _any_of(places: str) -> str:
    """Return a glob for places that follow each other: `**` would cross folders."""
    forms = (place.strip("{}").partition(":")[2] for place in _PLACE.findall(places))
    globs = (_DIRECTIVE.sub("*", form) if "%" in form else "*" for form in forms)
    return re.sub(r"\*+", "*", "".join(globs))


def check_pattern(what: str, pattern: str) -> None:
    """Raise InvalidDefinition if a brace is not a placeholder; `what` names the parameter."""
    if why := _why_invalid(pattern):
        raise InvalidDefinition(
            f"{what} {pattern!r}: {why}",
            remedy="write {data_interval_start:%Y-%m-%d} or {data_interval_end:…}, with strftime's "
            "letters, and [{] for a brace in a name; for a choice like {csv,json} use * or [].",
        )


def _why_invalid(pattern: str) -> str:
    for place in _PLACE.findall(pattern):
        try:
            filled, other = (for_interval(place, interval) for interval in (_ONE, _OTHER))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            return f"{place}: {error}"
        if _METHOD in filled:
            return f"{place} is a function of the time, not a part of it"
        if _EPOCH.search(place.replace("%%", "")):
            return f"{place}: %s depends on the time zone of the process that reads, not on yours"
        if filled == other:
            return f"{place} is the same for every interval"
    rest = _CLASS.sub("", _PLACE.sub("", pattern))
    brace = rest[rest.find("{") :].partition("/")[0] if "{" in rest else ""
    return f"{brace} is not a placeholder" if brace else ""


def is_hidden(name: str) -> bool:
    """Say whether Spark ignores a file or folder of this name.

    >>> is_hidden("_temporary"), is_hidden("_day=1"), is_hidden(".a"), is_hidden("a._COPYING_")
    (True, False, True, True)
    """
    return _starts_hidden(name) or name.endswith(_COPYING)


def has_wildcard(part: str) -> bool:
    """Say whether a pattern, or a component of one, has a wildcard."""
    return _GLOB.search(part) is not None


def split(parts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the components of a pattern before the first wildcard, at the latest before the name.

    >>> split(["in", "2026-*", "a", "*.csv"])
    (['in'], ['2026-*', 'a', '*.csv'])
    >>> split(["in", "a.csv"])
    (['in'], ['a.csv'])
    """
    literal = next((n for n, part in enumerate(parts) if has_wildcard(part)), len(parts) - 1)
    return [*parts[:literal]], [*parts[literal:]]


def fits(part: str, name: str) -> bool:
    """Say whether a name matches one component of a pattern.

    A hidden name matches only if the pattern contains the characters that hide it:

    >>> fits("*.csv", "_a.csv"), fits("_*.csv", "_a.csv"), fits("_a.csv", "_a.csv")
    (False, True, True)
    >>> fits("*", "a._COPYING_"), fits("*._COPYING_", "a._COPYING_")
    (False, True)
    """
    if not has_wildcard(part):
        return part == name
    if _starts_hidden(name) and part[0] != name[0]:
        return False
    if name.endswith(_COPYING) and not part.endswith(_COPYING):
        return False
    return fnmatchcase(name, part)


def matches(parts: Sequence[str], names: Sequence[str]) -> bool:
    """Say whether the path of a file matches a pattern, both without the folders before a wildcard.

    >>> matches(["**", "*.csv"], ["a", "b", "x.csv"]), matches(["**", "*.csv"], ["x.csv"])
    (True, True)
    >>> matches(["**", "*.csv"], ["_temporary", "0", "x.csv"]), matches(["**"], ["a", "x.csv"])
    (False, True)
    """
    if not parts or not names:
        return not parts and not names
    part, *rest = parts
    if part != ANY_FOLDERS:
        return fits(part, names[0]) and matches(rest, names[1:])
    if matches(rest or ["*"], names):
        return True
    return len(names) > 1 and not is_hidden(names[0]) and matches(parts, names[1:])


def asks_for_files(parts: Sequence[str]) -> bool:
    """Say whether a matching folder must be a mistake: the pattern ends in a name or an extension.

    >>> asks_for_files(["day.parquet"]), asks_for_files(["*", "*.parquet"]), asks_for_files(["*"])
    (True, True, False)
    >>> asks_for_files(["**", "*.parquet"])  # this pattern reads the files in such a folder
    False
    """
    extension = parts[-1].rpartition(".")[2] if parts else "*"
    return ANY_FOLDERS not in parts and not has_wildcard(extension)


def _starts_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)
