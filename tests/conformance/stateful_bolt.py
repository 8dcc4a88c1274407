"""StatefulBoltExecutor: a database that only takes part in a topology.

A checkpoint tuple is a driver's message to the participant: PREPARE, COMMIT, ROLLBACK and
INITSTATE with a commit number, all of one epoch. Each plan is one processed txid. A trigger on
the target table counts the applies that were tried, also those that were rolled back. With
several inputs the barrier is the driver's set of votes, by the names of the sources. Beside it
messages are counted as Storm's E1 does, which says where the two have to differ.

Compared: the answer (ack or fail of the checkpoint tuple), whether the commit was tried (PREPARE),
is there (COMMIT), is not there (ROLLBACK), the last txid except where it is that of a PREPARE, of
which nothing is kept, and how many sources wait; at a tuple, nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reliability.core.checkpoint import CheckpointAction, CheckpointState, Drive, Message, Phase
from reliability.ledger.connection import LedgerConnection
from tests.conformance import key_value_state
from tests.conformance.bench import ELSEWHERE, Bench
from tests.conformance.checkpointing import ACTIONS, EPOCH, Member, checkpoint_of, run_in
from tests.conformance.comparison import Comparison, Rule, UnknownOp
from tests.conformance.runner import Adapter
from tests.conformance.vectors import Vector
from tests.support.fix_postgres import rows

INJECTED = {
    "state.prepareCommit": CheckpointAction.PREPARE,
    "bolt.prePrepare": CheckpointAction.PREPARE,
    "state.commit": CheckpointAction.COMMIT,
    "bolt.preCommit": CheckpointAction.COMMIT,
    "state.rollback": CheckpointAction.ROLLBACK,
    "bolt.preRollback": CheckpointAction.ROLLBACK,
    "bolt.initState": CheckpointAction.INIT_STATE,
}
TUPLES = (
    "Storm E4, E6 to E8 and E10 have no use: a batch is staged as a whole before its commit "
    "begins, so that no tuple is queued, and none is acked at a checkpoint"
)


class Bolt(Member):
    """The participant of a vector of checkpoint tuples."""

    def __init__(self, bench: Bench, vector: Vector) -> None:
        steps = [step for step in vector.steps if step["op"] == "checkpoint"]
        txids = [step["txid"] - (step["action"] != "INITSTATE") for step in steps] or [0]
        shift = -min(txids + [step["txid"] for step in steps])
        super().__init__(bench, txids[0] + shift, shift)
        self.sources = vector.data.get("checkpoint_input_tasks", 1)
        at_rest = CheckpointState(Phase.COMMITTED, 0)
        named = {source for step in steps if (source := _source_of(step)) is not None}
        numbered = {str(number) for number in range(self.sources - len(named))}
        self.names = sorted(named | numbered)
        self.drive = Drive(state=at_rest, epoch=EPOCH, participants=frozenset(self.names))
        self.with_noun: set[str] = set()
        self.counted: Counter[Message] = Counter()
        self.initialised = False
        self.passed_over = False  # the original took no notice of the last INITSTATE
        self.voted: int | None = None
        self.injected: list[tuple[CheckpointAction, int | None]] = []
        self.table = f"public.{self.staged.topology}_{ELSEWHERE}"
        run_in(
            self.staged,
            ELSEWHERE,
            f"CREATE SEQUENCE {self.table}_tried;"
            f"CREATE FUNCTION {self.table}_count() RETURNS trigger LANGUAGE plpgsql AS"
            f" 'BEGIN PERFORM nextval(''{self.table}_tried''); RETURN NULL; END';"
            f"CREATE TRIGGER count AFTER INSERT ON {self.table} FOR EACH STATEMENT"
            f" EXECUTE FUNCTION {self.table}_count()",
        )

    def tried(self) -> int:
        """Return how many applies there were, those that were rolled back too."""
        connection = self.staged.participants.connection_of(ELSEWHERE)
        [(tried,)] = rows(connection, f"SELECT last_value * is_called::int FROM {self.table}_tried")
        return int(tried)

    def vote(self, message: Message, source: str | None) -> bool:
        """Let a source speak at the barrier; say whether all of them have."""
        if message != self.drive.asked:
            self.drive, self.with_noun = (
                replace(self.drive, asked=message, votes=frozenset()),
                set(),
            )
        # A vector that does not say who speaks is taken to speak of one after the other.
        name = source or next(one for one in self.names if one not in self.with_noun)
        self.with_noun.add(name)
        self.drive = self.drive.ack(message, name)
        if self.drive.lacks:
            return False
        self.drive = replace(self.drive, asked=None, votes=frozenset())
        return True

    def count(self, message: Message) -> bool:
        """Count the message, whoever sent it; say whether Storm's barrier opens."""
        self.counted[message] += 1
        if self.counted[message] < self.sources:
            return False
        del self.counted[message]
        return True

    def carry_out(self, message: Message) -> bool:
        if self.grant is None:
            self.grant = self.staged.process(self.next_txid, {"": [1], ELSEWHERE: [1]})
        wanted = message.commit_number - self.shift
        for fault in list(self.injected):
            if fault[0] is message.action and fault[1] in (None, wanted):
                self.injected.remove(fault)
                return self._break(message)
        return self.ask(message)

    def _break(self, message: Message) -> bool:
        """Have the database refuse it, or be busy where the action touches no table."""
        if message.action in (CheckpointAction.PREPARE, CheckpointAction.COMMIT):
            poor = f"ALTER TABLE {self.table} ADD CONSTRAINT poor CHECK (false) NOT VALID"
            run_in(self.staged, ELSEWHERE, poor)
            done = self.ask(message)
            run_in(self.staged, ELSEWHERE, f"ALTER TABLE {self.table} DROP CONSTRAINT poor")
            return done
        holder = LedgerConnection(self.staged.participants.connection_of(ELSEWHERE).dsn)
        try:
            with holder.transaction() as tx:
                tx.one("lock_topology", topology=self.staged.topology)
                return self.ask(message)
        finally:
            holder.close()


