"""Generated passwords, and the libpq files through which programs find the databases.

Programs name a service and libpq reads the rest, so no password is ever in a command line,
a process title or an address that gets logged.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dev.services.files import write_private
from dev.services.ports import HOST

SUPERUSER = "postgres"
ROLES = ("airflow", "reliability")
YOURS = "# What you add below this line stays.\n"
#: Service, database, role. The last is for what only an administrator may do, as in tests.
SERVICES = (
    ("reliability", "reliability", "reliability"),
    ("airflow", "airflow", "airflow"),
    ("admin", "postgres", SUPERUSER),
)


def quick_secret(password: str) -> str:
    """Return what Postgres stores of a password so that a login hashes it once, not 4,096 times.

    For servers of tests, to which thousands of sessions log in (RFC 5802, RFC 7677).
    """
    salt = secrets.token_bytes(16)
    salted = hmac.digest(password.encode(), salt + bytes([0, 0, 0, 1]), "sha256")
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    parts = (salt, stored, hmac.digest(salted, b"Server Key", "sha256"))
    return "SCRAM-SHA-256$1:{}${}:{}".format(*(base64.b64encode(p).decode() for p in parts))


@dataclass(kw_only=True)
class Credentials:
    """The passwords of one environment and the files made from them."""

    state_dir: Path
    #: Beside the data of the server that knows them.
    store: Path

    def __post_init__(self) -> None:
        self.service_file = self.state_dir / "pg_service.conf"
        self.pass_file = self.state_dir / "pgpass"

    def password(self, role: str) -> str:
        """Return the password of a role, generated and stored the first time."""
        known: dict[str, str] = json.loads(self.store.read_text()) if self.store.is_file() else {}
        if role not in known:
            known[role] = secrets.token_urlsafe(18)
            write_private(self.store, json.dumps(known, indent=2) + "\n")
        return known[role]

    def write_libpq_files(self, port: int) -> None:
        """Write how our programs find the databases; what a person added below YOURS stays."""
        for path, lines in (
            (self.service_file, self._services(port)),
            (self.pass_file, self._passwords(port)),
        ):
            _, _, added = path.read_text().partition(YOURS) if path.is_file() else ("", "", "")
            write_private(path, f"{''.join(lines)}{YOURS}{added}")

    def env(self) -> dict[str, str]:
        return {"PGSERVICEFILE": str(self.service_file), "PGPASSFILE": str(self.pass_file)}

    def _services(self, port: int) -> Iterable[str]:
        for service, database, role in SERVICES:
            yield f"[{service}]\nhost={HOST}\nport={port}\ndbname={database}\nuser={role}\n\n"

    def _passwords(self, port: int) -> Iterable[str]:
        for role in (SUPERUSER, *ROLES):
            yield f"{HOST}:{port}:*:{role}:{self.password(role)}\n"
