"""The steps from an empty clone to a working `.venv`, each one repeatable.

Standard library only: this runs before anything is installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.errors import InstallError
from dev.install.uv import ensure_uv

STAMP = "installed-from"
INPUTS = ("requirements.lock", "pyproject.toml", "locks/uv.lock")
VENV_FAILED = (
    "no virtual environment could be made, see above; "
    "on Debian and Ubuntu run: apt-get install python3-venv"
)


def install(root: Path) -> int:
    """Bring `.venv` up to the lock and return the exit code for the shell."""
    if is_installed(root):
        return 0
    try:
        with one_at_a_time(root):
            if not is_installed(root):
                _install(root)
    except InstallError as error:
        print(f"set-up failed: {error}", file=sys.stderr)
        return 1
    return 0


def is_installed(root: Path) -> bool:
    venv = root / ".venv"
    stamp = venv / STAMP
    return (
        stamp.is_file()
        and (venv / "bin" / "python").exists()
        and stamp.read_text() == fingerprint(root)
    )


def fingerprint(root: Path) -> str:
    """Hash all that decides the content of the environment, its place included.

    Scripts in a virtual environment carry absolute paths, so a moved clone is a new one.
    """
    digest = hashlib.sha256(str(root).encode())
    for name in INPUTS:
        digest.update((root / name).read_bytes())
    return digest.hexdigest()


@contextmanager
def one_at_a_time(root: Path) -> Iterator[None]:
    """Keep two set-ups of one clone (two terminals, two make targets) out of each other's way."""
    folder = root / ".reliability"
    folder.mkdir(exist_ok=True)
    with (folder / "bootstrap.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(root: Path) -> None:
    venv = root / ".venv"
    python = venv / "bin" / "python"
    stamp = venv / STAMP
    stamp.unlink(missing_ok=True)
    # Before the installation reads them: what is changed meanwhile is installed the next time.
    installed_from = fingerprint(root)
    with step("virtual environment in .venv"):
        make_venv(venv)
    with step("uv, the installer"):
        uv = ensure_uv(root, python)
    with step("locked packages"):
        uv.run("pip", "sync", "--python", str(python), "requirements.lock")
    with step("this project, editable"):
        uv.run(
            *("pip", "install", "--python", str(python)),
            *("--no-deps", "--no-build-isolation", "--editable", "."),
        )
    with step("Java, Postgres and a quick start for Spark"):
        prepare(root, python)
    stamp.write_text(installed_from)


@contextmanager
def step(what: str) -> Iterator[None]:
    print(f"  {what} ...", flush=True)
    started = time.monotonic()
    yield
    print(f"  {what}: {time.monotonic() - started:.1f} s", flush=True)


def make_venv(venv: Path) -> None:
    if has_pip(venv):
        return
    # A half-made environment (a killed set-up, a Python that was removed) is not worth repairing.
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=False)
    if made.returncode != 0:
        raise InstallError(VENV_FAILED)


def has_pip(venv: Path) -> bool:
    try:
        found = subprocess.run(
            [str(venv / "bin" / "python"), "-c", "import pip"], capture_output=True, check=False
        )
    except OSError:
        return False
    return found.returncode == 0


def prepare(root: Path, python: Path) -> None:
    """Find Java and Postgres, or fetch them, now: later steps then work without a network."""
    done = subprocess.run([str(python), "-m", "dev", "prepare"], cwd=root, check=False)
    if done.returncode != 0:
        raise InstallError("Java or Postgres could not be prepared, see above")