def play(vector: Vector, c: Comparison, bench: Bench) -> None:
    bolt = Bolt(bench, vector)
    for number, step in enumerate(vector.steps):
        match step["op"]:
            case "tuple":
                c.no_use(TUPLES)
            case "inject_error_once_in":
                bolt.injected.append(_injected(step["call"]))
            case "checkpoint":
                _checkpoint(number, step, bolt, c)
            case unknown:
                raise UnknownOp(f"op {number}: {unknown} is unknown")


def _injected(call: str) -> tuple[CheckpointAction, int | None]:
    match = re.fullmatch(r"([\w.]+)(?:\((-?\d+)?\))?", call)
    if match is None or match[1] not in INJECTED:
        raise UnknownOp(f"an error in {call} is unknown")
    return INJECTED[match[1]], int(match[2]) if match[2] else None


def _checkpoint(number: int, step: Mapping[str, Any], bolt: Bolt, c: Comparison) -> None:
    action, txid, before = ACTIONS.get(step["action"]), step["txid"], bolt.last()
    if action is None:
        raise UnknownOp(f"op {number}: {step['action']} is unknown")
    message, tried, seen = bolt.message(action, txid), bolt.tried(), bolt.staged.seen(ELSEWHERE)
    epoch_is_known = checkpoint_of(bolt.staged, ELSEWHERE)["epoch"] == EPOCH
    opens, is_asked = bolt.count(message), bolt.vote(message, _source_of(step))
    c.at(
        number,
        step["action"],
        place=message.commit_number - before,
        uninitialised=epoch_is_known and not bolt.initialised,
        passed_over=bolt.passed_over,
        miscounts=opens != is_asked,
        counted=bolt.counted.total(),
    )
    c.ours(
        is_asked == (bolt.with_noun == set(bolt.names)),
        "it is asked when each source has with_noun",
    )
    if is_asked and action is CheckpointAction.INIT_STATE:
        bolt.passed_over = not bolt.initialised and "bolt.initState" not in _calls(step["expect"])
        bolt.initialised = True
    if is_asked:
        bolt.voted = message.commit_number if action is CheckpointAction.PREPARE else bolt.voted
    answer = bolt.carry_out(message) if is_asked else True  # it is counted, and nobody is asked yet
    _compare_answer(c, bolt, step["expect"], answer, is_asked)
    if is_asked and answer:
        _compare_effect(c, bolt, step["expect"], message, before, tried)
    durable = bolt.last() != before
    unchanged = bolt.staged.seen(ELSEWHERE) == seen
    c.ours(durable != unchanged, "what is applied and the commit number change together")
    c.ours(durable <= (action is CheckpointAction.COMMIT), "only COMMIT changes anything")


