"""`make chaos`: two banks work for MINUTES, while all that they stand on is killed at random.

In a loop, readers check in both databases that money is only moved. After each thing that people
did, all tables are compared with what was delivered. At the end the faults stop; then everything
has to commit, and the ledger has to be sound.

SEED repeats what is delivered, and the order of what is done and killed; not the moments.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from dev.demo.guard import Guard, end_with_parent
from dev.errors import DeadlineError
from dev.services.processes import wait_until
from tests.chaos.bank import ENGINES, HERE, SUMS
from tests.chaos.faults import MINUTES_FOR_ALL, Faults
from tests.chaos.person import Person
from tests.chaos.stack import ROOT, Stack
from tests.support.money import LIVE, Reader

STATE_DIR = ROOT / ".reliability" / "chaos"
#: After the last fault, all that people began has to be done within.
END_SECONDS = 1200
TELL_SECONDS = 60
READ_EVERY_SECONDS = 0.1
OUT_OF_ORDER = """
    SELECT topology, txid FROM (
        SELECT topology, txid, max(txid) OVER (PARTITION BY topology ORDER BY commit_number
                                               ROWS UNBOUNDED PRECEDING) AS highest,
               row_number() OVER (PARTITION BY topology, txid ORDER BY commit_number) AS time
          FROM reliability.commit_log WHERE kind = 'COMMIT') AS c
     WHERE time = 1 AND txid < highest
"""
GAPS = """
    SELECT topology, count(*), max(commit_number) FROM reliability.commit_log
     GROUP BY 1 HAVING count(*) <> max(commit_number)
"""
IN_LEDGER = (
    ("committed out of order", OUT_OF_ORDER),
    ("a gap between commits", GAPS),
    ("an attempt that lives on", LIVE),
)
FIGURES = """
    SELECT (SELECT count(*) FROM reliability.transaction) AS txids,
           (SELECT count(*) FROM reliability.attempt) AS attempts,
           (SELECT count(*) FROM reliability.attempt WHERE status = 'FENCED') AS fenced,
           (SELECT count(*) FROM reliability.attempt WHERE status = 'FAILED') AS failed,
           (SELECT count(*) FROM reliability.commit_log) AS commits,
           (SELECT coalesce(sum(emitted_count), 0)::bigint FROM reliability.transaction) AS rows
"""
SESSIONS = """
    SELECT application_name FROM pg_stat_activity
     WHERE datname = current_database() AND usename = 'reliability' AND pid <> pg_backend_pid()
