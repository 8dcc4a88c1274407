"""The executor of a stateful bolt (Storm E1 to E7), and a state in memory (Storm K1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

Round = tuple[str, int]


@dataclass
class Bolt:
    sources: int
    last: int | None = None
    is_initialised: bool = False
    counted: Counter[Round] = field(default_factory=Counter)

    def take(self, action: str, txid: int, breaks: str = "") -> list[str]:
        """Take one checkpoint tuple; `breaks` is a call that raises."""
        self.counted[action, txid] += 1
        if self.counted[action, txid] < self.sources:
            return ["ack(cp)"]
        del self.counted[action, txid]
        if self.last is not None and txid < self.last:
            return ["ack(cp)"]
        calls = self._calls(action, txid)
        if breaks in calls:
            return [*calls[: calls.index(breaks)], "fail(cp)"]
        if action == "PREPARE" and not self.is_initialised:
            self.last = txid
            return ["fail(cp)"]
        self.is_initialised |= action == "INITSTATE"
        self.last = txid - 1 if action == "ROLLBACK" else txid
        return [*calls, f"emit({txid},{action})", "ack(cp)"]

    def _calls(self, action: str, txid: int) -> list[str]:
        match action:
            case "PREPARE" if self.is_initialised:
                return [f"bolt.prePrepare({txid})", f"state.prepareCommit({txid})"]
            case "COMMIT":
                return [f"bolt.preCommit({txid})", f"state.commit({txid})"]
            case "ROLLBACK":
                return ["bolt.preRollback", "state.rollback"]
            case "INITSTATE" if not self.is_initialised:
                return ["bolt.initState"]
        return []

    def observed(self, events: list[str]) -> dict[str, Any]:
        waiting = self.counted.total()
        return {"events": events, "last_txid": self.last, "waiting": waiting}


BREAKS = {"PREPARE": "state.prepareCommit", "COMMIT": "state.commit"}


def vector(random: Random, *, strict: bool) -> dict[str, Any]:
    """Draw what a checkpoint spout sends over its life.

    Strict: every source sends each message once. Else some are lost, and some come again, late.
    """
    bolt = Bolt(sources=random.randint(1, 3))
    steps: list[dict[str, Any]] = []
    sent: list[Round] = []
    for action, txid, is_broken in _life(random):
        breaks = f"{BREAKS[action]}({txid})" if is_broken else ""
        if breaks:
            steps.append({"op": "inject_error_once_in", "call": breaks})
        rounds = [(action, txid)] * bolt.sources
        if not strict and not breaks and random.random() < 0.3:
            rounds = random.choice([rounds[1:], [*rounds, random.choice([*sent, rounds[0]])]])
        for one in rounds:
            events = bolt.take(*one, breaks)
            told = {"op": "checkpoint", "action": one[0], "txid": one[1]}
            steps.append({**told, "expect": bolt.observed(events)})
        sent += rounds
    return {"checkpoint_input_tasks": bolt.sources, "steps": steps}


def _life(random: Random) -> Iterator[tuple[str, int, bool]]:
    """Return action, txid, and whether it is broken: what the spout does then follows."""
    txid = random.randint(-1, 3)
    if random.random() < 0.3:  # it is not initialised yet, and says no
        yield "PREPARE", txid + 1, False
        yield "ROLLBACK", txid + 1, False
    yield "INITSTATE", txid, False
    for _ in range(random.randint(1, 4)):
        is_broken = random.random() < 0.2
        yield "PREPARE", txid + 1, is_broken
        if is_broken or random.random() < 0.2:
            yield "ROLLBACK", txid + 1, False
            yield "INITSTATE", txid, False
            continue
        if random.random() < 0.2:
            yield "COMMIT", txid + 1, True
        for _ in range(random.choice([1, 1, 2])):
            yield "COMMIT", txid + 1, False
        txid += 1


@dataclass
class InMemory:
    """A key-value state in memory, without the defects of Storm K3."""

    current: dict[str, str] = field(default_factory=dict)
    prepared: tuple[int, dict[str, str]] | None = None
    committed: dict[str, str] = field(default_factory=dict)

    def prepare(self, txid: int) -> bool:
        if self.prepared is not None and self.prepared[0] < txid:
            return False
        self.prepared = (txid, dict(self.current))
        return True

    def commit(self, txid: int) -> bool:
        if self.prepared is None or self.prepared[0] != txid:
            return False
        self.committed, self.prepared = self.prepared[1], None
        return True

    def roll_back(self) -> None:
        self.prepared, self.current = None, dict(self.committed)


def key_value_vector(random: Random, *, strict: bool) -> dict[str, Any]:
    """Draw puts, checkpoints and rollbacks; strict: of the next txid only."""
    state, steps, txid = InMemory(), [], 1
    for number in range(random.randint(5, 14)):
        op = random.choice(
            ["put"] * 4 + ["get", "prepare", "prepare", "commit", "commit", "rollback"]
        )
        step: dict[str, Any] = {"op": op}
        expected: dict[str, Any] = {}
        key = random.choice("abc")
        wanted = txid if strict else txid + random.choice([0, 0, 0, 0, 1, -1])
        match op:
            case "put":
                step |= {"key": key, "value": str(number)}
                state.current[key] = str(number)
            case "get":
                step["key"] = key
                expected["value"] = state.current.get(key)
            case "prepare":
                step["txid"] = wanted
                expected = {} if state.prepare(wanted) else {"error": True}
            case "commit":
                step["txid"] = wanted
                if state.commit(wanted):
                    txid = wanted + 1
                else:
                    expected = {"error": True}
            case "rollback":
                state.roll_back()
        if not expected.get("error"):
            expected["view"] = dict(state.current)
        steps.append({**step, "expect": expected})
    return {"steps": steps}
