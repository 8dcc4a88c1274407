"""What people do at night: deliver files, backfill, replay, roll back, park, and clear what is red.

A person does one thing after the other, and waits until all of the bank is committed and green.
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from typing import Any

import psycopg2
from psycopg2.extras import RealDictCursor

from dev.demo.backfill import Backfill
from dev.services.airflow_api import AirflowApiError
from tests.chaos.bank import CONTENTS, Row, database_of, deliver, expected, hour
from tests.chaos.stack import Stack

PATIENCE_SECONDS = 1800
LOOK_SECONDS = 3.0
CLEAR_EVERY_SECONDS = 25.0
#: An interrupted start of a backfill has left none, or not all of its runs.
START_AGAIN_SECONDS = 90.0
CLI_SECONDS = 900
RECENT = 6  # txids and intervals that are corrected
WEIGHTS = {"deliver": 6, "replay": 2, "replay here": 1, "roll back": 2, "park": 1, "compact": 1}
WHY = "chaos"
ENDS = ("success", "failed")
STANDING = """
    SELECT count(*) AS txids, max(txid) AS last,
           count(*) FILTER (WHERE t.committed_attempt IS NOT NULL AND p.txid IS NULL) AS committed,
           count(*) FILTER (WHERE t.held_reason IS NOT NULL) AS held
      FROM reliability.transaction t
      LEFT JOIN reliability.parked_transaction p USING (topology, txid)
     WHERE t.topology = %s
"""
COMMITTED = """
    SELECT batch_meta->0->>'path' AS path FROM reliability.transaction
     WHERE topology = %s AND committed_attempt IS NOT NULL
"""
REPLAYED = """
    SELECT count(DISTINCT txid) FROM reliability.commit_log
      JOIN reliability.transaction t USING (topology, txid)
     WHERE topology = %s AND kind = 'REPLAY' AND commit_log.commit_number > %s
       AND t.interval_start BETWEEN %s AND %s
