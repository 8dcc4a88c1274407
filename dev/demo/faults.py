"""Kill -9 one party in the middle of the demo, found by what the ledger says of a live attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import psutil
from psycopg2.sql import SQL

from dev.services.environment import Environment
from reliability.ledger.connection import LedgerConnection

Victim = Literal["driver", "task", "supervisor", "postgres", "engine"]
VICTIMS: tuple[Victim, ...] = get_args(Victim)

# Attempts that have a driver, the youngest first: it has most of its work before it.
LIVE_DRIVERS = SQL("""
    SELECT a.txid, a.attempt_id, d.driver_pid, d.python_pid FROM reliability.attempt a
      JOIN reliability.attempt_step d USING (topology, txid, attempt_id)
     WHERE a.topology = %(topology)s AND a.status = 'PROCESSING' AND a.txid >= %(first)s
       AND d.status = 'RUNNING' AND d.started_at IS NOT NULL
     ORDER BY d.started_at DESC LIMIT 1
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """Who was killed, while it worked for which attempt."""

    name: str
    pid: int
    attempt: str

    def __str__(self) -> str:
        return f"kill -9 of the {self.name} (pid {self.pid}) while {self.attempt} ran"


NAMES: dict[Victim, str] = {
    "driver": "Spark driver's JVM",
    "engine": "warm engine's JVM",
    "task": "Airflow task process",
    "supervisor": "Airflow task's supervisor",
    "postgres": "Postgres server",
}


def kill_one(
    victim: Victim,
    environment: Environment,
    connection: LedgerConnection,
    first: int,
    topology: str = "cdnow_revenue",
) -> Killed | None:
    """Kill the victim if an attempt of txid `first` or later is running now, else do nothing."""
    with connection.transaction() as tx:
        attempt = tx.first(LIVE_DRIVERS, first=first, topology=topology)
    if attempt is None:
        return None
    try:
        is_warm = environment.engine.is_alive()
        driver_pid = attempt["python_pid"] if is_warm else attempt["driver_pid"]
        process = _process_of(victim, environment, driver_pid)
        process.kill()
    except psutil.NoSuchProcess:
        return None  # it ended by itself a moment ago; the next one will do
    name = "Spark driver" if is_warm and victim == "driver" else NAMES[victim]
    running = f"attempt {attempt['txid']}:{attempt['attempt_id']}"
    return Killed(name=name, pid=process.pid, attempt=running)


def _process_of(victim: Victim, environment: Environment, driver_pid: int) -> psutil.Process:
    """Walk up from the driver: its JVM, which spark-submit has become by exec, or its Python."""
    if victim in ("postgres", "engine"):
        is_postgres = victim == "postgres"
        found = environment.postgres.postmaster() if is_postgres else environment.engine.find()
        if found is None:
            raise psutil.NoSuchProcess(0)
        return found
    driver = psutil.Process(driver_pid)
    above = {"driver": 0, "task": 1, "supervisor": 2}[victim]
    return [driver, *driver.parents()][above]
