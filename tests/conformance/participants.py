"""StatefulBoltExecutor and KeyValueState: a database that only takes part in a topology.

A checkpoint tuple is a driver's message to the participant: PREPARE, COMMIT, ROLLBACK and
INITSTATE with a commit number, all of one epoch. Each plan is one processed txid. A trigger on
the target table counts the applies that were tried, also those that were rolled back. With
several inputs the barrier is the driver's set of votes, by the names of the sources.

Compared: the answer (ack or fail of the checkpoint tuple), whether the commit was tried (PREPARE),
is there (COMMIT), is not there (ROLLBACK), the last txid except after a PREPARE, of which nothing
is kept, and how many sources wait. Of a key-value state: its view (what is committed, and on top
of it what the vector has put since), what a delete returned, and errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from psycopg2.sql import SQL, Identifier, Placeholder

from reliability import State, Upsert
from reliability.core.attempt import Grant
from reliability.core.checkpoint import (
    CheckpointAction,
    CheckpointState,
    Drive,
    Message,
    Phase,
)
from reliability.core.errors import ReliabilityError, UnexpectedAnswer
from reliability.core.plan import Plan, PlannedCommit
from reliability.ledger.door import Door
from reliability.transaction.commit import _refuse
from reliability.transaction.plan import Refused
from tests.conformance.bench import ELSEWHERE, Bench
from tests.conformance.checkpointing import (
    ACTIONS,
    checkpoint_of,
    participant,
    run_in,
    shift_for,
    two_databases,
)
from tests.conformance.comparison import Comparison, Rule, UnknownOp
from tests.conformance.runner import Adapter
from tests.conformance.vectors import Vector
from tests.fix_postgres import rows
from tests.staged import Staged

EPOCH = 1
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


class Member:
    """A participant, and what is asked of it."""

    def __init__(
        self, bench: Bench, commit_number: int, shift: int, kind: type[Staged] = Staged
    ) -> None:
        self.shift = shift
        self.staged = two_databases(bench, commit_number=commit_number, kind=kind)
        self.participant = participant(self.staged)
        self.next_txid = 1
        self.grant: Grant | None = None

    def message(self, action: CheckpointAction, txid: int) -> Message:
        return Message(action=action, commit_number=txid + self.shift, size=1, epoch=EPOCH)

    def last(self) -> int:
        """Return the last commit number that it has applied."""
        return int(checkpoint_of(self.staged, ELSEWHERE)["commit_number"])

    def plan(self, commit_number: int) -> Plan:
        """Return the plan for a commit number: the next txid that has not committed."""
        if self.grant is None:
            return ()
        attempt = self.grant.attempt
        return (
            PlannedCommit(
                commit_number=commit_number,
                txid=attempt.txid,
                attempt_id=attempt.attempt_id,
                nonce=self.grant.nonce,
                replaced_attempt=None,
            ),
        )

    def ask(self, message: Message, patience: int = 1) -> bool:
        """Ask it; say whether it did, or answers that it has it."""
        before = self.last()
        try:
            self.participant.carry_out(message, self.plan(message.commit_number), patience)
        except ReliabilityError:
            return False
        if self.last() > before:
            self.next_txid += 1
            self.grant = None
        return True


# --- a stateful bolt -----------------------------------------------------------------------------


class Bolt(Member):
    """The participant of a vector of checkpoint tuples."""

    def __init__(self, bench: Bench, vector: Vector) -> None:
        steps = [step for step in vector.steps if step["op"] == "checkpoint"]
        txids = [step["txid"] - (step["action"] != "INITSTATE") for step in steps] or [0]
        shift = shift_for(txids + [step["txid"] for step in steps])
        super().__init__(bench, txids[0] + shift, shift)
        self.sources = vector.data.get("checkpoint_input_tasks", 1)
        at_rest = CheckpointState(Phase.COMMITTED, 0)
        names = frozenset(str(number) for number in range(self.sources))
        self.drive = Drive(state=at_rest, epoch=EPOCH, participants=names)
        self.left_over: set[Message] = set()
        self.initialised = False
        self.injected: list[tuple[CheckpointAction, int | None]] = []
        self.table = f"{self.staged.topology}_{ELSEWHERE}"
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
        door = self.staged.participants.door_of(ELSEWHERE)
        [(tried,)] = rows(door, f"SELECT last_value * is_called::int FROM {self.table}_tried")
        return int(tried)

    def vote(self, message: Message, source: str | None) -> bool:
        """Let a source speak at the barrier; say whether all of them have."""
        if message != self.drive.asked:
            if self.drive.asked is not None and self.drive.lacks:
                self.left_over.add(self.drive.asked)
            self.drive = replace(self.drive, asked=message, votes=frozenset())
        # A vector that does not say who speaks is taken to speak of one after the other.
        self.drive = self.drive.ack(message, source or str(len(self.drive.votes)))
        if self.drive.lacks:
            return False
        self.drive = replace(self.drive, asked=None, votes=frozenset())
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
        holder = Door(self.staged.participants.door_of(ELSEWHERE).dsn)
        try:
            with holder.transaction() as tx:
                tx.one("lock_topology", topology=self.staged.topology)
                return self.ask(message)
        finally:
            holder.close()


def play_bolt(vector: Vector, c: Comparison, bench: Bench) -> None:
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
    source = next((str(step[k]) for k in ("source", "task", "input", "from") if k in step), None)
    epoch_is_known = checkpoint_of(bolt.staged, ELSEWHERE)["epoch"] == EPOCH
    c.at(
        number,
        step["action"],
        place=message.commit_number - before,
        uninitialised=epoch_is_known and not bolt.initialised,
        left_over=message in bolt.left_over,
        repeated=message == bolt.drive.asked and source in bolt.drive.votes,
    )
    if bolt.vote(message, source):
        bolt.initialised |= action is CheckpointAction.INIT_STATE
        answer = bolt.carry_out(message)
    else:
        answer = True  # it is counted, and nobody is asked yet
    _compare_checkpoint(c, bolt, step, message, answer, before, tried)
    durable = bolt.last() != before
    unchanged = bolt.staged.seen(ELSEWHERE) == seen
    c.ours(durable != unchanged, "what is applied and the commit number change together")
    c.ours(durable <= (action is CheckpointAction.COMMIT), "only COMMIT changes anything")


def _compare_checkpoint(
    c: Comparison,
    bolt: Bolt,
    step: Mapping[str, Any],
    message: Message,
    answer: bool,
    before: int,
    tried: int,
) -> None:
    expected, wanted, last = step["expect"], message.commit_number, bolt.last()
    calls = {re.split(r"[ (]", event)[0]: True for event in expected["events"]}
    c.field("answer", "ack(cp)" in expected["events"], answer)
    c.field("is_fail", "fail(cp)" in expected["events"], not answer)
    if message.action is CheckpointAction.PREPARE and answer:
        c.field("tried", "state.prepareCommit" in calls, bolt.tried() > tried)
    if message.action is CheckpointAction.COMMIT and answer:
        is_called = "state.commit" in calls
        c.field("committed", is_called, last >= wanted if is_called else last != before)
    if message.action is CheckpointAction.ROLLBACK and answer:
        c.field("rolled_back", "state.rollback" in calls, last == wanted - 1)
    if message.action is not CheckpointAction.PREPARE and expected["last_txid"] is not None:
        c.field("last_txid", expected["last_txid"], last - bolt.shift)
    waiting = len(bolt.drive.votes) if bolt.drive.asked is not None else 0
    c.field("waiting", expected["waiting"], waiting)


# --- a key-value state ---------------------------------------------------------------------------


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

    def put(self, grant: Grant, values: Mapping[str, str], at: int) -> None:
        """Stage values in the database elsewhere, as the attempt's whole contribution."""
        for database, tables in self.tables().items():
            columns = tables.staged_columns()
            insert = SQL("INSERT INTO {} ({}) VALUES ({})").format(
                tables.contribution,
                SQL(", ").join(map(Identifier, columns)),
                SQL(", ").join(map(Placeholder, columns)),
            )
            own = values if database == ELSEWHERE else {}
            place = {"_txid": grant.attempt.txid, "_attempt_id": grant.attempt.attempt_id}
            with self.participants.door_of(database).transaction() as tx:
                for key, value in own.items():
                    row = {**dict.fromkeys(columns, 1), **place, "k": key, "v": value}
                    tx.run(insert, **{**row, "_by_1": at})
                self._seal(tx, grant, len(own))


