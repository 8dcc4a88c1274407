"""`make verify-compose`: a month of the demo in containers, against the raw file.

Brings everything up as a project of its own beside yours, has the month processed through
Airflow's API, asks the doctor in each container, compares both tables, and removes it all.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console

from dev.compose.secrets import admin_password, reliability_password, write_secrets
from dev.demo.backfill import Backfill, is_known
from dev.demo.report import compare, expected_tables, print_comparisons, read_tables
from dev.errors import DevError
from dev.services.airflow_api import AirflowApi
from dev.services.environment import forget_others
from dev.services.ports import HOST, Ports
from dev.services.processes import wait_until
from reliability.core.errors import ReliabilityError
from reliability.ledger.connection import LedgerConnection

PROJECT = "reliability-verify"
PORTS = ("AIRFLOW_PORT", "POSTGRES_PORT", "SPARK_UI_PORT")
MONTH = Backfill(
    dag_id="cdnow_revenue",
    first="1997-01-01T00:00:00Z",
    last="1997-01-01T00:00:00Z",
    txids=2,
    what="1997-01",
)
SERVICES = (
    "airflow-apiserver",
    "airflow-scheduler",
    "airflow-dag-processor",
    "airflow-triggerer",
    "spark-master",
    "spark-worker",
)
DOWN = ("down", "--volumes", "--remove-orphans", "--timeout", "5")
UP_SECONDS = 900
RUN_SECONDS = 900


def verify(root: Path) -> int:
    """Bring all of it up, run a month, compare, take it down; return the exit code."""
    write_secrets(root)
    chosen = Ports(file=root / ".reliability" / "compose-ports.json")
    variables = os.environ | {name: str(chosen.free_port(name)) for name in PORTS}

    def compose(*arguments: str, reads: bool = False) -> str:
        # Named, so that an override file of yours has no part in it.
        options = ("--project-name", PROJECT, "--file", str(root / "docker-compose.yml"))
        done = subprocess.run(
            ["docker", "compose", "--ansi", "never", *options, *arguments],
            cwd=root,
            env=variables,
            check=False,
            text=True,
            stdout=subprocess.PIPE if reads else None,
        )
        if done.returncode and not reads:
            raise DevError(f"docker compose {arguments[0]} failed, see above")
        return done.stdout or ""

    is_exact = False
    # What an earlier verification left that was killed for good.
    compose(*DOWN)
    try:
        with timed("built"):
            compose("build")
        with timed("all services are healthy"):
            compose("up", "--detach", "--wait", "--wait-timeout", str(UP_SECONDS), "--no-build")
        with timed(f"{MONTH.dag_id} ran for {MONTH.what}"):
            url = f"http://{HOST}:{variables['AIRFLOW_PORT']}"
            api = AirflowApi(base_url=url, username="admin", password=admin_password(root))
            run_month(api)
        check_page(api)
        with timed("the doctor finds nothing in any container"):
            for service in SERVICES:
                check_by_doctor(service, partial(compose, reads=True))
        is_exact = compare_month(root, variables["POSTGRES_PORT"])
    except (DevError, ReliabilityError) as error:
        print(f"  failed: {error}", flush=True)
        compose("logs", "--no-color", "--tail", "40")
    finally:
        compose(*DOWN)
    print(f"exact: {'yes' if is_exact else 'NO'}")
    return 0 if is_exact else 1


def run_month(api: AirflowApi) -> None:
    wait_until(partial(is_known, api, MONTH.dag_id), "Airflow to read the DAG", 120)
    MONTH.start(api)
    wait_until(partial(MONTH.has_succeeded, api), "the run", RUN_SECONDS, every=2)


def check_page(api: AirflowApi) -> None:
    """Ask the page in Airflow which txids have committed."""
    shown = api.get(f"/reliability/dags/{MONTH.dag_id}/series")["txid"]
    if shown != [*range(1, MONTH.txids + 1)]:
        raise DevError(f"the page in Airflow shows the txids {shown}")
    print("  the page in Airflow shows them", flush=True)


def check_by_doctor(service: str, read: Callable[..., str]) -> None:
    """Ask the doctor in a container; raise unless it finds nothing."""
    url = "RELIABILITY_AIRFLOW_URL=http://airflow-apiserver:8080"
    said = read("exec", "-T", "--env", url, service, "reliability", "doctor", "--json")
    if findings := [result for result in json.loads(said) if result["verdict"] != "ok"]:
        raise DevError(f"the doctor in {service} finds {json.dumps(findings, indent=1)}")


def compare_month(root: Path, port: str) -> bool:
    forget_others()
    # Not in a DSN: the library takes no password there.
    os.environ["PGPASSWORD"] = reliability_password(root)
    dsn = f"host={HOST} port={port} dbname=reliability user=reliability"
    with LedgerConnection(dsn) as connection:
        found = read_tables(connection)
    comparisons = compare(found, expected_tables({MONTH.what}))
    print_comparisons(Console(), comparisons)
    return all(row.is_exact for row in comparisons)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say how long a step took, if it ended well."""
    started = time.monotonic()
    yield
    print(f"  {what}: {time.monotonic() - started:.0f} s", flush=True)
