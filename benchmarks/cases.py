"""The cases: what is done by whom, from which data, and what must come out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.contestants import (
    BARE_SQL,
    DLT,
    FOREACH_BATCH,
    PGBENCH,
    PLAIN_TASK,
    PSQL_COPY,
    RECIPE,
    RELIABILITY,
    SPARK_JDBC,
    WITHOUT_LEDGER,
    Contestant,
)
from benchmarks.data import (
    as_text,
    digits,
    rows_of,
    sum_small_files,
    write_rows,
    write_small_files,
    write_tpch,
)
from benchmarks.sizes import Size

Expected = list[str]
"""The row that a check returns, as texts."""

SUM_ORDERS = "SELECT count(*), sum(id), sum(amount) FROM orders"
SUM_TOTALS = "SELECT count(*), sum(n), sum(amount) FROM totals"
#: Airflow's first run is not measured.
WARM_UP = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """A contestant's part in a case.

    :param base: the function that makes the database that each run starts from; "" for an empty one
    :param operation: the function of the contestant's module; by default, the case's name
    :param how: what distinguishes it from the contestant's other part in the case
    :param is_checked: it leaves the case's tables behind
    """

    contestant: Contestant
    base: str = ""
    operation: str = ""
    how: str = ""
    is_checked: bool = True

    @property
    def label(self) -> str:
        """Return its name in the tables."""
        return f"{self.contestant.label}, {self.how}" if self.how else self.contestant.label


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One comparison.

    :param title: its heading
    :param what: what is done, in words, of a size
    :param unit: what is counted
    :param amount: how many of them a size has
    :param check: the SQL that returns one row of the result
    :param generate: writes the files of a size into a folder, and returns what a check must find
    :param has_cold: the start of a process is measured too
    """

    name: str
    title: str
    what: Callable[[Size], str]
    unit: str
    amount: Callable[[Path, Size], int]
    entries: Sequence[Entry]
    check: str
    generate: Callable[[Path, Size], Expected]
    has_cold: bool = True


# --- append and upsert ---------------------------------------------------------------------------


def generate_append(folder: Path, size: Size) -> Expected:
    ids = np.arange(size.append_rows)
    cents = write_rows(folder / "append", ids, seed=1)
    return [str(len(ids)), str(ids.sum()), as_text(int(cents.sum()))]


APPEND = Case(
    name="append",
    title="Append",
    what=lambda size: f"{size.append_rows:,} rows of 6 columns in 4 Parquet files, one batch.",
    unit="rows",
    amount=lambda _, size: size.append_rows,
    entries=(
        Entry(RELIABILITY, "base_empty"),
        Entry(RELIABILITY, "base_empty", "append_as_view", how="as_view"),
        Entry(RECIPE, "base_empty"),
        Entry(DLT),
        Entry(SPARK_JDBC, "base_empty"),
        Entry(FOREACH_BATCH, "base_empty"),
        Entry(WITHOUT_LEDGER, "base_empty"),
        Entry(PSQL_COPY, "base_empty"),
        Entry(BARE_SQL, "base_append"),
    ),
    check=SUM_ORDERS,
    generate=generate_append,
)


