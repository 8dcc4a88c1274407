"""The secrets of the container set-up: made once, each in a file of its own for those who need it.

The containers' user is not yours, so the files are readable for all, as is the script for Postgres,
whatever the umask; the folder is not, and is what keeps other people of this machine out. Standard
library only: no set-up is needed for it.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from pathlib import Path

from dev.errors import DevError

#: What docker-compose.yml names.
FILES = (
    "airflow_database",
    "airflow_passwords",
    "api_secret_key",
    "fernet_key",
    "jwt_secret",
    "pg_service",
    "pgpass",
    "postgres.env",
    "redis_conf",
)
#: What Postgres has made its roles with, and what Airflow has encrypted with.
STORED = ("postgres.env", "fernet_key")
ROLES = ("postgres", "airflow", "reliability")
FOLDER = Path(".reliability") / "compose"
SERVICE = "[reliability]\nhost=postgres\nport=5432\ndbname=reliability\nuser=reliability\n"


def write_secrets(root: Path) -> Path:
    """Write the files that are not there; those who use the others have stored what they say.

    :raises DevError: one is missing that only its user has stored, and it cannot be made again
    """
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    for script in root.glob("compose/*.sql"):
        script.chmod(0o644)
    missing = [name for name in FILES if not (folder / name).is_file()]
    lost = [name for name in STORED if name in missing]
    if lost and len(missing) < len(FILES):
        raise DevError(
            f"{FOLDER / lost[0]} is missing, and its containers have stored what it said. What to "
            f"do: put it back; or `docker compose down --volumes`, delete {FOLDER} and call this "
            "again, which loses their data."
        )
    contents = _contents(_passwords(folder))
    for name in missing:
        path = folder / name
        path.write_text(contents[name])
        path.chmod(0o644)
    return folder


def admin_password(root: Path) -> str:
    """Return the password of Airflow's user admin."""
    passwords: dict[str, str] = json.loads((root / FOLDER / "airflow_passwords").read_text())
    return passwords["admin"]


def reliability_password(root: Path) -> str:
    """Return the password of the ledger's owner."""
    return _passwords(root / FOLDER)["reliability"]


def _passwords(folder: Path) -> Mapping[str, str]:
    """Return each role's password: the one that Postgres has, or else a new one."""
    file = folder / "postgres.env"
    if not file.is_file():
        return {role: secrets.token_urlsafe(24) for role in ROLES}
    stored = dict(line.split("=", 1) for line in file.read_text().splitlines())
    return {role: stored[f"{role.upper()}_PASSWORD"] for role in ROLES}


def _contents(password: Mapping[str, str]) -> Mapping[str, str]:
    return {
        "postgres.env": "".join(f"{role.upper()}_PASSWORD={password[role]}\n" for role in ROLES),
        "pg_service": SERVICE,
        "pgpass": f"postgres:5432:reliability:reliability:{password['reliability']}\n",
        "airflow_database": (
            f"postgresql+psycopg2://airflow:{password['airflow']}@postgres:5432/airflow"
        ),
        "airflow_passwords": json.dumps({"admin": secrets.token_urlsafe(18)}) + "\n",
        "redis_conf": f"requirepass {secrets.token_urlsafe(24)}\n",
        "api_secret_key": secrets.token_urlsafe(48),
        "jwt_secret": secrets.token_urlsafe(48),
        # What cryptography's Fernet calls a key.
        "fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
    }
