"""The demo: a month of CDNOW purchases a run, by airflow's backfill or schedule."""

from datetime import datetime, timezone

from reliability_airflow import topology_dag
from spark_apps.cdnow_revenue import topology

dag = topology_dag(
    topology,
    schedule="@monthly",
    start_date=datetime(1997, 1, 1, tzinfo=timezone.utc),
    end_date=datetime(1998, 6, 30, tzinfo=timezone.utc),
    catchup=False,  # the demo asks for its months by a backfill; a live pipeline keeps True
)
