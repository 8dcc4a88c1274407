"""Stage a contribution: the Spark task's transaction, and the write action around it (A2, A5).

A task's transaction begins when its rows come without long waits (`spool`). First it runs COPY,
without a ledger lock. Last, in one round trip with COMMIT, it fences on the attempt's row and
inserts the ack. A task that runs twice, by retry or speculation, finds its ack, and its rows roll
back. A zombie finds that its attempt has ended.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reliability.core.attempt import Grant
from reliability.core.errors import AlreadyAcked, AttemptFenced
from reliability.core.fold import Fold
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.spark.encode import encode_csv
from reliability.spark.spool import spooled
from reliability.transaction.process.attempt import new_write_id

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

RESULT = "partition int, stage int"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTask:
    """What a Spark task needs, as plain values: Spark pickles it, and it has no secret."""

    dsn: str
    copy: str
    grant: Grant
    sink: str
    write_id: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage one partition and return its number; an empty partition acks too."""
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        with spooled(batches) as ready:
            self.stage(context.partitionId(), CsvStream(ready))
        yield pa.RecordBatch.from_pydict(
            {
                "partition": pa.array([context.partitionId()], pa.int32()),
                "stage": pa.array([context.stageId()], pa.int32()),
            }
        )

    def stage(self, partition: int, rows: CsvStream) -> None:
        """COPY the rows, fence, ack; the rows count once, however often it runs.

        :raises AttemptFenced: the attempt was ended meanwhile; the rows are rolled back
        """
        with LedgerConnection(self.dsn, f"reliability {self.grant}") as connection:
            try:
                with connection.transaction() as tx:
                    tx.copy(self.copy, rows)
                    self._acknowledge(tx, partition, rows)
            except AlreadyAcked:
                self._check_own_write(connection, partition)

    def _acknowledge(self, tx: DatabaseTransaction, partition: int, rows: CsvStream) -> None:
        tx.run_and_commit(
            "acknowledge",
            sink=self.sink,
            partition=partition,
            write_id=self.write_id,
            xor=rows.fold.xor,
            count=rows.fold.count,
            rows=rows.rows,
            **self.grant,
        )

    def _check_own_write(self, connection: LedgerConnection, partition: int) -> None:
        with connection.transaction() as tx:
            ack = tx.one("existing_ack", sink=self.sink, partition=partition, **self.grant)
        if ack["write_id"] != self.write_id:
            raise AttemptFenced(f"{self.grant}: another write of {self.sink} has acked")


class CsvStream:
    """Convert Arrow batches to the CSV that COPY reads, and fold their `_x` and `_n`."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._buffer = io.BytesIO()
        self.fold = Fold()
        self.rows = 0

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, empty at the end."""
        while not (chunk := self._buffer.read(size)):
            batch = next(self._batches, None)
            if batch is None:
                return b""
            self._count(batch)
            self._buffer = encode_csv(batch)
        return chunk

    def _count(self, batch: pa.RecordBatch) -> None:
        import numpy as np

        xor = int(np.bitwise_xor.reduce(batch.column("_x").to_numpy(zero_copy_only=False)))
        count = int(batch.column("_n").to_numpy(zero_copy_only=False).sum())
        self.fold += Fold(xor if batch.num_rows else 0, count)
        self.rows += batch.num_rows


def write(
    staged: DataFrame, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> int:
    """Run the one write action of a sink and return its number of partitions.

    It is the number of tasks that the final stage ran: adaptive execution changes the plan.
    """
    results = staged.mapInArrow(task, RESULT).collect()
    if not results:
        return 0
    tracker = staged.sparkSession.sparkContext.statusTracker()
    stage = tracker.getStageInfo(results[0]["stage"])
    return stage.numTasks if stage is not None else len(results)


def stage_task(dsn: str, copy: str, grant: Grant, sink: str) -> StageTask:
    """Return the task of a new write action."""
    return StageTask(dsn=dsn, copy=copy, grant=grant, sink=sink, write_id=new_write_id())
