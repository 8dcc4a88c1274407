"""What people do at night: deliver files, backfill, replay, roll back, park, and clear what is red.

A person does one thing after the other, and waits until all of the bank is committed and green.
"""

from __future__ import annotations

import math
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import psycopg2

from dev.demo.backfill import Backfill, open_backfills
from dev.services.airflow_api import AirflowApiError
from dev.services.processes import wait_until
from tests.chaos.bank import CONTENTS, HERE, Row, database_of, deliver, expected, hour
from tests.chaos.stack import Stack

#: After so long a person says so. Who watches ends it, some time after the last fault.
LONG_SECONDS = 600
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
    SELECT count(*) AS txids,
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
PARKED = """
    SELECT txid FROM reliability.parked_transaction
      JOIN reliability.transaction t USING (topology, txid)
     WHERE topology = %s AND t.committed_attempt IS NOT NULL
"""
LAST_COMMIT = "SELECT max(commit_number) FROM reliability.commit_log WHERE topology = %s"


class Wrong(Exception):
    """What may never be."""


class Person(threading.Thread):
    """Works for one bank until told to stop.

    :ivar done: how often each thing was done
    :ivar wrong: what was found that may never be; it ends the person's work
    :ivar seen: what the last look has found, for whoever waits in vain
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
        self._cleared = time.monotonic()
        self.seen = ""

    def stop(self) -> None:
        self._ends.set()

    def run(self) -> None:
        try:
            name = "deliver"
            while True:
                getattr(self, f"_{name.replace(' ', '_')}")()
                self._end(name)
                if self._ends.is_set():
                    return
                [name] = self._rng.choices([*WEIGHTS], [*WEIGHTS.values()])
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
        self._backfill(first, self.intervals - 1)

    def _replay(self) -> None:
        last = self.intervals - 1
        first = self._rng.randint(max(0, last - RECENT), last)
        last = min(last, first + 1)
        hours = {f"{hour(n):%Y-%m-%dT%H}" for n in range(first, last + 1)}
        files = sum(name.split("/")[0] in hours for name in self.files)
        [[before]] = self._ask(LAST_COMMIT, self.bank)

        def is_replayed() -> bool:
            [[replayed]] = self._ask(REPLAYED, self.bank, before, hour(first), hour(last))
            return bool(replayed == files)

        self._backfill(first, last, is_replayed, reprocess="completed")

    def _replay_here(self) -> None:
        txid = self._rng.randint(max(1, len(self.files) - RECENT), len(self.files))
        self._cli(*self._replay_of(txid))

    def _replay_of(self, txid: int) -> tuple[str, ...]:
        """Return a command that replays a txid on this host."""
        return ("replay", self.bank, str(txid), "--master", "local[1]", "--reason", WHY)

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
        self._wait(lambda: self._standing()["txids"] >= next_txid, "a txid to park")
        self._cli(
            *("park", self.bank, str(next_txid), "--yes", "--reason", WHY),
            done="has already committed",
        )

    def _compact(self) -> None:
        self._cli("compact", self.bank)

    def _backfill(
        self, first: int, last: int, is_done: Callable[[], bool] | None = None, **more: Any
    ) -> None:
        """Ask for a backfill until what it is for is done: its start may be cut off anywhere.

        :param is_done: by default, all of its runs are there
        """
        backfill = Backfill(
            dag_id=self.bank,
            first=_date(first),
            last=_date(last),
            txids=0,
            what="",
            max_active_runs=2,
            **more,
        )
        started = -START_AGAIN_SECONDS

        def look() -> bool:
            nonlocal started
            api = self._stack.api()
            if is_done() if is_done else len(backfill.runs(api)) == last - first + 1:
                return True
            if time.monotonic() - started > START_AGAIN_SECONDS and self._is_at_rest():
                backfill.start(api)
                started = time.monotonic()
            self._clear()
            return False

        self._wait(look, f"a backfill of {first} to {last}")

    def _is_at_rest(self) -> bool:
        """Say whether Airflow has noted that the last backfill is over, and all runs have ended.

        To start one before that cancels the last one, and no run of a cancelled backfill that is
        cleared later ever starts again.
        """
        return not open_backfills(self._stack.api(), self.bank) and self._states() <= {*ENDS}

    # --- until all is well -----------------------------------------------------------------------

    def _settle(self, what: str) -> float:
        """Wait until each txid counts and each run is green; clear what is red."""
        began, files = time.monotonic(), len(self.files)
        self.seen = "nothing could be asked"
        told = False

        def look() -> bool:
            nonlocal told
            standing, states = self._standing(), self._states()
            self.seen = f"{standing}, runs {sorted(states)}"
            if standing["txids"] > files:
                raise Wrong(f"{standing['txids']} txids for {files} files")
            if standing["committed"] == files and states <= {"success"}:
                return True
            if time.monotonic() - began > LONG_SECONDS and not told:
                told = True
                self._say(f"{self.bank}: {what} takes long: {self.seen}")
            self._clear()
            return False

        self._wait(look, what)
        return time.monotonic() - began

    def _clear(self) -> None:
        """Clear what is red, and take in what was parked, now and then."""
        if time.monotonic() - self._cleared > CLEAR_EVERY_SECONDS:
            self.try_cli("resume-runs", self.bank, "--yes")
            self.try_cli("reconcile", "--repair", "--yes")
            for (txid,) in self._stack.rows(HERE, PARKED, self.bank):
                self.try_cli(*self._replay_of(txid))
            self._cleared = time.monotonic()

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something is so; whoever does not answer now is asked again."""

        def holds_now() -> bool:
            with suppress(AirflowApiError, psycopg2.Error, OSError):
                return holds()
            return False

        wait_until(holds_now, what, math.inf, every=LOOK_SECONDS)

    def _states(self) -> set[str]:
        """Return the states of all runs."""
        path, states, read, page = f"/api/v2/dags/{self.bank}/dagRuns", set[str](), 0, 100
        while read % page == 0:
            runs = self._stack.api().get(path, limit=page, offset=read, order_by="id")["dag_runs"]
            if not runs:
                break
            states |= {run["state"] for run in runs}
            read += len(runs)
        return states

    def _standing(self) -> dict[str, int]:
        [row] = self._stack.rows(HERE, STANDING, self.bank)
        return dict(zip(("txids", "committed", "held"), row, strict=True))

    def _ask(self, question: str, *parameters: Any, database: str = HERE) -> list[tuple[Any, ...]]:
        """Return the rows of a query, once the server answers."""
        answers: list[list[tuple[Any, ...]]] = []

        def read() -> bool:
            answers.append(self._stack.rows(database, question, *parameters))
            return True

        self._wait(read, "an answer of Postgres")
        return answers[-1]

    # --- the command line ------------------------------------------------------------------------

    def _cli(self, *arguments: str, done: str = "") -> None:
        """Run a verb until it has done its work, as a person repeats it after an error."""

        def is_done() -> bool:
            code, self.seen = self.try_cli(*arguments)
            return code == 0 or bool(done and done in " ".join(self.seen.split()))

        self._wait(is_done, " ".join(arguments))

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
            found = Counter(self._ask(question, database=database_of(what)))
            if missing := rows - found:
                raise Wrong(f"{self.bank}_{what} lacks {len(missing)}: {[*missing][:3]}")
            if surplus := found - rows:
                raise Wrong(f"{self.bank}_{what} has {len(surplus)} more: {[*surplus][:3]}")
        self.compared += 1


def _date(interval: int) -> str:
    return f"{hour(interval):%Y-%m-%dT%H:00:00Z}"
