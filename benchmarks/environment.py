"""What the suite runs on: the machine, and the peers' packages in an environment of their own."""

from __future__ import annotations

import platform
import subprocess
import sys

import psutil

from benchmarks.places import HOME, PYTHON, ROOT, VENV
from dev.packages import install_lock

LOCK = "locks/bench.lock"


def install() -> None:
    """Bring the environment up to its lock, unless it is."""
    stamp, wanted = VENV / "lock", (ROOT / LOCK).read_text()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    HOME.mkdir(parents=True, exist_ok=True)
    print("  packages of the benchmarks ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)
    install_lock(ROOT, LOCK, python=PYTHON)
    stamp.write_text(wanted)


def describe_machine() -> str:
    memory = round(psutil.virtual_memory().total / (1 << 30))
    return (
        f"{psutil.cpu_count()} cores, {memory} GiB of memory, {platform.system()} on "
        f"{platform.machine()}, Python {platform.python_version()}; load of the last 15 minutes "
        f"{psutil.getloadavg()[2]:.1f}"
    )
