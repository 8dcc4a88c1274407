"""The coordinator before Trident's (Storm T3, M4 to M9): attempts are called by emission."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any


@dataclass
class Active:
    emission: int
    status: str = "PROCESSING"


@dataclass
class Coordinator:
    window: int
    meta: int | None = None
    curr: int = 1
    emissions: int = 0
    active: dict[int, Active] = field(default_factory=dict)
    metas: dict[int, int] = field(default_factory=dict)
    txids: dict[int, int] = field(default_factory=dict)

    def sync(self) -> list[dict[str, Any]]:
        emitted: list[dict[str, Any]] = []
        current = self.active.get(self.curr)
        if current is not None and current.status == "PROCESSED":
            current.status = "COMMITTING"
            emitted.append({"stream": "$commit", "tx": self.curr, "emission": current.emission})
        if len(self.active) >= self.window:
            return emitted
        for tx in range(self.curr, self.curr + self.window):
            if tx in self.active or (tx not in self.metas and self.meta is None):
                continue
            if self.meta is not None:
                self.metas.setdefault(tx, self.meta)
            self.active[tx] = Active(self.emissions)
            self.txids[self.emissions] = tx
            emitted.append(
                {
                    "stream": "$batch",
                    "tx": tx,
                    "meta": self.metas[tx],
                    "committed_txid": self.curr - 1 or None,
                    "emission": self.emissions,
                }
            )
            self.emissions += 1
        return emitted

    def ack(self, emission: int) -> list[dict[str, Any]]:
        tx = self.txids[emission]
        found = self.active.get(tx)
        if found is None or found.emission != emission:
            return []
        if found.status == "PROCESSING":
            found.status = "PROCESSED"
        elif found.status == "COMMITTING":
            del self.active[tx]
            self.curr = tx + 1
        return self.sync()

    def fail(self, emission: int) -> list[dict[str, Any]]:
        tx = self.txids[emission]
        found = self.active.pop(tx, None)
        if found is None or found.emission != emission:
            return []
        self.active = {other: entry for other, entry in self.active.items() if other < tx}
        return self.sync()

    def observed(self, emitted: list[dict[str, Any]]) -> dict[str, Any]:
        active = (f"{tx}={tx} <{entry.status}>" for tx, entry in sorted(self.active.items()))
        return {
            "emit": emitted,
            "curr_tx": self.curr,
            "active": f"{{{', '.join(active)}}}",
            "initialize_calls_so_far": len(self.metas),
        }


OPS = ["nextTuple"] * 2 + ["ack"] * 8 + ["fail"] * 2 + ["set_meta"] * 2


def vector(random: Random, *, strict: bool) -> dict[str, Any]:
    """Draw acks and fails.

    Strict: what fails is the last one that is active, it does not wait for its turn, and the source
    is ready for its replay.
    """
    model = Coordinator(window=random.randint(1, 4))
    steps: list[dict[str, Any]] = []
    for op in ["set_meta", "nextTuple", *random.choices(OPS, k=random.randint(6, 16))]:
        if op == "set_meta":
            model.meta = random.choice([10, 11, 12, None])
            steps.append({"op": op, "meta": model.meta})
            continue
        step: dict[str, Any] = {"op": op}
        if op == "nextTuple":
            emitted = model.sync()
        elif not model.active:
            continue
        else:
            tx = random.choice(sorted(model.active))
            found = model.active[tx]
            is_last = tx == max(model.active) and found.status != "PROCESSED"
            if op == "fail" and strict and not (is_last and model.meta is not None):
                continue
            step["emission"] = found.emission
            if not strict and random.random() < 0.15:
                step["emission"] = random.randrange(model.emissions)
            emitted = (model.ack if op == "ack" else model.fail)(step["emission"])
        steps.append({**step, "expect": model.observed(emitted)})
    return {"dialect": "legacy", "max_spout_pending": model.window, "steps": steps}
