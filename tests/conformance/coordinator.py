"""MasterBatchCoordinator: one topology with an opaque spout, whose failures take later txids along.

`nextTuple` asks next_action for every txid of the window, and for one beyond it, and begins
what may begin; `$batch` is a grant. `ack` of a PROCESSING attempt stages a row, ends its step and
seals it; `$commit` is next_action's Commit: what Storm calls COMMITTING is PROCESSED here, at
curr_txid. `ack` of such an attempt is one physical commit, and `$success` that it went through;
`fail` of it is a constraint that the commit breaks. `fail` of a PROCESSING attempt is
end_attempt, `(de)activate` is (pause) resume, `restart` is a new session and new objects: tasks
come again under their names. A message about another attempt than the live one is sent as well.

Compared: what is emitted, in order; curr_tx, which attempts are active and how, the attempt ids
of what has not committed; the stored curr_tx and, of txids that have not committed, the stored
attempts (what is stored of others lags behind in the original).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from reliability import Count, MemorySpout, State, Topology
from reliability.core.attempt import Grant, TransactionAttempt
from reliability.core.errors import AttemptFenced, ProcessFunctionFailed, ReliabilityError
from reliability.core.graph import THE_STEP
from reliability.core.spout import Interval
from reliability.states.tables import StateTables
from reliability.transaction.attempt import declare_partitions, new_write_id, read_batch_meta
from reliability.transaction.plan import Changed
from tests.conformance.bench import Bench, never, stage, staged_row, start
from tests.conformance.comparison import Comparison, Failed, Rule, UnknownOp
from tests.conformance.runner import Adapter
from tests.conformance.vectors import Vector
from tests.conformance.window import Emitted, Window

DIALECTS = {
    "trident": None,
    "legacy": "it is told of the legacy coordinator, which does not ask isReady for a replay and "
    "draws attempt ids at random; Trident's is what counts",
}
FAILED = ProcessFunctionFailed("a message of the vector")


@dataclass(frozen=True)
class Source(MemorySpout):
    """A memory spout that is ready for some txids only."""

    ready: dict[str, float] = field(default_factory=lambda: {"up_to": float("inf")})

    def is_ready(self, txid: int, interval: Interval | None) -> bool:
        return txid <= self.ready["up_to"]


class Played(Window):
    """The vector's topology, and which attempts the present processes have in hand."""

    def __init__(self, bench: Bench, vector: Vector) -> None:
        name, pending = bench.name(), vector.data["max_spout_pending"]
        txids = len(vector.steps) + pending + 2
        self.source = Source({"n": "bigint"}, [list(range(txids))], take=1, opaque=True)
        state = State("n", key={"k": "bigint"}, values={"n": Count()}, table=f"{name}_n")
        self.tables = StateTables(name, state)
        topology = Topology(
            name,
            spout=self.source,
            process=never,
            states=[state],
            max_spout_pending=pending,
        )
        super().__init__(bench, topology)
        self.resent = vector.quirk is not None
        self.acked: set[tuple[int, int]] = set()
        self.pipeline.emit(None)

    def begun(self, grant: Grant) -> None:
        start(grant, self.door)

    # --- the ops ---------------------------------------------------------------------------------

    def ack(self, c: Comparison, attempt: tuple[int, int]) -> Emitted:
        status, again = self.status(attempt), self.resent and attempt in self.acked
        self.acked.add(attempt)
        if not status or again or status == "PROCESSED":
            self._late_ack(c, attempt)
            return self.sync() if status else []
        if status == "COMMITTING":
            outcome = self.commit_one()
            went_through = isinstance(outcome, Changed) and len(outcome.plan) == 1
            c.ours(went_through, "the commit goes through")
            return [["$success", *attempt], *self.sync()]
        self._process(self.grants[attempt])
        return self.sync()

    def _process(self, grant: Grant) -> None:
        emitted = read_batch_meta(self.door, grant).emitted
        row = staged_row(self.tables, grant, x=emitted.xor, n=emitted.count)
        stage(self.door, self.tables, grant, 0, [row], write_id=new_write_id())
        declare_partitions(self.door, grant, self.tables.state.name, 1)
        self.pipeline.seal(grant)

    def _late_ack(self, c: Comparison, attempt: tuple[int, int]) -> None:
        before = self.look()
        grant = self._grant(attempt)
        row = staged_row(self.tables, grant, x=1, n=1)
        fenced = False
        try:
            stage(self.door, self.tables, grant, 0, [row], write_id=new_write_id())
        except AttemptFenced:
            fenced = True
        with suppress(ReliabilityError):
            self.pipeline.runner.seal(grant, THE_STEP)
        c.ours(fenced and self.look() == before, "a late or second ack changes nothing")

    def fail(self, c: Comparison, attempt: tuple[int, int]) -> Emitted:
        status, before = self.status(attempt), self.look()
        if status == "COMMITTING":
            self.refuse_one(self.tables.target_name)
            return self.sync()
        ended = self.pipeline.runner.end_attempt(self._grant(attempt), FAILED)
        if status != "PROCESSING":
            c.ours(not ended and self.look() == before, "a late fail changes nothing")
        return self.sync() if status else []

    def _grant(self, attempt: tuple[int, int]) -> Grant:
        nobody = Grant(
            topology=self.name, attempt=TransactionAttempt(*attempt), nonce=str(uuid.uuid4())
        )
        return self.grants.get(attempt, nobody)


