"""Tuple ids: the 64-bit hash of an item's ordinal in BatchMeta and a row's index, as in Spark.

A sequence number would not do, as 0 … 999 XOR to 0, nor would a hash of the contents, as equal
rows exist. This is Spark's `xxhash64(bigint, bigint)`: XXH64 of the ordinal's eight bytes with seed
42, then of the index's with the first hash as seed. It hashes a range of rows at once. So the
emitted side is known before Spark runs, and is computed by other code than Spark's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reliability.core.fold import Fold
from reliability.deployment.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 42
ROWS_AT_ONCE = 1 << 20

_MASK = (1 << 64) - 1
_P1 = 0x9E3779B185EBCA87
_P2 = 0xC2B2AE3D27D4EB4F
_P3 = 0x165667B19E3779F9
_P4 = 0x85EBCA77C2B2AE63
_P5 = 0x27D4EB2F165667C5


def fold_rows(ordinal: int, rows: int, first: int = 0) -> Fold:
    """Fold the tuple ids of the rows [first, first + rows) of one item."""
    xor = np.uint64(0)
    for start in range(first, first + rows, ROWS_AT_ONCE):
        indices = np.arange(start, min(start + ROWS_AT_ONCE, first + rows), dtype=np.uint64)
        xor ^= np.bitwise_xor.reduce(tuple_ids(ordinal, indices))
    return Fold(int(xor.astype(np.int64)), rows)  # signed, as Postgres and Spark read the 64 bits


def tuple_ids(ordinal: int, indices: NDArray[np.uint64]) -> NDArray[np.uint64]:
    seed = int(_xxh64(np.array([ordinal], dtype=np.uint64), SEED)[0])
    return _xxh64(indices, seed)


def _xxh64(values: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Return XXH64 of each value's eight bytes; the arithmetic wraps, as the hash requires."""
    p1, p2, p3, p4 = (np.uint64(p) for p in (_P1, _P2, _P3, _P4))
    mixed = values * p2
    mixed = _rotate_left(mixed, 31) * p1
    hashed = np.uint64((seed + _P5 + 8) & _MASK) ^ mixed
    hashed = _rotate_left(hashed, 27) * p1 + p4
    hashed = (hashed ^ (hashed >> np.uint64(33))) * p2
    hashed = (hashed ^ (hashed >> np.uint64(29))) * p3
    result: NDArray[np.uint64] = hashed ^ (hashed >> np.uint64(32))
    return result


def _rotate_left(values: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    rotated: NDArray[np.uint64] = (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))
    return rotated
