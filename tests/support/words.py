"""A topology that counts words, three a batch, driven without Spark."""

from __future__ import annotations

from collections.abc import Mapping

from reliability import Count, MemorySpout, State, Topology
from reliability.core.attempt import Grant
from reliability.core.graph import THE_STEP
from reliability.states.kinds import stored_state
from tests.support.fix_pipeline import pipeline_of
from tests.support.fix_postgres import rows
from tests.support.python_driver import rows_of_batch, stage_rows


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
        self.tables = stored_state("words", state)
        self.pipeline = pipeline_of(topology, connection)
        self.connection = connection

    def emit(self) -> list[int]:
        return self.pipeline.emit(None)

    def begin(self, txid: int) -> Grant:
        return self.pipeline.begin(txid)

    def stage(self, grant: Grant, read_as: Mapping[str, str] | None = None, lose: str = "") -> None:
        """Stage the attempt's batch; `read_as` is code that reads a word as another one."""
        batch = rows_of_batch(self.connection, self.spout, grant)
        words = read_as or {}
        read = [
            {**row, "word": words.get(row["word"], row["word"])}
            for row in batch
            if row["word"] != lose
        ]
        stage_rows(self.connection, self.tables, grant, read)

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
