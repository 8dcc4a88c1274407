"""Trident's map states, with the reads of a batch cached (Storm O1 to O5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

KEYS = "abc"
Stored = dict[str, Any]


class Behind(Exception):
    """The batch is older than what is stored."""


@dataclass
class MapState:
    kind: str
    txid: int = 0
    rows: dict[str, Stored] = field(default_factory=dict)
    cached: set[str] = field(default_factory=set)

    def begin(self, txid: int) -> None:
        self.txid, self.cached = txid, set()

    def get(self, key: str) -> int | None:
        row = self.rows.get(key)
        if row is None:
            return None
        if self.kind == "transactional":
            return int(row["val"])
        value = row["curr"] if key in self.cached else self._before(row)
        return None if value is None else int(value)

    def _before(self, row: Stored) -> Any:
        if self.txid < row["txid"]:
            raise Behind
        return row["prev"] if self.txid == row["txid"] else row["curr"]

    def add(self, key: str, amount: int) -> int:
        """Update; return the value."""
        row, value = self.rows.get(key), (self.get(key) or 0) + amount
        if self.kind == "transactional":
            if row is not None and row["txid"] == self.txid and key not in self.cached:
                return int(row["val"])
            self.rows[key] = {"val": value, "txid": self.txid}
        else:
            is_again = row is not None and row["txid"] == self.txid
            before = None if row is None else row["prev" if is_again else "curr"]
            self.rows[key] = {"curr": value, "prev": before, "txid": self.txid}
        self.cached.add(key)
        return value


def vector(random: Random, *, strict: bool) -> dict[str, Any]:
    """Draw batches that come in order, and some again.

    Strict: none is cut off, and one that comes again has the same keys.
    """
    state = MapState(random.choice(["opaque", "transactional"]))
    steps: list[dict[str, Any]] = []
    for txid, keys, is_cut_off in _batches(random, strict=strict):
        state.begin(txid)
        steps.append({"op": "begin_commit", "txid": txid})
        steps += [_step(random, state, key) for key in keys]
        if not is_cut_off:
            state.begin(txid)  # what is cached is forgotten at the end, too
            steps.append({"op": "commit", "txid": txid})
    return {"kind": state.kind, "steps": steps}


def _batches(random: Random, *, strict: bool) -> Iterator[tuple[int, list[str], bool]]:
    txid, seen = 0, set(KEYS)
    for _ in range(random.randint(2, 5)):
        if txid and random.random() < 0.35:
            keys = sorted(seen) if strict else random.choices(KEYS, k=2)
            random.shuffle(keys)
            older = random.randint(0, 1) if not strict else 0
            yield max(1, txid - older), keys, False
            continue
        txid += random.randint(1, 2)
        keys = random.choices(KEYS, k=random.randint(1, 4))
        seen = set(keys)
        yield txid, keys, not strict and random.random() < 0.2


def _step(random: Random, state: MapState, key: str) -> dict[str, Any]:
    is_get = random.random() < 0.2 and key in state.cached
    amount = random.randint(1, 9)
    step = {"op": "get", "key": key} if is_get else {"op": "update_add", "key": key}
    try:
        value = state.get(key) if is_get else state.add(key, amount)
        expected = {"value": value, "stored": dict(state.rows[key])}
    except Behind:
        expected = {"error": True}
    return {**step, **({} if is_get else {"amount": amount}), "expect": expected}
