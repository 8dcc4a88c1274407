"""What the tests do to a DAG of the topologies in `words.py`, and what they see of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dev.demo.backfill import is_known, open_backfills
from dev.services.airflow_api import AirflowApi
from dev.services.environment import Environment
from dev.services.processes import wait_until
from reliability.ledger.connection import LedgerConnection
from tests.support.command_line import say
from tests.support.fix_postgres import rows

PATIENCE = 400
ENDS = ("success", "failed")
LOOK_SECONDS = 1.2


def wait_for(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Wait until something is so in Airflow, whose API pays for each look."""
    wait_until(condition, what, seconds, every=LOOK_SECONDS)


def pause(seconds: float) -> None:
    """Let an outage or a stall last."""
    ends = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > ends, "a while", seconds + PATIENCE)


@dataclass(frozen=True)
class Dates:
    """An Airflow that has read the DAGs."""

    airflow: Environment
    ledger: LedgerConnection
    folder: Path

    def dag(self, dag_id: str) -> Dag:
        """Return a DAG that Airflow knows."""
        dag = Dag(self.airflow.api(), self.ledger, self.folder / "input" / dag_id, dag_id)
        wait_for(partial(is_known, dag.api, dag_id), dag_id)
        return dag

    def deploy(self, name: str, call: str) -> None:
        """Write the file of a DAG that changes: a call of `dag` or `dag_by_hand` in words.py."""
        text = f"# Airflow reads this\nfrom tests.end_to_end import words\n\ndag = words.{call}\n"
        (self.folder / "dags" / f"{name}.py").write_text(text)

    def reliability(self, *arguments: str, code: int = 0) -> str:
        """Run a verb of the command line's as an administrator of Airflow; return what it says."""
        api = self.airflow.api()
        env = {
            **self.airflow.own_env(),
            "RELIABILITY_AIRFLOW_URL": api.base_url,
            "RELIABILITY_AIRFLOW_TOKEN": api.token(),
        }
        said: str = say(*arguments, code=code, env=env).stdout
        return said


