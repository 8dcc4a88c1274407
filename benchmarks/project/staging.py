"""Stage a batch without Spark: what a Spark task does, called in this process.

It is for measuring the work of the ledger and of Postgres. Each row of the file has a key of its
own, so a row of the source is a row of the contribution.
"""

from __future__ import annotations

from typing import Any

from benchmarks.project.transactions import Stopwatch
from reliability import Topology
from reliability.core.attempt import Grant
from reliability.deployment.lazy import np, pa, pq
from reliability.deployment.settings import home
from reliability.ledger.connection import LedgerConnection
from reliability.spark.stage.stage_task import stage_task
from reliability.spouts.file_item import FileItem
from reliability.spouts.tuple_ids import tuple_ids
from reliability.states.digest import DIGEST
from reliability.states.kinds import stored_state
from reliability.transaction.process.attempt_messages import declare_partitions, read_batch_meta


class DirectStaging:
    """Stages in this process; counts the reading of the file apart."""

    def __init__(self) -> None:
        self.watch = Stopwatch()

    def __call__(
        self, connection: LedgerConnection, topology: Topology, grant: Grant, step: str
    ) -> None:
        with self.watch.phase("read"):
            tables = stored_state(topology.name, topology.states[0])
            (item,) = read_batch_meta(connection, grant).items
            assert isinstance(item, FileItem)
            batch = contribution(item.path, (*tables.reduced_columns(), DIGEST))
        stage_task(connection, tables, grant).stage(0, iter([batch]))
        declare_partitions(connection, grant, tables.state.name, 1)


def contribution(path: str, columns: tuple[str, ...]) -> Any:
    """Return a file's rows as the contribution to a state; what the file lacks counts rows."""
    rows = pq.read_table(home() / path)
    ones = pa.array(np.ones(rows.num_rows, np.int64))
    ids = tuple_ids(0, np.arange(rows.num_rows, dtype=np.uint64)).view(np.int64)
    values = {
        **{name: rows[name] for name in rows.column_names},
        "_x": pa.array(ids),
        DIGEST: pa.array(ids),
    }
    table = pa.table([values.get(name, ones) for name in columns], names=list(columns))
    return table.combine_chunks().to_batches()[0]
