"""TransactionalGlobalCount, end to end through Spark: a memory spout, a count of all, one by word.

An entry of `commits` is the commit of one attempt of one txid: earlier attempts stage their rows
and are failed, the named one is sealed and committed. An entry for a txid that has committed is
its run asking again, or, for the attempt that committed, that attempt's Spark coming back.

Compared: the rows of the batch, whether the commit changed anything, and the count with its txid;
of the expected batches also which rows of which partition they are, and the count of each word.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from reliability import Count, MemorySpout, State, Topology
from reliability.core.attempt import Grant
from reliability.core.errors import ProcessFunctionFailed, ReliabilityError
from reliability.core.spout import NoItems
from reliability.spouts.memory import MemorySlice
from reliability.transaction.process.attempt_messages import read_batch_meta
from tests.conformance.bench import Bench
from tests.conformance.comparison import Comparison, Rule
from tests.conformance.runner import Adapter
from tests.conformance.vectors import Vector
from tests.support.fix_pipeline import Pipeline

DIED = ProcessFunctionFailed("the vector has it die before its commit")


class Played:
    """The example's topology, with a count of all words, and of each if that is asked for."""

    def __init__(
        self,
        bench: Bench,
        beside: Mapping[str, Any],
        *,
        take: int | None = None,
        by_word: bool = False,
    ) -> None:
        self.bench, self.name = bench, bench.name()
        data = beside["data"]
        self.spout = MemorySpout(
            {"word": "string"},
            [data[partition] for partition in sorted(data, key=int)],
            take=take or beside["partition_take_per_batch"],
        )
        total = State("total", values={"count": Count()}, table=f"{self.name}_total")
        words = State(
            "words", key={"word": "text"}, values={"count": Count()}, table=f"{self.name}_words"
        )
        states = [total, words] if by_word else [total]
        self.topology = Topology(
            self.name,
            spout=self.spout,
            process=lambda batch: {state.name: batch for state in states},
            states=states,
            max_spout_pending=3,
        )
        self.grants: dict[tuple[int, int], Grant] = {}
        self.committed: dict[int, int] = {}

    def start(self) -> None:
        """Emit, which needs Spark for nothing."""
        spark = self.bench.spark()
        self.pipeline: Pipeline = self.bench.pipeline(self.topology, spark=spark)
        self.txids = self.pipeline.emit(None)

    def process(self, txid: int, attempt_id: int) -> int:
        """Have that attempt PROCESSED, after those before it died; return its rows."""
        grant = self.pipeline.begin(txid)
        while True:
            self.grants[txid, grant.attempt.attempt_id] = grant
            self.pipeline.run_step(grant)
            if grant.attempt.attempt_id >= attempt_id:
                break
            self.pipeline.runner.end_attempt(grant, DIED)
            grant = self.pipeline.begin(txid)
        self.pipeline.seal(grant)
        return read_batch_meta(self.pipeline.runner.connection, grant).emitted.count

    def commit(self, txid: int, attempt_id: int) -> bool:
        """Commit; say whether it was this attempt that did."""
        done = self.pipeline.runner.commit(txid)
        self.committed |= {one.attempt.txid: one.attempt.attempt_id for one in done}
        return [(one.attempt.txid, one.attempt.attempt_id) for one in done] == [(txid, attempt_id)]

    def come_back(self, txid: int, attempt_id: int) -> bool:
        """The committed attempt's Spark runs again, and its task asks for the commit."""
        grant = self.grants[txid, attempt_id]
        with suppress(ReliabilityError):
            self.pipeline.run_step(grant)
        with suppress(ReliabilityError):
            self.pipeline.seal(grant)
        return bool(self.pipeline.runner.commit(txid))

    def nothing_new(self) -> bool:
        """Say whether a later run gets no txid."""
        return self.pipeline.again("a later run").emit(None) == []

    def total(self) -> dict[str, int]:
        rows = self.bench.all(f"SELECT count, _txid AS txid FROM public.{self.name}_total")
        return dict(rows[0]) if rows else {"count": 0, "txid": 0}

    def words(self) -> dict[str, int]:
        rows = self.bench.all(f"SELECT word, count FROM public.{self.name}_words")
        return {row["word"]: row["count"] for row in rows}

    def slices(self, txid: int) -> list[MemorySlice]:
        """Return what a txid has, one row each, in order."""
        grant = self.grants.get((txid, self.committed.get(txid, -1)))
        meta = read_batch_meta(self.pipeline.runner.connection, grant) if grant else None
        return [item for item in meta.items if isinstance(item, MemorySlice)] if meta else []