"""
LAST_COMMIT = "SELECT max(commit_number) FROM reliability.commit_log WHERE topology = %s"


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
        self.files: dict[str, list[Row]] = {}
        self.intervals = 0
        self.done: Counter[str] = Counter()
        self.compared = 0
        self.wrong = ""

    def stop(self) -> None:
        self._ends.set()

    def run(self) -> None:
        try:
            name = "deliver"
            while not (self.done and self._ends.is_set()):
                getattr(self, f"_{name.replace(' ', '_')}")()
                self._end(name)
                names = list(WEIGHTS)
                [name] = self._rng.choices(names, [WEIGHTS[one] for one in names])
        except Wrong as error:
            self.wrong = str(error)
        except Exception as error:  # the harness's own is no proof either
            self.wrong = f"{type(error).__name__}: {error}"

    def _end(self, what: str) -> None:
        seconds = self._settle(what)
        self._compare(self.files)
        self.done[what] += 1
        self._say(f"{self.bank}: {what}; {len(self.files)} txids are exact, after {seconds:.0f} s")

    # --- what is done ----------------------------------------------------------------------------

    def _deliver(self) -> None:
        first = self.intervals
        self.intervals += self._rng.randint(1, 4)
        for interval in range(first, self.intervals):
            self.files |= deliver(self._stack.delivered / self.bank, interval, self._rng)
        last = self.intervals - 1
        self._backfill(first, last, lambda: self._has_runs(first, last))

    def _replay(self) -> None:
        last = self.intervals - 1
        first = self._rng.randint(max(0, last - RECENT), last)
        last = min(last, first + 1)
        hours = {f"{hour(n):%Y-%m-%dT%H}" for n in range(first, last + 1)}
        files = sum(name.split("/")[0] in hours for name in self.files)
        before = self._ask(LAST_COMMIT, self.bank)[0][0]

        def is_replayed() -> bool:
            key = self.bank, before, hour(first), hour(last)
            return bool(self._ask(REPLAYED, *key)[0][0] == files)

        self._backfill(first, last, is_replayed, reprocess="completed")

    def _replay_here(self) -> None:
        txid = self._rng.randint(max(1, len(self.files) - RECENT), len(self.files))
        self._cli("replay", self.bank, str(txid), "--master", "local[1]", "--reason", WHY)

    def _roll_back(self) -> None:
        kept = self._rng.randint(max(0, len(self.files) - RECENT), len(self.files) - 1)
        self._cli(
            *("rollback", self.bank, str(kept), "--yes", "--reason", WHY),
            done="is the last committed txid already",
        )
        left = [path for (path,) in self._ask(COMMITTED, self.bank)]
        if len(left) != kept:
            raise Wrong(f"{len(left)} txids have committed after a rollback to {kept}")
        parts = [path.split("/")[-2:] for path in left]
        self._compare([f"{folder}/{file}" for folder, file in parts])
        self._cli("release", self.bank)

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

    def _backfill(self, first: int, last: int, is_done: Callable[[], bool], **more: Any) -> None:
        """Ask for a backfill until what it is for is done: its start may be cut off anywhere."""
        backfill = Backfill(
            dag_id=self.bank,
            first=_date(first),
            last=_date(last),
            txids=0,
            what="",
            max_active_runs=2,
            **more,
        )
        deadline = time.monotonic() + PATIENCE_SECONDS
        started, cleared = -START_AGAIN_SECONDS, time.monotonic()
        while time.monotonic() < deadline:
            with suppress(AirflowApiError, psycopg2.Error, OSError):
                if is_done():
                    return
                if time.monotonic() - started > START_AGAIN_SECONDS and self._is_at_rest():
                    backfill.start(self._stack.api())
                    started = time.monotonic()
            cleared = self._clear(cleared)
            time.sleep(LOOK_SECONDS)
        raise Wrong(f"a backfill of {first} to {last} has not done its work")

    def _is_at_rest(self) -> bool:
        """Say whether Airflow has noted that the last backfill is over, and all runs have ended.

        To start one before that cancels the last one, and no run of a cancelled backfill that is
        cleared later ever starts again.
        """
        found = self._stack.api().get("/api/v2/backfills", dag_id=self.bank)["backfills"]
        return all(one["completed_at"] for one in found) and (
            {run["state"] for run in self._runs()} <= {*ENDS}
        )

    def _has_runs(self, first: int, last: int) -> bool:
        wanted = {_date(n) for n in range(first, last + 1)}
        return wanted <= {run["logical_date"] for run in self._runs()}

    # --- until all is well -----------------------------------------------------------------------

    def _settle(self, what: str) -> float:
        """Wait until each txid counts and each run is green; clear what is red."""
        began = cleared = time.monotonic()
        told, standing, states = False, {}, Counter[str]()
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
            cleared = self._clear(cleared)
            time.sleep(LOOK_SECONDS)

    def _clear(self, cleared: float) -> float:
        """Clear what is red, now and then; return when that was."""
        if time.monotonic() - cleared < CLEAR_EVERY_SECONDS:
            return cleared
        self.try_cli("resume-runs", self.bank, "--yes")
        self.try_cli("reconcile", "--repair", "--yes")
        return time.monotonic()

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

    def _ask(self, question: str, *parameters: Any, database: str = "reliability") -> Any:
        """Return the rows of a query, once the server answers."""
        answers: list[Any] = []

        def read() -> bool:
            with closing(psycopg2.connect(self._stack.dsn(database))) as session:
                cursor = session.cursor()
                cursor.execute(question, parameters or None)
                answers.append(cursor.fetchall())
            return True

        self._wait(read, "an answer of Postgres")
        return answers[-1]

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
                env=self._stack.marked_env() | own,
                cwd=self._stack.root,
                capture_output=True,
                text=True,
                check=False,
                timeout=CLI_SECONDS,
            )
        except AirflowApiError as error:
            return -1, str(error)
        except subprocess.TimeoutExpired as error:
            raise Wrong(f"{' '.join(arguments)} has not ended after {error.timeout} s") from None
        self.done[f"reliability {arguments[0]}, exit {ended.returncode}"] += 1
        if "INTERNAL" in ended.stderr or "Traceback" in ended.stderr:
            raise Wrong(f"{arguments}: {ended.stderr}")
        return ended.returncode, ended.stdout + ended.stderr

    # --- tables ----------------------------------------------------------------------------------

    def _compare(self, names: Iterable[str]) -> None:
        """Compare all tables with what these files have."""
        for what, rows in expected(self.files[name] for name in names).items():
            question = CONTENTS[what].format(self.bank)
            database = database_of(what) or "reliability"
            found = Counter(self._ask(question, database=database))
            if missing := rows - found:
                raise Wrong(f"{self.bank}_{what} lacks {len(missing)}: {[*missing][:3]}")
            if surplus := found - rows:
                raise Wrong(f"{self.bank}_{what} has {len(surplus)} more: {[*surplus][:3]}")
        self.compared += 1


def _date(interval: int) -> str:
    return f"{hour(interval):%Y-%m-%dT%H:00:00Z}"
