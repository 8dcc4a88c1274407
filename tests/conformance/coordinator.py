"""MasterBatchCoordinator: one topology with an opaque spout, whose failures take later txids along.

`nextTuple` asks next_action for every txid of the window, and for one beyond it, and begins
what may begin; `$batch` is a grant. `ack` of a PROCESSING attempt stages a row, ends its step and
seals it; `$commit` is next_action's Commit: what Storm calls COMMITTING is PROCESSED here, at
curr_txid. `ack` of such an attempt is one physical commit, and `$success` that it went through;
`fail` of it is a constraint that the commit breaks. `fail` of a PROCESSING attempt is
end_attempt, `(de)activate` is (pause) resume, `restart` is a new session and new objects: tasks
come again under their names. A message about another attempt than the live one is sent as well.
What is stored before the first op is a past that is lived through: attempts begin and fail, txids
commit, until the ledger has what is stored; then all leases run out. A vector's attempt is the one
that begins here with its `$batch`, under whatever id.

Compared, txid by txid: what is emitted, in order, which attempts are active and how, and apart from
that their ids; the ids of what has not committed; curr_tx; the stored curr_tx and, of txids that
have not committed, the stored attempts (what is stored of others lags behind in the original).

Vectors of the dialect `legacy`: see legacy_coordinator.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reliability import MemorySpout
from reliability.core.spout import Interval
from tests.conformance import legacy_coordinator
from tests.conformance.bench import Bench
from tests.conformance.comparison import Comparison, Failed, Rule, UnknownOp
from tests.conformance.counting import (
    FAILED,
    FAILS,
    CountingWindow,
    check_history,
    compare_attempt_ids,
    compare_by_txid,
    compare_emitted,
    sent,
)
from tests.conformance.runner import Adapter
from tests.conformance.vectors import Vector
from tests.conformance.window import Attempt, Emitted


@dataclass(frozen=True)
class Source(MemorySpout):
    """A memory spout that is ready for some txids only."""

    ready: dict[str, float] = field(default_factory=lambda: {"up_to": float("inf")})

    def is_ready(self, txid: int, interval: Interval | None) -> bool:
        return txid <= self.ready["up_to"]


class Played(CountingWindow):
    """The vector's topology."""

    def __init__(self, bench: Bench, vector: Vector) -> None:
        pending = vector.data["max_spout_pending"]
        past = vector.data.get("stored_before_open", {})
        stored = {int(txid): attempt for txid, attempt in past.get("currattempts", {}).items()}
        curr = past.get("currtx", 1)
        wanted = max(1, max(stored, default=curr) - curr + 1)
        txids = curr + len(vector.steps) + wanted + (pending or 1) + 1
        self.source = Source({"n": "bigint"}, [list(range(txids))], take=1, opaque=True)
        super().__init__(bench, self.source, wanted if past else pending)
        self.resent = vector.quirk is not None
        self.acked: set[Attempt] = set()
        self.known_as: dict[Attempt, Attempt] = {}
        self.pipeline.emit(None)
        if past:
            self._live_through(curr, stored)
            self.restart(self.topology_of(self.name, pending))
            self.pipeline.emit(None)

    def _live_through(self, curr: int, stored: Mapping[int, int]) -> None:
        """Have these attempts, with what is below curr committed and nothing else live."""
        for txid in sorted({*range(1, curr), *stored}):
            for attempt_id in range(stored.get(txid, 0) + 1):
                if attempt_id:
                    self.pipeline.runner.end_attempt(self.grants[txid, attempt_id - 1], FAILED)
                if self._begin_step(txid) != ["$batch", txid, attempt_id]:
                    raise Failed(f"attempt {txid}:{attempt_id} does not begin")
            if txid < curr:
                self.ack_processing((txid, stored.get(txid, 0)))
                self.commit_one()
        self.bench.run(
            "UPDATE reliability.attempt SET lease_until = clock_timestamp()"
            " WHERE topology = %(topology)s AND status = 'PROCESSING'",
            topology=self.name,
        )
        self.pipeline.runner.sweep()

    def hear(self, told: Emitted, emitted: Emitted) -> None:
        """Keep which attempt began here with a `$batch` of the vector."""
        begun = {txid: attempt_id for stream, txid, attempt_id in emitted if stream == "$batch"}
        for stream, txid, attempt_id in told:
            if stream == "$batch" and txid in begun:
                self.known_as[txid, attempt_id] = (txid, begun[txid])

    def facts_of(self, txid: int) -> Mapping[str, Any]:
        """Say whether the txid's attempt was begun by processes that are no more."""
        return {"is_left": self._newest(txid) not in self.in_hand}

    # --- the ops ---------------------------------------------------------------------------------

    def ack(self, c: Comparison, attempt: Attempt) -> Emitted:
        status, again = self.status(attempt), self.resent and attempt in self.acked
        self.acked.add(attempt)
        if not status or again or status == "PROCESSED":
            self.late_ack(c, attempt)
            return self.sync() if status else []
        if status == "COMMITTING":
            self.ack_commit(c)
            return [["$success", *attempt], *self.sync()]
        self.ack_processing(attempt)
        return self.sync()

    def fail(self, c: Comparison, attempt: Attempt) -> Emitted:
        status = self.status(attempt)
        self.fail_attempt(c, attempt)
        return self.sync() if status else []


