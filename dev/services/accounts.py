"""Under which account Postgres runs, and where that account can keep its data.

Postgres refuses to run as root. Started by root, in a container say, it runs as an account
that exists already, and its data lies where that account gets to without a change to the
permissions of any folder that is not ours.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.errors import DevError

UNPRIVILEGED = ("postgres", "nobody", "daemon", "www-data")
SHARED = Path("/var/tmp")


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
