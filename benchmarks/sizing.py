"""What a txid takes of Postgres and of Airflow's hosts: `python -m benchmarks.sizing [PART …]`.

`txids` stages a row each in this process, without Spark. `rows` stages a million by Spark.
`airflow` runs txids of a row through Airflow and spark-submit, and looks at processes and sessions.
The
tables of docs/deployment/sizing.md are computed from these figures.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
from psycopg2.sql import SQL

from benchmarks import topologies
from benchmarks.airflow.measure import PATIENCE, airflow, has_ended
from benchmarks.contestants.reliability import month
from benchmarks.data import write_file, write_rows
from benchmarks.ledger_growth import Pipeline, columns_of, medians, tidy_up, written
from benchmarks.postgres import execute_alone, transaction
from benchmarks.project.spark import in_session
from benchmarks.project.transactions import Transactions
from benchmarks.server import ROLE, Server
from benchmarks.study import show, study
from dev.services.airflow import COMPONENTS
from dev.services.airflow_api import AirflowApi
from dev.services.credentials import SUPERUSER
from dev.services.processes import wait_until
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.maintain.sweep import sweep

TXIDS, AFTER_CHECKPOINTS = 500, 30
ROWS, KEYS = 1_000_000, 10_000
LOOK_SECONDS = 0.25
IDLE_SECONDS = 60
BURSTS = (1, 4)
WAITING = 20
MEGABYTE = 1 << 20

TABLES = """
    SELECT n.nspname || '.' || relname AS "table", pg_total_relation_size(c.oid) AS bytes
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname IN ('reliability', 'reliability_contribution', 'public') AND relkind = 'r'
"""
SESSIONS = """
    SELECT application_name AS name FROM pg_stat_activity
     WHERE datname = %s AND application_name LIKE 'reliability%%'
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


# --- rows by Spark -------------------------------------------------------------------------------


def measure_rows(server: Server) -> None:
    """Let Spark stage a million rows of each kind, and commit them."""
    found: dict[str, Mapping[str, float]] = {}
    for name, topology, interval in (
        ("append", topologies.append, None),
        ("append as a view", topologies.append_as_view, None),
        (f"sums of {KEYS:,} keys", topologies.totals("sums"), None),
        ("upsert of new keys", topologies.upsert, month(1)),
    ):
        with server.ledger("rows") as (connection, home):
            write_rows(home / "append", np.arange(ROWS), seed=1)
            write_rows(home / "upsert" / f"{month(1).start:%Y-%m}", np.arange(ROWS), seed=1)
            write_file(home / "sums" / "1.parquet", columns_of(i % KEYS for i in range(ROWS)))
            work = Transactions(connection, topology, in_session)
            before, at_start = tables(server, connection, "rows"), written(connection)
            for txid in work.emit(interval):
                work.process(txid)
                staged = written(connection) - at_start
                work.commit()
            total = written(connection) - at_start
            sweep(connection, topology.name, clean=True)
            grown = tables(server, connection, "rows").sub(before, fill_value=0)["bytes"]
            kept = grown[[n for n in grown.index if not n.startswith("public.")]].sum()
        found[name] = {
            "WAL staged, MB": staged / 1000,
            "WAL of the commit, MB": (total - staged) / 1000,
            "target, MB": (grown.sum() - kept) / 1e6,
            "contributions, MB": kept / 1e6,
        }
    show(f"a txid of {ROWS:,} rows", pd.DataFrame(found))


# --- Airflow -------------------------------------------------------------------------------------


