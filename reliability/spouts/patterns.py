"""Patterns of file names, read alike for local folders and for remote listings.

A pattern is a glob as Python's `glob` reads it, component by component: `*`, `?` and `[…]` match
within one, `**` any number of folders. Names that Spark hides are matched by no wildcard: they are
those of jobs and tools that still write, `_temporary`, `_delta_log`, `part-0.csv._COPYING_`.

`{data_interval_start:%Y-%m}` and `{data_interval_end:…}` stand for the run's interval. No other
brace opens in a pattern: what looks like a placeholder or a choice and is none would match nothing,
and with `allow_empty` nobody would see it. `[{]` matches a brace.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone
from fnmatch import translate
from functools import lru_cache

from reliability.core.errors import InvalidDefinition
from reliability.core.spout import Interval

ANY_FOLDERS = "**"
_GLOB = re.compile(r"[*?[]")
_COPYING = "._COPYING_"
_PLACE = re.compile(r"\{data_interval_(?:start|end)\b[^{}]*\}")
_CLASS = re.compile(r"\[[^\]/]+\]")
# They differ in whatever strftime tells, so that a placeholder that is always the same shows.
_ONE, _OTHER = (
    Interval(moment, moment)
    for moment in (
        datetime(2001, 2, 3, 4, 5, 6, 7, tzinfo=timezone.utc),
        datetime(2012, 11, 22, 20, 30, 40, 50, tzinfo=timezone.utc),
    )
)


def is_timed(pattern: str) -> bool:
    """Say whether a pattern reads by data interval."""
    return _PLACE.search(pattern) is not None


def for_interval(pattern: str, interval: Interval | None) -> str:
    """Fill in a run's interval, in UTC.

    >>> for_interval("in/{data_interval_start:%Y-%m}/[{]a}.csv", _ONE)
    'in/2001-02/[{]a}.csv'
    """
    if interval is None:
        return pattern
    ends = {"data_interval_start": interval.start, "data_interval_end": interval.end}
    return _PLACE.sub(lambda place: place[0].format(**ends), pattern)


def check_pattern(what: str, pattern: str) -> None:
    """Raise InvalidDefinition if a brace opens in it that is no placeholder; `what` names it."""
    if why := _why_no_pattern(pattern):
        raise InvalidDefinition(
            f"{what} {pattern!r}: {why}",
            remedy="write {data_interval_start:%Y-%m-%d} or {data_interval_end:…}, with strftime's "
            "letters, and [{] for a brace in a name; for a choice like {csv,json} use * or [].",
        )


def _why_no_pattern(pattern: str) -> str:
    for place in _PLACE.findall(pattern):
        try:
            is_constant = for_interval(place, _ONE) == for_interval(place, _OTHER)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            return f"{place}: {error}"
        if is_constant:
            return f"{place} is the same for every interval"
    left = _CLASS.sub("", _PLACE.sub("", pattern))
    brace = left[left.find("{") :].partition("/")[0] if "{" in left else ""
    return f"{brace} is no placeholder" if brace else ""


def is_hidden(name: str) -> bool:
    """Say whether Spark passes over a file or folder of this name.

    >>> is_hidden("_temporary"), is_hidden("_day=1"), is_hidden(".a"), is_hidden("a._COPYING_")
    (True, False, True, True)
    """
    return _starts_hidden(name) or name.endswith(_COPYING)


def is_wild(part: str) -> bool:
    """Say whether a component of a pattern has a wildcard in it."""
    return _GLOB.search(part) is not None


def split(parts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the components of a pattern before the first with a wildcard; a name is left at least.

    >>> split(["in", "2026-*", "a", "*.csv"])
    (['in'], ['2026-*', 'a', '*.csv'])
    >>> split(["in", "a.csv"])
    (['in'], ['a.csv'])
    """
    literal = next((n for n, part in enumerate(parts) if is_wild(part)), len(parts) - 1)
    return [*parts[:literal]], [*parts[literal:]]


def fits(part: str, name: str) -> bool:
    """Say whether a name matches one component of a pattern.

    A hidden name matches only where the pattern writes out what hides it:

    >>> fits("*.csv", "_a.csv"), fits("_*.csv", "_a.csv"), fits("_a.csv", "_a.csv")
    (False, True, True)
    >>> fits("*", "a._COPYING_"), fits("*._COPYING_", "a._COPYING_")
    (False, True)
    """
    if not is_wild(part):
        return part == name
    if _starts_hidden(name) and part[0] != name[0]:
        return False
    if name.endswith(_COPYING) and not part.endswith(_COPYING):
        return False
    return _compiled(part).match(name) is not None


def matches(parts: Sequence[str], names: Sequence[str]) -> bool:
    """Say whether the path of a file, below the literal folders of a pattern, matches the rest.

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


def means_files(parts: Sequence[str]) -> bool:
    """Say whether what matches can only be meant as a file: by a whole name, or by its extension.

    >>> means_files(["day.parquet"]), means_files(["*", "*.parquet"]), means_files(["*"])
    (True, True, False)
    >>> means_files(["**", "*.parquet"])  # which reads what is in such a folder
    False
    """
    extension = parts[-1].rpartition(".")[2] if parts else "*"
    return ANY_FOLDERS not in parts and not is_wild(extension)


def _starts_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


@lru_cache(maxsize=256)
def _compiled(part: str) -> re.Pattern[str]:
    return re.compile(translate(part))
