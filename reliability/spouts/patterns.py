"""Patterns of file names, read alike for local folders and for remote listings.

A pattern is a glob as Python's `glob` reads it, component by component: `*`, `?` and `[…]` match
within one, `**` any number of folders. Names that Spark hides are matched by no wildcard: they are
those of jobs and tools that still write, `_temporary`, `_delta_log`, `part-0.csv._COPYING_`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache

ANY_FOLDERS = "**"
_GLOB = re.compile(r"[*?[]")
_COPYING = "._COPYING_"


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


def _starts_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


@lru_cache(maxsize=256)
def _compiled(part: str) -> re.Pattern[str]:
    return re.compile(translate(part))
