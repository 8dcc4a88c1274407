"""The housekeeping DAG: every minute, for every topology, finish what somebody left behind."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import TYPE_CHECKING

from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowException

if TYPE_CHECKING:
    from airflow.sdk import Context


def housekeeping_dag() -> DAG:
    """Make the DAG `reliability_housekeeping`."""
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
        SweepOperator(task_id="sweep")
    return dag


class SweepOperator(BaseOperator):
    """Run `reliability sweep` by the Python of this task; its PATH may lead to none, or another."""

    @cached_property
    def _process(self) -> SubprocessHook:
        return SubprocessHook()

    def execute(self, context: Context) -> None:
        """Run it in a process of its own, which can be ended, with its output in the task's log."""
        ended = self._process.run_command([sys.executable, "-m", "reliability", "sweep"])
        if ended.exit_code:
            raise AirflowException(f"reliability sweep: exit code {ended.exit_code}, see above")

    def on_kill(self) -> None:
        """End it with the task."""
        self._process.send_sigterm()  # type: ignore[no-untyped-call]
