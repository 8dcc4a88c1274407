"""The part of Airflow's REST API that is compared with the ledger: runs, emit's result, clear."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from reliability.core.errors import NotPossible
from reliability.core.spout import Interval

URL = "RELIABILITY_AIRFLOW_URL"
TOKEN = "RELIABILITY_AIRFLOW_TOKEN"
TOKEN_FILE = "RELIABILITY_AIRFLOW_TOKEN_FILE"
TIMEOUT_SECONDS = 30
PAGE = 100
_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class DagRun:
    """A run in Airflow.

    :param interval: None if it has none, or names its txids: they may be of any intervals (E9)
    :param queued_at: when it was made, or cleared last
    :param is_backfill: a backfill has made it, or taken it over
    :param date: by which a backfill finds it: its logical date, or what its partition key says
    """

    run_id: str
    state: str
    interval: Interval | None = None
    queued_at: datetime | None = None
    is_backfill: bool = False
    date: datetime | None = None
    names_interval: bool = False  # in its conf
    is_dry_run: bool = False  # by its conf, which Airflow keeps

    @property
    def has_ended(self) -> bool:
        return self.state in ("success", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInstance:
    """A task of a run in Airflow; `map_index` is -1 if it is not mapped.

    :param label: what Airflow shows instead of its map index, None if the task has not begun
    """

    task_id: str
    map_index: int
    state: str | None
    started_at: datetime | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """A backfill in Airflow, of the runs from one date to another.

    :param reprocesses: it has taken over runs that were there
    :param is_cancelled: Airflow begins no run of it any more, also none that is cleared
    """

    first: datetime
    last: datetime
    created_at: datetime
    reprocesses: bool
    is_cancelled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Airflow:
    """A client of one Airflow 3, with a user's token."""

    url: str
    token: str = field(repr=False)  # empty: ask without one

    @classmethod
    def of(cls, url: str, *, allow_http: bool = False) -> Airflow:
        """Read the token from the environment or a file named there, never from an argument."""
        url = _address(url)
        named = urlsplit(url)
        if named.scheme == "http" and named.hostname not in _LOCAL and not allow_http:
            raise NotPossible(
                f"{url} is plain http: anyone on the network path could read the token",
                "use https; or, on a trusted network, add --allow-http.",
            )
        return cls(url=url, token=_token())

    @classmethod
    def without_token(cls, url: str) -> Airflow:
        """Make a client of what Airflow tells anybody; plain http is safe for that."""
        return cls(url=_address(url), token="")

    def dag(self, dag_id: str) -> dict[str, Any] | None:
        """Return what Airflow tells of a DAG; None if it does not have it."""
        answer = self._ask("GET", _path(dag_id))
        return answer if isinstance(answer, dict) else None

    def health(self) -> dict[str, str]:
        """Return the status of each of Airflow's components that it has: healthy or unhealthy.

        :raises NotPossible: nothing answers, or what answers is not Airflow 3
        """
        answer = self._ask("GET", "/monitor/health")
        parts = answer if isinstance(answer, dict) else {}
        statuses = {
            name: part["status"]
            for name, part in parts.items()
            if isinstance(part, dict) and part.get("status")
        }
        if not statuses:
            raise NotPossible(f"{self.url} does not answer as Airflow 3 does")
        return statuses

    def runs(self, dag_id: str) -> Iterator[DagRun] | None:
        """Yield the runs of a DAG, oldest first; None if Airflow starts none: it lacks the DAG.

        It keeps a DAG that no file has any more, with its runs, and calls it stale.
        """
        dag = self.dag(dag_id)
        if dag is None or dag.get("is_stale"):
            return None
        return map(_run_of, self._pages(_path(dag_id) + "/dagRuns", "dag_runs", "run_after"))

    def run(self, dag_id: str, run_id: str) -> DagRun | None:
        """Return a run; None if Airflow no longer has it."""
        answer = self._ask("GET", _path(dag_id, run_id))
        return None if answer is None else _run_of(answer)

    def tasks(self, dag_id: str, run_id: str) -> list[TaskInstance]:
        """Return the task instances of a run; none if Airflow no longer has the run."""
        path = _path(dag_id, run_id) + "/taskInstances"
        return [
            TaskInstance(
                task_id=row["task_id"],
                map_index=row["map_index"],
                state=row["state"],
                started_at=_moment(row.get("start_date")),
                label=row.get("rendered_map_index"),
            )
            for row in self._pages(path, "task_instances", "id")
        ]

    def backfills(self, dag_id: str) -> list[Backfill]:
        """Return the backfills of a DAG; none if the token's user may not see them."""
        with suppress(_Rejected):
            return [
                Backfill(
                    first=_at(row["from_date"]),
                    last=_at(row["to_date"]),
                    created_at=_at(row["created_at"]),
                    reprocesses=row["reprocess_behavior"] != "none",
                    is_cancelled=bool(row["is_paused"] and row["completed_at"]),
                )
                for row in self._pages("/backfills", "backfills", "id", dag_id=dag_id)
            ]
        return []

    def _pages(self, path: str, rows: str, order: str, **more: str) -> Iterator[Mapping[str, Any]]:
        offset = 0
        while True:
            query = urlencode({"limit": PAGE, "offset": offset, "order_by": order, **more})
            answer = self._ask("GET", f"{path}?{query}") or {}
            page = answer.get(rows, [])
            yield from page
            offset += len(page)
            # a short page is not the last one if Airflow's maximum_page_limit is small
            if not page or offset >= (answer.get("total_entries") or 0):
                return

    def pools(self) -> Iterator[Mapping[str, Any]]:
        """Yield the pools, each with its name, slots and include_deferred."""
        return self._pages("/pools", "pools", "id")

    def pools_of(self, dag_id: str) -> set[str]:
        """Return the pools that a DAG's tasks name; none if Airflow does not have the DAG."""
        found = self._ask("GET", _path(dag_id) + "/tasks") or {"tasks": ()}
        return {task["pool"] for task in found["tasks"]}

    def emitted(self, dag_id: str, run_id: str, task_id: str) -> list[int] | None:
        """Return the txids that a run's task has emitted; None if Airflow no longer has them."""
        path = f"{_path(dag_id, run_id)}/taskInstances/{task_id}/xcomEntries/return_value"
        value = (self._ask("GET", path) or {}).get("value")
        if isinstance(value, str):  # still serialized
            with suppress(ValueError):
                value = json.loads(value)
        return value if isinstance(value, list) else None

    def clear_tasks(self, dag_id: str, run_id: str, tasks: Iterable[tuple[str, int]]) -> None:
        """Clear some tasks of a run, each given with its map index or -1, and nothing else."""
        body = {
            "dag_run_id": run_id,
            "task_ids": task_ids(tasks),
            "dry_run": False,
            "only_failed": False,
        }
        self._change(dag_id, run_id, _path(dag_id) + "/clearTaskInstances", body)

    def clear(self, dag_id: str, run_id: str) -> None:
        """Clear all tasks of a run."""
        body = {"dry_run": False, "only_failed": False}
        self._change(dag_id, run_id, _path(dag_id, run_id) + "/clear", body)

    def queue_again(self, dag_id: str, run_id: str) -> None:
        """Take the run slot from a run; its tasks are kept, and go on when it has one again."""
        self._ask("PATCH", _path(dag_id, run_id), {"state": "queued"})

    def _change(self, dag_id: str, run_id: str, path: str, body: object) -> None:
        if self._ask("POST", path, body) is None:
            raise NotPossible(f"Airflow no longer has run {run_id} of {dag_id}")

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        """Return the response, None for 404."""
        url = f"{self.url}/api/v2{path}"
        # a proxy cannot reach this machine
        proxies: dict[str, str] | None = {} if urlsplit(url).hostname in _LOCAL else None
        opener = urllib.request.build_opener(_NoRedirect(), urllib.request.ProxyHandler(proxies))
        request = urllib.request.Request(
            url,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={
                "Accept": "application/json",
                "Content-Type": "application/json",
                **({"Authorization": f"Bearer {self.token}"} if self.token else {}),
            },
        )
        try:
            with opener.open(request, timeout=TIMEOUT_SECONDS) as response:
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise _refusal(method, url, error) from error
        except (OSError, HTTPException) as error:
            raise NotPossible(f"Airflow does not answer at {self.url}: {error}") from error
        except ValueError as error:
            raise NotPossible(f"the response of {url} is not from Airflow's API") from error


