"""Install what a lock names, by pip, which knows where this machine gets its packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from dev.errors import DevError


def install_lock(root: Path, lock: str, *options: str, python: Path | str = sys.executable) -> None:
    """Install exactly what a lock names; what pip writes is for the person at the terminal.

    :raises DevError: it failed
    """
    quiet = ("-qq", "--disable-pip-version-check", "--no-deps", "--no-compile")
    command = [str(python), "-m", "pip", "install", *quiet, *options]
    # A configured `pip install --user` refuses to work with a target.
    environment = {**os.environ, "PIP_USER": "0"}
    whole = [*command, "--require-hashes", "--requirement", lock]
    if subprocess.run(whole, cwd=root, env=environment, check=False).returncode != 0:
        raise DevError(
            "pip failed, see above; if no package index is in reach: "
            "`python3 -m pip config list` shows which are used"
        )


def tool(root: Path, name: str) -> Path:
    """Return the folder of a tool, apart from `.venv`: no process but its own imports its code."""
    return root / ".reliability" / "tools" / name


def install_tool(root: Path, name: str) -> Path:
    """Unpack `locks/<name>.lock` into its folder unless it is there, and return the folder."""
    lock, target = f"locks/{name}.lock", tool(root, name)
    wanted, stamp = (root / lock).read_text(), target / "lock"
    if not stamp.is_file() or stamp.read_text() != wanted:
        shutil.rmtree(target, ignore_errors=True)
        install_lock(root, lock, "--target", str(target))
        stamp.write_text(wanted)
    return target


if __name__ == "__main__":
    print(install_tool(Path.cwd(), sys.argv[1]))
