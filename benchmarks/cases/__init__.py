"""The cases, a module each: what is done by whom, from which data, and what must come out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contestants import Contestant
from benchmarks.sizes import Size

Expected = list[str]
"""The row that a check returns, as texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A contestant's part in a case.

    :param operation: the function of the contestant's module; by default, the case's name
    :param base: the function that makes the database that each run starts from; "" for an empty one
    :param how: what distinguishes it from the contestant's other part in the case
    :param is_checked: it leaves the case's tables behind
    """

    contestant: Contestant
    base: str = ""
    operation: str = ""
    how: str = ""
    is_checked: bool = True

    @property
    def label(self) -> str:
        """Return its name in the tables."""
        return f"{self.contestant.label}, {self.how}" if self.how else self.contestant.label


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One comparison.

    :param title: its heading
    :param what: what is done, in words, of a size
    :param unit: what is counted
    :param amount: how many of them a size has
    :param check: the SQL that returns one row of the result
    :param generate: writes the files of a size into a folder, and returns what a check must find
    :param has_cold: the start of a process is measured too
    """

    name: str
    title: str
    what: Callable[[Size], str]
    unit: str
    amount: Callable[[Path, Size], int]
    entries: Sequence[Entry]
    check: str
    generate: Callable[[Path, Size], Expected]
    has_cold: bool = True
