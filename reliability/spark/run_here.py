"""`reliability.run`: a run of a topology from Python, for notebooks and CI, without Airflow."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from reliability.core.attempt import Grant
from reliability.core.definitions import Topology
from reliability.core.errors import InvalidDefinition
from reliability.core.periods import UTC
from reliability.core.progress import TxidProgress
from reliability.core.spout import Interval
from reliability.deployment.fingerprint import digest_of_loaded
from reliability.deployment.settings import person
from reliability.deployment.topologies import folder_of
from reliability.spark.frames.jvm import has_jvm
from reliability.transaction.interval_run import IntervalRun, RunResult
from reliability.transaction.own_run import RunFailed, RunStep
from reliability.transaction.process.attempt_messages import driver_session, end_attempt
from reliability.transaction.topology.databases import open_ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: All sessions of a process share what is cached, and each step begins by forgetting it (V5).
_one_at_a_time = threading.Lock()
#: The environment variable of Python workers that tells those of one code from those of another.
WORKERS = "RELIABILITY_CODE_DIGEST"


class PrintedProgress(TxidProgress):
    """Prints what becomes of txids, each as a line."""

    def __init__(self) -> None:
        self._last: dict[int, str] = {}

    def say(self, text: str, txid: int) -> None:
        if self._last.get(txid) != text:
            self._last[txid] = text
            print(text, file=sys.stderr, flush=True)


def run(
    topology: Topology,
    *,
    interval: str | Interval | None = None,
    spark: SparkSession | None = None,
    master: str = "",
    conf: Mapping[str, str] | None = None,
    timeout: float = 3600,
    reason: str = "",
    progress: TxidProgress | None = None,
) -> Sequence[RunResult]:
    """Emit an interval, process and commit its txids, as a run of the topology's DAG would.

    What has committed of the interval is replayed. Progress is printed on stderr.

    :param interval: such as `2026-01`, `2026-01-02` or `2026-01-02T10/2026-01-02T11`, in the
        time zone of the spout's dates if it names none; None for a spout without intervals
    :param spark: process in this session, one step after another in the whole process, with its
        settings that affect values set as on every host. Before and after a step, all that is
        cached in any session is forgotten; meanwhile, call no `clearCache()`. By default each step
        is a spark-submit on this host, or a step of its warm engine
    :param master, conf: for spark-submit
    :param timeout: how many seconds to wait for the source and for a txid's turn
    :raises InvalidDefinition: the interval does not fit the topology, or spark-submit could not
        import it
    :raises ReliabilityError: something is not done
    """
    if isinstance(interval, str):
        interval = Interval.parse(interval, topology.spout.time_zone or UTC)
    check_interval(topology, interval)
    run_step = in_session(spark, topology) if spark else by_submit(topology, master, conf or {})
    with open_ledger(f"{topology.name} run") as connection:
        own = IntervalRun(
            connection,
            topology,
            interval,
            run_step,
            by=person(),
            patience=timeout,
            reason=reason,
            progress=progress or PrintedProgress(),
        )
        try:
            return own.run()
        except RunFailed as failed:
            raise failed.first from failed


def check_interval(topology: Topology, interval: Interval | None) -> None:
    """Check that an interval is given if the topology reads by it, and only then.

    :raises InvalidDefinition: it does not fit
    """
    if topology.spout.timed and interval is None:
        raise InvalidDefinition(
            f"topology {topology.name} reads by interval", remedy="name one, such as 2026-01-02."
        )
    if not topology.spout.timed and interval is not None:
        raise InvalidDefinition(
            f"topology {topology.name} does not read by interval", remedy="leave it out."
        )


def by_submit(topology: Topology, master: str, conf: Mapping[str, str]) -> RunStep:
    """Return what runs steps by spark-submit, or in the warm engine of this host."""
    from reliability.spark.launch import steps_here

    module = topology.module
    if module in ("", "__main__"):
        raise InvalidDefinition(
            f"topology {topology.name} is defined in no module that spark-submit could import",
            remedy="put it into a module of its own, or process in a session of yours (spark=).",
        )
    folder = folder_of(module)
    code = [folder] if folder else []
    return steps_here(topology, module, code, master, conf)


def in_session(spark: SparkSession, topology: Topology) -> RunStep:
    """Return what runs steps in a session of this process, one after another.

    :raises InvalidDefinition: it is one of Spark Connect, or a datetime without a time zone would
        be another one there
    """
    if not has_jvm(spark):
        raise InvalidDefinition(
            "the session is one of Spark Connect, which has no JVM in this process",
            remedy="make it with the setting spark.api.mode=classic, and without SPARK_REMOTE.",
        )
    if time.timezone or time.daylight:
        raise InvalidDefinition(
            "the local time of this process is not UTC, which that of each driver is",
            remedy="set the environment variable TZ=UTC before Python and Spark start.",
        )

    def run_step(grant: Grant, step: str, is_wanted: Callable[[], bool]) -> None:
        from reliability.spark.driver import as_error, process_with

        with _one_at_a_time, driver_session(grant) as connection:
            # else a step would read what another one has evaluated
            spark.catalog.clearCache()
            # A worker of other code has a module as it was; Spark keeps them by environment.
            spark.sparkContext.environment[WORKERS] = digest_of_loaded()
            try:
                process_with(spark.newSession(), connection, topology, grant, step)
            except Exception as error:
                end_attempt(connection, grant, as_error(error))
                raise
            finally:
                spark.catalog.clearCache()

    return run_step
