"""All cases, in the order in which they are measured."""

from __future__ import annotations

from benchmarks.cases import airflow, append, lineitem, orders, replay, rollback, txids, upsert

CASES = {
    case.CASE.name: case.CASE
    for case in (append, upsert, lineitem, orders, txids, replay, rollback, airflow)
}
