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
from dev.services.postgres import EmbeddedPostgres
from dev.services.processes import family, marked
from tests.chaos.bank import LEASE_SECONDS
from tests.chaos.stack import CLUSTER, Stack

SERVER_EVERY = (5.0, 40.0)
OTHERS_EVERY = (10.0, 60.0)
DOWN_FOR = (0.0, 4.0)
FROZEN_FOR = (5.0, 1.6 * LEASE_SECONDS)
KILLED, SHUT_DOWN = "the ledger's Postgres: SIGKILL", "the ledger's Postgres: immediate shutdown"
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
#: How many of each are in a bag, out of which the next fault is taken.
BAG: Mapping[str, int] = {
    **dict.fromkeys(("driver's JVM", "driver's Python", "warm driver", "executor"), 4),
    **dict.fromkeys(("Python worker", "task", "supervisor", "frozen driver", "sessions"), 3),
    **dict.fromkeys(("engine", "scheduler", "triggerer", "api-server", *CLUSTER), 1),
    **dict.fromkeys(("dag-processor", "Airflow's Postgres"), 1),
}
#: In so many minutes everything has happened, or it cannot happen.
MINUTES_FOR_ALL = 30


class Faults:
    """Two threads: one for the ledger's server, one for all others; a third restarts what is dead.

    :ivar happened: how often each has happened
    :ivar failed: what the threads themselves failed with
    """

    def __init__(self, stack: Stack, seed: int, say: Callable[[str], None]) -> None:
        self._stack, self._say = stack, say
        self._ends, self._all_ends = threading.Event(), threading.Event()
        self.happened: Counter[str] = Counter()
        self.restarted: Counter[str] = Counter()
        self.failed: list[str] = []
        self._bag: list[str] = []
        self._frozen: list[psutil.Process] = []
        own = [random.Random(f"{seed} {name}") for name in ("server", "others", "healer")]
        self._threads = [
            threading.Thread(target=self._run, args=(rng, hit), daemon=True)
            for rng, hit in zip(own, (self._hit_server, self._hit_another), strict=False)
        ]
        self._healer = threading.Thread(target=self._heal, args=(own[-1],), daemon=True)

    def begin(self) -> None:
        for thread in (*self._threads, self._healer):
            thread.start()

    def end(self) -> None:
        """Let no more happen; what is dead is still restarted, and what is frozen goes on."""
        self._ends.set()
        for thread in self._threads:
            thread.join()
        for process in self._frozen:
            _send(process, signal.SIGCONT)

    def end_healing(self) -> None:
        self._all_ends.set()
        self._healer.join()

    def never_happened(self) -> list[str]:
        """Return what has not happened so far."""
        return [name for name in (*BAG, KILLED, SHUT_DOWN) if not self.happened[name]]

    def _run(self, rng: random.Random, hit: Callable[[random.Random], float]) -> None:
        seconds = rng.uniform(*OTHERS_EVERY)
        while not self._ends.wait(seconds):
            try:
                seconds = hit(rng)
            except Exception as error:  # the harness's own; told at the end
                self.failed.append(f"{type(error).__name__}: {error}")

    # --- the ledger's server ---------------------------------------------------------------------

    def _hit_server(self, rng: random.Random) -> float:
        name, server = rng.choice((KILLED, SHUT_DOWN)), self._stack.ledger.postgres
        if name == KILLED and _kill(server):
            self.happened[name] += 1
        elif name == SHUT_DOWN and (postmaster := server.postmaster()) is not None:
            self.happened[name] += _send(postmaster, signal.SIGQUIT)
        return rng.uniform(*SERVER_EVERY)

    # --- the others ------------------------------------------------------------------------------

    def _hit_another(self, rng: random.Random) -> float:
        """Take the first of the bag that can happen now; the others stay in it."""
        if not self._bag:
            self._bag = [name for name, count in BAG.items() for _ in range(count)]
            rng.shuffle(self._bag)
        for name in dict.fromkeys(self._bag):
            if self._hit(name, rng):
                self._bag.remove(name)
                self.happened[name] += 1
                break
        return rng.uniform(*OTHERS_EVERY)

    def _hit(self, name: str, rng: random.Random) -> bool:
        stack = self._stack
        if name == "sessions":
            return self._end_sessions(rng)
        if name == "Airflow's Postgres":
            return _kill(stack.postgres)
        if name in (*COMPONENTS, *CLUSTER, "engine"):
            background = stack.engine if name == "engine" else stack.node(name)
            leader = background.find()
            return leader is not None and _send(leader, signal.SIGKILL)
        is_frozen = name == "frozen driver"
        of = rng.choice(("driver's JVM", "warm driver")) if is_frozen else name
        victims = [*self._processes(of)]
        if not victims:
            return False
        if is_frozen:
            return self._freeze(rng.choice(victims), rng.uniform(*FROZEN_FOR))
        return _send(rng.choice(victims), signal.SIGKILL)

    def _processes(self, name: str) -> Iterator[psutil.Process]:
        for process in marked(str(self._stack.state_dir)):
            with suppress(psutil.Error):
                if re.match(LINES[name], " ".join(process.cmdline())):
                    yield process

    def _freeze(self, driver: psutil.Process, seconds: float) -> bool:
        """Stop a driver and what it has started, as a host that stalls; beyond its lease or not."""
        stopped = [process for process in family(driver) if _send(process, signal.SIGSTOP)]
        self._frozen += stopped
        for process in stopped:
            timer = threading.Timer(seconds, _send, (process, signal.SIGCONT))
            timer.daemon = True
            timer.start()
        return bool(stopped)

    def _end_sessions(self, rng: random.Random) -> bool:
        """End some of the ledger's sessions, as a proxy or an administrator does."""
        question = """
            SELECT pid FROM pg_stat_activity
             WHERE usename = 'reliability' AND pid <> pg_backend_pid() ORDER BY pid
        """
        with (
            suppress(psycopg2.Error),
            closing(self._stack.session("postgres", "postgres")) as session,
        ):
            cursor = session.cursor()
            cursor.execute(question)
            chosen = [pid for (pid,) in cursor.fetchall() if rng.random() < 0.5]
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS pid", (chosen,)
            )
            return bool(chosen)
        return False

    # --- what a service manager does -------------------------------------------------------------

    def _heal(self, rng: random.Random) -> None:
        while not self._all_ends.wait(rng.uniform(*DOWN_FOR)):
            try:
                self.restarted.update(self._stack.restart())
            except Exception as error:  # killed again while it starts: the next time will do
                self._say(f"restart: {error}")


def _kill(server: EmbeddedPostgres) -> bool:
    """Kill a server; say whether there was one."""
    is_there = server.postmaster() is not None
    server.kill()
    return is_there


def _send(process: psutil.Process, number: int) -> bool:
    """Send a signal; say whether the process was still there."""
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True
