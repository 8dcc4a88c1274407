"""The contestants, a module each: a function an operation, called in the contestant's process.

An operation gets a Job and returns the seconds of its phases, or None. Those called `base_…` make
the database that each measurement starts from a copy of.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
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
    promise: str = "none"
    is_peer: bool = False
    is_limit: bool = False
    submits: bool = False


RELIABILITY = Contestant(
    "reliability", "this project", "exactly once, and replaced by a replay", submits=True
)
RECIPE = Contestant(
    "recipe",
    "recipe: DuckDB and ADBC",
    "exactly once, by a batch id in the same transaction",
    is_peer=True,
)
DLT = Contestant("dlt_load", "dlt", "an append may double rows, a merge does not", is_peer=True)
SPARK_JDBC = Contestant("spark_jdbc", "Spark JDBC", "a transaction a partition: may double rows")
FOREACH_BATCH = Contestant(
    "foreach_batch",
    "foreachBatch and JDBC",
    "an append may double rows; else exactly once, by a batch id",
)
WITHOUT_LEDGER = Contestant(
    "without_ledger", "this project's job without its ledger", is_limit=True
)
PSQL_COPY = Contestant("psql_copy", "psql \\copy, binary, two sessions", is_limit=True)
BARE_SQL = Contestant("bare_sql", "one SQL statement over staged rows", is_limit=True)
PGBENCH = Contestant("pgbench", "pgbench -N, one client", is_limit=True)
PLAIN_TASK = Contestant(
    "plain_task", "plain SparkSubmitOperator", "a retry after the commit doubles rows"
)
