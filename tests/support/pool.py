"""Connections that share their sessions: logging in costs more than most of what is asked then."""

from __future__ import annotations

from typing import Any

from psycopg2.extensions import connection as Connection

from reliability.deployment.address import DatabaseAddress
from reliability.ledger.connection import LedgerConnection

Session = tuple[Connection, str]
"""A session that is set up, and the statements that every transaction must start with."""

_idle: dict[str, list[Session]] = {}


class PooledConnection(LedgerConnection):
    """A connection with a session from the pool; one inside another's transaction gets its own.

    It has its name only within a transaction: idle, it would be ended with the attempt that it was
    made for.
    """

    def __init__(
        self, address: DatabaseAddress | str, application_name: str = "pooled", **options: Any
    ) -> None:
        super().__init__(address, "pooled", **options)
        self._name = application_name
        self._own_pins = ""

    def _connect(self) -> Connection:
        idle = _idle.setdefault(self.dsn, [])
        if self._connection is None and idle:
            self._connection, self._own_pins = idle.pop()
            self._pins = self._named()
        return super()._connect()

    def _open_session(self, connection: Connection) -> str:
        self._own_pins = super()._open_session(connection)
        return self._named()

    def _named(self) -> str:
        return f"{self._own_pins}; SET LOCAL application_name = '{self._name}'"

    def close(self) -> None:
        """Give the session back."""
        if self._connection is not None and not self._connection.closed:
            _idle[self.dsn].append((self._connection, self._own_pins))
        self._connection = None


def close_idle_sessions(dsn: str) -> None:
    """Log out of a database."""
    for connection, _ in _idle.pop(dsn, []):
        connection.close()
