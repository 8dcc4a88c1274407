"""The bank's DAG, for `dag.test()`: the real operators, one after the other in one process."""

from __future__ import annotations

from datetime import datetime, timezone

from reliability_airflow import topology_dag
from tests.faults.bank import TASK, bank, note_failure

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
dag = topology_dag(
    bank(),
    dag_id=TASK,
    schedule=None,
    start_date=START,
    conn_id="stand_in",
    default_args={"retries": 0, "on_failure_callback": note_failure},
)
