"""A topology between other tasks, and a DAG that its commits start; copied into a DAG folder."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task  # noqa: TID253 - a DAG file

from reliability_airflow import state_asset, topology_group
from reliability_airflow.releases import CronDataIntervalTimetable
from tests.end_to_end.words import TOPOLOGIES

NOTES = Path(os.environ.get("DATES_FOLDER", "dates")) / "mart"
TOPOLOGY = TOPOLOGIES["grouped"]
STATE = state_asset("words_grouped", "words_grouped")
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def note(file: str, what: Any) -> None:
    """Leave something for the test to read, as a line."""
    NOTES.mkdir(exist_ok=True)
    with (NOTES / file).open("a") as lines:
        lines.write(f"{json.dumps(what)}\n")


with DAG(
    "mart",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=START,
    end_date=START + timedelta(days=1, hours=12),
    catchup=True,
    default_args={"retries": 1, "retry_delay": timedelta(seconds=1)},
) as mart:

    @task
    def extract(data_interval_start: Any = None) -> None:
        """A task before the group."""
        note("extracted", str(data_interval_start)[:10])

    @task
    def report(ti: Any = None) -> None:
        """A task behind the group: it finds what the run has committed."""
        note("reported", ti.xcom_pull(task_ids="words_grouped.committed"))

    extract() >> topology_group(TOPOLOGY, conn_id="stand_in") >> report()

with DAG("follower", schedule=[STATE]) as follower:

    @task
    def follow(triggering_asset_events: Any = None) -> None:
        """A task of another DAG, which the commits of a state start."""
        for event in triggering_asset_events[STATE]:
            note("followed", event.extra)

    follow()
