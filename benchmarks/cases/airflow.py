"""One small txid through Airflow beside a plain task; `benchmarks.airflow` measures it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cases import Case, Entry, Expected
from benchmarks.contestants import PLAIN_TASK, RELIABILITY
from benchmarks.data import sum_small_files, write_small_files
from benchmarks.sizes import Size

#: One more than is measured: Airflow's first run is not.
WARM_UP = 1


def generate(folder: Path, size: Size) -> Expected:
    """Write a file for each run."""
    files = WARM_UP + size.airflow_runs
    return sum_small_files(write_small_files(folder / "airflow", files, size.txid_rows))


CASE = Case(
    name="airflow",
    title="One small txid through Airflow",
    what=lambda size: f"A file of {size.txid_rows} rows, from the queued DAG run to its end.",
    unit="runs",
    amount=lambda _, __: 1,
    entries=(
        Entry(contestant=RELIABILITY),
        Entry(contestant=RELIABILITY, how="warm engine"),
        Entry(contestant=PLAIN_TASK),
    ),
    check="SELECT count(*), sum(n), sum(amount) FROM {}",
    generate=generate,
)
