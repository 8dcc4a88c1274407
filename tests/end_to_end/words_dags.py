"""The DAGs of `words.py`; the tests copy this file into a DAG folder of their own.

The process of a task makes its own DAG alone.
"""

from __future__ import annotations

from airflow.sdk import get_parsing_context  # noqa: TID253 - a DAG file

from tests.end_to_end.words import BY_HAND, DAYS, MADE_WITH, TOPOLOGIES, dag, dag_by_hand

wanted = get_parsing_context().dag_id
dags = {
    name: dag(TOPOLOGIES[name], (1, first), (1, last), **MADE_WITH.get(name, {}))
    for (first, last), names in DAYS.items()
    for name in names
    if wanted in (None, f"words_{name}")
}
if "traced" in dags:
    from airflow.providers.openlineage.utils.selective_enable import enable_lineage

    enable_lineage(dags["traced"])
dags |= {
    name: dag_by_hand(name, **arguments)
    for name, arguments in BY_HAND.items()
    if wanted in (None, f"words_{name}")
}
globals().update(dags)  # where Airflow finds them
