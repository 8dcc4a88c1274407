"""The driver of one step of an attempt: read its input, run its function, stage its states.

1. Record the processes and the code of the step (start_step). From here, progress renews the lease.
   Check that the code has the ledger's definitions of the states (C11).
2. Set the session's settings that affect values, so that they are the same on every host. Check
   that this Spark does what the accounting relies on.
3. Read BatchMeta, check that the source has not changed, and make the batch's frame. A step that
   reads states gets the rows that earlier steps of the attempt have staged for them.
4. Call the process function once. Its input hides the accounting, which its frames still have.
5. Set the settings again, as the function may have changed them. Evaluate once whatever several
   states share and a second evaluation may change (V5). Count what the function has set aside, and
   store what goes into the quarantine (V8).
6. For each state: reduce to contributions, stage them, declare the number of partitions. If the
   accounts do not balance, name rows that were lost or doubled.

The driver does not report success: the process that submitted it ends the step by the ledger.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reliability.core.attempt import Grant
from reliability.core.column import quoted
from reliability.core.definitions import WARM, Topology
from reliability.core.errors import (
    AttemptFenced,
    EvaluationLost,
    ProcessFunctionFailed,
    ReliabilityError,
    SchemaMismatch,
    SourceUnreadable,
    error_types,
)
from reliability.core.fold import Fold
from reliability.core.graph import Step
from reliability.core.set_aside import Correction, SetAside
from reliability.core.spout import BatchMeta
from reliability.core.state import State
from reliability.core.types import read_as
from reliability.deployment.address import executor_address
from reliability.deployment.fingerprint import fingerprint
from reliability.deployment.topologies import load_topology
from reliability.ledger.connection import LedgerConnection
from reliability.spark.frames.corrections import with_corrections, with_sources
from reliability.spark.frames.jvm import is_gone, process_id, stop_context
from reliability.spark.frames.one_evaluation import is_lost_evaluation
from reliability.spark.frames.set_aside_rows import mark_of, mark_staged, on_the_way
from reliability.spark.frames.unaccounted import check_arrived
from reliability.spark.frames.values import translate_value_errors
from reliability.spark.imports import drop_package_folder, find_code, prefer_installed_pyspark
from reliability.spark.process import call_process, prepare
from reliability.spark.renew_lease import Progress
from reliability.spark.session import pin_zone, session_builder
from reliability.spark.stage.read_postgres import read_postgres
from reliability.spark.stage.reduce import reduce_frame
from reliability.spark.stage.stage_task import stage_task, write
from reliability.spark.stage.task_address import task_address
from reliability.spark.submission import Submission
from reliability.spark.supported import check_release
from reliability.spark.warm_session import warm_session
from reliability.states import attempt_table
from reliability.states.kinds import stored_state
from reliability.transaction.process.attempt_messages import (
    DriverProcess,
    declare_partitions,
    driver_session,
    end_attempt,
    read_batch_meta,
    read_corrections,
    read_erased,
    read_set_aside,
    start_step,
    store_quarantined,
    verify_source,
    with_changed_columns,
)
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.declare import check_states

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)
_THROWN = (": ", "Caused by: ")  # how py4j begins the line of what Java threw, and Java of why
_CHECKSUM = re.compile(r"\bChecksumException: Checksum error: (?:file:)?(.+) at \d+ exp: ")
_TRACEBACK = "Traceback (most recent call last)"
# what a Spark task of this package raised, in the text of the driver's error
_RAISED = re.compile(
    r"^reliability\.core\.errors\.\w+: \[([A-Z_]+)\] (.+?)(?:\.? What to do: (.*))?$", re.MULTILINE
)


def main(arguments: Sequence[str]) -> int:
    """Process the attempt that the arguments name; return the exit code for spark-submit."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.ERROR)  # it tells of each socket that it closes
    pin_zone()
    submission = Submission.parse(arguments)
    connection = driver_session(submission.grant)
    try:
        process_attempt(connection, submission)
    except AttemptFenced as error:
        logger.warning("%s", error)
        return 1
    except ReliabilityError as error:
        return _report(connection, submission.grant, error)
    except Exception as error:
        traceback.print_exc()
        if is_gone(error):
            # Only the process that watches spark-submit knows the state of the attempt.
            logger.error("the JVM is gone")
            return 1
        return _report(connection, submission.grant, as_error(error))
    finally:
        connection.close()
    return 0


