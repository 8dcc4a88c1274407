"""Two banks, each with states of four kinds, in two databases: money is moved, and never made.

The steps of `bank_cold` are spark-submits on a standalone cluster, those of `bank_warm` run in a
warm engine. A file is a batch, and so a txid.
"""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import reliability
from reliability import Append, Count, FileSpout, History, Latest, State, Sum, Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLDER = os.environ.get("CHAOS_FOLDER", "chaos")
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
ENGINES = {"bank_cold": "submit", "bank_warm": "warm"}
SUSPECT = 25  # of so many transfers, one is set aside: both of its rows
ACCOUNTS = 40
LEASE_SECONDS = 75
KEPT_TXIDS = 30
HERE, MART = "reliability", "mart"  # databases: the ledger's, and another


def bank(name: str) -> Topology:
    """Return the topology of a bank."""

    def moves(batch: DataFrame) -> dict[str, DataFrame]:
        sound = reliability.quarantine(batch, f"number % {SUSPECT} = 0", "a suspect transfer")
        return {state.name: sound for state in states}

    balance = {"amount": Sum("amount", "bigint"), "moves": Count()}
    moved = {
        column: Append(column, type_)
        for column, type_ in (("account", "text"), ("amount", "bigint"), ("number", "bigint"))
    }
    key = {"account": "text"}
    states = [
        State(f"{name}_balance", key=key, values=balance),
        State(f"{name}_seen", values=moved, as_view=True),
        State(
            f"{name}_last",
            key=key,
            values={"amount": Latest("amount", by={"number": "bigint"}), "moves": Count()},
            keep=History(txids=KEPT_TXIDS),
        ),
        State(f"{name}_mart_moved", values=moved, database=MART),
    ]
    return Topology(
        name,
        spout=FileSpout(
            f"{FOLDER}/{name}/{{data_interval_start:%Y-%m-%dT%H}}/*.parquet",
            max_files_per_batch=1,
            allow_empty=True,
        ),
        process=moves,
        states=states,
        max_spout_pending=2,
        lease_seconds=LEASE_SECONDS,
        engine=ENGINES[name],
        module=__name__,
    )


bank_cold, bank_warm = TOPOLOGIES = [bank(name) for name in ENGINES]


# --- what is delivered ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    account: str
    amount: int
    number: int


def hour(interval: int) -> datetime:
    """Return the start of an interval."""
    return START + timedelta(hours=interval)


def deliver(folder: Path, interval: int, rng: random.Random) -> dict[str, list[Row]]:
    """Write the files of an interval; return their rows by path, without the folder's own.

    No two transfers have the same number.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = {
        f"{hour(interval):%Y-%m-%dT%H}/{file}.parquet": _transfers(interval, file, rng)
        for file in range(rng.randint(1, 3))
    }
    for name, rows in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist([asdict(row) for row in rows]), path)
    return files


def _transfers(interval: int, file: int, rng: random.Random) -> list[Row]:
    rows = []
    for n in range(rng.randint(10, 400)):
        number = (interval * 10 + file) * 1000 + n
        giver, taker = rng.sample(range(ACCOUNTS), 2)
        amount = rng.randint(1, 10_000)
        rows += [Row(f"account {giver}", -amount, number), Row(f"account {taker}", amount, number)]
    return rows


# --- what has to come out ------------------------------------------------------------------------

#: What is compared, and how it is read of a bank: tables, and the rows in quarantine.
CONTENTS: Mapping[str, str] = {
    "balance": "SELECT account, amount, moves FROM public.{}_balance",
    "seen": "SELECT account, amount, number FROM public.{}_seen",
    "last": "SELECT account, amount, moves FROM public.{}_last",
    "mart_moved": "SELECT account, amount, number FROM public.{}_mart_moved",
    "quarantine": """
        SELECT c->>'account', (c->>'amount')::bigint, (c->>'number')::bigint
          FROM reliability.quarantine CROSS JOIN LATERAL (SELECT contents::jsonb AS c) AS one
         WHERE topology = '{}'
    """,
}
#: What has committed everywhere in a database, or nowhere: a row of the money, and of the moves.
SUMS: Mapping[str, str] = {
    HERE: """
        SELECT (SELECT coalesce(sum(amount), 0) FROM public.{0}_balance) AS money,
               (SELECT coalesce(sum(moves), 0) FROM public.{0}_balance) AS moves,
               (SELECT count(*) FROM public.{0}_seen) AS seen,
               (SELECT coalesce(sum(moves), 0) FROM public.{0}_last) AS last
    """,
    MART: """
        SELECT coalesce(sum(amount), 0) AS money, count(*) AS moves,
               count(DISTINCT (account, number)) AS different
          FROM public.{0}_mart_moved
    """,
}
Tables = Mapping[str, Counter[tuple[Any, ...]]]


def database_of(table: str) -> str:
    return MART if table.startswith(MART) else HERE


def expected(files: Iterable[Sequence[Row]]) -> Tables:
    """Compute the tables from what was delivered, by nothing of the product's."""
    delivered = [row for file in files for row in file]
    rows = [row for row in delivered if row.number % SUSPECT != 0]
    amounts: dict[str, list[int]] = defaultdict(list)
    last: dict[str, Row] = {}
    for row in rows:
        amounts[row.account].append(row.amount)
        if row.account not in last or row.number > last[row.account].number:
            last[row.account] = row
    balances = Counter((name, sum(own), len(own)) for name, own in amounts.items())
    moved = Counter(map(astuple, rows))
    latest = Counter((name, row.amount, len(amounts[name])) for name, row in last.items())
    aside = Counter(astuple(row) for row in delivered if row.number % SUSPECT == 0)
    tables = {"balance": balances, "seen": moved, "last": latest, "mart_moved": moved}
    return {**tables, "quarantine": aside}
