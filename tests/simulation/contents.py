"""What an attempt of a simulated topology stages: a pure function of (txid, attempt_id).

Every attempt of a txid gets other keys and values, so that a target row that mixes two of them,
or has one twice, shows. The rows' number comes from the batch, as in any process function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Any

from reliability.core.attempt import TransactionAttempt
from reliability.spouts.tuple_ids import fold_rows
from reliability.states.tables import StateTables

TOTALS, BEST, LINES, VIEW = "totals", "best", "lines", "view"
APPENDED = (LINES, VIEW)
PARTITIONS = {TOTALS: 2, BEST: 1, LINES: 2, VIEW: 1}
COLUMNS = {
    TOTALS: ("key", "total", "times", "_txid"),
    BEST: ("top", "times", "_txid"),
    LINES: ("key", "part", "_txid", "_attempt_id"),
    VIEW: ("key", "part", "_txid", "_attempt_id"),
}
KEYS = (None, 0, 1)  # NULL is a key like any other
MOST = 10**6  # of a value; a poisoned one is greater
POISON = 10**12
TEXT = "x" * 1900  # of an appended row: four rows fill a page


@dataclass(frozen=True, slots=True)
class Tuple:
    """One row of a batch, as the process function hands it on."""

    key: int | None
    value: int
    tuple_id: int


@cache
def tuples(attempt: TransactionAttempt, rows: int, poisoned: bool) -> tuple[Tuple, ...]:
    """Return the rows of an attempt whose batch is one item of so many rows."""
    return tuple(_tuple(attempt, row, poisoned and row == 0) for row in range(rows))


def _tuple(attempt: TransactionAttempt, row: int, is_poison: bool) -> Tuple:
    digest = blake2b(f"{attempt}:{row}".encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "big")
    value = POISON if is_poison else 1 + number // 3 % MOST
    return Tuple(KEYS[number % 3], value, fold_rows(0, 1, first=row).xor)


def partition_of(own: Sequence[Tuple], sink: str, partition: int) -> list[Tuple]:
    """Return the rows that a sink's partition gets; one that does not exist doubles the first."""
    count = PARTITIONS[sink]
    return [one for row, one in enumerate(own) if row % count == partition % count]


def staged(
    tables: StateTables, attempt: TransactionAttempt, own: Sequence[Tuple]
) -> list[dict[str, Any]]:
    """Reduce one partition's rows as Spark does, in the columns of COPY."""
    if tables.state.is_append:
        return [_staged_row(tables, attempt, one.key, [one]) for one in own]
    by_key: dict[int | None, list[Tuple]] = {}
    for one in own:
        by_key.setdefault(one.key if tables.state.name == TOTALS else None, []).append(one)
    return [_staged_row(tables, attempt, key, group) for key, group in by_key.items()]


def _staged_row(
    tables: StateTables, attempt: TransactionAttempt, key: int | None, group: Sequence[Tuple]
) -> dict[str, Any]:
    values = [one.value for one in group]
    xor = 0
    for one in group:
        xor ^= one.tuple_id
    columns = {
        "_txid": attempt.txid,
        "_attempt_id": attempt.attempt_id,
        "key": key,
        "_key": True,
        "total": sum(values),
        "_total_count": len(values),
        "top": max(values),
        "times": len(values),
        "part": part_of(values[0]),
        "text": TEXT,
        "_rows": len(values),
        "_x": xor,
        "_n": len(values),
    }
    return {name: columns[name] for name in tables.contribution_columns()}


def part_of(value: int) -> int:
    """Return what of a value is appended: little, so that an attempt may append equal rows."""
    return value if value == POISON else value % 2


Committed = Iterable[tuple[TransactionAttempt, Sequence[Tuple]]]


def expected(state: str, committed: Committed) -> Counter[tuple[Any, ...]]:
    """Fold the committed attempts into the rows of a state's table."""
    if state in APPENDED:
        return Counter(_appended(committed))
    return Counter(_totals(committed) if state == TOTALS else _best(committed))


def _appended(committed: Committed) -> Iterable[tuple[Any, ...]]:
    """Return (key, part, txid, attempt_id) for each row."""
    for attempt, own in committed:
        for one in own:
            yield one.key, part_of(one.value), attempt.txid, attempt.attempt_id


def _totals(committed: Committed) -> set[tuple[Any, ...]]:
    """Return (key, total, times, txid) for each key."""
    found: dict[int | None, tuple[int, int, int]] = {}
    for attempt, own in committed:
        for one in own:
            total, times, _ = found.get(one.key, (0, 0, 0))
            found[one.key] = (total + one.value, times + 1, attempt.txid)
    return {(key, *values) for key, values in found.items()}


def _best(committed: Committed) -> set[tuple[Any, ...]]:
    """Return (top, times, txid) of the state without a key, if it has any row."""
    top, times, last = 0, 0, 0
    for attempt, own in committed:
        for one in own:
            top, times, last = max(top, one.value), times + 1, attempt.txid
    return {(top, times, last)} if times else set()
