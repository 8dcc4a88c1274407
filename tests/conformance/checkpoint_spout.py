"""CheckpointSpout: the driver of the checkpoint, over two databases.

`nextTuple` is the driver's next_action. `ack` has every
database do what is under way and vote; `fail` is a vote that failed; `restart` is another driver,
which takes up what the ledger has. Here messages name action, commit number and epoch: one about
another txid, or about nothing that is under way, is sent as the message that was emitted for that
txid. As many txids are PROCESSED as the vector could commit.

The driver that a restart replaces is not dead: it goes on with what it has asked, and must not
decide anything any more.

Compared: what is emitted, what is saved, whether it recovers, whether a step is under way (of the
original's two flags the one that is looked at), and idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from reliability.core.checkpoint import COORDINATOR, CheckpointAction, Message, Phase
from reliability.core.errors import CheckpointTakenOver
from reliability.ledger.locks import PATIENCE_SECONDS
from reliability.transaction.commit.checkpoint_driver import Checkpoint
from reliability.transaction.commit.committer import read_plan
from tests.conformance.bench import ELSEWHERE, Bench
from tests.conformance.checkpointing import checkpoint_of, run_in, two_databases, word_of
from tests.conformance.comparison import Comparison, Rule, UnknownOp
from tests.conformance.runner import Adapter
from tests.conformance.vectors import Vector

Emitted = list[dict[str, Any]]


class Played:
    """The vector's topology, and the driver of its checkpoint."""

    def __init__(self, bench: Bench, vector: Vector) -> None:
        initial, steps = vector.data["initial"], vector.steps
        before = initial["txid"] - (initial["state"] != Phase.COMMITTED.value)
        saved = [step["expect"]["saved"]["txid"] for step in steps if "saved" in step["expect"]]
        named = [step["txid"] for step in steps if "txid" in step]
        self.shift = -min([before, *saved, *named])
        self.staged = two_databases(bench, commit_number=before + self.shift)
        self.at_once = vector.data.get("interval_elapsed_always", True)
        if not self.at_once:
            for database in ("", ELSEWHERE):
                interval = (
                    "UPDATE reliability.topology"
                    " SET checkpoint_interval = '1 hour', groups_commits = false"
                )
                run_in(self.staged, database, interval)
        planner = partial(read_plan, self.staged.topology)
        self.due = partial(planner, one_by_one=10**9)
        self.planner = self.due if self.at_once else planner
        for txid in range(1, 3 + sum(step["op"] == "nextTuple" for step in steps)):
            self.staged.process(txid, {"": [1], ELSEWHERE: [1]})
        self.emitted: dict[int, Message] = {}
        self._reach(Phase(initial["state"]))
        self.emitted.clear()
        self.start()

    def _reach(self, phase: Phase) -> None:
        """Let a driver die in that phase."""
        if phase is Phase.COMMITTED:
            return
        self.start()
        self.next_tuple()
        while (asked := self.checkpoint.drive.asked) is not None:
            if phase is Phase.PREPARING and asked.action is CheckpointAction.PREPARE:
                return
            self.checkpoint.carry_out(asked)
            if self.checkpoint.drive.state.phase is phase:
                return
            self.next_tuple()

    def start(self) -> None:
        """A driver that knows nothing but the ledger, and comes when something is due."""
        self.checkpoint = Checkpoint(self.staged.participants, PATIENCE_SECONDS)
        self.has_prepared = False
        assert self.checkpoint.begin_epoch(self.due)

    def restart(self, c: Comparison) -> None:
        """Have another driver take up, and then the one before it go on with what it has asked."""
        given_up, asked = self.checkpoint, self.checkpoint.drive.asked
        self.start()
        if asked is None:
            return
        before = (checkpoint_of(self.staged), self.staged.seen())
        with suppress(CheckpointTakenOver):
            given_up.carry_out(asked)
        after = (checkpoint_of(self.staged), self.staged.seen())
        c.ours(after == before, "a driver that was given up decides nothing")

    def is_first(self) -> bool:
        """Say whether this driver has begun nothing, and an earlier one's commit is too young."""
        has_committed = self.staged.commit_numbers()[""][2] > 0
        return has_committed and not self.at_once and not self.has_prepared

    def next_tuple(self) -> Emitted:
        message = self.checkpoint.next_action(self.planner)
        if message is None:
            return []
        self.emitted[message.commit_number] = message
        self.has_prepared |= message.action is CheckpointAction.PREPARE
        txid = message.commit_number - self.shift
        return [{"txid": txid, "action": word_of(message.action), "msg_id": txid}]

    def is_asked(self, txid: int) -> bool:
        """Say whether a message about this txid is about what is under way."""
        asked = self.checkpoint.drive.asked
        return asked is not None and asked.commit_number == txid + self.shift

    def ack(self, c: Comparison, txid: int) -> None:
        asked = self.checkpoint.drive.asked
        if asked is not None and self.is_asked(txid):
            failures = self.checkpoint.carry_out(asked)
            c.ours(not failures, f"every database does it: {failures}")
            return
        before = self.look()
        for name in (ELSEWHERE, COORDINATOR):
            self.checkpoint.ack(self._late(txid), name)
        c.ours(self.look() == before, "a late ack changes nothing")

    def fail(self, c: Comparison, txid: int) -> None:
        asked = self.checkpoint.drive.asked
        if asked is not None and self.is_asked(txid):
            self.checkpoint.fail(asked)
            return
        before = self.look()
        self.checkpoint.fail(self._late(txid))
        c.ours(self.look() == before, "a late fail changes nothing")

    def _late(self, txid: int) -> Message:
        made_up = Message(
            action=CheckpointAction.PREPARE,
            commit_number=txid + self.shift,
            size=1,
            epoch=self.checkpoint.drive.epoch,
        )
        return self.emitted.get(txid + self.shift, made_up)

    def look(self) -> tuple[Any, ...]:
        """Return all that a message could change."""
        both = [checkpoint_of(self.staged, database) for database in ("", ELSEWHERE)]
        seen = [self.staged.seen(database) for database in ("", ELSEWHERE)]
        return (self.checkpoint.drive, both, seen)


