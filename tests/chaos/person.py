"""What people do at night: deliver files, backfill, replay, roll back, park, and clear what is red.

A person does one thing after the other, and waits until all of the bank is committed and green.
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import psycopg2
from psycopg2.extras import RealDictCursor

from dev.demo.backfill import Backfill
from dev.services.airflow_api import AirflowApiError
from tests.chaos.bank import (
    COLUMNS,
    MART,
    Row,
    Tables,
    database_of,
    deliver,
    expected,
    hour,
)
from tests.chaos.stack import Stack

PATIENCE_SECONDS = 1800
LOOK_SECONDS = 3.0
CLEAR_EVERY_SECONDS = 25.0
CLEAR_BY_HAND_AFTER_SECONDS = 420.0
CLI_SECONDS = 420
RECENT = 6  # txids and intervals that are corrected
WEIGHTS = {"deliver": 6, "replay": 2, "replay here": 1, "roll back": 2, "park": 1, "compact": 1}
WHY = "chaos"
STANDING = """
    SELECT count(*) AS txids, max(txid) AS last,
           count(*) FILTER (WHERE t.committed_attempt IS NOT NULL AND p.txid IS NULL) AS committed,
           count(*) FILTER (WHERE t.held_reason IS NOT NULL) AS held
      FROM reliability.transaction t
      LEFT JOIN reliability.parked_transaction p USING (topology, txid)
     WHERE t.topology = %s
