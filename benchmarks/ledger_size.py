"""How much the ledger grows per million source rows, and how many ack messages that takes.

Storm's acker keeps about 20 bytes per tree of tuples while it lives. Here a tree is an attempt, and
its rows stay: the question is how that compares with the rows that it accounts for.

    python -m benchmarks.ledger_size
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from psycopg2.sql import SQL
from rich.console import Console
from rich.table import Table

from dev.services.environment import Environment
from dev.services.postgres import NO_FSYNC
from reliability import Count, FileSpout, State, Sum, Topology
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.migrations import migrate
from tests.support.fix_pipeline import Pipeline
from tests.support.fix_spark import local_session
from tests.support.runner import TransactionRunner

ROOT = Path(__file__).resolve().parents[1]
ROWS = (10_000, 100_000, 1_000_000)
TABLES = (
    "transaction", "source_item", "request", "request_contact", "attempt", "attempt_step", "sink",
    "ack", "contribution", "commit_log", "attempt_event",
)  # fmt: skip


def both(batch: Any) -> dict[str, Any]:
    """Feed two states."""
    return {"per_key": batch, "total": batch}


def sizes(rows: int) -> Topology:
    """A topology over one file of so many rows."""
    return Topology(
        f"rows_{rows}",
        spout=FileSpout(f"{rows}.parquet"),
        process=both,
        states=[
            State("per_key", {"k": "bigint"}, {"n": Count()}, table=f"per_key_{rows}"),
            State("total", {}, {"v": Sum("v")}, table=f"total_{rows}"),
        ],
    )


def write_file(folder: Path, rows: int) -> None:
    """Write a file of rows (k, v) with a thousand keys."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = np.arange(rows)
    pq.write_table(pa.table({"k": numbers % 1000, "v": numbers}), folder / f"{rows}.parquet")


def measure(connection: LedgerConnection, topology: str) -> dict[str, int]:
    """Return bytes of the ledger's rows, and how many acks there are, for one topology."""
    found = {"bytes": 0}
    with connection.transaction() as tx:
        for table in TABLES:
            owner = "request_id IN (SELECT request_id FROM reliability.request WHERE topology ="
            where = f"{owner} %(t)s)" if table == "request_contact" else "topology = %(t)s"
            text = f"SELECT coalesce(sum(pg_column_size(r)), 0) AS b FROM reliability.{table} r"
            found["bytes"] += tx.one(SQL(f"{text} WHERE {where}"), t=topology)["b"]
        acks = SQL("SELECT count(*) AS n FROM reliability.ack WHERE topology = %(t)s")
        found["acks"] = tx.one(acks, t=topology)["n"]
    return found


def main() -> None:
    """Run each size once and print a table."""
    table = Table(title="one txid, two states, three reduce tasks each")
    for name in ("source rows", "acks", "bytes in the ledger", "bytes per million source rows"):
        table.add_column(name, justify="right")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        environment = Environment(ROOT, home / "env", postgres_settings=NO_FSYNC, profile="demo")
        environment.up_postgres()
        os.environ.update(environment.own_env())
        os.environ["RELIABILITY_HOME"] = folder
        connection = LedgerConnection("service=reliability")
        try:
            migrate(connection)
            spark = local_session()
            for rows in ROWS:
                write_file(home, rows)
                pipeline = Pipeline(TransactionRunner(sizes(rows), connection), spark)
                pipeline.emit(None)
                pipeline.transact(1)
                found = measure(connection, f"rows_{rows}")
                per_million = found["bytes"] * 1_000_000 // rows
                table.add_row(
                    f"{rows:,}", str(found["acks"]), f"{found['bytes']:,}", f"{per_million:,}"
                )
            spark.stop()
        finally:
            connection.close()
            environment.destroy()
    Console().print(table)


if __name__ == "__main__":
    main()