def process_attempt(connection: LedgerConnection, submission: Submission) -> None:
    """Run the numbered steps above in a new Spark session."""
    prefer_installed_pyspark(sys.path)
    grant = submission.grant
    topology = load_topology(submission.module, grant.topology)
    session = warm_session if submission.engine == WARM else own_session
    with session(grant) as spark:
        check_release(spark.version)
        try:
            process_with(spark, connection, topology, grant, submission.step)
        except ReliabilityError:
            raise
        except Exception as error:
            if is_gone(error):
                raise
            # Inside the block: the text is read from the JVM, which does not answer afterwards.
            traceback.print_exc()
            raise as_error(error) from None


@contextmanager
def own_session(grant: Grant) -> Iterator[SparkSession]:
    """Start a Spark application for one step, and stop it at the end of the block."""
    spark = session_builder(f"reliability {grant}").getOrCreate()
    try:
        yield spark
    finally:
        stop_context(spark)


def process_with(
    spark: SparkSession,
    connection: LedgerConnection,
    topology: Topology,
    grant: Grant,
    step_name: str,
) -> None:
    """Run the numbered steps above in a given Spark session."""
    step = topology.step(step_name)
    driver = DriverProcess(
        host=socket.gethostname(),
        jvm_pid=process_id(spark),
        python_pid=os.getpid(),
        application_id=spark.sparkContext.applicationId,
        ui_url=spark.sparkContext.uiWebUrl,
        code=fingerprint(topology),
    )
    start_step(connection, grant, step.name, driver)
    own = LedgerConnection(connection.address, f"reliability {grant} progress")
    with TopologyDatabases.of_code(connection, topology) as databases:
        for database in databases.all:
            with database.transaction() as tx:
                check_states(tx, topology, database.database)  # this host may have older code (C11)
        with Progress(spark, own, grant):
            try:
                with translate_value_errors():
                    _StepRun(spark, databases, topology, grant, step).process_and_stage()
            except SchemaMismatch as error:
                raise with_changed_columns(databases.coordinator, topology, grant, error) from error


@dataclass(frozen=True, slots=True)
class _StepRun:
    """A step of an attempt, while its driver runs it."""

    spark: SparkSession
    databases: TopologyDatabases
    topology: Topology
    grant: Grant
    step: Step

    def process_and_stage(self) -> None:
        prepare(self.spark)
        step, ledger = self.step, self.databases.coordinator
        meta = read_batch_meta(ledger, self.grant)
        corrections = [] if step.reads else read_corrections(ledger, self.grant)
        batch = None if step.reads else self._batch(meta, corrections)
        inputs = [self._staged(name) for name in step.reads] if batch is None else [batch]
        before = {
            mark_of(name): read_set_aside(self._place_of(name)[0], self.grant, name)
            for name in step.reads
        }
        erased = read_erased(ledger, self.topology)
        processed = call_process(
            self.spark, self.topology, step, inputs, meta.emitted.count, erased
        )
        if quarantined := processed.quarantined:
            if batch is not None:
                identity_of = self.topology.spout.identity_of
                quarantined = with_sources(quarantined, batch, corrections, identity_of)
            store_quarantined(ledger, self.grant, step.name, quarantined)
        for state in self.topology.states:
            if (frame := processed.frames.get(state.name)) is not None:
                aside = on_the_way(frame, before | processed.set_aside)
                unacked = self._stage(state, frame, meta, aside)
                arrived = meta.emitted - unacked
                shown = None if erased.hashes else batch  # an example may be an erased person's
                check_arrived(state.name, arrived, meta, shown, frame, processed.calls)

    def _batch(self, meta: BatchMeta, corrections: Sequence[Correction]) -> DataFrame:
        spout = self.topology.spout
        verify_source(self.databases.coordinator, self.grant, spout, meta)
        return with_corrections(spout.frame(self.spark, meta), corrections, spout.identity_of)

    def _staged(self, name: str) -> DataFrame:
        """Return what an earlier step of the attempt has staged for a state, with `_x` and `_n`.

        So a row that this step loses or doubles shows in its states, as if it had read the batch.
        Types are those of the state's columns; uuid, jsonb, bytea and arrays are strings in
        Postgres's notation.
        """
        connection, state = self._place_of(name)
        tables = stored_state(self.topology.name, state)
        columns = tables.column_types() | {"_x": "bigint", "_n": "bigint"}
        parts = self.spark.sparkContext.defaultParallelism
        own = executor_address(state.database)
        with connection.transaction() as tx:
            if own is None:
                tables = attempt_table.find_table(tx, tables, self.grant)
                part = tables.staged_part(list(columns))
            else:
                part = tables.staged_part_for_executors(columns)
            queries = [tx.filled(part, **self.grant, parts=parts, part=n) for n in range(parts)]
        types = {column: read_as(type_) for column, type_ in columns.items()}
        types |= self.step.types_of(name, columns)
        schema = ", ".join(f"{quoted(column)} {type_}" for column, type_ in types.items())
        rows = read_postgres(self.spark, own or connection.address, queries, schema)
        return mark_staged(rows, name)

    def _place_of(self, name: str) -> tuple[LedgerConnection, State]:
        state = next(state for state in self.topology.states if state.name == name)
        return self.databases.connection_of(state.database), state

    def _stage(
        self, state: State, frame: DataFrame, meta: BatchMeta, aside: Sequence[SetAside]
    ) -> Fold:
        """Stage a state's frame, and return what the state then lacks of what was emitted."""
        connection = self.databases.connection_of(state.database)
        stored = stored_state(self.topology.name, state)
        staged = reduce_frame(frame, stored).coalesce(self.topology.max_staging_sessions)
        own = executor_address(state.database)
        tables = attempt_table.open_table(
            connection, stored, self.grant, meta.emitted.count, for_executors=own is not None
        )
        task = stage_task(connection, tables, self.grant, own)
        task = replace(task, address=task_address(self.spark, task.address))
        partitions = write(staged, task)
        unacked = declare_partitions(connection, self.grant, state.name, partitions, aside)
        logger.info("%s staged %s in %s partitions", self.grant, state.name, partitions)
        return unacked


