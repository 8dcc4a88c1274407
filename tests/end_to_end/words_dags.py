"""The DAGs of `words.py`; the tests copy this file into a DAG folder of their own."""

from __future__ import annotations

from airflow.providers.openlineage.utils.selective_enable import (  # noqa: TID253 - a DAG file
    enable_lineage,
)

from tests.end_to_end.words import BY_HAND, DAYS, MADE_WITH, TOPOLOGIES, dag, dag_by_hand

dags = {
    name: dag(TOPOLOGIES[name], (1, first), (1, last), **MADE_WITH.get(name, {}))
    for (first, last), names in DAYS.items()
    for name in names
}
enable_lineage(dags["traced"])
dags |= {name: dag_by_hand(name, **arguments) for name, arguments in BY_HAND.items()}
globals().update(dags)  # where Airflow finds them
