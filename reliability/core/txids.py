"""Read txids that people have written, and format txids for people."""

from __future__ import annotations

import re
from collections.abc import Iterable

from reliability.core.keys import read_ranges
from reliability.core.spout import Interval

MAX_TXIDS = 100_000  # that a text may name; a list of them takes 4 MB
_LAST = (1 << 63) - 1  # that a ledger can hold
_PART = re.compile(r"(\d{1,19})(?:\.\.(\d{1,19}))?", re.ASCII)
_SHOWN = 60  # characters of a text that is refused


class TooManyTxids(ValueError):
    """A text names more txids than one answer or run should have."""


def parse_txids(text: str) -> list[int]:
    """Read `3`, `3..5` or `3,7..9`, ascending.

    :raises TooManyTxids: it names more than `MAX_TXIDS`; none of them is made then
    :raises ValueError: it is none of these

    >>> parse_txids("7..9,3")
    [3, 7, 8, 9]
    """
    ranges: list[range] = []
    room = MAX_TXIDS
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"write txids as 3, 3..5 or 3,7..9, not {_start_of(text)!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if not 1 <= first <= last <= _LAST:
            raise ValueError(f"{_start_of(part.strip())} is not a range of txids")
        room -= last - first + 1
        if room < 0:
            raise TooManyTxids(f"at most {MAX_TXIDS:,} txids at once, not {_start_of(text)!r}")
        ranges.append(range(first, last + 1))
    return sorted({txid for one in ranges for txid in one})


def _start_of(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def format_txids(txids: Iterable[int]) -> str:
    """Format txids as the command line reads them.

    >>> format_txids([3, 7, 8, 9])
    '3,7..9'
    """
    parts: list[list[int]] = []
    for txid in sorted(txids):
        if parts and txid == parts[-1][-1] + 1:
            parts[-1][1:] = [txid]
        else:
            parts.append([txid])
    return ",".join("..".join(map(str, part)) for part in parts)


def format_ranges(multirange: str) -> str:
    """Format an int8multirange of txids the same way.

    >>> format_ranges("{[3,4),[7,10)}")
    '3,7..9'
    """
    return ",".join(
        str(first) if last == first + 1 else f"{first}..{last - 1}"
        for first, last in read_ranges(multirange)
    )


def with_noun(txids: str) -> str:
    """Put `txid` or `txids` before formatted txids.

    >>> with_noun("3"), with_noun("3,7..9")
    ('txid 3', 'txids 3,7..9')
    """
    return f"txid {txids}" if txids.isdigit() else f"txids {txids}"


def with_verb(txids: str) -> str:
    """Put formatted txids into the subject of a sentence, with its verb.

    >>> with_verb("3"), with_verb("3,7..9")
    ('txid 3 is', 'txids 3,7..9 are')
    """
    return f"{with_noun(txids)} {'is' if txids.isdigit() else 'are'}"


def format_intervals(intervals: Iterable[Interval | None]) -> str:
    """Name the intervals of some txids; empty if they have none.

    >>> january, may = Interval.parse("2013-01"), Interval.parse("2013-05")
    >>> format_intervals([january, january]), format_intervals([may, None, january])
    ('2013-01', '2013-01 to 2013-05')
    """
    found = sorted({one for one in intervals if one}, key=lambda one: (one.start, one.end))
    if len(found) < 2:
        return str(found[0]) if found else ""
    return f"{found[0]} to {found[-1]}"


def name_txids(txids: Iterable[int], intervals: Iterable[Interval | None]) -> str:
    """Name txids with their intervals.

    >>> name_txids([5], [Interval.parse("1997-03")]), name_txids([5, 6], [None])
    ('txid 5 (1997-03)', 'txids 5..6')
    """
    named = format_intervals(intervals)
    return with_noun(format_txids(txids)) + (f" ({named})" if named else "")