def play(vector: Vector, c: Comparison, bench: Bench) -> None:
    match vector.data.get("dialect", "trident"):
        case "trident":
            _play(vector, c, bench)
        case "legacy":
            c.rules = legacy_coordinator.RULES
            legacy_coordinator.play(vector, c, bench)
        case dialect:
            raise Failed(f"unknown dialect {dialect}")


def _play(vector: Vector, c: Comparison, bench: Bench) -> None:
    played = Played(bench, vector)
    c.at(0, "open")
    _compare(c, played, vector.data.get("after_open", {}), [])
    was_sealed = was_paused = paused = False
    for number, step in enumerate(vector.steps):
        op, told = step["op"], (step.get("tx", 0), step.get("attempt", 0))
        attempt = played.known_as.get(told, told)
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
            is_of_former=live is not None and not is_stale and attempt not in played.in_hand,
            was_sealed=was_sealed,
            was_paused=was_paused and paused,
        )
        before = played.look()
        emitted = _do(number, step, attempt, played, c)
        _compare(c, played, step.get("expect", {}), emitted)
        check_history(c, before, played.look())


def _do(
    number: int, step: Mapping[str, Any], attempt: Attempt, played: Played, c: Comparison
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
            pending = step.get("max_spout_pending", played.pending)
            played.restart(played.topology_of(played.name, pending))
            played.pipeline.emit(None)  # declares it
        case unknown:
            raise UnknownOp(f"op {number}: {unknown} is unknown")
    return []


def _compare(c: Comparison, played: Played, expected: Mapping[str, Any], emitted: Emitted) -> None:
    curr, ids, active = played.curr_txid(), played.attempt_ids(), played.active()
    if "emit" in expected:
        told = expected["emit"]
        played.hear(told, emitted)
        compare_emitted(c, sent(told), sent(emitted))
        _compare_ids(c, "emitted_attempt", told, emitted)
    if "active" in expected:
        statuses = _statuses(expected["active"]), _statuses(active)
        compare_by_txid(c, "active", *statuses, facts_of=played.facts_of)
        _compare_ids(c, "active_attempt", _ids(expected["active"]), _ids(active))
    if "attempt_ids" in expected:
        compare_attempt_ids(c, "attempt_ids", expected["attempt_ids"], ids)
    for name, number in {"curr_tx": curr, "stored_currtx": None if curr == 1 else curr}.items():
        if name in expected:
            c.field(name, expected[name], number)
    if "stored_attempts" in expected:
        stored = expected["stored_attempts"]
        c.field("any_stored", stored is not None, bool(played.look()))
        lasting = {txid: stored[txid] for txid in stored or {} if int(txid) >= curr}
        compare_attempt_ids(c, "stored_attempts", lasting, ids)


def _compare_ids(c: Comparison, name: str, expected: Emitted, found: Emitted) -> None:
    """Compare the ids of the attempts that both name."""
    both = set(sent(expected)) & set(sent(found))
    wanted, seen = (
        {str(txid): attempt_id for stream, txid, attempt_id in own if (stream, txid) in both}
        for own in (expected, found)
    )
    compare_attempt_ids(c, name, wanted, seen)


def _statuses(active: Mapping[str, Any]) -> dict[str, str]:
    return {txid: status for txid, (_, status) in active.items()}


def _ids(active: Mapping[str, Any]) -> Emitted:
    return [["active", int(txid), attempt_id] for txid, (attempt_id, _) in active.items()]


RULES = (
    *FAILS,
    Rule(
        "ack|fail",
        "a message from before a restart is still about a live attempt, which is a row",
        lambda facts: facts["is_of_former"],
        spreads=True,
    ),
    Rule(
        "restart|nextTuple|ack|fail|activate|deactivate|set_ready_up_to",
        "a restart forgets nothing here: live attempts are rows, and fall when their tasks come "
        "again",
        lambda facts: facts["is_left"] and facts["expected"] is None,
        field="active",
        carries=False,
    ),
    Rule(
        "open|restart",
        "Storm M3 is a defect: a restart forgets attempt ids; here they are rows",
        lambda facts: facts["expected"] is None,
        field="attempt_ids|stored_attempts",
    ),
    Rule(
        "nextTuple|ack|fail|activate",
        "what was sealed before a restart stays sealed, and is not processed again",
        lambda facts: facts["was_sealed"],
    ),
    Rule(
        "nextTuple|ack|fail",
        "a pause is a row, and outlives a restart",
        lambda facts: facts["was_paused"],
    ),
)

ADAPTER = Adapter(component=r"Coordinator\b", each={"vectors": play}, rules=RULES)
