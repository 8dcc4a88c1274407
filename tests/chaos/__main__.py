"""`make chaos`: two banks work for MINUTES, while all that they stand on is killed at random.

In a loop, readers check in both databases that money is only moved. After each thing that people
did, all tables are compared with what was delivered. At the end the faults stop; then everything
has to commit, and the ledger has to be sound.

SEED repeats the choices: what is done and killed, not the moments, which depend on the host.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import psycopg2

from dev.demo.guard import Guard, end_with_parent
from tests.chaos.bank import ENGINES, HERE, MART
from tests.chaos.faults import Faults
from tests.chaos.person import Person
from tests.chaos.reader import Reader
from tests.chaos.stack import ROOT, Stack

STATE_DIR = ROOT / ".reliability" / "chaos"
#: After the last fault, all that people began has to be done within.
END_SECONDS = 1200
TELL_SECONDS = 60
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
LIVE = """
    SELECT topology, txid, attempt_id, status FROM reliability.attempt
     WHERE status IN ('PROCESSING', 'SEALING')
"""
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
     WHERE usename = 'reliability' AND pid <> pg_backend_pid()
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

    def say(self, text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        print(f"{minutes:3d}:{seconds:02d}  {text}", flush=True)

    def run(self, minutes: float) -> int:
        """Let it happen; print what came of it, and return the exit code."""
        stack = self._stack
        stack.begin(self.say)
        os.environ.update(stack.own_env())
        self.say(f"seed {self._seed}, {minutes:g} minutes")
        people = [Person(stack, name, self._seed, self.say) for name in ENGINES]
        readers = [Reader(lambda: stack.dsn("reliability"), HERE)]
        readers.append(Reader(lambda: stack.dsn(MART), MART))
        faults = Faults(stack, self._seed, self.say)
        for person in people:
            person.start()
        faults.begin()
        began = time.monotonic()
        self._wait(people, faults, readers, began + 60 * minutes)
        lasted = time.monotonic() - began
        for person in people:
            person.stop()
        faults.end()
        self.say(f"the last of {sum(faults.happened.values())} faults; waiting for what is open")
        self._wait(people, faults, readers, time.monotonic() + END_SECONDS, ends=True)
        settled = time.monotonic() - began - lasted
        faults.end_healing()
        for reader in readers:
            reader.end()
        wrong = [*self._wrong(people, faults, readers)]
        self._tell(people, faults, readers, lasted, settled)
        for one in wrong:
            print(f"WRONG: {one}")
        print("violations: 0" if not wrong else f"violations: {len(wrong)}")
        return 1 if wrong else 0

    def _wait(
        self,
        people: Sequence[Person],
        faults: Faults,
        readers: Sequence[Reader],
        until: float,
        *,
        ends: bool = False,
    ) -> None:
        """Wait, and tell each minute how it goes; end early if something is wrong."""
        told = time.monotonic()
        while time.monotonic() < until and any(one.is_alive() for one in people):
            wrong = [*(p.wrong for p in people), *(r.wrong for r in readers)]
            if any(wrong) and not ends:
                return
            if time.monotonic() - told > TELL_SECONDS:
                told = time.monotonic()
                files = sum(len(person.files) for person in people)
                snapshots = sum(reader.snapshots for reader in readers)
                happened = sum(faults.happened.values())
                self.say(f"{happened} faults, {files} txids, {snapshots:,} snapshots")
            time.sleep(1)

    def _wrong(
        self, people: Sequence[Person], faults: Faults, readers: Sequence[Reader]
    ) -> Iterator[str]:
        for person in people:
            if person.wrong:
                yield f"{person.bank}: {person.wrong}"
            elif person.is_alive():
                yield f"{person.bank}: not done {END_SECONDS} s after the last fault"
        for reader in readers:
            yield from reader.wrong[:5]
            if not reader.snapshots:
                yield "a reader has read nothing"
        yield from faults.failed
        yield from self._unsound("reliability", OUT_OF_ORDER, "committed out of order")
        yield from self._unsound("reliability", GAPS, "a gap between commits")
        yield from self._unsound("reliability", LIVE, "an attempt that lives on")
        for name in ENGINES:
            code, said = people[0].try_cli("verify", name)
            if code:
                yield f"verify {name}: {said}"
        yield from self._secrets()
        self._stack.airflow.stop()
        self._stack.engine.stop()
        self._stack.stop_cluster()
        for database in ("reliability", MART):
            yield from self._unsound(database, SESSIONS, f"a session left in {database}")

    def _unsound(self, database: str, question: str, what: str) -> Iterator[str]:
        for row in self._rows(database, question):
            yield f"{what}: {row}"

    def _rows(self, database: str, question: str) -> list[tuple[object, ...]]:
        with closing(psycopg2.connect(self._stack.dsn(database))) as session:
            cursor = session.cursor()
            cursor.execute(question)
            return cursor.fetchall()

    def _secrets(self) -> Iterator[str]:
        """Look for the ledger's password in all that was written, and in all command lines."""
        secret = self._stack.ledger.credentials.password("reliability").encode()
        folders = [self._stack.state_dir / name for name in ("logs", "airflow", "spark", "engine")]
        for path in (path for folder in folders for path in folder.rglob("*")):
            if path.is_file() and secret in path.read_bytes():
                yield f"the ledger's password is in {path}"
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            if secret in _read(path):
                yield f"the ledger's password is in a command line: {path}"

    def _tell(
        self,
        people: Sequence[Person],
        faults: Faults,
        readers: Sequence[Reader],
        lasted: float,
        settled: float,
    ) -> None:
        [figures] = self._rows("reliability", FIGURES)
        names = ("txids", "attempts", "fenced", "failed", "commits", "rows")
        lines: dict[str, object] = {
            "seed": self._seed,
            "minutes": f"{lasted / 60:.1f}, all done {settled:.0f} s after the last fault",
            **dict(zip(names, figures, strict=True)),
            "snapshots read": f"{sum(reader.snapshots for reader in readers):,}",
            "tables compared": f"{sum(person.compared for person in people)} times",
            "faults": sum(faults.happened.values()),
        }
        print()
        for name, value in lines.items():
            print(f"{name:<18} {value}")
        _print_counts("faults", faults.happened)
        _print_counts("restarted", faults.restarted)
        for person in people:
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
