"""How the ledger's work grows with its txids, its topologies and the keys of a state.

    python -m benchmarks.ledger_growth [txids] [topologies] [commits] [keys]

Spark does not run: a small batch is staged in this process. Every figure is a median.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from psycopg2.sql import SQL
from typer.testing import CliRunner

from benchmarks import topologies
from benchmarks.copied_history import START, fill
from benchmarks.data import write_file
from benchmarks.postgres import execute_alone
from benchmarks.project.staging import DirectStaging
from benchmarks.project.transactions import Transactions
from benchmarks.server import Server
from benchmarks.study import run_parts, seconds_of, show
from benchmarks.topologies import by_minute
from reliability import Topology
from reliability.cli import app
from reliability.core.errors import ReliabilityError
from reliability.core.spout import Interval
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.queries import queries
from reliability.transaction.commit.committer import drain
from reliability.transaction.emit.requests import Run, settle
from reliability.transaction.maintain.sweep import sweep

TXIDS = (10, 1_000, 100_000, 1_000_000)
TOPOLOGIES = (10, 100, 1_000)
SIDE_BY_SIDE = (1, 2, 4)
COMMITS = 30
KEYS = (10_000, 100_000, 1_000_000, 10_000_000)
CHANGED_KEYS = 1_000
LOADED_AT_ONCE = 1_000_000
ROUNDS = 5
#: A query is named if it takes so many milliseconds in the end, and so many times what it took.
SLOW, GROWS = 5, 5
ENDS_SESSIONS = "pg_terminate_backend"

WRITTEN = "SELECT (pg_current_wal_insert_lsn() - '0/0') / 1000 AS kilobytes"
DATABASE = """SELECT pg_database_size(current_database()) / 1e6 AS "ledger, MB\""""
CATALOG = """
    SELECT (SELECT count(*) FROM pg_class WHERE oid >= 16384) AS "tables, indexes and views",
           (SELECT sum(pg_total_relation_size(oid)) FROM pg_class
             WHERE relkind = 'r' AND oid < 16384) / 1000 AS "catalogs, kB"
"""

Figures = dict[str, list[float]]
"""What was measured -> a figure for each round."""


@dataclass
class Pipeline:
    """One topology, whose next txid can be emitted, staged, committed and settled."""

    connection: LedgerConnection
    topology: Topology
    home: Path
    figures: Figures = field(default_factory=lambda: defaultdict(list))

    def transact(self, customers: Iterable[int] = (1,)) -> None:
        """Do the next txid with a row for each customer, and time the parts of its run."""
        self._time("an empty transaction", self._next_txid)  # how busy the machine is
        txid, run = self.process(customers)
        self._time("commit", lambda: drain(self.connection, self.topology.name))
        self._time("settle", lambda: settle(self.connection, self.topology.name, run, [txid]))

    def process(self, customers: Iterable[int] = (1,)) -> tuple[int, Run]:
        txid = self._next_txid()
        start = datetime.fromisoformat(START) + txid * timedelta(minutes=1)
        file = f"{self.topology.name}/{start:%Y-%m-%dT%H%M}.parquet"
        write_file(self.home / file, columns_of(customers))
        run = Run(dag_id=self.topology.name, run_id=f"run {txid}")
        transactions = Transactions(self.connection, self.topology, DirectStaging(), run=run)
        with self._counting("emit"):
            transactions.emit(Interval(start, start + timedelta(minutes=1)))
        with self._counting("process"):
            transactions.process(txid)
        phases = transactions.watch.phases
        self.figures["emit"].append(1000 * phases["emit"])
        self.figures["begin and seal"].append(1000 * (phases["process"] - phases["stage"]))
        return txid, run

    def sweep(self) -> None:
        self._time("sweep", lambda: sweep(self.connection, self.topology.name, clean=True))

    def _time(self, what: str, work: Callable[[], object]) -> None:
        with self._counting(what):
            self.figures[what].append(milliseconds_of(work))

    @contextmanager
    def _counting(self, what: str) -> Iterator[None]:
        """Count the WAL of the block."""
        before = written(self.connection)
        yield
        self.figures[f"WAL of {what}, kB"].append(written(self.connection) - before)

    def _next_txid(self) -> int:
        with self.connection.transaction() as tx:
            row = tx.first("topology_position", topology=self.topology.name)
        return int(row["next_txid"]) if row else 1


def written(connection: LedgerConnection) -> float:
    """Return the kilobytes of WAL that the server has written so far."""
    (kilobytes,) = ask(connection, WRITTEN).values()
    return kilobytes