"""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parsed = parser.parse_args(arguments)
    end_with_parent()
    stack = Stack(STATE_DIR)
    stack.destroy()
    guards = [Guard(ROOT, folder) for folder in (STATE_DIR, STATE_DIR / "ledger")]
    try:
        return Chaos(stack, parsed.seed).run(parsed.minutes)
    except KeyboardInterrupt:
        return 130
    finally:
        stack.down()
        for guard in guards:
            guard.end(keep=False)


class Chaos:
    """One run of it."""

    def __init__(self, stack: Stack, seed: int) -> None:
        self._stack, self._seed = stack, seed
        self._began = time.monotonic()
        self._seen: set[str] = set()

    def say(self, text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        print(f"{minutes:3d}:{seconds:02d}  {text}", flush=True)

    def run(self, minutes: float) -> int:
        """Let it happen; print what came of it, and return the exit code."""
        stack = self._stack
        stack.begin(self.say)
        stack.enter()
        self.say(f"seed {self._seed}, {minutes:g} minutes")
        self._begin()
        began = time.monotonic()
        try:
            self._watch(began + 60 * minutes)
            lasted = time.monotonic() - began
            for person in self._people:
                person.stop()
            self._faults.end()
            happened = sum(self._faults.happened.values())
            self.say(f"the last of {happened} faults; waiting for what is open")
            self._watch(time.monotonic() + END_SECONDS, ends=True)
            settled = time.monotonic() - began - lasted
        finally:
            self._faults.end()
            self._faults.end_healing()
            for reader in self._readers:
                reader.end()
        violations = self._prove(
            *(partial(self._verified, name) for name in ENGINES),
            *(partial(self._unsound, *one) for one in IN_LEDGER),
            self._of_people_and_readers,
            partial(self._of_faults, minutes),
        )
        stack.airflow.stop()
        stack.engine.stop()
        stack.stop_cluster()
        violations += self._prove(*(partial(self._left, one) for one in SUMS), self._secrets)
        self._tell(lasted, settled)
        print(f"violations: {violations}")
        return 1 if violations else 0

    def _begin(self) -> None:
        stack = self._stack
        self._people = [Person(stack, name, self._seed, self.say) for name in ENGINES]
        self._readers = [
            Reader(
                partial(stack.session, database),
                {name: sums.format(name) for name in ENGINES},
                every=READ_EVERY_SECONDS,
            )
            for database, sums in SUMS.items()
        ]
        self._faults = Faults(stack, self._seed, self.say)
        for person in self._people:
            person.start()
        self._faults.begin()

    def _watch(self, until: float, *, ends: bool = False) -> None:
        """Wait, and tell each minute how it goes; end early if something is wrong."""
        told = time.monotonic()
        secret = self._secret()
        while time.monotonic() < until and any(one.is_alive() for one in self._people):
            found = [*(one.wrong for one in self._people), *(one.wrong for one in self._readers)]
            if any(found) and not ends:
                return
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                if secret in _read(path):
                    self._seen.add(f"the ledger's password is in a command line: {_read(path)!r}")
            if time.monotonic() - told > TELL_SECONDS:
                told = time.monotonic()
                txids = sum(len(person.files) for person in self._people)
                happened = sum(self._faults.happened.values())
                self.say(f"{happened} faults, {txids} txids, {self._snapshots():,} snapshots")
            time.sleep(1)

    # --- what may never be -----------------------------------------------------------------------

    def _prove(self, *checks: Callable[[], Iterator[str]]) -> int:
        """Print what is wrong, as it is found, and return how much that is."""
        violations = 0
        for check in checks:
            try:
                for one in check():
                    violations += 1
                    print(f"WRONG: {one}", flush=True)
            except Exception as error:  # a check that was not made is no proof
                violations += 1
                print(f"WRONG: not checked: {type(error).__name__}: {error}", flush=True)
        return violations

    def _of_people_and_readers(self) -> Iterator[str]:
        for person in self._people:
            if person.wrong:
                yield f"{person.bank}: {person.wrong}"
            elif person.is_alive():
                yield f"{person.bank}: not done {END_SECONDS} s after the last fault: {person.seen}"
            elif not person.compared:
                yield f"{person.bank}: nothing was compared"
        for reader in self._readers:
            yield from reader.wrong[:5]
            yield from (f"{name}: no snapshot" for name in ENGINES if not reader.snapshots[name])

    def _of_faults(self, minutes: float) -> Iterator[str]:
        yield from self._faults.failed
        yield from sorted(self._seen)
        if minutes >= MINUTES_FOR_ALL:
            yield from (f"never happened: {name}" for name in self._faults.never_happened())

    def _verified(self, name: str) -> Iterator[str]:
        code, said = self._people[0].try_cli("verify", name)
        if code:
            yield f"verify {name}: {said}"

    def _unsound(self, what: str, question: str) -> Iterator[str]:
        for row in self._stack.rows(HERE, question):
            yield f"{what}: {row}"

    def _left(self, database: str) -> Iterator[str]:
        try:
            wait_until(
                lambda: not self._stack.rows(database, SESSIONS), "sessions to end", 30, every=0.5
            )
        except DeadlineError:
            yield f"sessions left in {database}: {self._stack.rows(database, SESSIONS)}"

    def _secrets(self) -> Iterator[str]:
        """Look for the ledger's password in all that was written."""
        secret = self._secret()
        folders = [self._stack.state_dir / name for name in ("logs", "airflow", "spark", "engine")]
        for path in (path for folder in folders for path in folder.rglob("*")):
            if path.is_file() and secret in _read(path):
                yield f"the ledger's password is in {path}"

    def _secret(self) -> bytes:
        return self._stack.ledger.credentials.password("reliability").encode()

    def _snapshots(self) -> int:
        return sum(sum(reader.snapshots.values()) for reader in self._readers)

    def _tell(self, lasted: float, settled: float) -> None:
        [figures] = self._stack.rows(HERE, FIGURES)
        names = ("txids", "attempts", "fenced", "failed", "commits", "rows")
        lines: dict[str, object] = {
            "seed": self._seed,
            "minutes": f"{lasted / 60:.1f}, all done {settled:.0f} s after the last fault",
            **dict(zip(names, figures, strict=True)),
            "snapshots read": f"{self._snapshots():,}",
            "tables compared": f"{sum(person.compared for person in self._people)} times",
            "faults": sum(self._faults.happened.values()),
        }
        print()
        for name, value in lines.items():
            print(f"{name:<18} {value}")
        _print_counts("faults", self._faults.happened)
        _print_counts("restarted", self._faults.restarted)
        for person in self._people:
            _print_counts(person.bank, person.done)


def _print_counts(title: str, counts: Counter[str]) -> None:
    print(f"\n{title}")
    for name, count in counts.most_common():
        print(f"  {count:5d}  {name}")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