class _Rejected(NotPossible):
    """The token's user may not do this, or it is nobody's."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuse redirects: the token is for the named host only."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _run_of(run: Mapping[str, Any]) -> DagRun:
    start, end = _moment(run["data_interval_start"]), _moment(run["data_interval_end"])
    conf, interval = run.get("conf") or {}, None
    said = [each for each in (conf, *conf.values()) if isinstance(each, Mapping)]
    if start and end and not conf.get("replay"):
        interval = Interval(start, end)
    queued_at = _moment(run.get("queued_at"))
    return DagRun(
        run_id=run["dag_run_id"],
        state=run["state"],
        interval=interval,
        queued_at=queued_at,
        is_backfill=run["run_type"] == "backfill",
        date=_moment(run["logical_date"]) or _date_of(run.get("partition_key")),
        names_interval=any(each.get("interval") for each in said),
        is_dry_run=any(each.get("dry_run") is True for each in said),
    )


def _date_of(partition_key: str | None) -> datetime | None:
    """Read a partition key in UTC, as a backfill's dates."""
    with suppress(ValueError):
        return Interval.parse(partition_key or "").start
    return None


def _moment(text: str | None) -> datetime | None:
    return _at(text) if text else None


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def task_ids(tasks: Iterable[tuple[str, int]]) -> list[str | list[str | int]]:
    """Return tasks, each given with its map index or -1, as a clear names them."""
    return [task if index < 0 else [task, index] for task, index in tasks]


