"""Sets of integer keys, as Postgres writes an int8multirange: ranges, ascending and apart."""

from __future__ import annotations

import re
from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]  # [first, last)
_RANGE = re.compile(r"\[(-?\d+),(-?\d+)\)")


def read_ranges(multirange: str) -> Ranges:
    """Read the ranges of an int8multirange that has both ends.

    >>> read_ranges("{[1,4),[7,9)}")
    ((1, 4), (7, 9))
    """
    return tuple((int(first), int(last)) for first, last in _RANGE.findall(multirange))


def write_ranges(ranges: Iterable[tuple[int, int]]) -> str:
    """Write what `read_ranges` reads.

    >>> write_ranges([(1, 4), (7, 9)]), write_ranges([])
    ('{[1,4),[7,9)}', '{}')
    """
    return "{" + ",".join(f"[{first},{last})" for first, last in ranges) + "}"


def cut_ranges(ranges: Ranges, most: int) -> list[Ranges]:
    """Cut a set of keys, in their order, into sets of at most `most` keys.

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
