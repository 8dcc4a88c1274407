"""The container set-up, made and tried out: `python3 -m dev.compose secrets | verify`.

`verify` brings everything up as a project of its own beside yours, has one month of the demo
processed through Airflow's API, compares both tables with the raw file, and removes it all.
Standard library only: it runs on a fresh clone, with nothing installed but Docker.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.compose.secrets import FOLDER, admin_password, write_secrets
from dev.errors import DeadlineError, DevError
from dev.services.airflow_api import AirflowApi, AirflowApiError

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "reliability-verify"
DAG_ID = "cdnow_revenue"
MONTH = "1998-04"
PORTS = ("AIRFLOW_PORT", "POSTGRES_PORT", "SPARK_UI_PORT")
#: Table -> its query and what a row of totals.py has for it.
TABLES = {
    "customer_totals": "SELECT customer_id, orders, cds, revenue, first_order, last_order",
    "daily_revenue": "SELECT day, orders, revenue",
}
READY = ("healthy", "exited (0)")
BUILD_SECONDS = 3600
UP_SECONDS = 900
RUN_SECONDS = 900
POLL_INTERVAL_SECONDS = 2.0
SPEAK_EVERY_SECONDS = 20.0


class ComposeError(DevError):
    """Docker compose, or what runs in its containers, did not do its work."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m dev.compose", description=__doc__)
    parser.add_argument("command", choices=["secrets", "verify"])
    # A plain kill, as of a CI job that is cancelled, must not leave the containers behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return make_secrets() if parser.parse_args().command == "secrets" else verify()
    except DevError as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def make_secrets() -> int:
    """Write those secrets that are not there."""
    folder = write_secrets(ROOT).relative_to(ROOT)
    print(f"secrets are in {folder}; Airflow's user is admin, {folder}/airflow_passwords has the")
    print("password. Next: docker compose up -d --build --wait")
    return 0


def verify() -> int:
    """Bring all of it up, run a month, compare, take it down; return the exit code."""
    write_secrets(ROOT)
    compose = Compose(environment={**os.environ, **free_ports()})
    started = time.monotonic()
    is_exact = False
    try:
        # What an earlier verification left that was killed for good.
        compose.run("down", "--volumes", "--remove-orphans")
        with timed("built"):
            build(compose)
        with timed("all services are healthy"):
            bring_up(compose)
        with timed(f"{DAG_ID} ran for {MONTH}"):
            run_month(compose.airflow())
        is_exact = compare(compose)
    except DevError as error:
        print(f"  failed: {error}", flush=True)
        print(compose.logs(), flush=True)
    finally:
        is_exact &= take_down(compose)
    print(f"took {time.monotonic() - started:.0f} s")
    print(f"exact: {'yes' if is_exact else 'NO'}")
    return 0 if is_exact else 1


def build(compose: Compose) -> None:
    """Build the image; the first time it downloads some 700 MB."""
    with compose.background("build", "--progress", "plain") as process:
        wait_for(
            lambda: process.is_done("the build"),
            "building the image",
            BUILD_SECONDS,
            lambda: process.last_line(r"#\d+ (\[.*|[\d.]+ .*)"),
        )


def bring_up(compose: Compose) -> None:
    """Start all services and say of each when it is ready."""
    said: set[str] = set()

    def speak() -> None:
        for service, state in compose.states().items():
            if service not in said and state in READY:
                said.add(service)
                print(f"    {service}: {state.replace('exited (0)', 'done')}", flush=True)

    with compose.background("up", "--detach", "--wait", "--no-build") as process:

        def is_up() -> bool:
            speak()
            return process.is_done("docker compose up")

        wait_for(is_up, "starting", UP_SECONDS, lambda: f"{len(said)} services are ready")
    speak()


def run_month(api: AirflowApi) -> None:
    """Backfill the month and wait until its run is green."""
    wait_for(lambda: is_known(api), "Airflow to read the DAG", 120)
    day = f"{MONTH}-01T00:00:00Z"
    backfill = {"dag_id": DAG_ID, "from_date": day, "to_date": day, "max_active_runs": 2}
    api.post("/api/v2/backfills", backfill)
    api.patch(f"/api/v2/dags/{DAG_ID}", {"is_paused": False})

    def state() -> str:
        runs = api.get(f"/api/v2/dags/{DAG_ID}/dagRuns")["dag_runs"]
        return ", ".join(run["state"] for run in runs) or "no run yet"

    def is_over() -> bool:
        now = state()
        if "failed" in now:
            raise ComposeError(f"the run failed: {tasks(api)}")
        return now == "success"

    wait_for(is_over, "the run", RUN_SECONDS, lambda: tasks(api) or state())


def is_known(api: AirflowApi) -> bool:
    """Say whether Airflow has read the DAG's file."""
    try:
        api.get(f"/api/v2/dags/{DAG_ID}")
    except AirflowApiError as error:
        if error.status == 404:
            return False
        raise
    return True


def tasks(api: AirflowApi) -> str:
    """Say in a line how many tasks of all runs are in which state; those that wait are left out."""
    found = api.get(f"/api/v2/dags/{DAG_ID}/dagRuns/~/taskInstances", limit=100)["task_instances"]
    counted = Counter(
        f"{task['task_id'].rpartition('.')[2]} {task['state']}" for task in found if task["state"]
    )
    return ", ".join(f"{number} {what}" for what, number in sorted(counted.items()))


def take_down(compose: Compose) -> bool:
    """Remove containers and volumes; what cannot be removed is no reason to hide the verdict."""
    try:
        with timed("taken down, volumes included"):
            compose.run("down", "--volumes", "--remove-orphans", "--timeout", "5")
    except ComposeError as error:
        print(f"  failed: {error}", flush=True)
        return False
    return True