@dataclass(frozen=True)
class Dag:
    """One DAG and its topology, which have the same name."""

    api: AirflowApi
    ledger: LedgerConnection
    folder: Path
    dag_id: str

    # --- what a person does ----------------------------------------------------------------------

    def deliver(self, day: str, *words: str, file: str = "a") -> None:
        """Put a file of words into a day's folder."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.folder / day / f"{file}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"word": list(words)}), path)

    def read_as(self, **words: str) -> None:
        """Deploy code that counts these words as others."""
        (self.folder / "read_as.json").write_text(json.dumps(words))

    def break_code(self) -> None:
        """Deploy code that fails each attempt."""
        (self.folder / "read_as.json").write_text("this is no JSON")

    def hold(self) -> None:
        """Keep each attempt from here on PROCESSING."""
        (self.folder / "hold").touch()

    def let_go(self) -> None:
        (self.folder / "hold").unlink(missing_ok=True)

    def unpause(self) -> None:
        self.api.patch(self._path(), {"is_paused": False})

    def pause(self) -> None:
        self.api.patch(self._path(), {"is_paused": True})

    def trigger(self, logical_date: str | None, **more: object) -> str:
        """Trigger a run by hand and return its id."""
        body = {"logical_date": logical_date, **more}
        return str(self.api.post(self._path("dagRuns"), body)["dag_run_id"])

    def backfill(
        self, first: str, last: str, reprocess: str = "none", **more: object
    ) -> dict[str, Any]:
        """Create a backfill, as the dialog does; both are logical dates, inclusive."""
        body = {
            "dag_id": self.dag_id,
            "from_date": first,
            "to_date": last,
            "reprocess_behavior": reprocess,
            "max_active_runs": 2,
            **more,
        }
        return dict(self.api.post("/api/v2/backfills", body))

    def clear(self, run_id: str, **more: object) -> None:
        """Clear a whole run."""
        self.api.post(self._path("dagRuns", run_id, "clear"), {"dry_run": False, **more})

    def clear_tasks(self, run_id: str, *tasks: tuple[str, int]) -> None:
        """Clear mapped tasks of a run, and nothing else."""
        body = {"dry_run": False, "only_failed": False, "dag_run_id": run_id, "task_ids": tasks}
        self.api.post(self._path("clearTaskInstances"), body)

    def delete(self, run_id: str) -> None:
        self.api.delete(self._path("dagRuns", run_id))

    def mark(self, run_id: str, state: str) -> None:
        """Mark a run as failed or success, as a person does."""
        self.api.patch(self._path("dagRuns", run_id), {"state": state})

    # --- what there is ---------------------------------------------------------------------------

    def runs(self) -> dict[str, dict[str, Any]]:
        """Return the runs by their ids, in the order of their logical dates."""
        found = self.api.get(self._path("dagRuns"), limit=100, order_by="logical_date")["dag_runs"]
        return {run["dag_run_id"]: run for run in found}

    def states(self, least: int = 1) -> list[str]:
        """Wait until so many runs are there and all have ended; return how."""
        wait_for(lambda: self._have_ended(least), f"{least} runs of {self.dag_id}")
        return self.states_now()

    def states_now(self) -> list[str]:
        return [run["state"] for run in self.runs().values()]

    def _have_ended(self, least: int) -> bool:
        found = self.states_now()
        return len(found) >= least and set(found) <= {*ENDS}

    def wait_for_backfills(self) -> None:
        """Wait until Airflow has noticed that they are done, which it looks for every 30 s."""
        wait_for(self._have_no_backfill, f"the backfills of {self.dag_id}")

    def _have_no_backfill(self) -> bool:
        return not open_backfills(self.api, self.dag_id)

    def state(self, run_id: str) -> str:
        """Wait until a run has ended; return how."""
        wait_for(lambda: self.runs()[run_id]["state"] in ENDS, run_id)
        return str(self.runs()[run_id]["state"])

    def tasks(self, run_id: str, what: str = "state") -> dict[tuple[str, int], Any]:
        """Return the states of a run's tasks, by task and map index; or what else Airflow tells."""
        path, found, page = self._path("dagRuns", run_id, "taskInstances"), list[Any](), 100
        while len(found) % page == 0:
            query = {"limit": page, "offset": len(found), "order_by": "id"}
            if not (more := self.api.get(path, **query)["task_instances"]):
                break
            found += more
        return {(task["task_id"], task["map_index"]): task[what] for task in found}

    def tries(self, run_id: str) -> dict[tuple[str, int], int]:
        """Return how many tries each of a run's tasks has had, by task and map index."""
        return self.tasks(run_id, "try_number")

    def log(self, run_id: str, task: str = "emit", number: int = 1, **query: object) -> str:
        """Return the log of a task's try."""
        path = self._path("dagRuns", run_id, "taskInstances", task, "logs", str(number))
        return str(self.api.get(path, **query))

    def ledger_rows(self, columns: str, table: str, order: str) -> list[tuple[Any, ...]]:
        """Return columns of the topology's rows in a table of the ledger."""
        statement = f"SELECT {columns} FROM reliability.{table} WHERE topology = %(t)s ORDER BY "
        return rows(self.ledger, statement + order, t=self.dag_id)

    def txids(self) -> list[tuple[int, str]]:
        """Return each txid and the day that its interval starts."""
        return self.ledger_rows("txid, interval_start::date::text", "transaction", "1")

    def requests(self) -> list[tuple[int, str, str, str]]:
        """Return txid, the kind of run, kind and status of each request, as they came."""
        columns = "txid, split_part(run_id, '__', 1), kind, status"
        return self.ledger_rows(columns, "request", "request_id")

    def attempts(self) -> dict[str, str]:
        """Return the status of each attempt, as 1:0 -> COMMITTED."""
        found = self.ledger_rows("txid, attempt_id, status", "attempt", "1, 2")
        return {f"{txid}:{attempt_id}": status for txid, attempt_id, status in found}

    def commits(self) -> list[str]:
        """Return the attempts in the order in which they were committed."""
        columns = "txid || ':' || attempt_id"
        return [name for (name,) in self.ledger_rows(columns, "commit_log", "commit_number")]

    def noted(self) -> list[str]:
        """Return the txids that its unanchored task was called with."""
        file = self.folder / "noted"
        return file.read_text().split() if file.exists() else []

    def counted(self) -> dict[str, int]:
        """Return the table: how often each word was counted."""
        return dict(rows(self.ledger, f"SELECT word, times FROM {self.dag_id} ORDER BY 1"))

    def _path(self, *parts: str) -> str:
        return "/".join(("/api/v2/dags", self.dag_id, *parts))


def story(begin: Callable[..., Any], *given: str) -> pytest.MarkDecorator:
    """Mark a test with what sets its DAG off, before any test runs: Airflow mostly waits.

    :param given: what `begin` gets beside the `Dates`
    """
    return pytest.mark.story.with_args(begin, *given)


def scheduled(dates: Dates, name: str, *files: str) -> Dag:
    """Deliver files, such as `2026-01-01/a man dog`, and let the schedule run."""
    dag = dates.dag(f"words_{name}")
    for file in files:
        place, *words = file.split()
        day, name = place.split("/")
        dag.deliver(day, *words, file=name)
    dag.unpause()
    return dag


def publish(folder: Path, version: str, files: dict[str, str]) -> None:
    """Make a version of these files the latest one."""
    place = folder / version
    place.mkdir(parents=True)
    for name, text in files.items():
        (place / name).write_text(text)
    (folder / "current.new").write_text(version)
    (folder / "current.new").rename(folder / "current")
