"""What a txid takes of Postgres and of a worker: `python -m benchmarks.sizing [PART …]`.

`txids` stages a row each without Spark, `rows` 300,000. `drivers` runs spark-submit. The tables of
docs/deployment/sizing.md are computed from these figures.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pandas as pd
from psycopg2.sql import SQL

from benchmarks import topologies
from benchmarks.data import write_file, write_rows
from benchmarks.ledger_growth import Pipeline, columns_of, medians, tidy_up, written
from benchmarks.memory import INTERVAL_SECONDS, KINDS, MEGABYTE, memory_of_children
from benchmarks.postgres import execute_alone
from benchmarks.project.spark import by_spark_submit
from benchmarks.project.staging import DirectStaging
from benchmarks.project.transactions import Transactions
from benchmarks.server import Server
from benchmarks.study import highest, run_parts, show
from dev.services.credentials import SUPERUSER
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.maintain.sweep import sweep

TXIDS, AFTER_CHECKPOINTS = 200, 20
ROWS = 300_000
LOOK_SECONDS = 0.25
AT_ONCE = (1, 2)

TABLES = """
    SELECT n.nspname || '.' || relname AS "table", pg_total_relation_size(c.oid) AS bytes
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname IN ('reliability', 'reliability_contribution', 'public') AND relkind = 'r'
"""
SESSIONS = """
    SELECT application_name AS name FROM pg_stat_activity
     WHERE datname = current_database() AND application_name LIKE 'reliability%%'
       AND backend_type = 'client backend'
"""


# --- txids without Spark -------------------------------------------------------------------------


def measure_txids(server: Server) -> None:
    """Count rows, bytes and WAL of a txid of one row: of many in a row, and after a checkpoint."""
    with server.ledger("txids") as (connection, home):
        Pipeline(connection, topologies.growth, home).transact()
        before = tables(server, connection, "txids")
        many = Pipeline(connection, topologies.growth, home)
        for _ in range(TXIDS):
            many.transact()
            many.sweep()
        grown = tables(server, connection, "txids") - before
        show("rows and bytes of a txid", grown[grown["rows"] > 0] / TXIDS)
        print(f"bytes of all tables: {grown['bytes'].sum() / TXIDS:,.0f}", flush=True)
        rare = Pipeline(connection, topologies.growth, home)
        for _ in range(AFTER_CHECKPOINTS):
            execute_alone(server.database("postgres", SUPERUSER), "CHECKPOINT")
            rare.transact()
        found = {"one after the other": many.figures, "after a checkpoint": rare.figures}
        show("milliseconds and WAL of a txid", medians(found))


def tables(server: Server, connection: LedgerConnection, database: str) -> pd.DataFrame:
    """Return the rows and bytes of each table, with its indexes, when it is tidied up."""
    tidy_up(server, database)
    with connection.transaction() as tx:
        sizes = {row["table"]: int(row["bytes"]) for row in tx.all(SQL(TABLES))}
        counts = {
            name: int(tx.one(SQL(f"SELECT count(*) AS rows FROM {name}"))["rows"]) for name in sizes
        }
    return pd.DataFrame({"rows": counts, "bytes": sizes})


# --- rows without Spark --------------------------------------------------------------------------


def measure_rows(server: Server) -> None:
    """Stage and commit rows of each kind in one txid; the figures are of a million."""
    found: dict[str, Mapping[str, float]] = {}
    for name, topology in (
        ("append", topologies.append),
        ("append as a view", topologies.append_as_view),
        ("sums of new keys", topologies.totals("sums")),
    ):
        with server.ledger("rows") as (connection, home):
            write_rows(home / "append", np.arange(ROWS), seed=1, files=1)
            write_file(home / "sums" / "1.parquet", columns_of(range(ROWS)))
            work = Transactions(connection, topology, DirectStaging())
            before, at_start = tables(server, connection, "rows"), written(connection)
            for txid in work.emit():
                work.process(txid)
                staged = written(connection) - at_start
                work.commit()
            total = written(connection) - at_start
            sweep(connection, topology.name, clean=True)
            grown = tables(server, connection, "rows").sub(before, fill_value=0)["bytes"]
            kept = grown[[n for n in grown.index if not n.startswith("public.")]].sum()
        found[name] = {
            "WAL, staged": staged * 1000,
            "WAL, commit": (total - staged) * 1000,
            "target": grown.sum() - kept,
            "ledger and contributions": kept,
        }
    show("MB of a million rows, that is bytes of a row", pd.DataFrame(found) / ROWS)


# --- drivers -------------------------------------------------------------------------------------


def sessions(connection: LedgerConnection) -> Counter[str]:
    """Return how many sessions the ledger has now, by what has opened them, and of all."""
    with connection.transaction() as tx:
        names = [str(row["name"]) for row in tx.all(SQL(SESSIONS))]
    found = Counter(name.split()[-1] for name in names)
    return found | Counter({"sessions at once": len(names)})


def measure_drivers(server: Server) -> None:
    """Process txids of one row, each by a spark-submit of its own, one alone and two at once."""
    found: dict[str, Mapping[str, float]] = {}
    for many in AT_ONCE:
        with (
            server.ledger("drivers") as (connection, home),
            LedgerConnection(connection.dsn, "watch") as other,
        ):
            for number in range(many):
                write_file(home / "small" / f"{number}.parquet", columns_of([number]))
            txids = Transactions(connection, topologies.small, by_spark_submit).emit()
            before = children_seconds()
            with (
                highest(memory_of_children, INTERVAL_SECONDS) as memory,
                highest(partial(sessions, other), LOOK_SECONDS) as at_once,
                ThreadPoolExecutor(many) as pool,
            ):
                [*pool.map(partial(process, connection.dsn), txids)]
        found[f"{many} at once"] = {
            "CPU of a driver, s": (children_seconds() - before) / many,
            **{f"{kind} of a driver, MB": memory[kind] / MEGABYTE / many for kind in KINDS},
            **at_once,
        }
        show("drivers", pd.DataFrame(found))


def process(dsn: str, txid: int) -> None:
    with LedgerConnection(dsn, "reliability task") as own:
        Transactions(own, topologies.small, by_spark_submit).process(txid)


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


PARTS: Mapping[str, Callable[[Server], None]] = {
    "txids": measure_txids,
    "rows": measure_rows,
    "drivers": measure_drivers,
}


if __name__ == "__main__":
    run_parts(PARTS)