def ask(connection: LedgerConnection, statement: str) -> dict[str, float]:
    with connection.transaction() as tx:
        return {name: float(value) for name, value in tx.one(SQL(statement)).items()}


def columns_of(customers: Iterable[int]) -> dict[str, Any]:
    ids = np.fromiter(customers, dtype=np.int64)
    return {"customer_id": ids, "amount": ids % 1000}


# --- txids ---------------------------------------------------------------------------------------


def measure_txids(server: Server) -> None:
    """Let a ledger grow; time a run, the command line and each query at every size."""
    found: dict[str, Mapping[str, Any]] = {}
    asked: dict[str, Mapping[str, Any]] = {}
    with server.ledger("growth") as (connection, home):
        Pipeline(connection, topologies.growth, home).transact()
        for txids in TXIDS:
            fill(connection, txids)
            tidy_up(server, "growth")
            Pipeline(connection, topologies.growth, home).transact()  # warms the caches
            found[f"{txids:,}"] = {
                **time_rounds(Pipeline(connection, topologies.growth, home)),
                **time_verbs("status", "lag"),
                **ask(connection, DATABASE),
            }
            asked[f"{txids:,}"] = time_queries(connection, "growth", txids)
            show("milliseconds, by txids in the ledger", medians(found))
    show("queries that grow, milliseconds, by txids in the ledger", growing(medians(asked)))


def time_rounds(pipeline: Pipeline) -> Figures:
    for _ in range(ROUNDS):
        pipeline.transact()
        pipeline.sweep()
    return pipeline.figures


def time_verbs(*verbs: str) -> Figures:
    """Time verbs of the command line, without the start of Python."""
    return {verb: [milliseconds_of(partial(call, verb)) for _ in range(3)] for verb in verbs}


def call(verb: str) -> None:
    result = CliRunner().invoke(app, [verb])
    assert result.exit_code == 0, result.output


def time_queries(connection: LedgerConnection, topology: str, txid: int) -> Figures:
    """Time every named query whose parameters are known here; Postgres refuses what writes."""
    known = parameters(topology, txid)
    found: Figures = {}
    for name, text in queries().items():
        needs = set(re.findall(r"%\((\w+)\)s", text))
        if needs <= known.keys() and ENDS_SESSIONS not in text:
            ask = partial(_ask_alone, connection, name, known)
            with suppress(ReliabilityError):
                found[name] = [milliseconds_of(ask) for _ in range(3)]
    return found


def _ask_alone(connection: LedgerConnection, name: str, known: Mapping[str, Any]) -> None:
    with connection.transaction(reads_only=True) as tx:
        tx.all(name, **known)


def parameters(topology: str, txid: int) -> dict[str, Any]:
    """Return values for the parameters of the named queries."""
    start = datetime.fromisoformat(START) + txid * timedelta(minutes=1)
    return {
        "topology": topology, "txid": txid, "txids": [txid], "attempt_id": 0, "attempt_ids": [0],
        "dag_id": topology, "run_id": f"run {txid}", "task": "process", "later_tasks": ["commit"],
        "began_at": None,
        "number": 1, "request_id": txid, "request_ids": [txid], "known": [txid], "unknown": [],
        "interval_start": start, "interval_end": start + timedelta(minutes=1), "moment": start,
        "state": "totals", "sink": "totals", "partition": 0, "replaced_attempt": None,
        "item": f"copy {txid}", "items": [f"copy {txid}"], "file": f"copy {txid}$",
        "parts": ["{(,)}"], "below": txid + 1, "before": txid + 1, "page": 20,
        "curr_txid": txid + 1, "commit_number": txid, "commit_numbers": [txid],
        "granted_after": -1, "most": 100, "last": 1000,
        "request_lease": 600, "silence": 900, "keep_txids": 1000, "keep_age": None,
        "after": 0, "through": 0, "database": "", "takes_over": False,
    }  # fmt: skip


def growing(asked: pd.DataFrame) -> pd.DataFrame:
    """Keep the queries that are slow in the end, and were not in the beginning."""
    first, last = asked.iloc[:, 0], asked.iloc[:, -1]
    return asked[last > np.maximum(SLOW, GROWS * first)]


# --- topologies ----------------------------------------------------------------------------------