"""


class Wrong(Exception):
    """What may never be."""


class Person(threading.Thread):
    """Works for one bank until told to stop.

    :ivar done: how often each thing was done
    :ivar wrong: what was found that may never be; it ends the person's work
    """

    def __init__(self, stack: Stack, name: str, seed: int, say: Callable[[str], None]) -> None:
        super().__init__(daemon=True)
        self.bank, self._stack, self._say = name, stack, say
        self._rng = random.Random(f"{seed} {name}")
        self._ends = threading.Event()
        self.files: list[list[Row]] = []
        self.intervals = 0
        self.done: Counter[str] = Counter()
        self.compared = 0
        self.wrong = ""

    def stop(self) -> None:
        self._ends.set()

    def run(self) -> None:
        try:
            self._deliver()
            self._end("deliver")
            while not self._ends.is_set():
                names = list(WEIGHTS)
                [name] = self._rng.choices(names, [WEIGHTS[one] for one in names])
                getattr(self, f"_{name.replace(' ', '_')}")()
                self._end(name)
        except Wrong as error:
            self.wrong = str(error)
        except Exception as error:  # the harness's own is no proof either
            self.wrong = f"{type(error).__name__}: {error}"

    def _end(self, what: str) -> None:
        seconds = self._settle(what)
        self.compare()
        self.done[what] += 1
        self._say(f"{self.bank}: {what}; {len(self.files)} txids are exact, after {seconds:.0f} s")

    # --- what is done ----------------------------------------------------------------------------

    def _deliver(self) -> None:
        first = self.intervals
        self.intervals += self._rng.randint(1, 4)
        for interval in range(first, self.intervals):
            self.files += deliver(self._stack.delivered, self.bank, interval, self._rng)
        self._backfill(first, self.intervals - 1)

    def _replay(self) -> None:
        last = self.intervals - 1
        first = self._rng.randint(max(0, last - RECENT), last)
        self._backfill(first, min(last, first + 1), reprocess="completed")

    def _replay_here(self) -> None:
        txid = self._rng.randint(max(1, len(self.files) - RECENT), len(self.files))
        self._cli("replay", self.bank, str(txid), "--master", "local[1]", "--reason", WHY)

    def _roll_back(self) -> None:
        kept = self._rng.randint(max(0, len(self.files) - RECENT), len(self.files) - 1)
        self._cli(
            *("rollback", self.bank, str(kept), "--yes", "--reason", WHY),
            done="is the last committed txid already",
        )
        self._cli("release", self.bank, done="was held")

    def _park(self) -> None:
        """Park the next txid in the middle of its processing, or before it."""
        next_txid = len(self.files) + 1
        self._deliver()
        self._wait(lambda: int(self._standing()["last"] or 0) >= next_txid, "a txid to park")
        self._cli(
            *("park", self.bank, str(next_txid), "--yes", "--reason", WHY),
            done="has already committed",
        )

    def _compact(self) -> None:
        self._cli("compact", self.bank)

    def _backfill(self, first: int, last: int, **more: Any) -> None:
        backfill = Backfill(
            dag_id=self.bank,
            first=f"{hour(first):%Y-%m-%dT%H:00:00Z}",
            last=f"{hour(last):%Y-%m-%dT%H:00:00Z}",
            txids=0,
            max_active_runs=2,
            what="",
            **more,
        )
        before = self._backfills()

        def has_started() -> bool:
            # An answer may be lost: then the backfill is there all the same.
            if self._backfills() == before:
                backfill.start(self._stack.api())
            return True

        self._wait(has_started, "a backfill")
        self._wait(lambda: self._runs_since(first, last), "runs")

    def _backfills(self) -> int:
        found = self._stack.api().get("/api/v2/backfills", dag_id=self.bank)
        return int(found["total_entries"])

    def _runs_since(self, first: int, last: int) -> bool:
        runs = self._runs()
        wanted = {f"{hour(n):%Y-%m-%dT%H:00:00Z}" for n in range(first, last + 1)}
        return wanted <= {run["logical_date"] for run in runs}

    # --- until all is well -----------------------------------------------------------------------

    def _settle(self, what: str) -> float:
        """Wait until each txid counts and each run is green; clear what is red."""
        began = cleared = time.monotonic()
        told = False
        while True:
            with suppress(AirflowApiError, psycopg2.Error, OSError):
                standing, runs = self._standing(), self._runs()
                states = Counter(run["state"] for run in runs)
                files = len(self.files)
                if standing["txids"] > files:
                    raise Wrong(f"{standing['txids']} txids for {files} files")
                if standing["committed"] == files and set(states) <= {"success"}:
                    return time.monotonic() - began
            now = time.monotonic()
            if now - began > PATIENCE_SECONDS:
                raise Wrong(f"{what}: not done after {now - began:.0f} s: {standing} {states}")
            if now - began > PATIENCE_SECONDS / 3 and not told:
                told = True
                self._say(f"{self.bank}: {what} takes long: {standing} {dict(states)}")
            if now - cleared > CLEAR_EVERY_SECONDS:
                cleared = now
                self.try_cli("resume-runs", self.bank, "--yes")
                self.try_cli("reconcile", "--repair", "--yes")
            time.sleep(LOOK_SECONDS)

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            with suppress(AirflowApiError, psycopg2.Error, OSError):
                if holds():
                    return
            time.sleep(LOOK_SECONDS)
        raise Wrong(f"waited in vain for {what}")

    def _runs(self) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = []
        while True:
            page = self._stack.api().get(
                f"/api/v2/dags/{self.bank}/dagRuns", limit=100, offset=len(runs), order_by="id"
            )["dag_runs"]
            runs += page
            if len(page) < 100:
                return runs

    def _standing(self) -> dict[str, Any]:
        with closing(psycopg2.connect(self._stack.dsn("reliability"))) as session:
            cursor = session.cursor(cursor_factory=RealDictCursor)
            cursor.execute(STANDING, (self.bank,))
            return dict(cursor.fetchone() or {})

    # --- the command line ------------------------------------------------------------------------

    def _cli(self, *arguments: str, done: str = "") -> None:
        """Run a verb until it has done its work, as a person repeats it after an error."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            code, said = self.try_cli(*arguments)
            if code == 0 or (done and done in " ".join(said.split())):
                return
            time.sleep(LOOK_SECONDS)
        raise Wrong(f"{' '.join(arguments)}: {said}")

    def try_cli(self, *arguments: str) -> tuple[int, str]:
        api = self._stack.api()
        try:
            own = {
                "RELIABILITY_AIRFLOW_URL": api.base_url,
                "RELIABILITY_AIRFLOW_TOKEN": api.token(),
            }
            ended = subprocess.run(
                [str(self._stack.root / ".venv" / "bin" / "reliability"), *arguments],
                env=self._stack.env() | own,
                cwd=self._stack.root,
                capture_output=True,
                text=True,
                check=False,
                timeout=CLI_SECONDS,
            )
        except (AirflowApiError, subprocess.TimeoutExpired) as error:
            return -1, str(error)
        self.done[f"reliability {arguments[0]}, exit {ended.returncode}"] += 1
        if "INTERNAL" in ended.stderr or "Traceback" in ended.stderr:
            raise Wrong(f"{arguments}: {ended.stderr}")
        return ended.returncode, ended.stdout + ended.stderr

    # --- tables ----------------------------------------------------------------------------------

    def compare(self) -> None:
        """Compare all tables with what was delivered."""
        wanted = expected(self.files)
        found = self._tables()
        for table, rows in wanted.items():
            missing, surplus = rows - found[table], found[table] - rows
            if missing or surplus:
                some = [*missing.items()][:3], [*surplus.items()][:3]
                raise Wrong(f"{self.bank}_{table}: lacks, has: {some}")
        self.compared += 1

    def _tables(self) -> Tables:
        tables: dict[str, Counter[tuple[Any, ...]]] = {}

        def read() -> bool:
            for database in ("reliability", MART):
                with closing(psycopg2.connect(self._stack.dsn(database))) as session:
                    session.set_session(isolation_level="REPEATABLE READ", readonly=True)
                    cursor = session.cursor()
                    for table, columns in COLUMNS.items():
                        if (database_of(table) or "reliability") == database:
                            cursor.execute(
                                f"SELECT {', '.join(columns)} FROM public.{self.bank}_{table}"
                            )
                            tables[table] = Counter(cursor.fetchall())
            return True

        self._wait(read, "the tables")
        return tables
