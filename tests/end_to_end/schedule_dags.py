"""DAGs of other schedules than `@daily` in UTC; the tests copy this file into a DAG folder."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from airflow.providers.standard.operators.trigger_dagrun import (  # noqa: TID253 - a DAG file
    TriggerDagRunOperator,
)
from airflow.sdk import DAG, Asset  # noqa: TID253 - a DAG file

from reliability_airflow import topology_dag
from tests.end_to_end.words import ARRIVED, BERLIN, TOPOLOGIES

local_start = datetime(2026, 3, 30, tzinfo=ZoneInfo(BERLIN))
common: dict[str, Any] = {"start_date": local_start, "conn_id": "stand_in"}
local = topology_dag(TOPOLOGIES["local"], schedule="@daily", end_date=local_start, **common)
by_asset = topology_dag(TOPOLOGIES["by_asset"], schedule=Asset(ARRIVED), **common)
continuous = topology_dag(
    TOPOLOGIES["continuous"], schedule="@continuous", default_args={"retries": 0}, **common
)
triggered = topology_dag(TOPOLOGIES["triggered"], schedule=None, **common)

with DAG("triggers_words", schedule=None) as triggers:
    TriggerDagRunOperator(
        task_id="trigger",
        trigger_dag_id=triggered.dag_id,
        conf={"interval": "{{ params.day }}"},
        params={"day": "2026-03-29"},
    )
