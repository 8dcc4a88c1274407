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
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.errors import DevError

UNPRIVILEGED = ("postgres", "nobody", "daemon", "www-data")
SHARED = Path("/var/tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Who runs the server; `uid` None is the caller, without any change of user."""

    uid: int | None = None
    gid: int | None = None

    def run(self, command: Sequence[str], cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a command as this account.

        `cwd` has to be given: the caller's own folder may be closed to the account.
        """
        return subprocess.run(
            command,
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
            user=self.uid,
            group=self.gid,
            extra_groups=None if self.uid is None else [],
        )

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


def server_home(state_dir: Path, account: Account, scratch: Path | None = None) -> Path:
    """Make and return the folder for data and server log, closed to everybody else.

    :param scratch: a folder for everybody, such as `/dev/shm`, in which it is made instead
    """
    home = server_home_path(state_dir, scratch)
    if home.parent != state_dir:
        _make_shared_base(home.parent)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    account.own(home)
    return home


def server_home_path(state_dir: Path, scratch: Path | None = None) -> Path:
    if os.getuid() != 0 and scratch is None:
        return state_dir / "postgres"
    place = hashlib.sha256(str(state_dir).encode()).hexdigest()[:12]
    return (scratch or SHARED) / f"reliability-{os.getuid()}-{place}" / "postgres"


def _make_shared_base(base: Path) -> None:
    """Make the folder in the shared place, or refuse one that somebody else has put there."""
    base.mkdir(mode=0o711, exist_ok=True)
    found = base.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise DevError(f"{base} belongs to somebody else: remove it, then try again")
    base.chmod(0o711)