def _source_of(step: Mapping[str, Any]) -> str | None:
    return next((str(step[k]) for k in ("source", "task", "input", "from") if k in step), None)


def _compare_answer(
    c: Comparison, bolt: Bolt, expected: Mapping[str, Any], answer: bool, is_asked: bool
) -> None:
    c.field("answer", "ack(cp)" in expected["events"], answer, is_done=answer)
    c.field("is_fail", "fail(cp)" in expected["events"], not answer, is_done=answer)
    if not is_asked:
        c.field("asked", any(call in _calls(expected) for call in INJECTED), False)
    c.field("waiting", expected["waiting"], 0 if is_asked else len(bolt.drive.votes))


def _compare_effect(
    c: Comparison,
    bolt: Bolt,
    expected: Mapping[str, Any],
    message: Message,
    before: int,
    tried: int,
) -> None:
    calls, wanted, last = _calls(expected), message.commit_number, bolt.last()
    match message.action:
        case CheckpointAction.PREPARE:
            is_called = "state.prepareCommit" in calls
            c.field("tried", is_called, bolt.tried() > tried, is_done=True)
            return
        case CheckpointAction.COMMIT:
            is_called = "state.commit" in calls
            c.field("committed", is_called, last >= wanted if is_called else last != before)
        case CheckpointAction.ROLLBACK:
            c.field("rolled_back", "state.rollback" in calls, last == wanted - 1)
    if wanted == bolt.voted:
        bolt.voted = None
    told = expected["last_txid"]
    if told is not None and told + bolt.shift != bolt.voted:
        c.field("last_txid", told, last - bolt.shift)


def _calls(expected: Mapping[str, Any]) -> set[str]:
    return {event.partition("(")[0] for event in expected["events"]}


RULES = (
    Rule(
        "INITSTATE|PREPARE|COMMIT|ROLLBACK",
        "Storm E1 is a defect: a barrier that counts messages takes left-over and repeated ones "
        "for others; here it is a set of names, made anew for each round",
        lambda facts: facts["miscounts"],
    ),
    Rule(
        "INITSTATE|PREPARE|COMMIT|ROLLBACK",
        "Storm E1: what is left over at the barrier is counted on; here each round begins at none",
        lambda facts: facts["expected"] == facts["counted"],
        field="waiting",
        carries=False,
    ),
    Rule(
        "PREPARE|COMMIT|ROLLBACK",
        "a participant takes the next commit number only: a gap is refused",
        lambda facts: facts["place"] > 1,
    ),
    Rule(
        "INITSTATE",
        "a participant is where the driver believes it is, or recovery ends with an error",
        lambda facts: facts["place"] != 0,
    ),
    Rule("ROLLBACK", "what was committed is never rolled back", lambda facts: facts["place"] == 0),
    Rule(
        "PREPARE",
        "Storm E4 is a defect: a PREPARE before INITSTATE is refused, and counts all the same, so "
        "that the INITSTATE after it is passed over; here what is refused leaves nothing",
        lambda facts: facts["passed_over"] and facts["found"],
        field="answer",
    ),
    Rule(
        "PREPARE|COMMIT",
        "of a commit number that was applied the answer is: done",
        lambda facts: facts["place"] <= 0 and facts["is_done"],
        field="tried|answer|is_fail",
    ),
    Rule(
        "PREPARE",
        "a rollback makes the driver's epoch known to a participant, which is all that INITSTATE "
        "does here",
        lambda facts: facts["uninitialised"],
    ),
)

ADAPTER = Adapter(
    component=r"StatefulBolt|KeyValueState",
    each={"vectors": play, "key_value_state_vectors": key_value_state.play},
    rules=(*RULES, *key_value_state.RULES),
)