class Watch(threading.Thread):
    """Looks again and again at all processes of Airflow and at the sessions with the ledger.

    :ivar resident: kind of process -> the most memory that one of the kind had
    :ivar together: kind of process -> the most memory that all of the kind had at once
    :ivar sessions: name of sessions -> how many there were at once, at most
    """

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self.server = server
        services = server.environment.airflow
        pids = {name: services.background(name).find() for name in COMPONENTS}
        self.roots = {name: psutil.Process(found.pid) for name, found in pids.items() if found}
        self.resident: Counter[str] = Counter()
        self.together: Counter[str] = Counter()
        self.sessions: Counter[str] = Counter()
        self.all_sessions = 0
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(LOOK_SECONDS):
            self._look_at_processes()
            self._look_at_sessions()

    def _look_at_processes(self) -> None:
        together: Counter[str] = Counter()
        for name, root in self.roots.items():
            for process in (root, *root.children(recursive=True)):
                with suppress(psutil.Error):  # it has ended
                    kind, size = kind_of(process, name), process.memory_info().rss
                    self.resident[kind] = max(self.resident[kind], size)
                    together[kind] += size
        self.together |= together

    def _look_at_sessions(self) -> None:
        with transaction(self.server.database("postgres", SUPERUSER)) as cursor:
            cursor.execute(SESSIONS, [ROLE])
            found = Counter(role_of(name) for (name,) in cursor.fetchall())
        self.sessions |= found
        self.all_sessions = max(self.all_sessions, found.total())

    def seconds(self) -> float:
        """Return the CPU time of all components so far, and of all that they have started."""
        return sum(
            sum(process.cpu_times()[:4])
            for root in self.roots.values()
            for process in (root, *root.children(recursive=True))
            if process.is_running()
        )


def kind_of(process: psutil.Process, component: str) -> str:
    """Say what a process of a component is, by its arguments."""
    arguments = " ".join(process.cmdline())
    for word, kind in (
        ("org.apache.spark.deploy.SparkSubmit", "driver, JVM"),
        ("process_batch.py", "driver, Python"),
        (".daemon", "Spark's Python workers"),
        ("task runner", "task"),
        ("supervisor", "supervisor of a task"),
    ):
        if word in arguments:
            return kind
    return component


def role_of(name: str) -> str:
    """Say whose session it is, by its application_name."""
    words = name.split()
    return " ".join(word for word in words if not any(c.isdigit() for c in word))


@contextmanager
def watching(server: Server) -> Iterator[Watch]:
    watch = Watch(server)
    watch.start()
    try:
        yield watch
    finally:
        watch.ended.set()
        watch.join()


def measure_airflow(server: Server) -> None:
    """Run txids one at a time and several at once; let some wait in the triggerer."""
    found: dict[str, dict[str, float]] = {}
    home = server.environment.state_dir / "files"
    with airflow(server, home) as api:
        run_with(api, home, 1)  # compiles what is compiled once
        with watching(server) as watch:
            before = watch.seconds()
            time.sleep(IDLE_SECONDS)
            idle = (watch.seconds() - before) / IDLE_SECONDS
        found["idle"] = figures_of(watch)
        for many in BURSTS:
            with watching(server) as watch:
                started, before = time.monotonic(), watch.seconds()
                run_with(api, home, many)
                used = watch.seconds() - before - idle * (time.monotonic() - started)
            found[f"{many} at once"] = {**figures_of(watch), "CPU of a txid, s": used / many}
    show(f"Airflow; idle it takes {idle:.2f} cores", pd.DataFrame(found).fillna(0))


def figures_of(watch: Watch) -> dict[str, float]:
    return {
        **{f"{kind}, MB": size / MEGABYTE for kind, size in sorted(watch.resident.items())},
        **{f"all of {kind}, MB": s / MEGABYTE for kind, s in sorted(watch.together.items())},
        **{f"sessions, {name}": many for name, many in sorted(watch.sessions.items())},
        "sessions at once": watch.all_sessions,
    }


def run_with(api: AirflowApi, home: Path, files: int) -> None:
    """Deliver so many files, and let a run make a txid of each."""
    there = len([*(home / "small").glob("*")])
    for number in range(there, there + files):
        write_file(home / "small" / f"{number:04}.parquet", columns_of([number]))
    path = "/api/v2/dags/small/dagRuns"
    run = api.post(path, {"logical_date": None})["dag_run_id"]
    wait_until(lambda: has_ended(api.get(f"{path}/{run}")), "the run", PATIENCE)
    assert api.get(f"{path}/{run}")["state"] == "success"


PARTS: Mapping[str, Callable[[Server], None]] = {
    "txids": measure_txids,
    "rows": measure_rows,
    "airflow": measure_airflow,
}


def main() -> None:
    with study() as server:
        for part in sys.argv[1:] or PARTS:
            PARTS[part](server)


if __name__ == "__main__":
    main()
