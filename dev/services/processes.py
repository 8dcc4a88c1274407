"""Background processes that outlive the command that started them, known by pid and birth.

A pid alone does not name a process: after a reboot, or simply much later, it may belong to
somebody else. Each record holds the time of creation too, and only a match is ever signalled.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from dev.errors import DeadlineError, DevError
from dev.services.files import write_private

#: In the environment of all that an environment runs, inherited by whatever they start.
MARKER = "RELIABILITY_STATE_DIR"
#: The folder of a state directory in which Airflow's processes work.
AIRFLOW = "airflow"
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


def run(command: Sequence[str], what: str, **options: Any) -> None:
    """Run a program to its end.

    :param options: of `subprocess.run`
    :raises DevError: `what` failed; with the last three lines that it printed
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        said = " / ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise DevError(f"{what} failed: {said}")


@dataclass(kw_only=True)
class Background:
    """One named process of an environment, its record in `run/` and its log in `logs/`."""

    name: str
    state_dir: Path

    def __post_init__(self) -> None:
        self.log = self.state_dir / "logs" / f"{self.name}.log"
        self.record = self.state_dir / "run" / f"{self.name}.json"

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
        if self.is_alive() and json.loads(self.record.read_text())["made_from"] == made_from:
            return
        self.stop()
        self.log.parent.mkdir(parents=True, exist_ok=True)
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
        created = psutil.Process(process.pid).create_time()
        record = {"pid": process.pid, "created": created, "made_from": made_from}
        write_private(self.record, json.dumps(record))

    def stop(self) -> None:
        stop_all([self])

    def is_alive(self) -> bool:
        return self.find() is not None

    def find(self) -> psutil.Process | None:
        """Return the very process, or None when it is gone, a zombie, or its pid was reused."""
        with suppress(FileNotFoundError, psutil.NoSuchProcess):
            record = json.loads(self.record.read_text())
            process = psutil.Process(record["pid"])
            is_same = abs(process.create_time() - record["created"]) < SAME_BIRTH_SECONDS
            if is_same and not is_gone(process):
                return process
        return None

    def tail(self, lines: int = 15) -> str:
        """Return the end of the log, for a message about a process that went wrong."""
        if not self.log.is_file():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def stop_all(backgrounds: Iterable[Background], seconds: float = 10.0) -> None:
    """End processes and their descendants: TERM, a bounded wait, then KILL for what is left.

    The descendants are collected before the first signal. A worker whose parent dies first
    becomes a child of init, and with it its spark-submit and the JVM below, which would go
    on writing.
    """
    stopping = list(backgrounds)
    leaders = [process for one in stopping if (process := one.find())]
    families = [member for leader in leaders for member in family(leader)]
    for leader in leaders:
        with suppress(psutil.NoSuchProcess):
            leader.terminate()
    late = wait_gone(families, seconds)
    kill([member for process in late for member in family(process)])
    for one in stopping:
        one.record.unlink(missing_ok=True)


def kill(processes: Sequence[psutil.Process]) -> None:
    """SIGKILL the processes and wait until they are gone."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    if immortal := wait_gone(processes, 10):
        pids = ", ".join(str(process.pid) for process in immortal)
        raise DeadlineError(f"processes that outlive SIGKILL: {pids}")


def wait_gone(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Wait for processes to end, at most so long; return those that have not."""
    with suppress(DeadlineError):
        wait_until(lambda: all(map(is_gone, processes)), "end of processes", seconds)
    return [process for process in processes if not is_gone(process)]


def is_gone(process: psutil.Process) -> bool:
    """A zombie is gone: in some containers nobody ever collects those of other parents."""
    with suppress(psutil.NoSuchProcess):
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    return True


def family(process: psutil.Process) -> list[psutil.Process]:
    """Return the process and all its descendants."""
    return [process, *descendants(process)]


def descendants(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def marked(value: str) -> list[psutil.Process]:
    """Return the processes whose environment says `MARKER=value`, and Airflow's that work there.

    Finds what no record knows any more: orphans of a worker that was killed with SIGKILL. A
    worker that gave itself a title has overwritten its environment; its folder still tells, and
    is not that of an environment below.
    Never the caller or what the caller runs in, which may have inherited the mark.
    """
    caller = psutil.Process()
    spared = {caller, *caller.parents()}
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError, IndexError):
            if process not in spared and _bears(process, value):
                found.append(process)
    return found


def title(process: psutil.Process) -> str:
    """Return what a process is called, which it may have set itself; empty if it is gone."""
    with suppress(psutil.Error, IndexError):
        return process.cmdline()[0]
    return ""


def _bears(process: psutil.Process, value: str) -> bool:
    if process.environ().get(MARKER) == value:
        return True
    is_titled = title(process).startswith("airflow ")
    return is_titled and Path(process.cwd()) == Path(value, AIRFLOW)
