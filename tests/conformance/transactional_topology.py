"""A transactional topology, end to end through Spark: sums and counts by word, and of all rows.

`sequence` says in words what is done: start; ack processing of tx1, then tx2; ack commit of tx1;
fail tx2; add data; restart. A batch is processed as soon as it may begin, and sealed when its
processing is acked. The spout is transactional: a txid that is processed again has the same rows.
Vectors of attempts that execute and finish: see accumulators.py.

Compared: of every txid that commits, its sums, counts and number of rows (`batches`); and what the
words name in brackets: `global [t,n]`, the rows of a batch that was processed, and
`gcommit [t,n]`, those of a batch whose turn to commit has come.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from reliability import Count, MemorySpout, State, Sum, Topology
from reliability.core.attempt import Grant
from reliability.core.errors import AttemptIncomplete
from reliability.core.graph import THE_STEP
from reliability.transaction.plan import Changed
from reliability.transaction.request import Run
from tests.conformance import accumulators
from tests.conformance.bench import Bench
from tests.conformance.comparison import Comparison, Failed, Rule, UnknownOp
from tests.conformance.runner import Adapter
from tests.conformance.vectors import Vector
from tests.conformance.window import Attempt, Emitted, Window

Data = Mapping[str, list[Any]]
STATES = ("sum", "count", "global")


def play(vector: Vector, c: Comparison, bench: Bench) -> None:
    if "sequence" in vector.data:
        play_sequence(vector, c, bench)
    elif "executes" in vector.data:
        accumulators.play(vector, c, bench)
    else:
        raise Failed("it has neither a sequence nor executes")


# --- a sequence of acks and fails ----------------------------------------------------------------


class Processed(Window):
    """The vector's topology, whose batches go through Spark as soon as they begin."""

    def __init__(self, bench: Bench, vector: Vector) -> None:
        self.data = {partition: list(rows) for partition, rows in _initial(vector).items()}
        self.take = vector.data["take_per_partition"]
        self.runs = 0
        self.processed: list[list[int]] = []
        super().__init__(bench, self._topology(bench.name(), vector.data["max_spout_pending"]))

    def _topology(self, name: str, pending: int) -> Topology:
        partitions = [
            [tuple(row) for row in self.data[partition]] for partition in sorted(self.data, key=int)
        ]
        key = {"word": "text"}
        return Topology(
            name,
            spout=MemorySpout({"word": "string", "n": "bigint"}, partitions, take=self.take),
            process=_all_three,
            states=[
                State("sum", key=key, values={"found": Sum("n")}, table=f"{name}_sum"),
                State("count", key=key, values={"found": Count()}, table=f"{name}_count"),
                State("global", values={"found": Count()}, table=f"{name}_global"),
            ],
            max_spout_pending=pending,
        )

    def restart(self, topology: Topology) -> None:
        super().restart(topology)
        self.pipeline.spark = self.bench.spark()

    def add(self, data: Data) -> None:
        """Deploy code with more rows: the same topology, the same attempts in hand."""
        for partition, rows in data.items():
            self.data.setdefault(partition, []).extend(rows)
        in_hand, announced = self.in_hand, self.announced
        self.restart(self._topology(self.name, self.pending))
        self.in_hand, self.announced = in_hand, announced

    def sync(self) -> Emitted:
        """A run asks for what is new, then the window moves."""
        self.runs += 1
        self.pipeline.run = Run(dag_id=self.name, run_id=f"run {self.runs}")
        self.pipeline.emit(None)
        return super().sync()

    def _newest(self, txid: int) -> Attempt:
        runs = self.bench.all(
            "SELECT run_id FROM reliability.transaction"
            " WHERE topology = %(topology)s AND txid = %(txid)s",
            topology=self.name,
            txid=txid,
        )
        self.pipeline.run = Run(dag_id=self.name, run_id=runs[0]["run_id"])
        return super()._newest(txid)

    def begun(self, grant: Grant) -> None:
        self.pipeline.run_step(grant)
        self.processed.append([grant.attempt.txid, self.staged(grant, "global")[""]])

    def staged(self, grant: Grant, state: str) -> dict[str, int]:
        """Return what an attempt has staged for a state: word -> value; "" if there is no key."""
        word = "''" if state == "global" else "word"
        rows = self.bench.all(
            f"SELECT {word} AS word, sum(found)::bigint AS found"
            f" FROM reliability_contribution.{self.name}__{state}"
            " WHERE _txid = %(txid)s AND _attempt_id = %(attempt_id)s GROUP BY 1",
            txid=grant.attempt.txid,
            attempt_id=grant.attempt.attempt_id,
        )
        found = {row["word"]: row["found"] for row in rows}
        return found if word == "word" else {"": 0, **found}

    def live(self, txid: int) -> tuple[Attempt, str] | None:
        """Return the live attempt of a txid, None for one that has no rows and was not emitted."""
        if txid >= self.next_txid():
            return None
        attempt_id, status = self.active()[str(txid)]
        return (txid, attempt_id), status


def _initial(vector: Vector) -> Data:
    [section] = [name for name in vector.data if name.startswith("data_initial")]
    data: Data = vector.data[section]
    return data


