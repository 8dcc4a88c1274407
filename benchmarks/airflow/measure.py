"""Trigger the DAGs in turn, each with a new small file, and take Airflow's own times."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cases import WARM_UP
from benchmarks.measure import CaseRun, check
from benchmarks.postgres import execute
from benchmarks.server import ROLE, Server
from dev.demo.backfill import is_known
from dev.services.airflow_api import AirflowApi
from dev.services.processes import wait_until

#: of the case's entries
DAGS = ("small", "small_warm", "plain")
TABLES = ("totals", "warm_totals", "plain_totals")
PATIENCE = 300
BUNDLE = {
    "name": "benchmarks",
    "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
    "kwargs": {"path": str(Path(__file__).parent / "dags"), "refresh_interval": 5},
}
PLAIN_TABLE = (
    "CREATE TABLE plain_totals (customer_id bigint PRIMARY KEY, n bigint, amount numeric(14,2))"
)


def measure_in_airflow(run: CaseRun) -> None:
    """Measure the DAG runs of each file, except for the first file's.

    Files are copied into the folder `small` when their turn comes.
    """
    small = run.home / "small"
    shutil.rmtree(small, ignore_errors=True)
    small.mkdir()
    with airflow(run.server, run.home) as api:
        for number, path in enumerate(sorted((run.home / "airflow").glob("*.parquet"))):
            file = shutil.copy(path, small)
            for entry, dag in zip(run.case.entries, DAGS, strict=True):
                seconds = seconds_of(api, dag, str(file))
                if number >= WARM_UP:
                    run.note(entry, "cold", seconds)
    for table in TABLES:
        check(run.case.check.format(table), run.expected, run.server.database(ROLE))


@contextmanager
def airflow(server: Server, home: Path) -> Iterator[AirflowApi]:
    """Run Airflow with the DAGs, and a warm engine, on the scratch server."""
    environment = server.environment
    environment.airflow_settings.update(
        {
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([BUNDLE]),
            "RELIABILITY_HOME": str(home),
        }
    )
    environment.start_engine()
    environment.up()
    execute(server.database(ROLE), PLAIN_TABLE)
    api = environment.api()
    for dag in DAGS:
        wait_until(partial(is_known, api, dag), dag, PATIENCE)
        api.patch(f"/api/v2/dags/{dag}", {"is_paused": False})
    try:
        yield api
    finally:
        environment.airflow.stop()
        environment.engine.stop()


def seconds_of(api: AirflowApi, dag: str, file: str) -> float:
    """Trigger a DAG run, wait for its end, and return how long Airflow says that it took."""
    path = f"/api/v2/dags/{dag}/dagRuns"
    run = api.post(path, {"logical_date": None, "conf": {"file": file}})["dag_run_id"]
    wait_until(lambda: has_ended(api.get(f"{path}/{run}")), f"the run of {dag}", PATIENCE)
    ended = api.get(f"{path}/{run}")
    if ended["state"] != "success":
        raise RuntimeError(f"the run of {dag} is {ended['state']}")
    return (moment(ended["end_date"]) - moment(ended["queued_at"])).total_seconds()


def has_ended(run: dict[str, Any]) -> bool:
    return run["state"] in ("success", "failed")


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
