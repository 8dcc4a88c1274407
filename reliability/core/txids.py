"""Format txids for people."""

from __future__ import annotations

from collections.abc import Iterable

from reliability.core.keys import read_ranges


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
