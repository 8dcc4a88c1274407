"""Stage a contribution: the Spark task's transaction, and the write action around it (A2, A5).

A task's transaction begins when its rows come without long waits (`spool`). First it runs COPY,
without a ledger lock. Last, in one round trip with COMMIT, it fences on the attempt's row and
inserts the ack. A task that runs twice, by retry or speculation, finds its ack, and its rows roll
back. A zombie finds that its attempt has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reliability.core.attempt import Grant, TransactionAttempt
from reliability.core.errors import AlreadyAcked, AttemptFenced
from reliability.core.fold import Fold
from reliability.deployment.address import DatabaseAddress
from reliability.deployment.lazy import np, pa
from reliability.ledger.connection import (
    SPARK_PATIENCE_SECONDS,
    DatabaseTransaction,
    LedgerConnection,
)
from reliability.spark.stage.encode import Chunks, encode
from reliability.spark.stage.spool import spooled
from reliability.states.digest import DIGEST, plus
from reliability.states.tables import StateTables
from reliability.transaction.process.attempt_messages import new_write_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RESULT = "partition int, stage int"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTask:
    """What a Spark task needs, as plain values: Spark pickles it, and it has no secret.

    :param types: the Postgres type of each column, in the order of `copy`
    """

    address: DatabaseAddress
    copy: str
    types: Mapping[str, str]
    grant: Grant
    sink: str
    write_id: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage one partition and return its number; an empty partition acks too."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        with spooled(batches) as ready:
            self.stage(context.partitionId(), ready)
        ids = {"partition": context.partitionId(), "stage": context.stageId()}
        yield pa.RecordBatch.from_pydict({n: pa.array([i], pa.int32()) for n, i in ids.items()})

    def stage(self, partition: int, batches: Iterator[pa.RecordBatch]) -> None:
        """COPY the rows, fence, ack; the rows count once, however often it runs.

        :raises AttemptFenced: the attempt was ended meanwhile; the rows are rolled back
        :raises SchemaMismatch: a value does not fit its column
        """
        rows = BinaryRows(batches, self.types, self.grant.attempt)
        with LedgerConnection(
            self.address, f"reliability {self.grant}", opens_within=SPARK_PATIENCE_SECONDS
        ) as connection:
            try:
                with connection.transaction() as tx:
                    tx.queue("show_nonce", nonce=self.grant.nonce)
                    tx.copy(self.copy, rows)
                    self._acknowledge(tx, partition, rows)
            except AlreadyAcked:
                self._check_own_write(connection, partition)

    def _acknowledge(self, tx: DatabaseTransaction, partition: int, rows: BinaryRows) -> None:
        tx.run_and_commit(
            "acknowledge",
            sink=self.sink,
            partition=partition,
            write_id=self.write_id,
            xor=rows.fold.xor,
            count=rows.fold.count,
            rows=rows.rows,
            digest=rows.digest,
            **self.grant,
        )

    def _check_own_write(self, connection: LedgerConnection, partition: int) -> None:
        with connection.transaction() as tx:
            ack = tx.one("existing_ack", sink=self.sink, partition=partition, **self.grant)
        if ack["write_id"] != self.write_id:
            raise AttemptFenced(f"{self.grant}: another write of {self.sink} has acked")


class BinaryRows(Chunks):
    """Convert Arrow batches to a binary COPY; fold their `_x` and `_n`, and digest them.

    :param attempt: what each row is staged for; added here, because each column that Spark hands
        to Python takes time
    """

    def __init__(
        self,
        batches: Iterator[pa.RecordBatch],
        types: Mapping[str, str],
        attempt: TransactionAttempt,
    ) -> None:
        super().__init__(encode(map(self._count, batches), types))
        names = {"_txid": attempt.txid, "_attempt_id": attempt.attempt_id}
        self._added = {name: value for name, value in names.items() if name in types}
        self.fold = Fold()
        self.rows = 0
        self.digest = 0

    def _count(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:
            x, n, digests = (
                batch.column(name).to_numpy(zero_copy_only=False) for name in ("_x", "_n", DIGEST)
            )
            self.fold += Fold(int(np.bitwise_xor.reduce(x)), int(n.sum()))
            self.digest = plus(self.digest, int(digests.sum()))
            self.rows += batch.num_rows
        added = [pa.repeat(value, batch.num_rows) for value in self._added.values()]
        return pa.RecordBatch.from_arrays(
            [*batch.columns, *added], names=[*batch.schema.names, *self._added]
        )


@dataclass(frozen=True, slots=True)
class _Named:
    """Give the columns of batches their names, and pass them to a task."""

    names: tuple[str, ...]
    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.task(
            pa.RecordBatch.from_arrays(batch.columns, names=list(self.names)) for batch in batches
        )


def write(
    staged: DataFrame, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> int:
    """Run the one write action of a sink and return its number of partitions.

    It is the number of tasks that the final stage ran: adaptive execution changes the plan. Of a
    stage that lost an executor, Spark tells only the tasks that ran again; each task returns a row.
    """
    # pyspark reads the names of these columns as paths to fields
    numbered = staged.toDF(*(f"c{number}" for number in range(len(staged.columns))))
    results = numbered.mapInArrow(_Named(tuple(staged.columns), task), RESULT).collect()
    if not results:
        return 0
    tracker = staged.sparkSession.sparkContext.statusTracker()
    stage = tracker.getStageInfo(results[0]["stage"])
    return max(len(results), stage.numTasks if stage is not None else 0)


def stage_task(
    connection: LedgerConnection,
    tables: StateTables,
    grant: Grant,
    own: DatabaseAddress | None = None,
) -> StageTask:
    """Return what the Spark tasks of a sink run.

    :param own: the address with the executors' own role, by default that of the session
    """
    with connection.transaction() as tx:
        copy = tables.copy().as_string(tx.cursor)
    return StageTask(
        address=own or connection.address,
        copy=copy,
        types=tables.copied_types(),
        grant=grant,
        sink=tables.state.name,
        write_id=new_write_id(),
    )
