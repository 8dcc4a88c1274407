"""What a driver and its Spark tasks do for a step, with rows of Python instead of Spark's frames.

Staging, fences and acks are the product's own. The process function gets the batch as a list of
rows, each with its tuple id `_x`, and returns such a list for each state of its step.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from reliability import FileSpout, MemorySpout, State, TableSpout, Topology, UpdatedRowsSpout
from reliability.core.attempt import Grant
from reliability.core.erasure import ERASED, ErasedKeys, column_in_spark
from reliability.core.errors import ReliabilityError
from reliability.core.fold import Fold
from reliability.core.graph import THE_STEP, Step
from reliability.core.set_aside import Kind, SetAside
from reliability.core.spout import BatchMeta, SourceItem, Spout, only
from reliability.deployment.address import address_of, executor_address
from reliability.deployment.fingerprint import CodeFingerprint
from reliability.deployment.lazy import np, pa, pq
from reliability.ledger.connection import LedgerConnection
from reliability.spark.stage.read_postgres import ReadTask
from reliability.spark.stage.stage_task import stage_task
from reliability.spouts.memory import MemorySlice
from reliability.spouts.table import ROWS_AT_ONCE, TableKeys
from reliability.spouts.tuple_ids import tuple_ids
from reliability.spouts.updated_rows import TableWindow
from reliability.states.attempt_table import open_table
from reliability.states.kinds import stored_state
from reliability.states.tables import StateTables
from reliability.transaction.process.attempt_messages import (
    DriverProcess,
    declare_partitions,
    end_attempt,
    read_batch_meta,
    read_erased,
    start_step,
    verify_source,
)
from reliability.transaction.topology.databases import TopologyDatabases
from tests.support.one_state import Row, reduce_rows
from tests.support.spark_rows import spark_batch

Rows = Sequence[Row]
THIS_DRIVER = DriverProcess(
    host="here",
    jvm_pid=os.getpid(),
    python_pid=os.getpid(),
    application_id="python",
    code=CodeFingerprint(modules={}, packages={}),
)


def process_in_python(
    connection: LedgerConnection, topology: Topology, grant: Grant, step: str = THE_STEP
) -> None:
    """Process a step of an attempt that a task has taken up."""
    start_step(connection, grant, step, THIS_DRIVER)
    stage_batch(connection, topology, grant, step)


def stage_batch(
    connection: LedgerConnection,
    topology: Topology,
    grant: Grant,
    step_name: str = THE_STEP,
    tasks: Mapping[str, int] | None = None,
) -> None:
    """Do what follows the driver's first message; an error of the product's fails the attempt.

    :param tasks: state -> the number of its Spark tasks, otherwise one
    """
    try:
        _process_and_stage(connection, topology, grant, topology.step(step_name), tasks or {})
    except ReliabilityError as error:
        end_attempt(connection, grant, error)
        raise


def _process_and_stage(
    connection: LedgerConnection,
    topology: Topology,
    grant: Grant,
    step: Step,
    tasks: Mapping[str, int],
) -> None:
    meta = read_batch_meta(connection, grant)
    verify_source(connection, grant, topology.spout, meta)
    processed = step.process(rows_of(topology.spout, meta))
    states = [state for state in topology.states if state.name in step.feeds]
    erased = read_erased(connection, topology)
    with TopologyDatabases(connection, topology.name, topology.databases) as databases:
        for state in states:
            own = databases.connection_of(state.database)
            stored = stored_state(topology.name, state)
            executors = executor_address(state.database)
            tables = open_table(
                own, stored, grant, meta.emitted.count, for_executors=executors is not None
            )
            count = tasks.get(state.name, 1)
            rows, aside = _without_erased(processed[state.name], state, erased)
            task = stage_task(own, tables, grant, executors)
            for part in range(count):
                task.stage(part, iter([reduced(tables, grant, rows[part::count])]))
            declare_partitions(own, grant, state.name, count, aside)


def _without_erased(
    rows: Rows, state: State, erased: ErasedKeys
) -> tuple[list[Row], list[SetAside]]:
    """Drop the rows of erased persons, as Spark does by the same hashes."""
    columns = {name: column_in_spark(state, name) for name in erased.columns_of(state)}
    kept: list[Row] = []
    dropped = Fold()
    for row in rows:
        if any(erased.has(name, row[column]) for name, column in columns.items()):
            dropped += Fold(row["_x"], 1)
        else:
            shown = {
                column: None
                for column, names in erased.shown_in(state).items()
                if any(erased.has(name, row[column]) for name in names)
            }
            kept.append({**row, **shown})
    return kept, [SetAside(Kind.DROPPED, ERASED, dropped)] if dropped.count else []


def reduced(tables: StateTables, grant: Grant, rows: Rows) -> pa.RecordBatch:
    """Return what a Spark task hands over of these rows."""
    own = {"_txid": grant.attempt.txid, "_attempt_id": grant.attempt.attempt_id}
    staged: list[Row] = [
        {**row, **own} for row in reduce_rows(tables.state, [{**row, **own} for row in rows])
    ]
    return spark_batch(tables, staged)


def rows_of(spout: Spout, meta: BatchMeta) -> list[dict[str, Any]]:
    """Return the rows of a batch, each with its tuple id."""
    if isinstance(spout, TableSpout | UpdatedRowsSpout):
        return _rows_of_table(spout, meta)
    found: list[dict[str, Any]] = []
    for ordinal, item in enumerate(meta.items):
        rows = _rows_of_item(spout, item)
        ids = tuple_ids(ordinal, np.arange(len(rows), dtype=np.uint64)).astype(np.int64)
        found += [{**row, "_x": x} for row, x in zip(rows, ids.tolist(), strict=True)]
    return found


def _rows_of_table(spout: TableSpout | UpdatedRowsSpout, meta: BatchMeta) -> list[dict[str, Any]]:
    """Read a table as Spark's tasks do; Postgres computes the tuple ids."""
    if isinstance(spout, TableSpout):
        columns = spout.source_table.columns(spout.columns, types=spout.types)
        keys = [item.keys for item in only(TableKeys, meta.items)]
        queries = spout.source_table.queries([*columns], keys)
    else:
        columns = spout._columns()
        windows = [(item.first, item.last) for item in only(TableWindow, meta.items)]
        queries = spout.updates.queries([*columns], windows, ROWS_AT_ONCE)
    task = ReadTask(
        address=executor_address(spout.database) or address_of(spout.database),
        columns=(*columns.items(), ("_x", "bigint")),
    )
    return [row for query in queries for batch in task.read(query) for row in batch.to_pylist()]


def _rows_of_item(spout: Any, item: SourceItem) -> Sequence[Row]:
    """Return the rows of a slice, of a whole Parquet file, or of what a test's spout has."""
    if isinstance(spout, FileSpout):
        rows: list[dict[str, Any]] = pq.read_table(item.source).to_pylist()
        return rows
    if isinstance(spout, MemorySpout):
        assert isinstance(item, MemorySlice)
        return [dict(zip(spout.schema, row, strict=True)) for row in spout.rows_of(item)]
    return spout.rows_of(item)  # type: ignore[no-any-return]