def _path(dag_id: str, run_id: str | None = None) -> str:
    run = "" if run_id is None else f"/dagRuns/{quote(run_id, safe='')}"
    return f"/dags/{quote(dag_id, safe='')}{run}"


def _refusal(method: str, url: str, error: urllib.error.HTTPError) -> NotPossible:
    if error.code in (401, 403):
        return _Rejected(
            f"Airflow rejected the token ({error.code})",
            f"POST /auth/token to get one for a user who may read and clear runs, and put it into "
            f"{TOKEN} or a file named by {TOKEN_FILE}.",
        )
    text = error.read().decode(errors="replace")[:300]
    return NotPossible(f"Airflow responded to {method} {url} with {error.code}: {text}")


def _address(url: str) -> str:
    url = url or os.environ.get(URL, "")
    if not url:
        raise NotPossible(f"no address for Airflow: add --airflow https://host, or set {URL}.")
    with suppress(ValueError):  # of brackets that are not closed
        if urlsplit(url).scheme in ("http", "https"):
            return url.rstrip("/")
    raise NotPossible(f"{url} is no address for Airflow: write it as https://host.")


def _token() -> str:
    token = os.environ.get(TOKEN, "")
    if not token and (file := os.environ.get(TOKEN_FILE)):
        try:
            token = Path(file).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise NotPossible(f"{TOKEN_FILE}: {error}") from error
    if not token.strip():
        raise NotPossible(f"no token for Airflow: put it into {TOKEN}, or a file named by "
                          f"{TOKEN_FILE}; POST /auth/token gives one. `make shell` has one, unless "
                          "Airflow's api-server is down.")  # fmt: skip
    if not (token.isascii() and token.strip().isprintable()):
        raise NotPossible(
            "the token for Airflow has a line end, or another character that no header may have",
            f"put the access_token of POST /auth/token alone into {TOKEN}, or {TOKEN_FILE}'s file.",
        )
    return token.strip()
