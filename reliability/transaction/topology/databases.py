"""The databases of one topology: the coordinator's own, and the participants.

A participant is a target database other than the coordinator's. It has the same ledger schema, and
a mirror of what its states need: the topology's row, the txids and attempts that were granted to
it, and their sinks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

from reliability.core.checkpoint import COORDINATOR
from reliability.core.errors import LedgerNotMigrated, ReliabilityError
from reliability.deployment.settings import database_dsn, ledger_dsn
from reliability.ledger.connection import LedgerConnection, Row
from reliability.ledger.locks import check_known
from reliability.ledger.migrations import check_migrated


def open_ledger(purpose: str) -> LedgerConnection:
    """Open the ledger to which RELIABILITY_DSN points.

    :param purpose: what the session is for, shown in pg_stat_activity
    :raises LedgerNotMigrated, LedgerTooNew, MigrationChanged: the schema is not this release's
    """
    connection = LedgerConnection(ledger_dsn(), application_name=f"reliability {purpose}".strip())
    try:
        check_migrated(connection)
    except BaseException:
        connection.close()
        raise
    return connection


class TargetDatabase(NamedTuple):
    """A participant and the session with it."""

    name: str
    connection: LedgerConnection


class TopologyDatabases:
    """The databases of one topology; sessions are opened when needed and closed together."""

    def __init__(self, connection: LedgerConnection, topology: str, others: Iterable[str]) -> None:
        self.topology = topology
        self.others = tuple(sorted(others))
        self._connections = {COORDINATOR: connection}

    @classmethod
    def of(cls, connection: LedgerConnection, topology: str) -> TopologyDatabases:
        """Read from the coordinator's ledger which databases take part."""
        with connection.in_one_round_trip() as tx:
            rows = tx.all("participants", topology=topology)
        return cls(connection, topology, [row["database"] for row in rows])

    @classmethod
    def of_known(cls, connection: LedgerConnection, topology: str) -> TopologyDatabases:
        """Do the same for a name that a person typed.

        :raises TopologyUnknown: the ledger has no topology with this name
        :raises NotTheCoordinator: this database only takes part in it
        """
        with connection.transaction() as tx:
            check_known(tx, topology)
        return cls.of(connection, topology)

    def __enter__(self) -> TopologyDatabases:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sessions that were opened here, not the coordinator's."""
        for database in self.others:
            if connection := self._connections.pop(database, None):
                connection.close()

    @property
    def coordinator(self) -> LedgerConnection:
        return self._connections[COORDINATOR]

    def connection_of(self, database: str) -> LedgerConnection:
        """Return the session with a database; "" is the coordinator's own."""
        if database not in self._connections:
            name = self.coordinator.application_name
            self._connections[database] = LedgerConnection(
                database_dsn(database), application_name=name
            )
        return self._connections[database]

    def __iter__(self) -> Iterator[TargetDatabase]:
        for name in self.others:
            yield TargetDatabase(name, self.connection_of(name))

    @property
    def all(self) -> tuple[str, ...]:
        """Return the names of all databases, the coordinator's own first."""
        return (COORDINATOR, *self.others)

    def rows_of_all(self, statement: str, **parameters: object) -> list[Row]:
        """Return what a query finds in each database, the coordinator's own first.

        :raises ReliabilityError: a database cannot be read; it is named
        """
        found: list[Row] = []
        for name in self.all:
            with naming_another_database(name), self.connection_of(name).transaction() as tx:
                found += tx.all(statement, **parameters)
        return found


@contextmanager
def naming_database(database: str) -> Iterator[None]:
    """Add the name of the database to errors of this package."""
    try:
        yield
    except ReliabilityError as error:
        raise with_database_name(error, database) from error


def naming_another_database(database: str) -> AbstractContextManager[None]:
    """Do the same, unless it is the ledger's own, which a person takes for granted."""
    return naming_database(database) if database else nullcontext()


def with_database_name(error: ReliabilityError, database: str) -> ReliabilityError:
    """Return the error with the name of the database in its text."""
    remedy = error.remedy
    if database and isinstance(error, LedgerNotMigrated):
        remedy = f"run `reliability migrate --database {database}`."
    return type(error)(f"database {format_database(database)}: {error.what}", remedy=remedy)


def format_database(database: str) -> str:
    """Format a database's name for people."""
    return database or "of the ledger"
