"""Where the page is, and where it and Airflow show what; below Airflow's own address."""

from __future__ import annotations

from urllib.parse import quote

#: where the page is, below Airflow's own address
PREFIX = "/reliability"


def transaction_path(topology: str, txid: int) -> str:
    """Return where the page shows a transaction, below Airflow's address."""
    return f"{PREFIX}/dags/{quote(topology, safe='')}/txids/{txid}"


def run_path(dag_id: str, run_id: str) -> str:
    """Return where Airflow shows a run, below its address."""
    return f"/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"
