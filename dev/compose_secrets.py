"""The secrets of the container set-up: made once, each in a file of its own for those who need it.

The containers' user is not yours, so the files are readable for all; the folder is not, and is
what keeps other people of this machine out. Standard library only: no set-up is needed for it.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from pathlib import Path

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
)
ROLES = ("postgres", "airflow", "reliability")
FOLDER = Path(".reliability") / "compose"
SERVICE = "[reliability]\nhost=postgres\nport=5432\ndbname=reliability\nuser=reliability\n"


def write_secrets(root: Path) -> Path:
    """Write all files, unless they are there: those who use them have stored the old ones."""
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    if not all((folder / name).is_file() for name in FILES):
        for name, text in _contents().items():
            path = folder / name
            path.write_text(text)
            path.chmod(0o644)
    return folder


def admin_password(root: Path) -> str:
    """Return the password of Airflow's user admin."""
    passwords: dict[str, str] = json.loads((root / FOLDER / "airflow_passwords").read_text())
    return passwords["admin"]


def _contents() -> Mapping[str, str]:
    password = {role: secrets.token_urlsafe(24) for role in ROLES}
    return {
        "postgres.env": "".join(f"{role.upper()}_PASSWORD={password[role]}\n" for role in ROLES),
        "pg_service": SERVICE,
        "pgpass": f"postgres:5432:reliability:reliability:{password['reliability']}\n",
        "airflow_database": (
            f"postgresql+psycopg2://airflow:{password['airflow']}@postgres:5432/airflow"
        ),
        "airflow_passwords": json.dumps({"admin": secrets.token_urlsafe(18)}) + "\n",
        "api_secret_key": secrets.token_urlsafe(48),
        "jwt_secret": secrets.token_urlsafe(48),
        # What cryptography's Fernet calls a key.
        "fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
    }
