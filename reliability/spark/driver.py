"""The driver of one step of an attempt: read its input, run its function, stage its states.

1. say which processes and what code work for the step (start_step); from here progress renews
   the lease
2. give the session the settings that values depend on, the same on every host
3. read BatchMeta, check that the source still is what it was, make the batch's frame; a step that
   reads states gets the rows that earlier steps of the attempt have staged for them
4. call the process function once
5. set the session's settings again, as the function may have changed them, and evaluate once what
   several states share and what may come out differently (V5)
6. per state: reduce to contributions, stage them, declare how many partitions there were

It says nothing of success: whoever submitted it ends the step by what lies in the ledger.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from reliability.core.attempt import Grant
from reliability.core.definitions import Topology
from reliability.core.errors import (
    AttemptFenced,
    EvaluationLost,
    ProcessFunctionFailed,
    ReliabilityError,
)
from reliability.core.graph import Step
from reliability.fingerprint import fingerprint
from reliability.ledger.connection import LedgerConnection
from reliability.settings import ledger_dsn
from reliability.spark.imports import find_code, prefer_installed_pyspark
from reliability.spark.one_evaluation import is_lost_evaluation, persist_shared
from reliability.spark.progress import Progress
from reliability.spark.reduce import check_frames, reduce_frame
from reliability.spark.session import pin_settings, pin_zone
from reliability.spark.stage import stage_task, write
from reliability.spark.staged import staged_frame
from reliability.spark.submission import Submission
from reliability.spark.task_errors import raised_by_task
from reliability.spark.values import naming_values
from reliability.states.tables import StateTables
from reliability.topologies import load_topology
from reliability.transaction.process.attempt import (
    Driver,
    declare_partitions,
    end_attempt,
    read_batch_meta,
    start_step,
    verify_source,
)
from reliability.transaction.topology.databases import TopologyDatabases

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)
_CAUSED_BY = "Caused by: "


def main(arguments: Sequence[str]) -> int:
    """Process the attempt that the arguments name; return the exit code for spark-submit."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    pin_zone()
    submission = Submission.parse(arguments)
    connection = LedgerConnection(
        ledger_dsn(), application_name=f"reliability {submission.grant} driver"
    )
    try:
        process_attempt(connection, submission)
    except AttemptFenced as error:
        logger.warning("%s", error)
        return 1
    except ReliabilityError as error:
        return _report(connection, submission.grant, error)
    except Exception as error:
        traceback.print_exc()
        if _lost_jvm(error):
            # Only who watches spark-submit knows how the attempt stands; we are an orphan.
            logger.error("the JVM is gone")
            return 1
        return _report(connection, submission.grant, _explained(error))
    finally:
        connection.close()
    return 0


def process_attempt(connection: LedgerConnection, submission: Submission) -> None:
    """Do the numbered steps above with a Spark session of its own."""
    prefer_installed_pyspark(sys.path)
    from pyspark.sql import SparkSession

    grant = submission.grant
    topology = load_topology(submission.module, grant.topology)
    spark = (
        SparkSession.builder.appName(f"reliability {grant}")
        .config("spark.python.daemon.module", "reliability.spark.daemon")
        .getOrCreate()
    )
    try:
        process_with(spark, connection, topology, grant, submission.step)
    finally:
        spark.stop()


def process_with(
    spark: SparkSession,
    connection: LedgerConnection,
    topology: Topology,
    grant: Grant,
    step_name: str,
) -> None:
    """Do the numbered steps above with a given Spark session."""
    step = topology.step(step_name)
    states = [state for state in topology.states if state.name in step.feeds]
    start_step(connection, grant, step.name, _this_driver(spark, topology))
    databases = TopologyDatabases(connection, topology.name, topology.databases)
    progress = Progress(
        spark, LedgerConnection(connection.dsn, f"reliability {grant} progress"), grant
    )
    with databases, progress, naming_values():
        pin_settings(spark)
        inputs = _inputs(spark, databases, topology, grant, step)
        frames = step.process(*inputs)
        pin_settings(spark)  # the function may have set some for itself
        check_frames(frames, states)
        persist_shared(inputs, list(frames.values()))
        for state in states:
            tables = StateTables(topology.name, state)
            _stage(databases.connection_of(state.database), tables, frames[state.name], grant)


def _inputs(
    spark: SparkSession, databases: TopologyDatabases, topology: Topology, grant: Grant, step: Step
) -> list[DataFrame]:
    if step.reads:
        states = {state.name: state for state in topology.states}
        return [
            staged_frame(
                spark,
                databases.connection_of(states[name].database),
                topology.name,
                states[name],
                grant,
            )
            for name in step.reads
        ]
    meta = read_batch_meta(databases.coordinator, grant)
    verify_source(databases.coordinator, grant, topology.spout, meta)
    return [topology.spout.frame(spark, meta)]


def _stage(
    connection: LedgerConnection, tables: StateTables, frame: DataFrame, grant: Grant
) -> None:
    staged = reduce_frame(frame, tables, grant)
    with connection.transaction() as tx:
        copy = tables.copy().as_string(tx.cursor)
    task = stage_task(connection.dsn, copy, grant, tables.state.name)
    partitions = write(staged, task)
    declare_partitions(connection, grant, tables.state.name, partitions)
    logger.info("%s staged %s in %s partitions", grant, tables.state.name, partitions)


def _this_driver(spark: SparkSession, topology: Topology) -> Driver:
    jvm = spark._jvm
    assert jvm is not None
    return Driver(
        host=socket.gethostname(),
        jvm_pid=jvm.java.lang.ProcessHandle.current().pid(),
        python_pid=os.getpid(),
        application_id=spark.sparkContext.applicationId,
        code=fingerprint(topology),
    )


def _report(connection: LedgerConnection, grant: Grant, error: ReliabilityError) -> int:
    """Tell the ledger why the attempt failed: whoever looks there sees more than an exit code."""
    logger.error("%s", error)
    try:
        end_attempt(connection, grant, error)
    except ReliabilityError as unreachable:
        logger.warning("error ignored while reporting: %s", unreachable)
    return 1


def _lost_jvm(error: Exception) -> bool:
    from py4j.protocol import Py4JNetworkError

    return isinstance(error, Py4JNetworkError | ConnectionError)


def _explained(error: Exception) -> ReliabilityError:
    if is_lost_evaluation(error):
        return EvaluationLost("an executor was lost with rows that several states share")
    return raised_by_task(error) or ProcessFunctionFailed(_first_line(error))


def _first_line(error: Exception) -> str:
    """Return what failed in one line; of Java's errors also the last cause, which says why."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(_CAUSED_BY)]
    told = [*lines[:1], *causes[-1:]]
    return f"{type(error).__name__}: {'; '.join(told)}"[:500]


def run() -> None:
    """Entry point of spark_apps/process_batch.py."""
    find_code(sys.path)
    sys.exit(main(sys.argv[1:]))
