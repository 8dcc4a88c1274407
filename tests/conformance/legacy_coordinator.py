"""TransactionalSpoutCoordinator, the coordinator before Trident's: a transactional spout.

The ops are those of coordinator.py. Metadata is made once for a txid, and is its BatchMeta here,
frozen when a run emits it: before each look at the window a run emits as many txids as the window
has room for, each with the metadata that `set_meta` said last. The source is ready if there is
any.

Attempt ids are random in the original: an attempt is called by its first emission. An emission
stands for the attempt that begins with it here, for the one that is still live if none had to
begin, or for the next one if the source was not ready.

Compared: what is emitted, in order; of every emission the metadata that its attempt reads; the
txid that had committed when an attempt begins; curr_tx; which txids are active and how; how often
metadata was made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from reliability.core.errors import SourceNotReady
from reliability.core.fold import Fold
from reliability.core.spout import AllocatedItems, Interval, SourceItem
from reliability.spouts.memory import MemorySlice
from reliability.transaction.process.attempt_messages import read_batch_meta
from reliability.transaction.topology.lifecycle import declare
from tests.conformance.bench import Bench
from tests.conformance.comparison import Comparison, Rule, UnknownOp
from tests.conformance.counting import (
    FAILS,
    CountingWindow,
    check_history,
    compare_by_txid,
    compare_emitted,
    sent,
)
from tests.conformance.vectors import Vector
from tests.conformance.window import Attempt, Emitted
from tests.support.without_spark import WithoutSpark


@dataclass
class Source(WithoutSpark):
    """A source that has rows for as many txids as there is room for, if it has metadata."""

    meta: int | None = None
    room: int = 0
    planned: int = 0
    made: int = 0

    def is_ready(self, txid: int, interval: Interval | None) -> bool:
        return self.meta is not None

    def plan(self, interval: Interval | None, allocated: AllocatedItems) -> list[SourceItem]:
        assert self.meta is not None
        first, self.planned = self.planned, self.planned + self.room
        return [
            MemorySlice(partition=self.meta, offset=offset, rows=1)
            for offset in range(first, self.planned)
        ]

    def count(self, items: Sequence[SourceItem]) -> Fold:
        self.made += 1
        return super().count(items)


@dataclass(frozen=True)
class Emission:
    """A `$batch` of the vector: the metadata is `meta`."""

    number: int
    txid: int
    meta: int


class Played(CountingWindow):
    """The vector's topology, and which attempt each emission of the vector stands for."""

    def __init__(self, bench: Bench, vector: Vector) -> None:
        self.source = Source()
        super().__init__(bench, self.source, vector.data["max_spout_pending"])
        declare(self.connection, self.topology)
        self.txids: dict[int, int] = {}
        self.newest: dict[int, Emission] = {}
        self.attempts: dict[int, Attempt] = {}
        self.theirs: dict[str, str] = {}
        self.stayed: set[int] = set()
        self.waiting: set[int] = set()
        self.failed = 0

    def sync(self) -> Emitted:
        """Let a run emit what the window has room for, then the window moves."""
        self.source.room = self.curr_txid() + self.pending - self.next_txid()
        if self.source.room > 0:
            with suppress(SourceNotReady):
                self.emit_more()
        return super().sync()

    def ack(self, c: Comparison, emission: int) -> Emitted:
        txid, attempt = self._about(emission)
        status = self.status(attempt) if attempt else ""
        wanted = self.theirs.get(str(txid))
        if attempt is None or status != wanted or wanted == "PROCESSED":
            self.late_ack(c, attempt)
        elif wanted == "COMMITTING":
            self.ack_commit(c)
        else:
            self.ack_processing(attempt)
        return self.sync()

    def fail(self, c: Comparison, emission: int) -> Emitted:
        self.failed, attempt = self._about(emission)
        self.fail_attempt(c, attempt)
        return self.sync()

    def _about(self, emission: int) -> tuple[int, Attempt | None]:
        """Return the txid, and the attempt, None if it is none of the vector any more."""
        txid = self.txids[emission]
        is_newest = self.newest[txid].number == emission
        attempt = self.attempts.get(emission)
        is_another = attempt != self.attempts.get(self.newest[txid].number)
        return txid, attempt if is_newest or is_another else None

    def facts_of_op(self, emission: int | None) -> Mapping[str, bool]:
        """Say whether a message is of no attempt of now, or of one that waits for its turn."""
        if emission is None:
            return {}
        txid, attempt = self._about(emission)
        is_live = str(txid) in self.theirs
        status = self.status(attempt) if attempt else ""
        return {
            "is_stale": is_live and self.newest[txid].number != emission,
            "is_sealed": is_live and status == "PROCESSED",
            "is_of_waiting": txid in self.waiting,
        }

    def hear(self, c: Comparison, told: Sequence[Mapping[str, Any]], emitted: Emitted) -> None:
        """Find the attempt of each of the vector's newest emissions, and compare what it reads."""
        for one in told:
            if one["stream"] == "$batch":
                emission = Emission(one["emission"], one["tx"], one["meta"])
                self.txids[emission.number] = emission.txid
                self.newest[emission.txid] = emission
                self.stayed.discard(emission.txid)
        begun = {one[1] for one in emitted if one[0] == "$batch"}
        were_waiting, self.waiting = self.waiting, set()
        for txid, emission in self.newest.items():
            if emission.number in self.attempts:
                continue
            attempt = self.live(txid)
            if attempt is None:
                if self.source.meta is None:
                    self.waiting.add(txid)
                continue
            if txid in were_waiting and txid in begun:
                self.waiting.add(txid)
            self.attempts[emission.number] = attempt
            if txid not in begun and 0 < self.failed < txid:
                self.stayed.add(txid)
            c.field("meta", emission.meta, self.meta_of(attempt), f"meta of {txid}")

    def live(self, txid: int) -> Attempt | None:
        """Return the live attempt of a txid."""
        active = self.active().get(str(txid))
        return (txid, active[0]) if active else None

    def meta_of(self, attempt: Attempt) -> int:
        """Return what the attempt reads."""
        [item] = read_batch_meta(self.connection, self.grants[attempt]).items
        assert isinstance(item, MemorySlice)
        return item.partition

    def facts_of(self, txid: int) -> Mapping[str, Any]:
        return {"stays": txid in self.stayed, "waits": txid in self.waiting}