def _all_three(batch: Any) -> dict[str, Any]:
    return dict.fromkeys(STATES, batch)


def play_sequence(vector: Vector, c: Comparison, bench: Bench) -> None:
    played = Processed(bench, vector)
    added = [value for name, value in vector.data.items() if name.startswith("data_added")]
    for number, step in enumerate(vector.data["sequence"]):
        played.processed, turns = [], []
        failed = None
        for verb, txid in _clauses(number, step["do"]):
            c.at(number, verb)
            if verb == "add data":
                played.add(added.pop(0))
                continue
            if verb == "restart":
                played.restart(played.topology)
            elif verb == "commit":
                _commit(c, played, txid, vector.data["batches"])
            elif verb == "processing":
                _seal(c, played, txid)
            elif verb == "fail":
                failed = txid
                _fail(played, txid)
            emitted = played.sync()
            turns += [(txid, attempt) for what, txid, attempt in emitted if what == "$commit"]
        gcommit = [[t, played.staged(played.grants[t, a], "global")[""]] for t, a in turns]
        for what, found in (("global", sorted(played.processed)), ("gcommit", gcommit)):
            _compare(c, what, _named(what, step["expect"]), found, failed)


def _compare(
    c: Comparison, what: str, wanted: Any, found: list[list[int]], failed: int | None
) -> None:
    if wanted is None:
        return
    lacks = [pair for pair in wanted if pair not in found]
    extra = [pair for pair in found if pair not in wanted]
    c.field(
        what,
        wanted,
        found,
        later=not extra and failed is not None and all(txid > failed for txid, _ in lacks),
        empty=not extra and all(rows == 0 for _, rows in lacks),
    )


def _clauses(number: int, text: str) -> Iterator[tuple[str, int]]:
    """Read `ack processing of tx3, then tx2`: what is done, and to which txid."""
    verb = ""
    for clause in re.split(r"[;,]", text):
        clause = re.sub(r"\(.*?\)", "", clause).strip()
        if clause == "start":
            yield "start", 0
            continue
        if found := re.match("add data|restart", clause):
            yield found[0], 0
            continue
        match = re.fullmatch(
            r"(?:then )?(?:ack )?(processing|commit|fail)?(?: of)? ?(?:tx)?(\d+)", clause
        )
        if match is None or not (match[1] or verb):
            raise UnknownOp(f"op {number}: {clause!r} is unknown")
        verb = match[1] or verb
        yield verb, int(match[2])


def _named(what: str, text: str) -> list[list[int]] | None:
    """Return the pairs that the words name, None if they name none."""
    if f"no {what}" in text:
        return []
    pairs = re.findall(rf"\b{what}[ =]*((?:\[\d+,\d+\],?)+)", text)
    if not pairs:
        return None
    return sorted([int(t), int(n)] for pair in pairs for t, n in re.findall(r"(\d+),(\d+)", pair))


def _commit(c: Comparison, played: Processed, txid: int, batches: Mapping[str, Any]) -> None:
    live = played.live(txid)
    if live is None:
        c.no_use(EMPTY)
        return
    attempt, status = live
    c.ours(status == "COMMITTING", f"it is the turn of txid {txid}")
    outcome = played.commit_one()
    committed = outcome.committed() if isinstance(outcome, Changed) else []
    c.ours([one.attempt.txid for one in committed] == [txid], "it commits")
    for state, expected in batches.get(str(txid), {}).items():
        if state not in STATES:
            raise Failed(f"the batches have {state}, which is unknown")
        found = played.staged(played.grants[attempt], state)
        c.field(f"{state} of tx{txid}", expected, found[""] if state == "global" else found)


def _seal(c: Comparison, played: Processed, txid: int) -> None:
    live = played.live(txid)
    if live is None:
        c.no_use(EMPTY)
        return
    attempt, status = live
    before = played.look()
    if status == "PROCESSING":
        played.pipeline.seal(played.grants[attempt])
    else:
        played.pipeline.runner.seal(played.grants[attempt], THE_STEP)
        c.ours(played.look() == before, "what is sealed stays as it is")


def _fail(played: Processed, txid: int) -> None:
    live = played.live(txid)
    if live is None:
        raise Failed(f"txid {txid} was not emitted")
    attempt, status = live
    if status == "COMMITTING":
        played.refuse_one(f"{played.name}_sum")
    else:
        error = AttemptIncomplete("the vector fails it")
        played.pipeline.runner.end_attempt(played.grants[attempt], error)


EMPTY = "Storm T10 emits empty batches for ever; here a spout with nothing new gets no txid"

RULES = (
    Rule(
        "start|processing|commit|fail|restart",
        "global|gcommit",
        EMPTY,
        lambda facts: facts["empty"],
        carries=False,
    ),
    Rule(
        "fail",
        "global",
        "Storm M8 takes later txids along; here those of a transactional spout stay valid",
        lambda facts: facts["later"],
        carries=False,
    ),
)

ADAPTER = Adapter(
    component=r"transactional topology", each={"vectors": play}, rules=(*RULES, *accumulators.RULES)
)
