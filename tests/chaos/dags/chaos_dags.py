"""The banks' DAGs, and housekeeping: a DAG file of `make chaos`."""

from __future__ import annotations

from datetime import timedelta

from reliability_airflow import housekeeping_dag, topology_dag
from tests.chaos.bank import START, TOPOLOGIES

SPARK = {"spark.executor.memory": "600m", "spark.cores.max": "1", "spark.executor.cores": "1"}
dags = {
    topology.name: topology_dag(
        topology,
        schedule="@hourly",
        start_date=START,
        end_date=START + timedelta(days=365),
        catchup=False,
        conn_id="spark_cluster",
        conf=SPARK,
    )
    for topology in TOPOLOGIES
}
globals().update(dags, housekeeping=housekeeping_dag())  # where Airflow finds them