def _report(connection: LedgerConnection, grant: Grant, error: ReliabilityError) -> int:
    """Record in the ledger why the attempt failed, as the exit code does not say why."""
    logger.error("%s", error)
    try:
        end_attempt(connection, grant, error)
    except ReliabilityError as unreachable:
        logger.warning("cannot record the failure in the ledger: %s", unreachable)
    return 1


def as_error(error: Exception) -> ReliabilityError:
    """Return the error that the ledger records for what the step raised."""
    if isinstance(error, ReliabilityError):
        return error
    if is_lost_evaluation(error):
        return EvaluationLost("an executor was lost that held rows which several states share")
    return raised_by_task(error) or _wrong_checksum(error) or ProcessFunctionFailed(_summary(error))


def _wrong_checksum(error: Exception) -> ReliabilityError | None:
    """Return what to do about a file that is not as Hadoop's file beside it says, else None."""
    match = _CHECKSUM.search(str(error))
    if match is None:
        return None
    folder, _, name = match[1].rpartition("/")
    return SourceUnreadable(
        f"{match[1]} is not as the checksums beside it say",
        remedy=f"if it is right, delete {folder}/.{name}.crc, which belongs to an older file.",
    )


def raised_by_task(error: BaseException) -> ReliabilityError | None:
    """Return the error of this package that a task raised, None if it raised another.

    >>> raised = "reliability.core.errors.TextNotStorable: [TEXT_NOT_STORABLE] it lacks the euro"
    >>> print(raised_by_task(RuntimeError(f"Traceback:\\n{raised}. What to do: drop it.\\n")))
    [TEXT_NOT_STORABLE] it lacks the euro. What to do: drop it.
    """
    match = _RAISED.search(str(error))
    if match is None or match[1] not in error_types():
        return None
    error = error_types()[match[1]](match[2])
    return error if match[3] in (None, error.what_to_do) else type(error)(match[2], remedy=match[3])


def _summary(error: Exception) -> str:
    """Return the first line of an error, with what Python's worker raised or Java's last cause."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix(": ") for line in lines if line.startswith(_THROWN)]
    parts = [line.rstrip(":") for line in lines[:1]] + (_raised_by_worker(lines) or causes)[-1:]
    return f"{type(error).__name__}: {'; '.join(parts)}"[:500]


def _raised_by_worker(lines: Sequence[str]) -> list[str]:
    """Return the line below each Python traceback, which says what was raised."""
    starts = [n for n, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    below = [[line for line in lines[n + 1 :] if not line.startswith(" ")] for n in starts]
    return [rest[0] for rest in below if rest]


def run() -> None:
    """Process the step that the command line names; the exit code tells Spark what became of it."""
    drop_package_folder(sys.path)
    find_code(sys.path)
    sys.exit(main(sys.argv[1:]))
