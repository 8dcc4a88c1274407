"""KeyValueState: the texts by key that a participant has committed.

What is put is staged by the attempt that a `prepare` votes on; `commit` and `rollback` are the
driver's messages.

Compared: the view (what is committed, and on top of it what the vector has put since), what a
delete returned, and errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reliability import State, Upsert
from reliability.core.checkpoint import CheckpointAction
from reliability.core.errors import AttemptIncomplete, UnexpectedAnswer
from reliability.transaction.commit.apply import RefusedPlan
from reliability.transaction.commit.committer import _refuse
from reliability.transaction.process.attempt_messages import end_attempt
from tests.conformance.bench import ELSEWHERE, Bench
from tests.conformance.checkpointing import Member
from tests.conformance.comparison import Comparison, Rule, UnknownOp
from tests.conformance.vectors import Vector
from tests.support.fix_postgres import rows
from tests.support.staged import Staged


class KeyValues(Staged):
    """The state elsewhere has a text for each key, of which the last one counts."""

    def _state(self, database: str) -> State:
        name = database or "here"
        return State(
            name,
            key={"k": "text"},
            values={"v": Upsert("v", by={"at": "bigint"}, type="text")},
            table=f"{self.topology}_{name}",
        )


class KeyValueState(Member):
    """The participant of a vector of puts and commits."""

    def __init__(self, bench: Bench, vector: Vector) -> None:
        txids = [step["txid"] for step in vector.steps if step.get("txid") is not None] or [1]
        shift = -min(txid - 1 for txid in txids)
        super().__init__(bench, txids[0] - 1 + shift, shift, KeyValues)
        self.put: dict[str, str] = {}
        self.prepared: dict[str, str] = {}
        self.attempts = 0
        self.was_rolled_back = False
        self.leaked: set[str] = set()
        self.ask(self.message(CheckpointAction.INIT_STATE, self.last() - shift))

    def committed(self) -> dict[str, str]:
        table = f"{self.staged.topology}_{ELSEWHERE}"
        return dict(
            rows(self.staged.participants.connection_of(ELSEWHERE), f"SELECT k, v FROM {table}")
        )

    def view(self) -> dict[str, str]:
        return {**self.committed(), **self.prepared, **self.put}

    def prepare(self, txid: int) -> bool:
        """Have an attempt with all that was put since the last commit, and a vote on it."""
        if txid + self.shift != self.last() + 1:
            return self.ask(self.message(CheckpointAction.PREPARE, txid))
        self._drop()
        self.prepared |= self.put
        self.put = {}
        self.grant = self.staged.grant(self.next_txid, self.attempts)
        self.attempts += 1
        rows = [{"k": k, "v": v, "_by_1": self.next_txid} for k, v in self.prepared.items()]
        self.staged.stage_rows(self.grant, {ELSEWHERE: rows})
        return self.ask(self.message(CheckpointAction.PREPARE, txid))

    def commit(self, txid: int) -> bool:
        """Commit the attempt that was prepared, or one that was not; what is late is done."""
        if txid + self.shift <= self.last():
            return self.ask(self.message(CheckpointAction.COMMIT, txid))
        is_unprepared = self.grant is None
        if is_unprepared:
            self.grant = self.staged.grant(self.next_txid, self.attempts)
            self.attempts += 1
        if not self.ask(self.message(CheckpointAction.COMMIT, txid)):
            if is_unprepared and self.grant is not None:
                end_attempt(self.staged.connection, self.grant, NOT_PREPARED)
                self.grant = None
            return False
        self.prepared, self.attempts = {}, 0
        self.was_rolled_back, self.leaked = False, set()
        return True

    def roll_back(self) -> bool:
        """Roll back; what was put since the last commit is in no attempt any more."""
        self._drop()
        self.put, self.prepared, self.was_rolled_back = {}, {}, True
        return self.ask(self.message(CheckpointAction.ROLLBACK, self.last() + 1 - self.shift))

    def _drop(self) -> None:
        """Fail the attempt that was prepared, as the driver does when a vote was no."""
        if self.grant is not None:
            error = UnexpectedAnswer("the vector rolls it back, or prepares anew")
            _refuse(
                self.staged.connection,
                self.staged.topology,
                RefusedPlan(plan=self.plan(1), error=error),
            )
        self.grant = None


NOT_PREPARED = AttemptIncomplete("the vector commits it, and has not prepared it")
APPLIED = "of a commit number that was applied the answer is: done"
DELETE = "a state has no delete by key: a key goes when its last row goes"
UNNUMBERED = "Storm K1: a commit without a txid has no use; every commit has its number here"


def play(vector: Vector, c: Comparison, bench: Bench) -> None:
    state = KeyValueState(bench, vector)
    for number, step in enumerate(vector.steps):
        txid = step.get("txid")
        place = 0 if txid is None else txid + state.shift - state.last()
        c.at(number, step["op"], place=place)
        before = state.committed()
        done = _do(number, step, state, c)
        expected = step.get("expect", {})
        c.field("error", expected.get("error", False), not done)
        if done:
            found = state.view()
            for key in sorted({*expected.get("view", found), *found}):
                wanted = expected.get("view", found).get(key)
                c.field("view", wanted, found.get(key), key, leaked=key in state.leaked)
        c.ours(
            state.committed() == before or (step["op"] == "commit" and done),
            "only a commit changes what is committed",
        )


def _do(number: int, step: Mapping[str, Any], state: KeyValueState, c: Comparison) -> bool:
    key, expected = step.get("key"), step.get("expect", {})
    match step["op"]:
        case "put":
            state.put[str(key)] = str(step["value"])
            state.leaked |= {str(key)} if state.was_rolled_back else set()
        case "get":
            c.field("value", expected.get("value"), state.view().get(str(key)), key)
        case "delete":
            c.field("returned", expected.get("returned"), state.view().get(str(key)), key)
            state.put.pop(str(key), None)
            state.prepared.pop(str(key), None)
            c.carry(DELETE, key)
        case "prepare":
            if step["txid"] + state.shift <= state.last() and not expected.get("error"):
                c.carry(APPLIED)
            return state.prepare(step["txid"])
        case "commit" if step.get("txid") is None:
            c.carry(UNNUMBERED)
        case "commit":
            return state.commit(step["txid"])
        case "rollback":
            return state.roll_back()
        case unknown:
            raise UnknownOp(f"op {number}: {unknown} is unknown")
    return True


RULES = (
    Rule(
        "prepare",
        "a participant takes the next commit number only: a gap is refused",
        lambda facts: facts["place"] > 1,
    ),
    Rule("prepare|commit", APPLIED, lambda facts: facts["place"] <= 0, field="error|view"),
    Rule(
        "rollback",
        "Storm K3 is a defect: what is put after a rollback leaks into what was committed; here a "
        "rollback leaves nothing behind to leak into",
        lambda facts: facts["leaked"],
        field="view",
    ),
)
