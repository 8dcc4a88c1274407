"""The acker's arithmetic: XOR of hashed tuple ids, and their count.

XOR alone takes three copies for one; a count alone does not notice a loss together with a copy.
Together they prove that every tuple arrived exactly once (V2).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ACCOUNTING = ("_x", "_n")  # its columns in a frame: XOR of tuple ids, count
#: how the names of all other columns begin that the library adds to frames
OWN = "_reliability_"


def reserved(names: Iterable[str]) -> list[str]:
    """Return the names that no column of a source may have; Spark ignores their case."""
    return [name for name in names if name.lower() in ACCOUNTING or name.lower().startswith(OWN)]


@dataclass(frozen=True, slots=True)
class Fold:
    """The fold of a set of tuples; `xor` is a signed 64-bit integer, as in Postgres and Spark.

    >>> Fold(0b0110, 1) + Fold(0b0011, 1)
    Fold(xor=5, count=2)
    """

    xor: int = 0
    count: int = 0

    def __add__(self, other: Fold) -> Fold:
        return Fold(self.xor ^ other.xor, self.count + other.count)

    def __sub__(self, other: Fold) -> Fold:
        return Fold(self.xor ^ other.xor, self.count - other.count)

    @classmethod
    def of(cls, folds: Iterable[Fold]) -> Fold:
        total = cls()
        for fold in folds:
            total = total + fold
        return total
