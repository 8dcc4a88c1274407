"""The contestants, a module each: a function an operation, called in the contestant's process.

An operation gets a Job and returns the seconds of its phases, or None. Those called `base_…` make
the database that each measurement starts from a copy of.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """Who is measured.

    :param name: the module below `benchmarks.contestants`
    :param promise: what happens if the job is tried again
    :param is_peer: it runs in the benchmarks' own environment
    :param is_limit: it shows what Postgres alone can do, and is no way to do the work
    :param submits: its cold run is a spark-submit, which leaves no warm session behind
    """

    name: str
    label: str
    promise: str
    is_peer: bool = False
    is_limit: bool = False
    submits: bool = False


RELIABILITY = Contestant(
    name="reliability",
    label="this project",
    promise="exactly once, and replaced by a replay",
    submits=True,
)
RECIPE = Contestant(
    name="recipe",
    label="recipe: DuckDB and ADBC",
    promise="exactly once, by a batch id in the same transaction",
    is_peer=True,
)
DLT = Contestant(
    name="dlt_load",
    label="dlt",
    promise="an append may double rows, a merge does not",
    is_peer=True,
)
SPARK_JDBC = Contestant(
    name="spark_jdbc",
    label="Spark JDBC",
    promise="a transaction a partition: may double rows",
)
FOREACH_BATCH = Contestant(
    name="foreach_batch",
    label="foreachBatch and JDBC",
    promise="an append may double rows; else exactly once, by a batch id",
)
WITHOUT_LEDGER = Contestant(
    name="without_ledger",
    label="this project's job without its ledger",
    promise="none",
    is_limit=True,
)
PSQL_COPY = Contestant(
    name="psql_copy",
    label="psql \\copy, binary, two sessions",
    promise="none",
    is_limit=True,
)
BARE_SQL = Contestant(
    name="bare_sql",
    label="one SQL statement over staged rows",
    promise="none",
    is_limit=True,
)
PGBENCH = Contestant(
    name="pgbench",
    label="pgbench -N, one client",
    promise="none",
    is_limit=True,
)
PLAIN_TASK = Contestant(
    name="plain_task",
    label="plain SparkSubmitOperator",
    promise="a retry after the commit doubles rows",
)