def generate_upsert(folder: Path, size: Size) -> Expected:
    """Write the rows of the table, and those of the upsert, which are all later."""
    base = np.arange(size.base_keys)
    old = np.random.default_rng(2).choice(base, size.batch_keys * 9 // 10, replace=False)
    new = size.base_keys + np.arange(size.batch_keys - len(old))
    batch = np.random.default_rng(3).permutation(np.concatenate([old, new]))
    before = write_rows(folder / "upsert" / "2026-01", base, seed=4)
    after = write_rows(folder / "upsert" / "2026-02", batch, seed=5, first_day=366)
    cents = before.sum() - before[old].sum() + after.sum()
    return [str(len(base) + len(new)), str(base.sum() + new.sum()), as_text(int(cents))]


UPSERT = Case(
    name="upsert",
    title="Upsert",
    what=lambda size: (
        f"{size.batch_keys:,} keys into a table of {size.base_keys:,}, 6 columns; 9 in 10 exist."
    ),
    unit="rows",
    amount=lambda _, size: size.batch_keys,
    entries=(
        Entry(RELIABILITY, "base_upsert"),
        Entry(
            RELIABILITY,
            "base_upsert_without_history",
            "upsert_without_history",
            how="without history",
        ),
        Entry(RECIPE, "base_upsert"),
        Entry(DLT, "base_upsert"),
        Entry(FOREACH_BATCH, "base_upsert"),
        Entry(BARE_SQL, "base_upsert"),
    ),
    check=SUM_ORDERS,
    generate=generate_upsert,
)

# --- aggregates of TPC-H -------------------------------------------------------------------------


def generate_lineitem(folder: Path, size: Size) -> Expected:
    table = write_tpch(folder, "lineitem", size)
    paid = digits(table["l_extendedprice"]) * (100 - digits(table["l_discount"]))
    parts = len(table["l_partkey"].unique())
    quantity = int(digits(table["l_quantity"]).sum()) // 100
    return [str(parts), str(table.num_rows), str(quantity), str(int(paid.sum()))]


LINEITEM = Case(
    name="lineitem",
    title="Aggregate many lines",
    what=lambda size: f"TPC-H's lineitem, scale factor {size.scale}, by part: four aggregates.",
    unit="rows",
    amount=lambda folder, _: rows_of(folder / "lineitem"),
    entries=(
        Entry(RELIABILITY, "base_empty"),
        Entry(RECIPE, "base_empty"),
        Entry(FOREACH_BATCH, "base_lineitem"),
        Entry(WITHOUT_LEDGER, "base_empty"),
    ),
    check="SELECT count(*), sum(lines), sum(quantity)::bigint, (sum(revenue) * 10000)::bigint"
    " FROM parts",
    generate=generate_lineitem,
)


def generate_orders(folder: Path, size: Size) -> Expected:
    table = write_tpch(folder, "orders", size)
    customers = len(table["o_custkey"].unique())
    spent = int(digits(table["o_totalprice"]).sum())
    return [str(customers), str(table.num_rows), as_text(spent)]


ORDERS = Case(
    name="orders",
    title="Aggregate orders",
    what=lambda size: f"TPC-H's orders, scale factor {size.scale}, by customer: three aggregates.",
    unit="rows",
    amount=lambda folder, _: rows_of(folder / "orders"),
    entries=(
        Entry(RELIABILITY, "base_empty"),
        Entry(RECIPE, "base_empty"),
        Entry(FOREACH_BATCH, "base_orders"),
    ),
    check="SELECT count(*), sum(orders), sum(spent) FROM customers",
    generate=generate_orders,
)

# --- small files ---------------------------------------------------------------------------------

TXIDS = Case(
    name="txids",
    title="Many small txids",
    what=lambda size: (
        f"{size.txids} files of {size.txid_rows} rows, a txid each, from emission to committed. "
        "Without Spark: this project's staging task is called directly."
    ),
    unit="txids",
    amount=lambda _, size: size.txids,
    entries=(
        Entry(RELIABILITY, "base_empty", "txids_one_by_one", how="one by one"),
        Entry(RELIABILITY, "base_empty", "txids_grouped", how="grouped"),
        Entry(RECIPE, "base_empty"),
        Entry(PGBENCH, "base_txids", is_checked=False),
    ),
    check=SUM_TOTALS,
    generate=lambda folder, size: sum_small_files(
        write_small_files(folder / "txids", size.txids, size.txid_rows)
    ),
    has_cold=False,
)
REPLAY = Case(
    name="replay",
    title="Replay",
    what=lambda size: (
        f"1 of {size.txids} txids of {size.history_rows:,} rows each. "
        "The recipe keeps no history: it rebuilds the table from all files."
    ),
    unit="replays",
    amount=lambda _, __: 1,
    entries=(Entry(RELIABILITY, "base_history"), Entry(RECIPE, "base_history")),
    check=SUM_TOTALS,
    generate=lambda folder, size: sum_small_files(
        write_small_files(folder / "history", size.txids, size.history_rows)
    ),
)


def generate_rollback(folder: Path, size: Size) -> Expected:
    """Write the files of the case `replay`; those that are rolled back do not count."""
    files = write_small_files(folder / "history", size.txids, size.history_rows)
    return sum_small_files(files[: size.txids - size.txids // 10])


ROLLBACK = replace(
    REPLAY,
    name="rollback",
    title="Rollback",
    what=lambda size: (
        f"{size.txids // 10} of {size.txids} txids of {size.history_rows:,} rows each. "
        "The recipe keeps no history: it rebuilds the table without these files."
    ),
    unit="rollbacks",
    entries=(
        Entry(RELIABILITY, "base_history"),
        Entry(RELIABILITY, "base_history_max", "rollback_max", how="with a Max"),
        Entry(RELIABILITY, "base_history_upsert", "rollback_upsert", how="with an Upsert"),
        Entry(RELIABILITY, "base_history_latest", "rollback_latest", how="with a Latest"),
        Entry(RECIPE, "base_history"),
    ),
    generate=generate_rollback,
    has_cold=False,
)
#: `benchmarks.airflow` measures it.
AIRFLOW = Case(
    name="airflow",
    title="One small txid through Airflow",
    what=lambda size: f"A file of {size.txid_rows} rows, from the queued DAG run to its end.",
    unit="runs",
    amount=lambda _, __: 1,
    entries=(Entry(RELIABILITY), Entry(RELIABILITY, how="warm engine"), Entry(PLAIN_TASK)),
    check="SELECT count(*), sum(n), sum(amount) FROM {}",
    generate=lambda folder, size: sum_small_files(
        write_small_files(folder / "airflow", WARM_UP + size.airflow_runs, size.txid_rows)
    ),
)
#: In the order in which they are measured.
CASES = {
    case.name: case for case in (APPEND, UPSERT, LINEITEM, ORDERS, TXIDS, REPLAY, ROLLBACK, AIRFLOW)
}


def cases_of(size: Size) -> list[str]:
    """Return the names of the cases that a size measures unasked."""
    return [name for name in CASES if name not in size.leaves_out]
