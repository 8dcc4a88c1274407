"""The checkpoint spout and the table that it drives (Storm C1 to C8)."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

TABLE = {
    ("PREPARING", False): ("PREPARE", "COMMITTING", 0),
    ("PREPARING", True): ("ROLLBACK", "COMMITTED", -1),
    ("COMMITTING", False): ("COMMIT", "COMMITTED", 0),
    ("COMMITTING", True): ("COMMIT", "COMMITTED", 0),
    ("COMMITTED", False): ("PREPARE", "PREPARING", 1),
    ("COMMITTED", True): ("INITSTATE", "COMMITTED", 0),
}


@dataclass
class CheckpointSpout:
    state: str
    txid: int
    always: bool
    recovering: bool = True
    recovery_step: bool = False
    checkpoint_step: bool = False
    has_prepared: bool = False

    @property
    def in_progress(self) -> bool:
        return self.recovery_step if self.recovering else self.checkpoint_step

    def restart(self) -> None:
        self.recovering, self.has_prepared = True, False
        self.recovery_step = self.checkpoint_step = False

    def next_tuple(self) -> tuple[int, str] | None:
        """Return the txid and the action that are emitted, None if it is idle."""
        if self.in_progress:
            return None
        if self.recovering:
            self.recovery_step = True
        elif self.state == "COMMITTED" and not self.always and self.has_prepared:
            return None
        else:
            if self.state == "COMMITTED":
                self._go_on()
                self.has_prepared = True
            self.checkpoint_step = True
        return self.txid, TABLE[self.state, self.recovering][0]

    def ack(self, txid: int) -> None:
        if txid == self.txid:
            if self.state == "COMMITTED" and self.recovering:
                self.recovering = False
            else:
                self._go_on()
        self._reset()

    def fail(self) -> None:
        self.recovering = True
        self._reset()

    def _go_on(self) -> None:
        _, self.state, more = TABLE[self.state, self.recovering]
        self.txid += more

    def _reset(self) -> None:
        if self.recovering:
            self.recovery_step = False
        else:
            self.checkpoint_step = False

    def observed(self, emitted: tuple[int, str] | None, *, is_next: bool) -> dict[str, Any]:
        told = [{"txid": t, "action": a, "msg_id": t} for t, a in ([emitted] if emitted else [])]
        found = {
            "emit": told,
            "saved": {"txid": self.txid, "state": self.state},
            "recovering": self.recovering,
            "recovery_step_in_progress": self.recovery_step,
            "checkpoint_step_in_progress": self.checkpoint_step,
        }
        return {**found, "idle": True} if is_next and not emitted else found


OPS = ["nextTuple"] * 4 + ["ack"] * 4 + ["fail", "restart"]


def vector(random: Random, *, strict: bool) -> dict[str, Any]:
    """Draw a life of the spout, with restarts.

    Strict: what is acked or failed is under way. The original does not check this (Storm C5, C6,
    C8).
    """
    txid, state = random.randint(-1, 5), random.choice(["COMMITTED", "PREPARING", "COMMITTING"])
    spout_txid = txid + (state != "COMMITTED")
    initial = {"txid": spout_txid, "state": state}
    always = random.random() < 0.8 or (strict and state == "COMMITTING")
    spout = CheckpointSpout(state, spout_txid, always)
    steps = []
    ops = random.choices(OPS, k=random.randint(5, 16))
    for op in ["nextTuple", *ops]:
        step: dict[str, Any] = {"op": op}
        emitted = None
        if op in ("ack", "fail"):
            if strict and not spout.in_progress:
                continue
            step["txid"] = spout.txid if strict else spout.txid + random.choice([0, 0, 0, -1, 1])
        elif strict and op == "restart" and not always:
            continue  # the interval runs from a row, not from a process's start
        match op:
            case "nextTuple":
                emitted = spout.next_tuple()
            case "ack":
                spout.ack(step["txid"])
            case "fail":
                spout.fail()
            case "restart":
                spout.restart()
        steps.append({**step, "expect": spout.observed(emitted, is_next=op == "nextTuple")})
    return {"initial": initial, "interval_elapsed_always": always, "steps": steps}
