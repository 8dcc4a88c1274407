"""Background processes that outlive the command that started them, known by pid and birth.

A pid alone does not name a process: after a reboot, or simply much later, it may belong to
somebody else. Each record holds the time of creation too, and only a match is ever signalled.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from dev.errors import DeadlineError

#: In the environment of all that an environment runs, inherited by whatever they start.
MARKER = "RELIABILITY_STATE_DIR"
POLL_SECONDS = 0.05
#: create_time is derived from clock ticks; two readings of one process may differ by less.
SAME_BIRTH_SECONDS = 0.05


def wait_until(
    condition: Callable[[], bool], what: str, seconds: float, *, every: float = POLL_SECONDS
) -> None:
    """Poll until `condition` holds; raise `DeadlineError` naming `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise DeadlineError(f"{what}: not reached within {seconds:.0f} s")
        time.sleep(every)


def last_lines(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last three lines that a failed program printed."""
    return " / ".join((done.stderr or done.stdout).strip().splitlines()[-3:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which process a pid meant when it was written down."""

    pid: int
    created: float

    @classmethod
    def of(cls, process: psutil.Process) -> Identity:
        return cls(pid=process.pid, created=process.create_time())

    def find(self) -> psutil.Process | None:
        """Return the very process, or None when it is gone, a zombie, or its pid was reused."""
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created) < SAME_BIRTH_SECONDS
            if same and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """One named process of an environment, its record in `run/` and its log in `logs/`."""

    name: str
    state_dir: Path

    @property
    def log(self) -> Path:
        return self.state_dir / "logs" / f"{self.name}.log"

    @property
    def record(self) -> Path:
        return self.state_dir / "run" / f"{self.name}.json"

    def start(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        depends_on: Mapping[str, str],
    ) -> None:
        """Start unless it runs already, with the same command and the same `depends_on`.

        A session of its own keeps Ctrl-C in the caller's terminal away from it.
        """
        made_from = hashlib.sha256(json.dumps([command, dict(depends_on)]).encode()).hexdigest()
        if self.is_alive():
            if self._record()["made_from"] == made_from:
                return
            stop_all([self])
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.record.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        # It is meant to outlive this Popen, which would warn of just that when collected.
        process.returncode = 0
        self._remember(Identity.of(psutil.Process(process.pid)), made_from)

    def is_alive(self) -> bool:
        return self.find() is not None

    def find(self) -> psutil.Process | None:
        if not self.record.is_file():
            return None
        record = self._record()
        return Identity(pid=record["pid"], created=record["created"]).find()

    def family(self) -> list[psutil.Process]:
        """Return the process and all its descendants."""
        process = self.find()
        return [process, *descendants(process)] if process else []

    def tail(self, lines: int = 15) -> str:
        """Return the end of the log, for a message about a process that went wrong."""
        if not self.log.is_file():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _remember(self, identity: Identity, made_from: str) -> None:
        """Write the record in one step: a half-written one would lose a running process."""
        draft = self.record.with_suffix(".draft")
        draft.write_text(json.dumps({**asdict(identity), "made_from": made_from}))
        draft.replace(self.record)

    def _record(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.record.read_text())
        return content


def stop_all(backgrounds: Iterable[Background], seconds: float = 10.0) -> None:
    """End processes and their descendants: TERM, a bounded wait, then KILL for what is left.

    The descendants are collected before the first signal. A worker whose parent dies first
    becomes a child of init, and with it its spark-submit and the JVM below, which would go
    on writing.
    """
    stopping = list(backgrounds)
    leaders = [process for one in stopping if (process := one.find())]
    families = [member for leader in leaders for member in (leader, *descendants(leader))]
    for leader in leaders:
        with suppress(psutil.NoSuchProcess):
            leader.terminate()
    end(families, seconds)
    for one in stopping:
        one.record.unlink(missing_ok=True)


def end(processes: Iterable[psutil.Process], seconds: float) -> None:
    """Wait for the processes to go by themselves, then kill the rest and wait for that."""
    rest = wait_gone(processes, seconds)
    late = {one.pid: one for process in rest for one in (process, *descendants(process))}
    kill(late.values())


def kill(processes: Iterable[psutil.Process]) -> None:
    """SIGKILL the processes and wait until they are gone."""
    killed = list(processes)
    for process in killed:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    immortal = wait_gone(killed, 10)
    if immortal:
        pids = ", ".join(str(process.pid) for process in immortal)
        raise DeadlineError(f"processes that outlive SIGKILL: {pids}")


def wait_gone(processes: Iterable[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Wait for processes to end, at most so long; return those that have not."""
    rest = list(processes)

    def all_gone() -> bool:
        rest[:] = [process for process in rest if not is_gone(process)]
        return not rest

    with suppress(DeadlineError):
        wait_until(all_gone, "end of processes", seconds)
    return rest


def is_gone(process: psutil.Process) -> bool:
    """A zombie is gone: in some containers nobody ever collects those of other parents."""
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    with suppress(psutil.NoSuchProcess):
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    return True


def descendants(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def marked(value: str) -> list[psutil.Process]:
    """Return the processes whose environment says `MARKER=value`, or that work in that folder.

    Finds what no record knows any more: orphans of a worker that was killed with SIGKILL. A
    worker that gave itself a title has overwritten its environment; its folder still tells.
    Never the caller or what the caller runs in, which may have inherited the mark.
    """
    caller = psutil.Process()
    spared = {caller.pid, *(parent.pid for parent in caller.parents())}
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError, IndexError):
            if process.pid not in spared and _bears(process, value):
                found.append(process)
    return found


def _bears(process: psutil.Process, value: str) -> bool:
    if process.environ().get(MARKER) == value:
        return True
    is_titled = process.cmdline()[0].startswith("airflow ")
    return is_titled and Path(process.cwd()).is_relative_to(value)
