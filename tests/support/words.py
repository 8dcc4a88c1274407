"""A topology that counts words, three a batch, driven without Spark."""

from __future__ import annotations

from collections.abc import Mapping

from reliability import Count, MemorySpout, State, Topology
from reliability.core.attempt import Grant
from tests.support.fix_pipeline import pipeline_of
from tests.support.fix_postgres import rows
from tests.support.python_driver import stage_batch


class Words:
    """Counts words, three a batch; a processing phase as Spark does it, without Spark."""

    def __init__(
        self, connection, text: str, *, opaque: bool = False, kind: type[State] = State
    ) -> None:
        topology = Topology(
            "words",
            spout=MemorySpout({"word": "string"}, [text.split()], take=3, opaque=opaque),
            states=[kind("words", key={"word": "text"}, values={"times": Count()})],
            process=self._read,
            max_spout_pending=3,
            module=__name__,
        )
        self.connection = connection
        self.pipeline = pipeline_of(topology, connection)
        self.begin, self.seal = self.pipeline.begin, self.pipeline.seal

    def emit(self) -> list[int]:
        return self.pipeline.emit(None)

    def stage(self, grant: Grant, read_as: Mapping[str, str] | None = None, lose: str = "") -> None:
        """Stage the attempt's batch; `read_as` is code that reads a word as another one."""
        self._read_as, self._lose = read_as or {}, lose
        stage_batch(self.connection, self.pipeline.runner.topology, grant)

    def _read(self, batch):
        read = [row for row in batch if row["word"] != self._lose]
        words = [{**row, "word": self._read_as.get(row["word"], row["word"])} for row in read]
        return {"words": words}

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
        self.begin, self.seal = self.pipeline.begin, self.pipeline.seal
        self.emit()

    def show(self) -> None:
        for word, times, txid in rows(
            self.connection, "SELECT word, times, _txid FROM words ORDER BY word"
        ):
            print(f"{word:5} {times} {txid}")
