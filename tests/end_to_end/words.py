"""Topologies for tests of Airflow: a folder of Parquet files a day, its words counted.

`DATES_FOLDER` is the tests' own; spark-submit's stand-in (`stand_in.py`) processes them. The word
`broken` fails an attempt, unless it is counted as another.
"""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

from reliability import Count, FileSpout, State, Topology

BROKEN = "broken"
FOLDER = os.environ.get("DATES_FOLDER", "dates")
A_DAY = "{data_interval_start:%Y-%m-%d}"
#: What the schedule runs, the first and the last day of January: topologies, without `words_`.
DAYS = {
    (1, 1): (
        *("cleared", "traced", "outage", "late", "outage_long", "late_long"),
        *("without_api", "before_api", "crowd", "celery"),
    ),
    (1, 2): ("held", "placed", "twice", "told", "backlog", "paged"),
    (1, 3): ("doubled",),
}
#: What some of them are made with.
MADE_WITH: dict[str, dict[str, Any]] = {
    "backlog": {"retries": 0},
    "cleared": {"max_active_runs": 2},
}
#: What is run by hand alone.
BY_HAND: dict[str, dict[str, Any]] = {
    "overridden": {"retries": 2},
    "red": {"retries": 0},
    "blocked": {"retries": 1, "max_active_runs": 16, "unanchored": []},
    "crowded": {"retries": 1, "max_active_runs": 2},
    "tested": {"retries": 0},
    "tested_red": {"retries": 0},
}
#: Those which are groups in DAGs of other tasks (grouped_dags.py, test_grouped.py).
GROUPED = ("grouped", "ahead", "behind")
#: Those whose DAG changes: its test writes it.
CHANGING = (
    *("reshaped", "joined", "lowered", "raised"),
    *("fail_fast", "run_timeout", "task_timeout"),
)
#: Their schedules are in schedule_dags.py: the folders of files, and the time zone of their dates.
BERLIN, ARRIVED = "Europe/Berlin", "words_arrived"
SCHEDULED: dict[str, tuple[str, str]] = {
    "local": (A_DAY, BERLIN),
    "by_asset": ("*", ""),
    "continuous": ("*", ""),
    "triggered": (A_DAY, BERLIN),
}


def words(name: str, module: str = __name__, folder: str = A_DAY, zone: str = "") -> Topology:
    """Return a topology that counts the words of `FOLDER/name/folder/`."""

    def counted(batch: Any) -> dict[str, Any]:
        return {name: list(map(partial(_read, _code(name)), batch))}

    return Topology(
        name,
        spout=FileSpout(f"{FOLDER}/{name}/{folder}/*.parquet", allow_empty=True, time_zone=zone),
        process=counted,
        states=[State(name, key={"word": "text"}, values={"times": Count()})],
        max_spout_pending=2,
        module=module,
    )


def _code(name: str) -> dict[str, str]:
    """Return which word to count as which: the code that a test deploys."""
    file = Path(FOLDER) / name / "read_as.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _read(code: dict[str, str], row: dict[str, Any]) -> dict[str, Any]:
    word = code.get(row["word"], row["word"])
    if word == BROKEN:
        raise ValueError(BROKEN)
    return {**row, "word": word}


def note(topology: str, txid: int) -> None:
    """Side work of a txid that its run has committed."""
    with (Path(FOLDER) / topology / "noted").open("a") as file:
        file.write(f"{txid}\n")


TOPOLOGIES = {
    name: words(f"words_{name}")
    for names in (*DAYS.values(), BY_HAND, GROUPED, CHANGING)
    for name in names
}
TOPOLOGIES |= {
    name: words(f"words_{name}", folder=folder, zone=zone)
    for name, (folder, zone) in SCHEDULED.items()
}
globals().update(TOPOLOGIES)  # where the stand-in finds them


Day = tuple[int, int]


def dag(
    topology: Topology,
    first: Day,
    last: Day,
    *,
    schedule: str = "@daily",
    retries: int | None = None,
    **arguments: Any,
) -> Any:
    """Make a DAG whose schedule runs from a month and day of 2026 to another one.

    :param retries: a second after the try before; by default they are topology_dag's
    """
    from reliability_airflow import topology_dag

    start, end = (datetime(2026, *day, tzinfo=timezone.utc) for day in (first, last))
    if retries is not None:
        retried = {"retries": retries, "retry_delay": timedelta(seconds=1)}
        arguments["default_args"] = {**arguments.get("default_args", {}), **retried}
    return topology_dag(
        topology,
        schedule=schedule,
        start_date=start,
        end_date=end + timedelta(hours=12),
        conn_id="stand_in",
        **arguments,
    )


def dag_by_hand(name: str, *, retries: int, **arguments: Any) -> Any:
    """Make a DAG whose schedule makes no run, and whose runs have side work."""
    days: tuple[Day, Day] = ((1, 1), (1, 6))
    own = {"catchup": False, "unanchored": [note], **arguments}
    return dag(TOPOLOGIES[name], *days, retries=retries, **own)