class KeyValueState(Member):
    """The participant of a vector of puts and commits."""

    def __init__(self, bench: Bench, vector: Vector) -> None:
        txids = [step["txid"] for step in vector.steps if step.get("txid") is not None] or [1]
        shift = shift_for(txid - 1 for txid in txids)
        super().__init__(bench, txids[0] - 1 + shift, shift, KeyValues)
        self.put: dict[str, str] = {}
        self.prepared: dict[str, str] = {}
        self.attempts = 0
        self.was_rolled_back = False
        self.leaked: set[str] = set()
        self.ask(self.message(CheckpointAction.INIT_STATE, self.last() - shift))

    def committed(self) -> dict[str, str]:
        table = f"{self.staged.topology}_{ELSEWHERE}"
        return dict(rows(self.staged.participants.door_of(ELSEWHERE), f"SELECT k, v FROM {table}"))

    def view(self) -> dict[str, str]:
        return {**self.committed(), **self.prepared, **self.put}

    def prepare(self, txid: int) -> bool:
        """Have an attempt with all that was put since the last commit, and a vote on it."""
        assert isinstance(self.staged, KeyValues)
        self._drop()
        self.prepared |= self.put
        self.put = {}
        self.grant = self.staged.grant(self.next_txid, self.attempts)
        self.attempts += 1
        self.staged.put(self.grant, self.prepared, at=self.next_txid)
        return self.ask(self.message(CheckpointAction.PREPARE, txid))

    def commit(self, txid: int) -> bool:
        """Commit the attempt that was prepared, or one that was not."""
        if self.grant is None and txid + self.shift > self.last():
            self.grant = self.staged.grant(self.next_txid, self.attempts)
            self.attempts += 1
        if not self.ask(self.message(CheckpointAction.COMMIT, txid)):
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
            _refuse(self.staged.door, self.staged.topology, Refused(plan=self.plan(1), error=error))
        self.grant = None


