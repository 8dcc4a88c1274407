"""The DAGs of `words.py`; the tests copy this file into a DAG folder of their own."""

from __future__ import annotations

from datetime import datetime, timezone

from airflow.providers.openlineage.utils.selective_enable import (  # noqa: TID253 - a DAG file
    enable_lineage,
)

from reliability_airflow import topology_dag
from tests.end_to_end import words


def january(day: int, hour: int = 0) -> datetime:
    return datetime(2026, 1, day, hour, tzinfo=timezone.utc)


DAYS = (  # the first and the last day that the schedule runs
    (words.held, 1, 2),
    (words.placed, 1, 2),
    (words.early, 10, 11),
    (words.dry_run, 1, 1),
    (words.chosen, 1, 2),
    (words.cleared, 1, 1),
    (words.twice, 1, 2),
    (words.told, 1, 2),
    (words.outage, 1, 1),
    (words.late, 1, 1),
    (words.outage_long, 1, 1),
    (words.late_long, 1, 1),
    (words.without_api, 1, 1),
    (words.before_api, 1, 1),
    (words.paged, 1, 3),
    (words.traced, 1, 1),
    (words.ordered, 31, 31),  # those before are backfilled
)
for topology, first, last in DAYS:
    globals()[topology.name] = topology_dag(
        topology,
        schedule="@daily",
        start_date=january(first),
        end_date=january(last, 12),
        conn_id="stand_in",
    )
enable_lineage(globals()[words.traced.name])
words_backlog = topology_dag(
    words.backlog,
    schedule="@daily",
    start_date=january(1),
    end_date=january(2, 12),
    conn_id="stand_in",
    default_args={"retries": 0},
)
