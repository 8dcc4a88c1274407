"""The DAGs of `words.py`; the tests copy this file into a DAG folder of their own."""

from __future__ import annotations

from airflow.providers.openlineage.utils.selective_enable import (  # noqa: TID253 - a DAG file
    enable_lineage,
)

from tests.end_to_end.words import TOPOLOGIES, dag, dag_by_hand

#: The first and the last day of January that the schedule runs.
DAYS = {
    "held": (1, 2),
    "placed": (1, 2),
    "early": (10, 11),
    "dry_run": (1, 1),
    "chosen": (1, 2),
    "cleared": (1, 1),
    "twice": (1, 2),
    "told": (1, 2),
    "outage": (1, 1),
    "late": (1, 1),
    "outage_long": (1, 1),
    "late_long": (1, 1),
    "without_api": (1, 1),
    "before_api": (1, 1),
    "paged": (1, 3),
    "traced": (1, 1),
    "ordered": (31, 31),  # those before are backfilled
    "backlog": (1, 2),
}
dags = {
    name: dag(TOPOLOGIES[name], (1, first), (1, last), retries=0 if name == "backlog" else None)
    for name, (first, last) in DAYS.items()
}
enable_lineage(dags["traced"])
for name, retries in {"overridden": 2, "red": 0, "remade": 2, "retried": 99}.items():
    dags[name] = dag_by_hand(name, retries=retries)
for name, slots in {"blocked": 16, "crowded": 2}.items():
    dags[name] = dag_by_hand(name, retries=1, max_active_runs=slots)
globals().update(dags)  # where Airflow finds them
