"""Sets of integer keys in Postgres's notation of int8multirange: ascending, disjoint ranges.

The end of a range that holds the greatest bigint is not a bigint and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]  # [first, last)
BEHIND_ALL = 1 << 63  # the end of the greatest bigint's range
_RANGE = re.compile(r"\[(-?\d+),(-?\d*)\)")


def read_ranges(multirange: str) -> Ranges:
    """Read the ranges of an int8multirange with a finite lower bound.

    >>> read_ranges("{[1,4),[7,9)}"), read_ranges("{[7,)}")[0][1] == 2**63
    (((1, 4), (7, 9)), True)
    """
    found = _RANGE.findall(multirange)
    return tuple((int(first), int(last) if last else BEHIND_ALL) for first, last in found)


def write_ranges(ranges: Iterable[tuple[int, int]]) -> str:
    """Write what `read_ranges` reads.

    >>> write_ranges([(1, 4), (7, 9)]), write_ranges([]), write_ranges([(7, 2**63)])
    ('{[1,4),[7,9)}', '{}', '{[7,)}')
    """
    ends = ((first, "" if last == BEHIND_ALL else last) for first, last in ranges)
    return "{" + ",".join(f"[{first},{end})" for first, end in ends) + "}"


def cut_ranges(ranges: Ranges, most: int) -> list[Ranges]:
    """Cut a set of keys, in order, into sets of at most `most` keys.

    >>> cut_ranges(((1, 4), (7, 9)), 4)
    [((1, 4), (7, 8)), ((8, 9),)]
    """
    pieces: list[Ranges] = []
    piece: list[tuple[int, int]] = []
    room = most
    for first, last in ranges:
        while first < last:
            end = min(last, first + room)
            piece.append((first, end))
            room -= end - first
            first = end
            if room == 0:
                pieces.append(tuple(piece))
                piece, room = [], most
    return [*pieces, tuple(piece)] if piece else pieces


def covers(ranges: Iterable[tuple[int, int]], first: int, last: int) -> bool:
    """Say whether all of [first, last) is in one of the ranges."""
    return any(start <= first and last <= end for start, end in ranges)


def touches(ranges: Iterable[tuple[int, int]], first: int, last: int) -> bool:
    """Say whether any of [first, last) is in one of the ranges."""
    return any(start < last and first < end for start, end in ranges)
