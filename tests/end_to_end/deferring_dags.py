"""DAGs of tasks that only defer and resume; the tests copy this file into their DAG folder."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Context  # noqa: TID253 - a DAG file

from reliability_airflow.triggers import PauseTrigger
from reliability_airflow.waiting import WaitingOperator


class DeferOnce(WaitingOperator):
    """Leave the worker at once, and return when the trigger fires."""

    def __init__(self, *, number: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.number = number

    def execute(self, context: Context) -> None:
        self.defer(trigger=PauseTrigger(0), method_name="end")

    def end(self, context: Context, event: dict[str, Any]) -> None:
        self.log.info("task %s resumes", self.number)


for count in (3, 300):
    with DAG(
        dag_id=f"defer_{count}", default_args={"retries": 1, "retry_delay": timedelta(seconds=1)}
    ) as dag:
        DeferOnce.partial(task_id="defer").expand(number=list(range(count)))
    globals()[dag.dag_id] = dag
