"""A digest of an attempt's contribution to a state: equal contributions have equal digests.

Spark hashes each staged row, and the hashes are summed modulo 2^64. The order of rows and their
partitions do not matter, and a row that occurs twice counts twice. Sums of floats may differ in
their last digits from one run of Spark to the next; then their digests differ too. The types of the
values count: after `reliability alter` has widened a column, its rows have other digests.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

DIGEST = "_digest"  # the column of a staged frame that has each row's hash; it is not stored
_MODULUS = 2**64


def plus(one: int, other: int) -> int:
    """Return the sum of two digests, a signed 64-bit number."""
    return (one + other + _MODULUS // 2) % _MODULUS - _MODULUS // 2


def format_digest(rows: int, digests: Iterable[int]) -> str:
    """Return the digest of all partitions as `rows:sum`."""
    return f"{rows}:{reduce(plus, digests, 0)}"