def measure_topologies(server: Server) -> None:
    """Add topologies to a ledger; time the command line, and a run of the last topology."""
    found: dict[str, Mapping[str, Any]] = {}
    with server.ledger("topologies") as (connection, home):
        for before, many in zip((0, *TOPOLOGIES), TOPOLOGIES, strict=False):
            for number in range(before + 1, many + 1):
                pipeline = Pipeline(connection, by_minute(f"t{number}"), home)
                pipeline.transact()
            tidy_up(server, "topologies")
            found[f"{many:,}"] = {
                **time_rounds(Pipeline(connection, pipeline.topology, home)),
                **time_verbs("status"),
                **ask(connection, CATALOG),
            }
            show("milliseconds, by topologies in the ledger", medians(found))


# --- commits side by side ------------------------------------------------------------------------


def measure_commits(server: Server) -> None:
    """Commit the txids of several topologies at once, each in a process of its own."""
    found: dict[str, Figures] = defaultdict(lambda: defaultdict(list))
    with server.ledger("commits") as (connection, home):
        for _ in range(3):
            for many in SIDE_BY_SIDE:
                for how, is_grouped in (("one by one", False), ("in groups", True)):
                    names = [f"c{number}" for number in range(many)]
                    for name in names:
                        stage_many(
                            Pipeline(connection, by_minute(name), home), is_grouped=is_grouped
                        )
                    rate = many * COMMITS / commit_side_by_side(connection.dsn, names)
                    found[str(many)][f"txids a second, {how}"].append(rate)
    show("by topologies that commit at the same time", medians(found))


def stage_many(pipeline: Pipeline, *, is_grouped: bool) -> None:
    """Process txids that a single drain commits: together, or each for itself."""
    for _ in range(COMMITS):
        pipeline.process()
    with pipeline.connection.transaction() as tx:
        text = "UPDATE reliability.topology SET groups_commits = %(g)s WHERE topology = %(t)s"
        tx.run(SQL(text), g=is_grouped, t=pipeline.topology.name)


def commit_side_by_side(dsn: str, names: list[str]) -> float:
    """Return the seconds from the common start until the last topology has committed all."""
    context = get_context("spawn")
    ready, ended = context.Barrier(len(names) + 1), context.Barrier(len(names) + 1)
    workers = [context.Process(target=commit_all, args=(dsn, n, ready, ended)) for n in names]
    for worker in workers:
        worker.start()
    ready.wait()
    seconds = milliseconds_of(ended.wait) / 1000
    for worker in workers:
        worker.join()
    return seconds


def commit_all(dsn: str, topology: str, ready: Any, ended: Any) -> None:
    """Commit what is processed, when the others are ready too."""
    with LedgerConnection(dsn) as connection:
        with connection.transaction() as tx:
            tx.one("topology_position", topology=topology)
        ready.wait()
        assert len(drain(connection, topology)) == COMMITS
        ended.wait()


# --- keys ----------------------------------------------------------------------------------------


def measure_keys(server: Server) -> None:
    """Let the table of a state grow; time a txid that changes a thousand of its keys."""
    random = np.random.default_rng(7)
    found: dict[str, Mapping[str, Any]] = {}
    with server.ledger("keys") as (connection, home):
        pipeline = Pipeline(connection, by_minute("keys"), home)
        for before, keys in zip((0, *KEYS), KEYS, strict=False):
            for first in range(before, keys, LOADED_AT_ONCE):
                pipeline.transact(range(first, min(keys, first + LOADED_AT_ONCE)))
            tidy_up(server, "keys")
            changing = Pipeline(connection, pipeline.topology, home)
            for _ in range(ROUNDS):
                changing.transact(random.choice(keys, CHANGED_KEYS, replace=False))
            found[f"{keys:,}"] = changing.figures
            show(f"milliseconds for {CHANGED_KEYS:,} keys, by keys in the table", medians(found))


# --- all parts -----------------------------------------------------------------------------------


def tidy_up(server: Server, name: str) -> None:
    """Do what autovacuum does sooner or later, and leave nothing to be written."""
    execute_alone(server.database(name), "VACUUM (ANALYZE)")


def milliseconds_of(work: Callable[[], object]) -> float:
    return 1000 * seconds_of(work)


def medians(found: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Return a row for each figure, a column for each size."""
    columns = {size: pd.Series(dict(figures)).map(np.median) for size, figures in found.items()}
    return pd.concat(columns, axis=1)


PARTS: Mapping[str, Callable[[Server], None]] = {
    "txids": measure_txids,
    "topologies": measure_topologies,
    "commits": measure_commits,
    "keys": measure_keys,
}

if __name__ == "__main__":
    run_parts(PARTS)
