"""Two processing steps per txid as an airflow DAG: trigger it by hand."""

from datetime import datetime, timezone

from reliability_airflow import topology_dag
from spark_apps.word_lengths import tell, topology

dag = topology_dag(
    topology,
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    unanchored=[tell],
)
