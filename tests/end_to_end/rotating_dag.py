"""The DAG of `rotating.py`; the tests copy this file into a DAG folder of their own."""

from __future__ import annotations

import os
from datetime import datetime, timezone

from reliability_airflow import topology_dag
from tests.end_to_end.rotating import CANARY, DATABASE_CONN_IDS, LEDGER_CONN_ID, topology

dag = topology_dag(
    topology,
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    end_date=datetime(2026, 1, 2, tzinfo=timezone.utc),
    ledger_conn_id=LEDGER_CONN_ID,
    database_conn_ids=DATABASE_CONN_IDS,
    conf={
        "spark.app.canary": CANARY,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": os.environ.get("DATES_FOLDER", ""),
        "spark.eventLog.compress": "false",
    },
)
