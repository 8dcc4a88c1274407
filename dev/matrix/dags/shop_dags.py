"""The DAG file of the pipeline, with housekeeping beside it."""

from datetime import datetime, timezone

from shop_revenue import topology  # type: ignore[import-not-found]  # beside this file

from reliability_airflow import housekeeping_dag, topology_dag

dag = topology_dag(
    topology,
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
)
housekeeping = housekeeping_dag()