def play(vector: Vector, c: Comparison, bench: Bench) -> None:
    played = Played(bench, vector)
    reached = checkpoint_of(played.staged)
    for number, step in enumerate(vector.steps):
        asked = played.is_asked(step["txid"]) if "txid" in step else False
        idle = played.checkpoint.drive.asked is None
        c.at(number, step["op"], late=not asked, idle=idle, is_first=played.is_first())
        emitted = _do(number, step, played, c)
        _compare(c, played, step["op"], step["expect"], emitted)
        found = checkpoint_of(played.staged)
        fell = found["commit_number"] < reached["commit_number"]
        c.ours(not fell or reached["phase"] == Phase.PREPARING.value, "only PREPARING goes back")
        reached = found


def _do(number: int, step: Mapping[str, Any], played: Played, c: Comparison) -> Emitted:
    match step["op"]:
        case "nextTuple":
            return played.next_tuple()
        case "ack":
            played.ack(c, step["txid"])
        case "fail":
            played.fail(c, step["txid"])
        case "restart":
            played.restart(c)
        case unknown:
            raise UnknownOp(f"op {number}: {unknown} is unknown")
    return []


def _compare(
    c: Comparison, played: Played, op: str, expected: Mapping[str, Any], emitted: Emitted
) -> None:
    drive, saved = played.checkpoint.drive, checkpoint_of(played.staged)
    txid = saved["commit_number"] - played.shift
    found = {
        "emit": emitted,
        "saved": {"txid": txid, "state": saved["phase"]},
        "recovering": drive.recovering,
    }
    for name, value in found.items():
        if name in expected:
            c.field(name, expected[name], value)
    mode = "recovery" if expected.get("recovering") else "checkpoint"
    if f"{mode}_step_in_progress" in expected:
        in_progress = expected[f"{mode}_step_in_progress"]
        c.field("step_in_progress", in_progress, drive.asked is not None)
    if op == "nextTuple":
        c.field("idle", expected.get("idle", False), not emitted)


RULES = (
    Rule(
        "fail",
        "Storm C6 is a defect: a fail of anything starts recovery; here a fail names action, "
        "commit number and epoch, and a late one changes nothing",
        lambda facts: facts["late"],
    ),
    Rule(
        "ack",
        "Storm C8 is a defect: an ack is taken for that of the next action; here it names its own",
        lambda facts: facts["late"] and facts["idle"],
    ),
    Rule(
        "ack",
        "Storm C5: an ack of another txid has the action emitted again; here a late ack changes "
        "nothing, and what is under way stays so",
        lambda facts: facts["late"],
        field="step_in_progress",
    ),
    Rule(
        "nextTuple",
        "Storm C2 measures the interval from a checkpoint of the same process; here it runs from "
        "the last physical commit, which is a row",
        lambda facts: facts["is_first"] and not facts["found"],
        field="emit",
    ),
)

ADAPTER = Adapter(component=r"\bCheckpointSpout\b", each={"vectors": play}, rules=RULES)
