"""Where Spark tasks find a database: they have no Airflow, and may run on another host."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reliability.core.errors import LedgerRefusedLogin
from reliability.deployment.address import DatabaseAddress, Keywords, KeywordsInFile

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class SentKeywords:
    """Reads the driver's file, if this is its host; otherwise what the driver has sent.

    A broadcast lies in no Spark conf, argument, event log or page of Spark's UI, and in a file of
    a worker's no longer than its application. What `spark.files` distributes stays on the workers.
    """

    in_file: KeywordsInFile | None
    sent: Broadcast[dict[str, str]]

    def __call__(self) -> Keywords:
        if self.in_file is not None:
            try:
                return self.in_file()
            except LedgerRefusedLogin:  # it is not here
                pass
        return self.sent.value


def task_address(spark: SparkSession, address: DatabaseAddress) -> DatabaseAddress:
    """Return an address that the session's tasks can use, wherever they run.

    If libpq finds the credentials, it does so by the files and the environment of each executor.
    """
    if address.ask is None:
        return address
    in_file = address.ask if isinstance(address.ask, KeywordsInFile) else None
    if in_file is not None and is_local(spark.sparkContext.master or ""):
        return address
    sent = spark.sparkContext.broadcast(dict(address.ask()))
    return replace(address, ask=SentKeywords(in_file, sent))


def is_local(master: str) -> bool:
    """Say whether Spark tasks run on the driver's host, as its user.

    >>> is_local("local[4]"), is_local("local"), is_local("local-cluster[2,1,1024]")
    (True, True, False)
    """
    return master.partition("[")[0] == "local"