def play(vector: Vector, c: Comparison, bench: Bench) -> None:
    played = Played(bench, vector.beside)
    played.start()
    for number, entry in enumerate(vector.data["commits"]):
        txid, attempt_id = entry["commit_txid"], entry["attempt"]
        is_back = txid in played.committed and (txid, attempt_id) in played.grants
        turn = max(played.committed, default=0) + 1
        beyond = txid not in played.txids
        c.at(number, "commit", late=is_back, beyond=beyond, early=not beyond and txid > turn)
        before = played.total()
        if beyond:
            c.ours(played.nothing_new(), "an untimed spout with nothing new gets no txid")
            count, applied = 0, False
        elif is_back:
            count, applied = entry["batch_count"], played.come_back(txid, attempt_id)
        elif txid in played.committed:
            count = entry["batch_count"]
            applied = _ask_again(c, played, txid)
        else:
            count = played.process(txid, attempt_id)
            applied = played.commit(txid, attempt_id)
        c.field("batch_count", entry["batch_count"], count)
        c.field("applied", entry["applied"], applied)
        c.ours(applied or played.total() == before, "what is not applied changes nothing")
        _compare_total(c, entry["db"], played)


def _ask_again(c: Comparison, played: Played, txid: int) -> bool:
    """The answer was lost: the run asks again for a txid that has committed (G8)."""
    before = played.committed[txid]
    played.pipeline.transact(txid)
    rows = played.bench.all(
        "SELECT max(attempt_id) AS newest FROM reliability.attempt"
        " WHERE topology = %(topology)s AND txid = %(txid)s",
        topology=played.name,
        txid=txid,
    )
    c.ours(rows[0]["newest"] == before, "a request that is satisfied is granted nothing")
    return bool(played.pipeline.runner.commit(txid))


def _compare_total(c: Comparison, expected: Mapping[str, int], played: Played) -> None:
    found = played.total()
    c.field("count", expected["count"], found["count"])
    c.field("txid", expected["txid"], found["txid"])


def play_batches(vector: Vector, c: Comparison, bench: Bench) -> None:
    played = Played(bench, vector.beside, by_word=True)
    played.start()
    taken = [0] * len(played.spout.partitions)
    for number, batch in enumerate(vector.data["expected_batches"]):
        txid = batch["txid"]
        beyond = txid not in played.txids
        c.at(number, "batch", late=False, early=False, beyond=beyond)
        count = 0 if beyond else played.process(txid, 0)
        c.field("batch_count", batch["batch_count"], count)
        c.ours(beyond or played.commit(txid, 0), "it commits")
        found = played.slices(txid)
        for partition, expected in sorted(batch["partitions"].items()):
            own = [one for one in found if one.partition == int(partition)]
            index = own[0].offset if own else taken[int(partition)]
            taken[int(partition)] += len(own)
            tuples = [row[0] for one in own for row in played.spout.rows_of(one)]
            wanted = [expected["index"], expected["amt"], expected["tuples"]]
            c.field(f"partition {partition}", wanted, [index, len(own), tuples])
        _compare_total(c, batch["db_after_commit"], played)
        c.field("words", batch["word_counts_after_commit"], played.words())
    c.at(len(vector.data["expected_batches"]), "end")
    c.field("final_count", vector.beside["final_count"], played.total()["count"])
    rows = sum(len(partition) for partition in played.spout.partitions)
    c.field("total_tuples", vector.beside["total_tuples"], rows)
    c.field("final_word_counts", vector.beside["final_word_counts"], played.words())


def play_takes(vector: Vector, c: Comparison, bench: Bench) -> None:
    """The spout alone: how other limits cut the same rows; past the last batch there are none."""
    for number, (take, expected) in enumerate(vector.data["other_takes"].items()):
        c.at(number, f"take {take}")
        spout = Played(bench, vector.beside, take=int(take)).spout
        batches = spout.cut(spout.plan(None, NoItems()))
        counts = [spout.count(batch).count for batch in batches]
        none = [0] * (len(expected["batch_counts"]) - len(counts))
        c.field("batch_counts", expected["batch_counts"], counts + none)


RULES = (
    Rule(
        "commit",
        "txids commit in their order: the one before it has not committed (G2)",
        lambda facts: facts["early"],
        field="applied|count|txid",
    ),
    Rule(
        "commit",
        "Storm T11 is a defect: an older txid than the stored one is applied; here it is refused",
        lambda facts: facts["late"],
        field="applied|count|txid",
    ),
    Rule(
        "commit|batch",
        "Storm T10 emits empty batches for ever; here a spout with nothing new gets no txid",
        lambda facts: facts["beyond"],
        field="applied|txid",
        carries=False,
    ),
)

ADAPTER = Adapter(
    component=r"Global.?Count",
    each={"vectors": play},
    whole={"expected_batches": play_batches, "other_takes": play_takes},
    rules=RULES,
)
