"""How large the cases are, and how often each is measured."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.places import HOME


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One size of the whole suite.

    :param append_rows: rows of the append
    :param base_keys: keys in the table before the upsert
    :param batch_keys: keys of the upsert, nine in ten of which are in the table
    :param scale: the scale factor of TPC-H
    :param txids: small txids of the cases `txids`, `replay` and `rollback`
    :param txid_rows: rows of each txid of the case `txids`
    :param history_rows: rows of each txid of the cases `replay` and `rollback`
    :param blocks: how often each contestant starts a new process
    :param rounds: how often each process repeats the work once it is warm
    :param airflow_runs: DAG runs of each contestant of the case `airflow`
    :param leaves_out: cases that are measured only if they are asked for
    """

    name: str
    append_rows: int
    base_keys: int
    batch_keys: int
    scale: str
    txids: int = 200
    txid_rows: int = 10
    history_rows: int
    blocks: int
    rounds: int
    airflow_runs: int = 5
    leaves_out: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Return a name for its data; another size of the same name has another."""
        return f"{self.name}-{hashlib.sha256(repr(self).encode()).hexdigest()[:8]}"

    @property
    def results(self) -> Path:
        """Return the folder with its results, a file for each case."""
        return HOME / "results" / self.folder


QUICK = Size(
    name="quick",
    append_rows=300_000,
    base_keys=1_000_000,
    batch_keys=100_000,
    scale="0.1",
    txids=50,
    history_rows=1_000,
    blocks=1,
    rounds=3,
    airflow_runs=2,
    leaves_out=("airflow",),
)
NORMAL = Size(
    name="normal",
    append_rows=3_000_000,
    base_keys=10_000_000,
    batch_keys=1_000_000,
    scale="1",
    history_rows=10_000,
    blocks=3,
    rounds=2,
)
LARGE = replace(NORMAL, name="large", append_rows=30_000_000, scale="10", blocks=2)
SIZES = {size.name: size for size in (QUICK, NORMAL, LARGE)}
