"""Renew the lease on progress: a long shuffle acks nothing for a while, but tasks finish (A7)."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from reliability.core.attempt import Grant
from reliability.core.errors import AttemptFenced, ReliabilityError
from reliability.ledger.connection import LedgerConnection
from reliability.spark.frames.jvm import jobs_with_tag, session_tag
from reliability.transaction.process.attempt_messages import renew_lease

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)
POLL_INTERVAL_SECONDS = 2.0


class Progress:
    """While the block runs, renew the lease whenever Spark has finished more tasks.

    If the attempt was ended meanwhile, cancel its jobs, as their results cannot count.
    """

    def __init__(self, spark: SparkSession, connection: LedgerConnection, grant: Grant) -> None:
        self._spark = spark
        self._connection = connection
        self._grant = grant
        self._tag = session_tag(spark)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)

    def __enter__(self) -> Progress:
        # Spark marks the queries of a session so; let the thread's other jobs have the mark too.
        self._spark.sparkContext.addJobTag(self._tag)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(timeout=10)
        self._connection.close()

    def _watch(self) -> None:
        finished = 0
        while not self._ended.wait(POLL_INTERVAL_SECONDS):
            try:
                now = self._finished_tasks()
                if now != finished:
                    renew_lease(self._connection, self._grant)
                    finished = now
            except AttemptFenced as fenced:
                logger.warning("%s", fenced)
                self._spark.interruptAll()  # not cancelAllJobs: other steps may share its JVM
                return
            except ReliabilityError as error:
                logger.warning("cannot renew the lease: %s", error)
            except Exception as error:  # the JVM is gone; the main thread handles that
                logger.warning("cannot ask Spark for its progress: %s", type(error).__name__)
                return

    def _finished_tasks(self) -> int:
        """Return a number that changes whenever a task of this session finishes."""
        context = self._spark.sparkContext
        tracker = context.statusTracker()
        own = jobs_with_tag(self._spark, self._tag)
        jobs = [job for job in map(tracker.getJobInfo, own) if job and job.status == "RUNNING"]
        ids = {stage for job in jobs for stage in job.stageIds}
        stages = [stage for stage in map(tracker.getStageInfo, ids) if stage]
        return sum(stage.stageId * 1_000_000 + stage.numCompletedTasks for stage in stages)
