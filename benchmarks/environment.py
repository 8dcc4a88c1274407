"""The peers' packages, in an environment of their own beside `.venv`."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.places import HOME, ROOT
from dev.install.installation import make_venv, step
from dev.install.uv import ensure_uv

LOCK = "locks/bench.lock"
VENV = HOME / "venv"
PYTHON = VENV / "bin" / "python"


def install() -> None:
    """Bring the environment up to its lock, unless it is."""
    stamp, wanted = VENV / "lock", (ROOT / LOCK).read_text()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    HOME.mkdir(parents=True, exist_ok=True)
    with step("packages of the benchmarks"):
        make_venv(VENV)
        uv = ensure_uv(ROOT, Path(sys.executable))
        uv.run("pip", "sync", "--python", str(PYTHON), LOCK)
    stamp.write_text(wanted)