DELETE = "a state has no delete by key: a key goes when its last row goes"
UNNUMBERED = "Storm K1: a commit without a txid has no use; every commit has its number here"


def play_key_values(vector: Vector, c: Comparison, bench: Bench) -> None:
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
        "INITSTATE|PREPARE|COMMIT|ROLLBACK",
        "*",
        "Storm E1 is a defect: a barrier that counts messages takes left-over and repeated ones "
        "for others; here it is a set of names, made anew for each round",
        lambda facts: facts["left_over"] or facts["repeated"],
    ),
    Rule(
        "PREPARE|COMMIT|ROLLBACK|prepare",
        "*",
        "a participant takes the next commit number only: a gap is refused",
        lambda facts: facts["place"] > 1,
    ),
    Rule(
        "INITSTATE",
        "*",
        "a participant is where the driver believes it is, or recovery ends with an error",
        lambda facts: facts["place"] != 0,
    ),
    Rule(
        "ROLLBACK",
        "*",
        "what was committed is never rolled back",
        lambda facts: facts["place"] == 0,
    ),
    Rule(
        "PREPARE|prepare|commit",
        "tried|error|view",
        "of a commit number that was applied the answer is: done",
        lambda facts: facts["place"] <= 0,
    ),
    Rule(
        "rollback",
        "view",
        "Storm K3 is a defect: what is put after a rollback leaks into what was committed; here a "
        "rollback leaves nothing behind to leak into",
        lambda facts: facts["leaked"],
    ),
    Rule(
        "PREPARE",
        "*",
        "a rollback makes the driver's epoch known to a participant, which is all that INITSTATE "
        "does here",
        lambda facts: facts["uninitialised"],
    ),
)

ADAPTER = Adapter(
    component=r"StatefulBolt|KeyValueState",
    each={"vectors": play_bolt, "key_value_state_vectors": play_key_values},
    rules=RULES,
)
