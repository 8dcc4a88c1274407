"""An Airflow backfill, as the demo and the end-to-end tests ask for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dev.errors import DevError
from dev.services.airflow_api import AirflowApi, AirflowApiError


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """A backfill and how many txids it commits; both dates are logical dates, inclusive."""

    dag_id: str
    first: str
    last: str
    txids: int
    what: str
    reprocess: Literal["none", "failed", "completed"] = "none"
    max_active_runs: int = 3

    def start(self, api: AirflowApi) -> None:
        """Create it, then let the DAG run: its runs are there before the schedule makes any.

        Airflow takes one backfill of a DAG at a time, and notes up to half a minute later that all
        runs of the one before have ended.
        """
        for backfill_id in open_backfills(api, self.dag_id):
            api.put(f"/api/v2/backfills/{backfill_id}/cancel")
        api.post(
            "/api/v2/backfills",
            {
                "dag_id": self.dag_id,
                "from_date": self.first,
                "to_date": self.last,
                "reprocess_behavior": self.reprocess,
                "max_active_runs": self.max_active_runs,
                "run_backwards": False,
                "dag_run_conf": {},
            },
        )
        api.patch(f"/api/v2/dags/{self.dag_id}", {"is_paused": False})

    def runs(self, api: AirflowApi) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = api.get(
            f"/api/v2/dags/{self.dag_id}/dagRuns",
            limit=100,
            logical_date_gte=self.first,
            logical_date_lte=self.last,
        )["dag_runs"]
        return runs

    def has_succeeded(self, api: AirflowApi) -> bool:
        """Say whether its runs are there, and green.

        :raises DevError: one is red
        """
        states = {run["state"] for run in self.runs(api)}
        if "failed" in states:
            raise DevError(f"a run of {self.dag_id} is red: {self.what}")
        return states == {"success"}


def open_backfills(api: AirflowApi, dag_id: str) -> list[int]:
    """Return the ids of a DAG's backfills of which Airflow has not noted that they are over."""
    found = api.get("/api/v2/backfills", dag_id=dag_id)["backfills"]
    return [backfill["id"] for backfill in found if backfill["completed_at"] is None]


def is_known(api: AirflowApi, dag_id: str) -> bool:
    """Say whether Airflow has read the DAG's file."""
    try:
        api.get(f"/api/v2/dags/{dag_id}")
    except AirflowApiError as error:
        if error.status == 404:
            return False
        raise
    return True
