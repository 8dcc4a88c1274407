"""A transactional topology, end to end through Spark: sums and counts by word, and of all rows.

`sequence` says in words what is done: start; ack processing of tx1, then tx2; ack commit of tx1;
fail tx2; add data; restart. A batch is processed as soon as it may begin, and sealed when its
processing is acked. The spout is transactional: a txid that is processed again has the same rows.
Vectors of attempts that execute and finish: see accumulators.py.

A vector of `..._run_counts` runs until nothing is left, then again in new processes, whose code has
more rows. One of `commits` has an opaque spout, and its sequence says which txid is acked, and
which one's commit phase begins with it: `ack 2, ack 1 -> tx2 committed`.

Compared: of every txid that commits, its sums, counts and number of rows (`batches`); what the
words name in brackets: `global [t,n]`, the rows of a batch that was processed, and
`gcommit [t,n]`, those of a batch whose turn to commit has come; the rows of the batches that a run
commits; which txid's turn it is, and how often its batch has each word (`commits`). Of a restart
and of an opaque spout also the tables: each row is counted once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from reliability import Count, MemorySpout, State, Sum, Topology
from reliability.core.attempt import Grant
from reliability.core.errors import AttemptIncomplete
from reliability.core.graph import THE_STEP
from reliability.transaction.commit.apply import AppliedPlan
from tests.conformance import accumulators
from tests.conformance.bench import Bench
from tests.conformance.comparison import Comparison, Failed, Rule, UnknownOp
from tests.conformance.runner import Adapter
from tests.conformance.vectors import Vector
from tests.conformance.window import Attempt, Emitted, Window

Data = Mapping[str, list[Any]]
STATES = ("sum", "count", "global")


def play(vector: Vector, c: Comparison, bench: Bench) -> None:
    if "executes" in vector.data:
        accumulators.play(vector, c, bench)
    elif "commits" in vector.data:
        play_opaque(vector, c, bench)
    elif "sequence" in vector.data:
        play_sequence(vector, c, bench)
    elif any("_run_counts" in name for name in vector.data):
        play_runs(vector, c, bench)
    else:
        raise Failed("it has neither a sequence, nor runs, nor executes")


# --- a topology whose batches go through Spark ----------------------------------------------------


class Processed(Window):
    """The vector's topology, whose batches go through Spark as soon as they begin."""

    def __init__(self, bench: Bench, vector: Vector, *, opaque: bool = False) -> None:
        self.data = {partition: list(rows) for partition, rows in _initial(vector).items()}
        self.take, self.opaque = vector.data["take_per_partition"], opaque
        self.processed: list[list[int]] = []
        super().__init__(bench, self._topology(bench.name(), vector.data["max_spout_pending"]))

    def _topology(self, name: str, pending: int) -> Topology:
        partitions = [
            [_row_of(row) for row in self.data[partition]]
            for partition in sorted(self.data, key=int)
        ]
        schema, key = {"word": "string", "n": "bigint"}, {"word": "text"}
        return Topology(
            name,
            spout=MemorySpout(schema, partitions, take=self.take, opaque=self.opaque),
            process=lambda batch: dict.fromkeys(STATES, batch),
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
        in_hand, announced = self.in_hand, self.announced
        self.restart_with(data)
        self.in_hand, self.announced = in_hand, announced

    def restart_with(self, data: Data) -> None:
        """New processes, whose code has more rows."""
        for partition, rows in data.items():
            self.data.setdefault(partition, []).extend(rows)
        self.restart(self._topology(self.name, self.pending))

    def sync(self) -> Emitted:
        """A run asks for what is new, then the window moves."""
        self.emit_more()
        return super().sync()

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

    def in_tables(self) -> dict[str, int]:
        """Return how often each word was counted, and "" for all of them."""
        count, every = (f"{self.name}_{state}" for state in ("count", "global"))
        rows = self.bench.all(
            f"SELECT word, found FROM public.{count} UNION ALL SELECT '', found FROM public.{every}"
        )
        return {"": 0, **{row["word"]: row["found"] for row in rows}}

    def in_data(self) -> dict[str, int]:
        """Return the same, of the rows that the code has."""
        words = [_row_of(row)[0] for rows in self.data.values() for row in rows]
        return {**Counter(words), "": len(words)}

    def live(self, txid: int) -> tuple[Attempt, str] | None:
        """Return the live attempt of a txid, None for one that has no rows and was not emitted."""
        if txid >= self.next_txid():
            return None
        attempt_id, status = self.active()[str(txid)]
        return (txid, attempt_id), status


def _initial(vector: Vector) -> Data:
    [section] = [n for n in vector.data if n == "data" or n.startswith("data_initial")]
    data: Data = vector.data[section]
    return data


def _row_of(row: Any) -> tuple[str, int]:
    """Return a row of the spout; a bare word has the number 1."""
    word, n = (row, 1) if isinstance(row, str) else row
    return word, n


# --- a sequence of acks and fails ----------------------------------------------------------------


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
    _commit_next(c, played, txid)
    for state, expected in batches.get(str(txid), {}).items():
        if state not in STATES:
            raise Failed(f"the batches have {state}, which is unknown")
        found = played.staged(played.grants[attempt], state)
        c.field(f"{state} of tx{txid}", expected, found[""] if state == "global" else found)


def _commit_next(c: Comparison, played: Processed, txid: int) -> None:
    outcome = played.commit_one()
    committed = outcome.committed() if isinstance(outcome, AppliedPlan) else []
    c.ours([one.attempt.txid for one in committed] == [txid], "it commits")


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
        played.refuse_one(f"public.{played.name}_sum")
    else:
        error = AttemptIncomplete("the vector fails it")
        played.pipeline.runner.end_attempt(played.grants[attempt], error)


# --- runs and restarts ---------------------------------------------------------------------------


def play_runs(vector: Vector, c: Comparison, bench: Bench) -> None:
    """Run until nothing is left; restart with more rows, and run again."""
    played = Processed(bench, vector)
    runs = [value for name, value in vector.data.items() if "_run_counts" in name]
    added = [value for name, value in vector.data.items() if name.startswith("data_added")]
    for number, expected in enumerate(runs):
        if number:
            played.restart_with(added.pop(0))
        c.at(number, "run")
        wanted, found = sorted(expected), sorted(_run(c, played))
        c.field("counts", wanted, found, rows=[n for n in wanted if n] == found)
        c.ours(played.in_tables() == played.in_data(), "each row is counted once")


def _run(c: Comparison, played: Processed) -> list[int]:
    """Process and commit all there is; return the rows of each batch."""
    counts = []
    played.sync()
    while (live := played.live(played.curr_txid())) is not None:
        attempt, _ = live
        _seal(c, played, attempt[0])
        counts.append(played.staged(played.grants[attempt], "global")[""])
        _commit_next(c, played, attempt[0])
        played.sync()
    return counts


# --- an opaque spout -----------------------------------------------------------------------------


def play_opaque(vector: Vector, c: Comparison, bench: Bench) -> None:
    told = enumerate(vector.data["sequence"].split(";"))
    clauses = [_acks_of(number, clause.strip()) for number, clause in told]
    played = Processed(bench, vector, opaque=True)
    played.sync()
    committed: Counter[str] = Counter()
    for number, (acks, expected) in enumerate(clauses):
        c.at(number, "ack")
        turns = [attempt for txid in acks for attempt in _ack(c, played, txid)]
        c.field("committed", [expected], [txid for txid, _ in turns])
        for txid, attempt_id in turns:
            words = played.staged(played.grants[txid, attempt_id], "count")
            c.field("words", vector.data["commits"].get(str(txid)), words)
            committed += Counter(words)
    _commit_next(c, played, clauses[-1][1])
    found = {**committed, "": committed.total()}
    c.ours(played.in_tables() == found, "what committed is counted once")


def _acks_of(number: int, clause: str) -> tuple[list[int], int]:
    """Read `ack 2, ack 1 -> tx2 committed`."""
    match = re.fullmatch(r"(ack \d+(?:, ack \d+)*) -> tx(\d+) committed", clause)
    if match is None:
        raise UnknownOp(f"op {number}: {clause!r} is unknown")
    return [int(txid) for txid in re.findall(r"\d+", match[1])], int(match[2])


def _ack(c: Comparison, played: Processed, txid: int) -> list[Attempt]:
    """Ack what is under way of a txid; return the attempts whose turn to commit comes with it."""
    live = played.live(txid)
    if live is not None and live[1] == "COMMITTING":
        _commit_next(c, played, txid)
    else:
        _seal(c, played, txid)
    return [(txid, attempt_id) for what, txid, attempt_id in played.sync() if what == "$commit"]


EMPTY = "Storm T10 emits empty batches for ever; here a spout with nothing new gets no txid"

RULES = (
    Rule(
        "start|processing|commit|fail|restart",
        EMPTY,
        lambda facts: facts["empty"],
        field="global|gcommit",
        carries=False,
    ),
    Rule(
        "fail",
        "Storm M8 takes later txids along; here those of a transactional spout stay valid",
        lambda facts: facts["later"],
        field="global",
        carries=False,
    ),
    Rule(
        "run",
        "Storm T9, T10: a committer task without rows counts 0, and so does each empty batch; here "
        "a txid is committed once as a whole, and a spout with nothing new gets none",
        lambda facts: facts["rows"],
        field="counts",
        carries=False,
    ),
)

ADAPTER = Adapter(
    component=r"transactional topology", each={"vectors": play}, rules=(*RULES, *accumulators.RULES)
)
