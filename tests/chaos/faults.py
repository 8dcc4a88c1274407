"""What happens to the processes of the stack, at random."""

from __future__ import annotations

import random
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress

import psutil
import psycopg2

from dev.services.airflow import COMPONENTS
from dev.services.processes import marked
from tests.chaos.bank import LEASE_SECONDS
from tests.chaos.stack import CLUSTER, Stack

SERVER_EVERY = (5.0, 40.0)
OTHERS_EVERY = (10.0, 60.0)
DOWN_FOR = (0.0, 4.0)
FROZEN_FOR = (5.0, 1.6 * LEASE_SECONDS)
#: What tells whose process it is: its command line, or its title.
LINES: Mapping[str, str] = {
    "driver's JVM": r"\S*java .*deploy\.SparkSubmit .*bank_cold",
    "driver's Python": r"\S*python\S* \S*process_batch\.py .*bank_cold",
    "warm driver": r"\S*python\S* \S*process_batch\.py .*bank_warm",
    "executor": r"\S*java .*CoarseGrainedExecutorBackend",
    "Python worker": r"\S*python\S* -m reliability\.spark\.daemon",
    "task": r"airflow worker -- (?!LocalExecutor)",
    "supervisor": r"airflow worker -- LocalExecutor: (?!<idle>)",
}
#: How often one is chosen, against the others.
WEIGHTS: Mapping[str, int] = {
    **dict.fromkeys(("driver's JVM", "driver's Python", "warm driver", "executor"), 4),
    **dict.fromkeys(("Python worker", "task", "supervisor", "frozen driver", "sessions"), 3),
    **dict.fromkeys(("engine", "scheduler", "triggerer", "api-server", *CLUSTER), 1),
    **dict.fromkeys(("dag-processor", "Airflow's Postgres"), 1),
}


class Faults:
    """Two threads: one for the ledger's server, one for all others; a third restarts what is dead.

    :ivar happened: how often each has happened
    """

    def __init__(self, stack: Stack, seed: int, say: Callable[[str], None]) -> None:
        self._stack, self._say = stack, say
        self._ends, self._all_ends = threading.Event(), threading.Event()
        self.happened: Counter[str] = Counter()
        self.restarted: Counter[str] = Counter()
        self.failed: list[str] = []
        self._frozen: list[tuple[psutil.Process, threading.Timer]] = []
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(seed + n), one), daemon=True)
            for n, one in enumerate((self._hit_server, self._hit_another))
        ]
        self._healer = threading.Thread(target=self._heal, args=(random.Random(seed),), daemon=True)

    def begin(self) -> None:
        for thread in (*self._threads, self._healer):
            thread.start()

    def end(self) -> None:
        """Let no more happen; what is dead is still restarted, and what is frozen goes on."""
        self._ends.set()
        for thread in self._threads:
            thread.join()
        for process, timer in self._frozen:
            timer.cancel()
            _send(process, signal.SIGCONT)

    def end_healing(self) -> None:
        self._all_ends.set()
        self._healer.join()

    def _run(self, rng: random.Random, hit: Callable[[random.Random], float]) -> None:
        seconds = rng.uniform(*OTHERS_EVERY)
        while not self._ends.wait(seconds):
            try:
                seconds = hit(rng)
            except Exception as error:  # the harness's own; told at the end
                self.failed.append(f"{type(error).__name__}: {error}")

    # --- the ledger's server ---------------------------------------------------------------------

    def _hit_server(self, rng: random.Random) -> float:
        postmaster = self._stack.ledger.postgres.postmaster()
        if postmaster is not None:
            if rng.random() < 0.5:
                self._stack.ledger.postgres.kill()
                self.happened["the ledger's Postgres: SIGKILL"] += 1
            else:
                postmaster.send_signal(signal.SIGQUIT)
                self.happened["the ledger's Postgres: immediate shutdown"] += 1
        return rng.uniform(*SERVER_EVERY)

    # --- the others ------------------------------------------------------------------------------

    def _hit_another(self, rng: random.Random) -> float:
        names = list(WEIGHTS)
        for _ in range(10):  # until one is there
            [name] = rng.choices(names, [WEIGHTS[one] for one in names])
            if self._hit(name, rng):
                self.happened[name] += 1
                break
        return rng.uniform(*OTHERS_EVERY)

    def _hit(self, name: str, rng: random.Random) -> bool:
        stack = self._stack
        if name == "sessions":
            return self._end_sessions(rng)
        if name == "Airflow's Postgres":
            stack.postgres.kill()
            return True
        if name in (*COMPONENTS, *CLUSTER, "engine"):
            background = stack.engine if name == "engine" else stack.node(name)
            leader = background.find()
            if leader is not None:
                leader.kill()
            return leader is not None
        frozen = name == "frozen driver"
        victims = [
            *self._processes(rng.choice(["driver's JVM", "warm driver"]) if frozen else name)
        ]
        if not victims:
            return False
        victim = rng.choice(victims)
        if frozen:
            self._freeze(victim, rng.uniform(*FROZEN_FOR))
        else:
            _send(victim, signal.SIGKILL)
        return True

    def _processes(self, name: str) -> Iterator[psutil.Process]:
        for process in marked(str(self._stack.state_dir)):
            with suppress(psutil.Error):
                if re.match(LINES[name], " ".join(process.cmdline())):
                    yield process

    def _freeze(self, driver: psutil.Process, seconds: float) -> None:
        """Stop a driver and what it has started, as a host that stalls; beyond its lease or not."""
        for process in (driver, *driver.children(recursive=True)):
            _send(process, signal.SIGSTOP)
            timer = threading.Timer(seconds, _send, (process, signal.SIGCONT))
            timer.start()
            self._frozen.append((process, timer))

    def _end_sessions(self, rng: random.Random) -> bool:
        """End half of the ledger's sessions, as a proxy or an administrator does."""
        question = """
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE usename = 'reliability' AND pid <> pg_backend_pid() AND random() < %s
        """
        dsn = self._stack.dsn("postgres", "postgres")
        with suppress(psycopg2.Error), closing(psycopg2.connect(dsn)) as session:
            session.autocommit = True
            cursor = session.cursor()
            cursor.execute(question, (rng.random(),))
            return bool(cursor.rowcount)
        return False

    # --- what a service manager does -------------------------------------------------------------

    def _heal(self, rng: random.Random) -> None:
        while not self._all_ends.wait(rng.uniform(*DOWN_FOR)):
            try:
                self.restarted.update(self._stack.restart())
            except Exception as error:  # killed again while it starts: the next time will do
                self._say(f"restart: {error}")


def _send(process: psutil.Process, number: int) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)