def play(vector: Vector, c: Comparison, bench: Bench) -> None:
    dialect = vector.data.get("dialect", "trident")
    if dialect not in DIALECTS:
        raise Failed(f"unknown dialect {dialect}")
    c.dialect = DIALECTS[dialect]
    played = Played(bench, vector)
    _compare(c, played, vector.data.get("after_open", {}), [])
    was_sealed = was_paused = paused = False
    for number, step in enumerate(vector.steps):
        op, attempt = step["op"], (step.get("tx", 0), step.get("attempt", 0))
        live = played.active().get(str(attempt[0]))
        is_stale = live is not None and live[0] != attempt[1]
        is_sealed = live is not None and not is_stale and live[1] == "PROCESSED"
        if op == "restart":
            was_paused |= paused
            was_sealed |= any(status != "PROCESSING" for _, status in played.active().values())
        paused = {"deactivate": True, "activate": False}.get(op, paused)
        c.at(
            number,
            op,
            is_stale=is_stale,
            is_sealed=is_sealed,
            was_sealed=was_sealed,
            was_paused=was_paused and paused,
            forgets=_forgets(step.get("expect", {}), played),
        )
        before = played.look()
        emitted = _do(number, step, attempt, played, c)
        _compare(c, played, step.get("expect", {}), emitted)
        _check(c, before, played.look())


def _do(
    number: int, step: Mapping[str, Any], attempt: tuple[int, int], played: Played, c: Comparison
) -> Emitted:
    match step["op"]:
        case "nextTuple":
            return played.sync()
        case "ack":
            return played.ack(c, attempt)
        case "fail":
            return played.fail(c, attempt)
        case "set_ready_up_to":
            played.source.ready["up_to"] = step["tx"]
        case "deactivate":
            played.pipeline.runner.pause("the vector says so")
        case "activate":
            played.pipeline.runner.resume()
        case "restart":
            played.restart(played.topology)
        case unknown:
            raise UnknownOp(f"op {number}: {unknown} is unknown")
    return []


def _forgets(expected: Mapping[str, Any], played: Played) -> bool:
    """Say whether the original has forgotten an attempt id that it had given."""
    ids = expected.get("attempt_ids")
    return ids is not None and any(
        ids.get(txid, -1) < attempt for txid, attempt in played.attempt_ids().items()
    )


def _compare(c: Comparison, played: Played, expected: Mapping[str, Any], emitted: Emitted) -> None:
    curr, ids = played.curr_txid(), played.attempt_ids()
    found = {
        "emit": emitted,
        "curr_tx": curr,
        "active": played.active(),
        "attempt_ids": ids,
        "stored_currtx": None if curr == 1 else curr,
        "stored_attempts": ids if played.look() else None,
    }
    for name, value in found.items():
        if name in expected:
            wanted = expected[name]
            if name == "stored_attempts" and wanted is not None:
                wanted = {txid: attempt for txid, attempt in wanted.items() if int(txid) >= curr}
            c.field(name, wanted, value)


def _check(c: Comparison, before: Mapping[Any, Any], after: Mapping[Any, Any]) -> None:
    """State what holds in any history of ours."""
    txids = {txid for txid, _ in after}
    for txid in txids:
        ids = [attempt_id for known, attempt_id in after if known == txid]
        c.ours(ids == list(range(len(ids))), "attempt ids rise by one and are never used again")
    c.ours(
        all(after[key]["nonce"] == row["nonce"] for key, row in before.items()),
        "an attempt stays what it was granted as",
    )
    committed = [txid for (txid, _), row in after.items() if row["status"] == "COMMITTED"]
    c.ours(committed == list(range(1, len(committed) + 1)), "txids commit in their order, once")


RULES = (
    Rule(
        "fail",
        "*",
        "Storm M8 is a defect: a fail removes whatever attempt is active and compares then; here a "
        "fail of another attempt changes nothing",
        lambda facts: facts["is_stale"],
    ),
    Rule(
        "fail",
        "*",
        "a sealed attempt is failed by its own commit alone (A8): it lacks nothing",
        lambda facts: facts["is_sealed"],
    ),
    Rule(
        "restart",
        "active",
        "a restart forgets nothing here: live attempts are rows, and fall when their tasks come "
        "again",
        lambda facts: facts["expected"] == {},
        carries=False,
    ),
    Rule(
        "restart",
        "attempt_ids|stored_attempts",
        "Storm M3 is a defect: a restart forgets attempt ids; here they are rows",
        lambda facts: facts["forgets"],
    ),
    Rule(
        "nextTuple|ack|fail|activate",
        "*",
        "what was sealed before a restart stays sealed, and is not processed again",
        lambda facts: facts["was_sealed"],
    ),
    Rule(
        "nextTuple|ack|fail",
        "*",
        "a pause is a row, and outlives a restart",
        lambda facts: facts["was_paused"],
    ),
)

ADAPTER = Adapter(component=r"Coordinator\b", each={"vectors": play}, rules=RULES)
