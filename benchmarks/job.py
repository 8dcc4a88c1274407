"""What a worker is told: the database, the files and the folder of one piece of work.

Standard library only: workers run in two environments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Phases = Mapping[str, float]
"""Phase -> its seconds, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A database of the scratch server, and the role that all contestants have."""

    host: str
    port: int
    name: str
    user: str
    password: str

    @property
    def libpq(self) -> str:
        """Return the connection string for libpq, which finds the password in PGPASSFILE."""
        return f"host={self.host} port={self.port} dbname={self.name} user={self.user}"

    @property
    def uri(self) -> str:
        """Return the address for programs that do not read PGPASSFILE."""
        return f"postgresql://{self.user}:{self.password}@{self.host}:{self.port}/{self.name}"

    @property
    def jdbc(self) -> str:
        """Return the address for JDBC; the driver merges rows into INSERTs of many."""
        return f"jdbc:postgresql://{self.host}:{self.port}/{self.name}?reWriteBatchedInserts=true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One piece of work for a contestant.

    :param home: the folder with the generated data of this size
    :param scratch: an empty folder
    :param is_cold: it is the first work of a new process
    :param sizes: the numbers of the suite's size
    """

    database: Database
    home: Path
    scratch: Path
    is_cold: bool
    sizes: Mapping[str, Any]

    def files(self, pattern: str) -> list[str]:
        return [str(path) for path in sorted(self.home.glob(pattern))]
