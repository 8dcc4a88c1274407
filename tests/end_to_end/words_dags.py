"""The DAGs of `words.py`; the tests copy this file into a DAG folder of their own."""

from __future__ import annotations

from datetime import datetime, timezone

from reliability_airflow import topology_dag
from tests.end_to_end import words


def january(day: int) -> datetime:
    return datetime(2026, 1, day, tzinfo=timezone.utc)


DAYS = {  # the first and the last day that the schedule runs
    words.by_hand: (1, 1),
    words.placed: (1, 2),
    words.early: (10, 11),
    words.again: (1, 1),
    words.cleared: (1, 1),
    words.rehearsed: (1, 1),
    words.twice: (1, 1),
}
for topology, (first, last) in DAYS.items():
    globals()[topology.name] = topology_dag(
        topology,
        schedule="@daily",
        start_date=january(first),
        end_date=january(last),
        conn_id="stand_in",
    )