def compare(compose: Compose) -> bool:
    """Compare both tables, row by row and to the cent, with what the raw file says."""
    expected = expected_tables()
    found = {table: compose.rows(f"{query} FROM {table}") for table, query in TABLES.items()}
    for table, rows in expected.items():
        missing, surplus = rows - found[table], found[table] - rows
        print(
            f"  {table}: {len(found[table])} rows, {len(rows)} expected, "
            f"{len(missing)} missing, {len(surplus)} that should not be there",
            flush=True,
        )
    return found == expected


def expected_tables() -> dict[str, set[tuple[str, ...]]]:
    """Compute the month's tables from the raw file, as text: none of the package's code."""
    sys.path.insert(0, str(ROOT / "data" / "cdnow"))
    import totals

    lines, month = totals.raw_lines(), {MONTH}
    return {
        "customer_totals": {
            as_text(key, t.orders, t.cds, t.revenue, t.first_order, t.last_order)
            for key, t in totals.customer_totals(lines, month).items()
        },
        "daily_revenue": {
            as_text(day, total.orders, total.revenue)
            for day, total in totals.daily_revenue(lines, month).items()
        },
    }


def as_text(*values: object) -> tuple[str, ...]:
    """Write a row as Postgres does: numbers plain with their cents, dates as 1998-04-30."""
    return tuple(str(value) for value in values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compose:
    """`docker compose` for the project of the verification."""

    environment: Mapping[str, str]

    def run(self, *arguments: str) -> str:
        """Run a command to its end and return what it printed."""
        done = subprocess.run(
            self._command(*arguments),
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise ComposeError(f"docker compose {arguments[0]}: {' / '.join(said[-3:])}")
        return done.stdout

    @contextmanager
    def background(self, *arguments: str) -> Iterator[Background]:
        """Run a command beside us, with its output in a file; it ends with the block."""
        log = ROOT / FOLDER / f"{arguments[0]}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                self._command(*arguments),
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                yield Background(process=process, log=log)
            finally:
                process.terminate()
                process.wait()

    def states(self) -> dict[str, str]:
        """Return each service's condition: healthy, starting, exited (0) …"""
        listed = self.run("ps", "--all", "--format", "json").strip()
        # One array in older versions, a line for each container in newer ones.
        lines = (
            json.loads(listed) if listed.startswith("[") else map(json.loads, listed.split("\n"))
        )
        return {line["Service"]: condition(line) for line in (lines if listed else ())}

    def rows(self, query: str) -> set[tuple[str, ...]]:
        """Run a query in the ledger's database, as its owner."""
        psql = ("psql", "--username=reliability", "--dbname=reliability", "--csv", "--tuples-only")
        printed = self.run("exec", "-T", "postgres", *psql, "--command", query)
        return {tuple(row) for row in csv.reader(io.StringIO(printed))}

    def logs(self) -> str:
        """Return the end of the logs of what is not ready, or of all if that is not known."""
        try:
            troubled = [name for name, state in self.states().items() if state not in READY]
            return self.run("logs", "--no-color", "--tail", "40", *troubled)
        except ComposeError as error:
            return str(error)

    def airflow(self) -> AirflowApi:
        url = f"http://127.0.0.1:{self.environment['AIRFLOW_PORT']}"
        return AirflowApi(base_url=url, username="admin", password=admin_password(ROOT))

    def _command(self, *arguments: str) -> list[str]:
        # Named, so that an override file of yours has no part in it.
        file = str(ROOT / "docker-compose.yml")
        options = ("--ansi", "never", "--project-name", PROJECT, "--file", file)
        return ["docker", "compose", *options, *arguments]


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """A command that runs beside us."""

    process: subprocess.Popen[Any]
    log: Path

    def is_done(self, what: str) -> bool:
        """Say whether it has ended well; raise if it ended badly."""
        if self.process.poll() not in (None, 0):
            end = "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])
            raise ComposeError(f"{what} failed; the end of {self.log}:\n{end}")
        return self.process.returncode == 0

    def last_line(self, pattern: str) -> str:
        """Return what the pattern finds last in its output."""
        found = re.findall(f"^{pattern}", self.log.read_text(errors="replace"), re.MULTILINE)
        return found[-1][:100] if found else ""


def condition(container: Mapping[str, Any]) -> str:
    """Put a container's condition into a word or two."""
    if container["State"] == "exited":
        return f"exited ({container['ExitCode']})"
    return str(container.get("Health") or container["State"])


def wait_for(
    is_reached: Callable[[], bool],
    what: str,
    seconds: float,
    detail: Callable[[], str] = str,
) -> None:
    """Wait for a condition, and say now and then how far it is."""
    started = spoken = time.monotonic()
    while not is_reached():
        now = time.monotonic()
        if now - started > seconds:
            raise DeadlineError(f"{what}: not done within {seconds:.0f} s; {detail()}")
        if now - spoken > SPEAK_EVERY_SECONDS:
            spoken = now
            print(f"  {what}, {now - started:.0f} s: {detail()}", flush=True)
        time.sleep(POLL_INTERVAL_SECONDS)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say how long a step took, if it ended well."""
    started = time.monotonic()
    yield
    print(f"  {what}: {time.monotonic() - started:.0f} s", flush=True)


def free_ports() -> dict[str, str]:
    """Choose a free port for each that is published, beside whatever else runs here."""
    with _listening(len(PORTS)) as sockets:
        return {name: str(s.getsockname()[1]) for name, s in zip(PORTS, sockets, strict=True)}


@contextmanager
def _listening(number: int) -> Iterator[list[socket.socket]]:
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        yield sockets
    finally:
        for each in sockets:
            each.close()


if __name__ == "__main__":
    sys.exit(main())
