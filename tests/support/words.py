"""A topology that counts words, three a batch, driven without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from reliability import Count, MemorySpout, State, Topology
from reliability.core.attempt import Grant
from reliability.core.fold import Fold
from reliability.core.graph import THE_STEP
from reliability.spark.stage import stage_task
from reliability.spouts.memory import MemorySlice
from reliability.spouts.tuple_ids import fold_rows
from reliability.states.tables import StateTables
from reliability.transaction.process.attempt_messages import declare_partitions, read_batch_meta
from tests.support.fix_pipeline import Pipeline
from tests.support.fix_postgres import rows
from tests.support.runner import TransactionRunner
from tests.support.spark_rows import spark_batch


class Words:
    """Counts words, three a batch; a processing phase as Spark does it, without Spark."""

    def __init__(
        self, connection, text: str, *, opaque: bool = False, kind: type[State] = State
    ) -> None:
        self.spout = MemorySpout({"word": "string"}, [text.split()], take=3, opaque=opaque)
        state = kind("words", key={"word": "text"}, values={"times": Count()})
        topology = Topology(
            "words", spout=self.spout, states=[state], process=_nothing, max_spout_pending=3
        )
        self.tables = StateTables("words", state)
        self.pipeline = Pipeline(TransactionRunner(topology, connection), None)
        self.connection = connection

    def emit(self) -> list[int]:
        return self.pipeline.emit(None)

    def begin(self, txid: int) -> Grant:
        return self.pipeline.begin(txid)

    def stage(self, grant: Grant, read_as: Mapping[str, str] | None = None, lose: str = "") -> None:
        """Stage the attempt's batch; `read_as` is code that reads a word as another one."""
        meta = read_batch_meta(self.connection, grant)
        counted: dict[str, Fold] = defaultdict(Fold)
        for ordinal, item in enumerate(meta.items):
            assert isinstance(item, MemorySlice)
            ((word,),) = self.spout.rows_of(item)
            if word != lose:
                counted[(read_as or {}).get(word, word)] += fold_rows(ordinal, 1)
        place = {"_txid": grant.attempt.txid, "_attempt_id": grant.attempt.attempt_id}
        staged = [
            {**place, "word": word, "times": fold.count, "_rows": fold.count}
            | {"_x": fold.xor, "_n": fold.count}
            for word, fold in counted.items()
        ]
        batch = spark_batch(self.tables, staged)
        stage_task(self.connection, self.tables, grant).stage(0, iter([batch]))
        declare_partitions(self.connection, grant, "words", 1)

    def seal(self, grant: Grant) -> None:
        self.pipeline.runner.end_step(grant, THE_STEP)
        self.pipeline.runner.seal(grant, THE_STEP)

    def process(self, txid: int, **how) -> Grant:
        grant = self.begin(txid)
        self.stage(grant, **how)
        self.seal(grant)
        return grant

    def commit(self) -> list[str]:
        committed = self.pipeline.runner.commit(0)
        return [f"{one.attempt} as c={one.commit_number}" for one in committed]

    def clear(self) -> None:
        """Clear the whole run in Airflow, so that it asks again."""
        self.pipeline = self.pipeline.again()
        self.emit()

    def show(self) -> None:
        for word, times, txid in rows(
            self.connection, "SELECT word, times, _txid FROM words ORDER BY word"
        ):
            print(f"{word:5} {times} {txid}")


def _nothing(batch):
    return {}
