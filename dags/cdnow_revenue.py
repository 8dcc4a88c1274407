"""The demo: one month of CDNOW purchases per run, by an airflow backfill or schedule."""

from datetime import datetime, timezone

from reliability_airflow import topology_dag
from spark_apps.cdnow_revenue import topology

dag = topology_dag(
    topology,
    schedule="@monthly",
    start_date=datetime(1997, 1, 1, tzinfo=timezone.utc),
    end_date=datetime(1998, 6, 30, tzinfo=timezone.utc),
    catchup=False,  # the demo uses a backfill for its months; a live pipeline keeps True
)
