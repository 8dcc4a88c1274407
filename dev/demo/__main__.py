"""`make demo`: 69,659 real purchases through Airflow, Spark and Postgres, with a kill on the way.

1. a fresh environment: embedded Postgres, Airflow's scheduler, spark-submit
2. an Airflow backfill over 18 months, a batch or two each: 21 txids, three pending at a time
3. in the middle, kill -9 (KILL=driver, task, supervisor, postgres or, with ENGINE=warm, engine)
4. an Airflow backfill that replays one month: Spark runs again, nothing changes
5. both tables against totals computed from the raw file by other means; `exact: yes`

With KEEP=1 all of it runs on at the end.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from psycopg2.sql import SQL
from rich.console import Console
from rich.markup import escape

from dev.demo.backfill import Backfill, is_known
from dev.demo.faults import VICTIMS, Killed, Victim, kill_one
from dev.demo.guard import Guard, end_with_parent
from dev.demo.report import (
    Tables,
    compare,
    ended_attempts,
    expected_tables,
    print_comparisons,
    print_figures,
    read_ledger,
    read_tables,
)
from dev.errors import DevError
from dev.services.airflow_api import AirflowApi, AirflowApiError
from dev.services.engine import engine_asked_for
from dev.services.environment import Environment
from dev.services.processes import wait_until
from reliability.core.errors import ReliabilityError
from reliability.ledger.connection import LedgerConnection

ROOT = Path(__file__).resolve().parents[2]
STATE_DIR = ROOT / ".reliability" / "demo"
DAG_ID = "cdnow_revenue"
COMMITS = SQL("SELECT count(*) AS commits FROM reliability.commit_log")
DRIVERS = SQL(
    "SELECT txid, attempt_id, step FROM reliability.attempt_step WHERE application_id IS NOT NULL"
)
KILL_FROM_TXID = 9
PATIENCE_SECONDS = 1500
POLL_INTERVAL_SECONDS = 1.0
POLLS_PER_AIRFLOW_LOOK = 15
REPAIRS = 3
LOG_WIDTH = 100
INTERRUPTED = 130


MONTHS = Backfill(
    dag_id=DAG_ID,
    first="1997-01-01T00:00:00Z",
    last="1998-06-01T00:00:00Z",
    txids=21,
    what="18 months",
    max_active_runs=6,  # the next ones have emitted when the window moves
)
REPLAY = Backfill(
    dag_id=DAG_ID,
    first="1997-03-01T00:00:00Z",
    last="1997-03-01T00:00:00Z",
    txids=2,
    what="replay of 1997-03",
    reprocess="completed",
)


class Demo:
    """One run of the demo in an environment of its own."""

    def __init__(self, victim: Victim, console: Console) -> None:
        self.victim = victim
        self.console = console
        self.environment = Environment(ROOT, STATE_DIR, profile="demo", engine=engine_asked_for())
        self.environment.destroy()
        self.guard = Guard(ROOT, STATE_DIR)
        self.connection = LedgerConnection("service=reliability", application_name="demo")
        self.killed: Killed | None = None
        self.restarts: Counter[str] = Counter()
        self.repairs = 0

    def run(self) -> bool:
        """Tell the story; return whether all of it was exact."""
        started = time.monotonic()
        self.environment.up(self.say)
        self.environment.enter()
        wait_until(lambda: is_known(self.api, DAG_ID), f"Airflow to read dags/{DAG_ID}.py", 120)
        set_up = time.monotonic()
        expected = expected_tables()
        self._run(MONTHS, kills=True)
        after_backfill = read_tables(self.connection)
        drivers = self._drivers()
        self._run(REPLAY, kills=False)
        exact = self._report(expected, after_backfill, self._drivers() - drivers)
        ended = time.monotonic()
        self.say(f"set-up {set_up - started:.0f} s, demo {ended - set_up:.0f} s")
        return exact

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False)

    @property
    def api(self) -> AirflowApi:
        return self.environment.api()

    # --- a backfill, watched ---------------------------------------------------------------------

    def _run(self, backfill: Backfill, *, kills: bool) -> None:
        before = self._commits()
        backfill.start(self.api)
        deadline = time.monotonic() + PATIENCE_SECONDS
        looks = shown = 0
        while time.monotonic() < deadline:
            for name in self.environment.restart():
                self.say(f"{name} died: restarting it")
                self.restarts[name] += 1
            # Whatever is being killed or restarted answers again in a moment.
            with suppress(ReliabilityError, AirflowApiError, OSError):
                if kills and self.killed is None:
                    self.killed = kill_one(
                        self.victim, self.environment, self.connection, KILL_FROM_TXID
                    )
                    if self.killed is not None:
                        self.say(str(self.killed))
                committed = min(self._commits() - before, backfill.txids)
                if committed != shown:
                    shown = committed
                    self.say(f"{backfill.what}: {committed} of {backfill.txids} txids committed")
                # Asking Airflow costs it work: while txids commit, now and then will do.
                looks += 1
                asks = committed == backfill.txids or looks % POLLS_PER_AIRFLOW_LOOK == 0
                if asks and self._has_ended(backfill):
                    return
            time.sleep(POLL_INTERVAL_SECONDS)
        raise DevError(f"not done after {PATIENCE_SECONDS} s; logs: {STATE_DIR}")

    def _has_ended(self, backfill: Backfill) -> bool:
        """Say whether every run is green; a run that ended red is cleared, as a person would."""
        runs = backfill.runs(self.api)
        if any(run["state"] not in ("success", "failed") for run in runs):
            return False
        failed = [run["dag_run_id"] for run in runs if run["state"] == "failed"]
        if failed and self.repairs == REPAIRS:
            raise DevError(f"these runs stay red: {failed}")
        for run_id in failed:
            self.api.post(f"/api/v2/dags/{DAG_ID}/dagRuns/{run_id}/clear", {"dry_run": False})
        self.repairs += bool(failed)
        return not failed

    def _commits(self) -> int:
        with self.connection.transaction() as tx:
            return int(tx.one(COMMITS)["commits"])

    def _drivers(self) -> set[tuple[int, int, str]]:
        with self.connection.transaction() as tx:
            return {(row["txid"], row["attempt_id"], row["step"]) for row in tx.all(DRIVERS)}

    # --- the end ---------------------------------------------------------------------------------

    def _report(
        self, expected: Tables, after_backfill: Tables, drivers: Collection[object]
    ) -> bool:
        found = read_tables(self.connection)
        figures = read_ledger(self.connection)
        print_figures(self.console, {**figures, "killed": 1 if self.killed else 0})
        for ended in ended_attempts(self.connection):
            self.say(escape(ended))
        comparisons = compare(found, expected)
        print_comparisons(self.console, comparisons)
        unchanged = found == after_backfill
        self.say(
            f"{REPLAY.what}: {len(drivers)} Spark drivers ran again, "
            f"{figures['replayed']} contributions swapped, "
            f"{'nothing changed' if unchanged else 'THE TABLES CHANGED'}"
        )
        self.say(str(self.killed or "NOBODY WAS KILLED"))
        restarted = ", ".join(f"{name} {times}x" for name, times in self.restarts.items())
        self.say(f"restarted: {restarted or 'nothing'}; red runs cleared: {self.repairs} times")
        return (
            all(row.is_exact for row in comparisons)
            and unchanged
            and self.killed is not None
            and figures["committed"] == MONTHS.txids
            and figures["replayed"] == len(drivers) == REPLAY.txids
        )


def main() -> int:
    """Run the demo; exit with 0 only if it was exact."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = LOG_WIDTH
    victim = os.environ.get("KILL") or "driver"
    if victim not in VICTIMS:
        console.print(f"KILL is one of {', '.join(VICTIMS)}, not {victim!r}")
        return 2
    end_with_parent()
    try:
        if victim == "engine" and engine_asked_for() != "warm":
            raise DevError("KILL=engine needs ENGINE=warm")
        demo = Demo(victim, console)
    except (DevError, KeyboardInterrupt) as error:
        console.print(str(error) or "interrupted")
        return 2
    try:
        exact = demo.run()
    except (DevError, ReliabilityError) as error:
        console.print(f"the demo did not finish: {error}")
        exact = False
    except KeyboardInterrupt:
        console.print("interrupted: taking Airflow and Postgres down")
        demo.guard.end(keep=False)
        return INTERRUPTED
    is_kept = os.environ.get("KEEP", "0") not in ("", "0")
    demo.guard.end(keep=is_kept)
    console.print("exact: yes" if exact else "exact: NO")
    if is_kept:
        console.print(
            f"It runs on. The page: {demo.environment.airflow.url}/plugin/reliability\n"
            f"  user admin, password {demo.api.password}\n"
            "  `make down` stops it, `make reset` deletes it"
        )
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
