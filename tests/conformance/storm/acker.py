"""The acker: entries in three buckets (Storm A3 to A12)."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

TASK = 7


@dataclass
class Entry:
    val: int = 0
    is_known: bool = False
    has_failed: bool = False


@dataclass
class Acker:
    buckets: list[dict[int, Entry]] = field(default_factory=lambda: [{}, {}, {}])

    def find(self, root: int) -> Entry | None:
        return next((bucket[root] for bucket in self.buckets if root in bucket), None)

    def _put(self, root: int, entry: Entry) -> None:
        self._remove(root)
        self.buckets[0][root] = entry

    def _remove(self, root: int) -> None:
        for bucket in self.buckets:
            bucket.pop(root, None)

    def step(self, op: dict[str, Any]) -> list[dict[str, Any]]:
        """Take one message; return what is emitted."""
        if op["op"] == "rotate":
            self.buckets = [{}, *self.buckets[:-1]]
            return []
        root = op["root"]
        entry = self.find(root)
        is_new = entry is None
        entry = entry or Entry()
        match op["op"]:
            case "init":
                entry.val ^= int(op["val"])
                entry.is_known = True
            case "ack":
                entry.val ^= int(op["val"])
            case "fail":
                entry.has_failed = True
        if is_new or op["op"] in ("fail", "reset_timeout"):
            self._put(root, entry)
        if not entry.is_known:
            return []
        if entry.val == 0:
            kind = "ack"
        elif entry.has_failed:
            kind = "fail"
        elif op["op"] == "reset_timeout":
            return [{"to_task": TASK, "type": "reset_timeout", "root": root}]
        else:
            return []
        self._remove(root)
        return [{"to_task": TASK, "type": kind, "root": root}]

    def observed(self, emitted: list[dict[str, Any]]) -> dict[str, Any]:
        entries = {
            str(root): {
                "ack_val": str(entry.val),
                "spout_task": TASK if entry.is_known else None,
                "failed": entry.has_failed,
                "bucket": number,
            }
            for number, bucket in enumerate(self.buckets)
            for root, entry in bucket.items()
        }
        return {"emit": emitted, "pending": len(entries), "entries": entries}


ROOTS = (1, 2, 3)


def vector(random: Random, *, strict: bool) -> dict[str, Any]:
    """Draw messages about three roots."""
    acker, ops, observed = Acker(), [], []
    over: set[int] = set()
    moved: set[int] = set()
    for _ in range(random.randint(6, 14)):
        op = _draw(random, acker)
        if strict and not _is_strict(op, acker, over, moved):
            continue
        entry = acker.find(op.get("root", 0))
        if op["op"] == "ack" or (op["op"] == "init" and entry is not None):
            moved.add(op["root"])
        live = {root for root in ROOTS if (e := acker.find(root)) is not None and e.is_known}
        emitted = acker.step(op)
        over |= {root for root in live | {op.get("root", 0)} if acker.find(root) is None}
        ops.append(op)
        observed.append(acker.observed(emitted))
    return {"ops": ops, "expect": {"storm": observed}}


def _draw(random: Random, acker: Acker) -> dict[str, Any]:
    root = random.choice(ROOTS)
    name = random.choice(
        ["init", "init", "ack", "ack", "ack", "fail", "reset_timeout", "rotate", "rotate"]
    )
    if name == "rotate":
        return {"op": "rotate"}
    if name in ("fail", "reset_timeout"):
        return {"op": name, "root": root}
    entry = acker.find(root)
    left = entry.val if entry and entry.val and random.random() < 0.4 else random.randint(1, 7)
    val = 0 if name == "init" and random.random() < 0.1 else left
    op = {"op": name, "root": root, "val": str(val)}
    return {**op, "spout_task": TASK} if name == "init" else op


def _is_strict(op: dict[str, Any], acker: Acker, over: set[int], moved: set[int]) -> bool:
    """Say whether the original and we do the same (not so: Storm A4, A5, A8, A11, A13).

    :param over: roots that were acked or failed, or that have timed out
    :param moved: roots whose entries are younger or older in the original than a lease is
    """
    if op["op"] == "rotate":
        return not any(acker.find(root) for root in moved)
    entry = acker.find(op["root"])
    if op["op"] == "init":
        if op["root"] in over or (entry is not None and entry.is_known):
            return False
        return entry is None or not (entry.has_failed and entry.val == int(op["val"]))
    return True
