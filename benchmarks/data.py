"""Generated rows: deterministic, in several Parquet files a folder."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.places import VENV
from benchmarks.sizes import Size

FILES = 4
CUSTOMERS = 100_000
KINDS = ("order", "refund", "a", "b", "c")
MICROSECONDS_A_DAY = 86_400 * 1_000_000
NEW_YEAR_2020 = 1_577_836_800 * 1_000_000


def write_rows(folder: Path, ids: Any, *, seed: int, first_day: int = 0, files: int = FILES) -> Any:
    """Write a row for each id, and return the amounts in cents.

    :param first_day: days after the New Year of 2020 from which the year of the rows counts
    """
    random = np.random.default_rng(seed)
    cents = random.integers(0, 10**6, len(ids))
    start = NEW_YEAR_2020 + first_day * MICROSECONDS_A_DAY
    columns = {
        "id": ids,
        "customer_id": random.integers(0, CUSTOMERS, len(ids)),
        "amount": cents,
        "ts": random.integers(start, start + 365 * MICROSECONDS_A_DAY, len(ids)),
        "kind": np.array(KINDS)[random.integers(0, len(KINDS), len(ids))],
        "qty": random.integers(1, 9, len(ids)).astype("int32"),
    }
    for number, part in enumerate(np.array_split(np.arange(len(ids)), files)):
        rows = {name: values[part] for name, values in columns.items()}
        write_file(folder / f"{number}.parquet", rows)
    return cents


def write_file(path: Path, columns: dict[str, Any]) -> None:
    """Write columns as one file; `amount` is in cents, `ts` in microseconds."""
    types = {"amount": as_amounts, "ts": lambda ts: pa.array(ts, pa.timestamp("us", "UTC"))}
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: types.get(name, pa.array)(values) for name, values in columns.items()}
    pq.write_table(pa.table(arrays), path)


def as_amounts(cents: Any) -> Any:
    whole = pa.array(cents).cast(pa.decimal128(19, 0))
    return pc.multiply(whole, pa.scalar(Decimal("0.01"))).cast(pa.decimal128(14, 2))


def as_text(cents: int) -> str:
    """Return cents as Postgres writes them.

    >>> as_text(12345)
    '123.45'
    """
    return str(Decimal(cents).scaleb(-2))


def write_small_files(folder: Path, files: int, rows: int) -> list[tuple[Any, Any]]:
    """Write small files of rows (customer_id, amount); a file has a customer once.

    Return the customers and the cents of each.
    """
    random = np.random.default_rng(7)
    written = []
    for number in range(1, files + 1):
        customers = random.choice(CUSTOMERS, rows, replace=False)
        cents = random.integers(0, 10**6, rows)
        columns = {"customer_id": customers, "amount": cents}
        write_file(folder / f"{number:04}.parquet", columns)
        written.append((customers, cents))
    return written


def sum_small_files(files: Sequence[tuple[Any, Any]]) -> list[str]:
    """Return what a check must find of the totals of these files."""
    customers = np.concatenate([customers for customers, _ in files])
    cents = np.concatenate([cents for _, cents in files])
    return [str(len(np.unique(customers))), str(len(customers)), as_text(int(cents.sum()))]


def write_tpch(folder: Path, table: str, size: Size) -> Any:
    program = str(VENV / "bin" / "tpchgen-cli")
    options = [f"--scale-factor={size.scale}", f"--tables={table}", f"--parts={FILES}"]
    subprocess.run([program, "parquet", *options, f"--output-dir={folder}"], check=True)
    return pq.read_table(folder / table)


def digits(column: Any) -> Any:
    """Return a column of decimals with two digits after the point as integers."""
    return np.rint(column.cast("float64").to_numpy() * 100).astype(np.int64)


def rows_of(folder: Path) -> int:
    return sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))
