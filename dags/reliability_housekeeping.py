"""Housekeeping: every minute, for every topology, finish what somebody left behind."""

from datetime import datetime, timedelta, timezone

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    dag_id="reliability_housekeeping",
    schedule=timedelta(minutes=1),
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={
        "owner": "reliability",
        "retries": 1,
        "retry_delay": timedelta(seconds=30),
        # With one active run, a sweep that hangs would be the last one.
        "execution_timeout": timedelta(minutes=10),
    },
    tags={"reliability"},
    doc_md=(
        "Runs `reliability sweep`: fences attempts past their lease, gives up requests of runs "
        "that are gone, commits what is overdue, deletes staged rows that can never count. A "
        "convenience: every task of a topology sweeps its own topology as it passes."
    ),
) as dag:
    BashOperator(task_id="sweep", bash_command="reliability sweep")
