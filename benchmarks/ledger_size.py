"""How much the ledger grows per million source rows, and how many ack messages that takes.

Storm's acker keeps about 20 bytes per tree of tuples while it lives. Here a tree is an attempt, and
its rows stay: the question is how that compares with the rows that it accounts for.

    python -m benchmarks.ledger_size
"""

from __future__ import annotations

from typing import Any

import numpy as np
from psycopg2.sql import SQL

from benchmarks.data import write_file
from benchmarks.project.spark import in_session
from benchmarks.project.transactions import Transactions
from benchmarks.server import Server
from benchmarks.study import show, study
from reliability import Count, FileSpout, State, Sum, Topology

ROWS = (10_000, 100_000, 1_000_000)
TABLES = (
    "transaction", "source_item", "request", "request_contact", "attempt", "attempt_step", "sink",
    "ack", "contribution", "commit_log", "attempt_event",
)  # fmt: skip
BYTES = "SELECT coalesce(sum(pg_column_size(r)), 0) AS bytes FROM"


def both(batch: Any) -> dict[str, Any]:
    return {"per_key": batch, "total": batch}


topology = Topology(
    "sizes",
    spout=FileSpout("rows.parquet"),
    process=both,
    states=[
        State("per_key", {"k": "bigint"}, {"n": Count()}),
        State("total", {}, {"v": Sum("v")}),
    ],
)


def measure(server: Server, rows: int) -> dict[str, int]:
    """Commit one txid of so many rows; return the bytes of the ledger's rows, and the acks."""
    with server.ledger() as (connection, home):
        numbers = np.arange(rows)
        write_file(home / "rows.parquet", {"k": numbers % 1000, "v": numbers})
        Transactions(connection, topology, in_session).transact()
        with connection.transaction() as tx:
            sizes = [tx.one(SQL(f"{BYTES} reliability.{table} r"))["bytes"] for table in TABLES]
            acks = tx.one(SQL("SELECT count(*) AS acks FROM reliability.ack"))["acks"]
    size = int(sum(sizes))
    per_million = size * 1_000_000 // rows
    return {"rows": rows, "acks": acks, "bytes": size, "bytes per million rows": per_million}


def main() -> None:
    with study() as server:
        show("the ledger of a txid with two states", [measure(server, rows) for rows in ROWS])


if __name__ == "__main__":
    main()
