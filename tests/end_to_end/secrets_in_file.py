"""A secrets backend of the tests' own: connections in a file, read anew each time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from airflow.secrets import BaseSecretsBackend  # noqa: TID253 - only Airflow imports this


class SecretsInFile(BaseSecretsBackend):
    """Has the connections of a JSON file, by their ids.

    :param path: of the file
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = Path(path)

    def get_conn_value(self, conn_id: str, team_name: str | None = None) -> str | None:
        """Return a connection as JSON; None if it is not there."""
        if not self._path.exists():
            return None
        connections: dict[str, Any] = json.loads(self._path.read_text())
        return json.dumps(connections[conn_id]) if conn_id in connections else None
