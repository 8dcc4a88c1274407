"""Under which account Postgres runs, and where its data lie: where it gets to, or in memory.

Postgres refuses to run as root. Started by root, in a container say, it runs as an account
that exists already, and its data lies where that account gets to without a change to the
permissions of any folder that is not ours.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.errors import DevError

UNPRIVILEGED = ("postgres", "nobody", "daemon", "www-data")
SHARED = Path("/var/tmp")
SHARED_MEMORY = Path("/dev/shm")
LEAST_BYTES = 4 * 2**30
AN_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Who runs the server; `uid` None is the caller, without any change of user."""

    uid: int | None = None
    gid: int | None = None

    def options(self) -> dict[str, Any]:
        """Return how `subprocess.run` runs a program as this account.

        It needs a `cwd`, too: the caller's own folder may be closed to the account.
        """
        if self.uid is None:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path) -> None:
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)


def server_account() -> Account:
    """Return the caller, or for root the first unprivileged account of the machine."""
    if os.getuid() != 0:
        return Account()
    for name in UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(uid=entry.pw_uid, gid=entry.pw_gid)
    raise DevError("Postgres does not run as root and this machine has no other account: add one")


def server_home_path(state_dir: Path, scratch: Path | None = None) -> Path:
    """Return the folder for a server's data and log.

    :param scratch: a folder for everybody, such as `/dev/shm`, in which it is made
    """
    if os.getuid() != 0 and scratch is None:
        return state_dir / "postgres"
    place = hashlib.sha256(str(state_dir).encode()).hexdigest()[:12]
    return (scratch or SHARED) / f"reliability-{os.getuid()}-{place}" / "postgres"


def server_home(home: Path, account: Account) -> None:
    """Make a server's folder, closed to everybody else.

    :raises DevError: somebody else has put one in its place
    """
    base = home.parent
    base.mkdir(mode=0o711, parents=True, exist_ok=True)
    found = base.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise DevError(f"{base} belongs to somebody else: remove it, then try again")
    if account.uid is not None:
        base.chmod(0o711)
    home.mkdir(mode=0o700, exist_ok=True)
    account.own(home)


def memory(folder: Path = SHARED_MEMORY) -> Path | None:
    """Return the folder if there is one with enough room, after a look for what was left there.

    It is for servers whose loss does not matter. The suite makes and drops a few thousand
    databases, each of a thousand files. On ext4 that takes up to 0.4 s for each: it does not give
    out the inodes of files that were deleted in the last minutes, and looks at each of them
    whenever a file is made. In memory it takes 0.02 s.
    """
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return None
    for left in folder.glob(f"reliability-{os.getuid()}-*"):
        if not _is_in_use(left):
            shutil.rmtree(left, ignore_errors=True)
    return folder if shutil.disk_usage(folder).free >= LEAST_BYTES else None


def _is_in_use(place: Path) -> bool:
    """Return whether a server runs there, or may be about to."""
    with suppress(OSError, ValueError, IndexError):
        if time.time() - place.stat().st_mtime < AN_HOUR:
            return True
        pid = int((place / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
        return Path(f"/proc/{pid}").exists()
    return False