def play(vector: Vector, c: Comparison, bench: Bench) -> None:
    played = Played(bench, vector)
    for number, step in enumerate(vector.steps):
        c.at(number, step["op"], **played.facts_of_op(step.get("emission")))
        played.failed = 0
        before = played.look()
        emitted = _do(number, step, played, c)
        if "expect" in step:
            _compare(c, played, step["expect"], emitted)
        check_history(c, before, played.look())


def _do(number: int, step: Mapping[str, Any], played: Played, c: Comparison) -> Emitted:
    match step["op"]:
        case "set_meta":
            played.source.meta = step["meta"]
        case "nextTuple":
            return played.sync()
        case "ack":
            return played.ack(c, step["emission"])
        case "fail":
            return played.fail(c, step["emission"])
        case unknown:
            raise UnknownOp(f"op {number}: {unknown} is unknown")
    return []


def _compare(c: Comparison, played: Played, expected: Mapping[str, Any], emitted: Emitted) -> None:
    told, curr = expected["emit"], played.curr_txid()
    played.hear(c, told, emitted)
    found = sent(emitted)
    compare_emitted(c, [(one["stream"], one["tx"]) for one in told], found, played.facts_of)
    for one in told:
        if one["stream"] == "$batch" and (one["stream"], one["tx"]) in found:
            c.field("committed_txid", one["committed_txid"], curr - 1 or None)
    c.field("curr_tx", expected["curr_tx"], curr)
    played.theirs = dict(re.findall(r"(\d+)=\d+ <(\w+)>", expected["active"]))
    active = {txid: status for txid, (_, status) in played.active().items()}
    compare_by_txid(c, "active", played.theirs, active, played.facts_of)
    c.field("initialize_calls", expected["initialize_calls_so_far"], played.source.made)


NOT_READY = "Storm T3 does not ask isReady for a replay; Trident does (M6), and so do we"

RULES = (
    *FAILS,
    Rule("ack", NOT_READY, lambda facts: facts["is_of_waiting"], spreads=True),
    Rule(
        "nextTuple|ack|fail",
        "Storm M8 takes later txids along; here those of a transactional spout stay valid",
        lambda facts: facts["stays"],
        field="emit|active",
        carries=False,
    ),
    Rule(
        "nextTuple|ack|fail",
        NOT_READY,
        lambda facts: facts["waits"],
        field="emit|active",
        carries=False,
    ),
)
