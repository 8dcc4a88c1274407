"""This project's DAG in each engine, and a plain SparkSubmitOperator that does the same work."""

from __future__ import annotations

from datetime import datetime, timezone

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

from benchmarks.places import ROOT
from benchmarks.topologies import small, small_warm
from reliability_airflow import topology_dag

START = datetime(2026, 1, 1, tzinfo=timezone.utc)

small_txid = topology_dag(small, schedule=None, start_date=START)
small_txid_warm = topology_dag(small_warm, schedule=None, start_date=START)

with DAG("plain", schedule=None, start_date=START) as plain:
    SparkSubmitOperator(
        task_id="plain",
        application=str(ROOT / "benchmarks" / "airflow" / "plain_job.py"),
        application_args=["{{ dag_run.conf['file'] }}"],
    )
