"""Trident's MasterBatchCoordinator (Storm M3 to M12)."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any


@dataclass
class Coordinator:
    window: int
    ready_up_to: int = 1000
    curr: int = 1
    is_on: bool = True
    attempts: dict[int, int] = field(default_factory=dict)
    active: dict[int, list[Any]] = field(default_factory=dict)
    stored_curr: int | None = None
    stored: dict[int, int] | None = None

    def restart(self, window: int) -> None:
        self.window = window
        self.curr, self.active, self.is_on = self.stored_curr or 1, {}, True
        kept = range(self.curr, self.curr + self.window - 1)
        self.attempts = {tx: a for tx, a in (self.stored or {}).items() if tx in kept}

    def sync(self) -> list[list[Any]]:
        emitted: list[list[Any]] = []
        current = self.active.get(self.curr)
        if current is not None and current[1] == "PROCESSED":
            current[1] = "COMMITTING"
            emitted.append(["$commit", self.curr, current[0]])
        if not self.is_on or len(self.active) >= self.window:
            return emitted
        for tx in range(self.curr, self.curr + self.window):
            if tx not in self.active and tx <= self.ready_up_to:
                self.attempts[tx] = self.attempts.get(tx, -1) + 1
                self.stored = dict(self.attempts)
                self.active[tx] = [self.attempts[tx], "PROCESSING"]
                emitted.append(["$batch", tx, self.attempts[tx]])
        return emitted

    def ack(self, tx: int, attempt: int) -> list[list[Any]]:
        found = self.active.get(tx)
        if found is None or found[0] != attempt:
            return []
        if found[1] == "PROCESSING":
            found[1] = "PROCESSED"
        elif found[1] == "COMMITTING":
            del self.active[tx]
            self.attempts.pop(tx, None)
            self.curr = self.stored_curr = tx + 1
            return [["$success", tx, attempt], *self.sync()]
        return self.sync()

    def fail(self, tx: int, attempt: int) -> list[list[Any]]:
        found = self.active.pop(tx, None)
        if found is None or found[0] != attempt:
            return []
        self.active = {other: entry for other, entry in self.active.items() if other < tx}
        return self.sync()

    def observed(self, emitted: list[list[Any]]) -> dict[str, Any]:
        return {
            "emit": emitted,
            "curr_tx": self.curr,
            "active": {str(tx): list(entry) for tx, entry in sorted(self.active.items())},
            "attempt_ids": _told(self.attempts),
            "stored_currtx": self.stored_curr,
            "stored_attempts": None if self.stored is None else _told(self.stored),
        }


def _told(attempts: dict[int, int]) -> dict[str, int]:
    return {str(tx): attempt for tx, attempt in sorted(attempts.items())}


OPS = ["nextTuple"] * 2 + ["ack"] * 8 + ["fail"] * 3 + ["set_ready_up_to", "pause", "restart"]


def vector(random: Random, *, strict: bool) -> dict[str, Any]:
    """Draw acks and fails of what is active, and a few of what is not."""
    window = random.randint(1, 4)
    model = Coordinator(window)
    steps = []
    for op in ["nextTuple", *random.choices(OPS, k=random.randint(6, 16))]:
        if (step := _step(random, model, op, strict)) is not None:
            steps.append(step)
    return {"dialect": "trident", "max_spout_pending": window, "steps": steps}


def _step(random: Random, model: Coordinator, op: str, strict: bool) -> dict[str, Any] | None:
    emitted: list[list[Any]] = []
    told: dict[str, Any] = {"op": op}
    match op:
        case "nextTuple":
            emitted = model.sync()
        case "ack" | "fail":
            drawn = _about(random, model)
            if drawn is None or (strict and op == "fail" and not _is_strict_fail(model, *drawn)):
                return None
            told = {"op": op, "tx": drawn[0], "attempt": drawn[1]}
            emitted = model.ack(*drawn) if op == "ack" else model.fail(*drawn)
        case "set_ready_up_to":
            model.ready_up_to = model.curr + random.randint(-1, model.window)
            told["tx"] = model.ready_up_to
        case "pause":
            model.is_on = not model.is_on
            told["op"] = "activate" if model.is_on else "deactivate"
        case "restart":
            if strict:
                return None
            told["max_spout_pending"] = random.randint(1, 4)
            model.restart(told["max_spout_pending"])
    return {**told, "expect": model.observed(emitted)}


def _about(random: Random, model: Coordinator) -> tuple[int, int] | None:
    """Draw an attempt that is active, or sometimes one that was."""
    if model.active and random.random() < 0.85:
        tx = random.choice(sorted(model.active))
        return tx, model.active[tx][0]
    tx = random.randint(1, model.curr + model.window - 1)
    newest = model.attempts.get(tx, 0)
    return (tx, random.randint(0, newest)) if newest or tx < model.curr else None


def _is_strict_fail(model: Coordinator, tx: int, attempt: int) -> bool:
    """Say whether the fail is neither stale (Storm M8) nor of a sealed attempt that waits."""
    found = model.active.get(tx)
    return found is None or (found[0] == attempt and found[1] != "PROCESSED")
