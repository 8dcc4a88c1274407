"""The memory spout (Storm T10), batch bolts (Storm T8), and the topology that they make."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

WORDS = ("apple", "cat", "dog", "man")
Data = dict[str, list[str]]


def data(random: Random) -> Data:
    """Draw the partitions of a memory spout."""
    lengths = [random.randint(0, 6) for _ in range(random.randint(1, 3))]
    return {str(p): random.choices(WORDS, k=length) for p, length in enumerate(lengths)}


def counts(partitions: Data, take: int, given: dict[str, int]) -> list[int]:
    """Return the rows of each batch until nothing is left; `given` is what was taken already."""
    found = []
    while any(len(rows) > given.get(partition, 0) for partition, rows in partitions.items()):
        rows_of_batch = 0
        for partition, rows in partitions.items():
            index = given.get(partition, 0)
            amount = min(len(rows) - index, take)
            given[partition] = index + amount
            rows_of_batch += amount
        found.append(rows_of_batch)
    return found


def takes(random: Random) -> dict[str, Any]:
    """Draw data, and say how other limits cut it; past the last batch there are empty ones."""
    partitions, wanted = data(random), random.sample(range(1, 8), k=3)
    cut = {str(take): {"batch_counts": [*counts(partitions, take, {}), 0]} for take in wanted}
    return {"data": partitions, "partition_take_per_batch": 1, "other_takes": cut}


def accumulators(random: Random, *, strict: bool) -> dict[str, Any]:
    """Draw attempts that execute, and finish: each has a count of its own.

    Strict: nothing of an attempt comes after a newer one of its txid has begun.
    """
    rows: dict[str, int] = {}
    newest: dict[int, int] = {}
    executes: list[str] = []
    for _ in range(random.randint(3, 9)):
        txid, number = random.randint(1, 3), random.randint(1, 2)
        if strict and number < newest.get(txid, 0):
            continue
        newest[txid] = max(number, newest.get(txid, 0))
        executes.append(f"{txid}:{number}")
        rows[executes[-1]] = rows.get(executes[-1], 0) + 1
    last = {f"{txid}:{number}" for txid, number in newest.items()}
    finish = [attempt for attempt in rows if not strict or attempt in last]
    random.shuffle(finish)
    told = {f"finish {attempt}": {"emit": [[attempt, rows[attempt]]]} for attempt in finish}
    return {"executes": executes, **told}


def runs(random: Random) -> dict[str, Any]:
    """Draw a topology that runs, and runs again with more rows; zeros stand for what has none."""
    partitions, take = data(random), random.randint(1, 3)
    given: dict[str, int] = {}
    first = counts(partitions, take, given)
    added = {partition: random.choices(WORDS, k=random.randint(0, 3)) for partition in partitions}
    after = {partition: [*rows, *added[partition]] for partition, rows in partitions.items()}
    return {
        "take_per_partition": take,
        "max_spout_pending": random.randint(1, 3),
        "data_initial": partitions,
        "first_run_counts": [*first, 0],
        "data_added_before_restart": added,
        "second_run_counts": [0, *counts(after, take, given)],
    }


def opaque(random: Random) -> dict[str, Any]:
    """Draw a topology with an opaque spout, and ack its batches one after the other."""
    partitions, take = data(random), random.randint(1, 3)
    partitions["0"] = [*partitions["0"], random.choice(WORDS)]  # there is a batch at least
    longest = max(map(len, partitions.values()))
    commits = {}
    for txid, first in enumerate(range(0, longest, take), start=1):
        rows = [word for own in partitions.values() for word in own[first : first + take]]
        commits[str(txid)] = dict(Counter(rows))
    acks = ["ack 1 -> tx1 committed"]
    acks += [f"ack {t}, ack {t - 1} -> tx{t} committed" for t in range(2, len(commits) + 1)]
    return {
        "take_per_partition": take,
        "max_spout_pending": random.randint(2, 3),
        "data": partitions,
        "commits": commits,
        "sequence": "; ".join(acks),
    }
