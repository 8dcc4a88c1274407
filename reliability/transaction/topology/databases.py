"""The databases of one topology: the coordinator's own, and the participants.

A participant is a target database other than the coordinator's. It has the same ledger schema, and
a mirror of what its states need: the topology's row, the txids and attempts that were granted to
it, and their sinks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reliability.core.checkpoint import COORDINATOR
from reliability.core.definitions import Topology
from reliability.core.errors import ReliabilityError
from reliability.deployment.address import address_of
from reliability.ledger.connection import LedgerConnection, Row
from reliability.ledger.locks import check_known
from reliability.ledger.migrations import check_migrated


def open_ledger(purpose: str, topology: str = "") -> LedgerConnection:
    """Open the ledger of this process.

    :param purpose: what the session is for, shown in pg_stat_activity
    :param topology: a name that a person typed
    :raises LedgerNotMigrated, LedgerTooNew, MigrationChanged: the schema is not this release's
    :raises TopologyUnknown, NotTheCoordinator: as for check_known
    """
    connection = LedgerConnection(address_of(), application_name=f"reliability {purpose}".strip())
    try:
        check_migrated(connection)
        if topology:
            check_known(connection, topology)
    except BaseException:
        connection.close()
        raise
    return connection


class TopologyDatabases:
    """The databases of one topology; sessions are opened when needed and closed together.

    :ivar unavailable: why databases were left out, see `leave_out_unavailable`
    """

    def __init__(self, connection: LedgerConnection, topology: str, others: Iterable[str]) -> None:
        self.topology = topology
        self.others = tuple(sorted(others))
        self.unavailable: tuple[str, ...] = ()
        self._connections = {COORDINATOR: connection}

    @classmethod
    def of(cls, connection: LedgerConnection, topology: str) -> TopologyDatabases:
        """Read from the coordinator's ledger which databases take part."""
        rows = connection.all("participants", topology=topology)
        return cls(connection, topology, [row["database"] for row in rows])

    @classmethod
    def of_known(cls, connection: LedgerConnection, topology: str) -> TopologyDatabases:
        """Do the same for a name that a person typed.

        :raises TopologyUnknown: the ledger has no topology with this name
        :raises NotTheCoordinator: this database only takes part in it
        """
        check_known(connection, topology)
        return cls.of(connection, topology)

    @classmethod
    def of_code(cls, connection: LedgerConnection, topology: Topology) -> TopologyDatabases:
        """Return those that the pipeline's code names."""
        return cls(connection, topology.name, topology.databases)

    def __enter__(self) -> TopologyDatabases:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sessions that were opened here, not the coordinator's."""
        for database in self._connections.keys() - {COORDINATOR}:
            self._connections.pop(database).close()

    @property
    def coordinator(self) -> LedgerConnection:
        return self._connections[COORDINATOR]

    def connection_of(self, database: str) -> LedgerConnection:
        """Return the session with a database; "" is the coordinator's own."""
        if database not in self._connections:
            connection = self._connections[database] = LedgerConnection(
                address_of(database),
                self.coordinator.application_name,
                opens_within=self.coordinator.opens_within,
            )
            if self.coordinator.reopens:
                connection.reopen_at(connection.one("server_timeline")["now"])
        return self._connections[database]

    def leave_out_unavailable(self) -> None:
        """Read only those databases that can be read now."""
        reasons: dict[str, str] = {}
        for name in self.others:
            try:
                self.connection_of(name).first("mirrored_topology", topology=self.topology)
            except ReliabilityError as error:
                reasons[name] = str(error)
        self.others = tuple(name for name in self.others if name not in reasons)
        self.unavailable = tuple(reasons.values())

    def __iter__(self) -> Iterator[LedgerConnection]:
        """Yield the sessions with the participants."""
        return map(self.connection_of, self.others)

    def taking_part(self, topology_id: str) -> Iterator[LedgerConnection]:
        """Yield the sessions with those participants that have this very topology.

        Another ledger's topology may have the same name there, or none.
        """
        for connection in self:
            known = connection.first("mirrored_topology", topology=self.topology)
            if known is not None and known["topology_id"] == topology_id:
                yield connection

    @property
    def all(self) -> list[LedgerConnection]:
        """Return the sessions with all databases, the coordinator's own first."""
        return [self.coordinator, *self]

    @property
    def ledger_last(self) -> list[LedgerConnection]:
        """Return them with the coordinator's own last: what it has then, all have."""
        return [*self, self.coordinator]

    def rows_of_all(self, statement: str, **parameters: object) -> list[Row]:
        """Return what a query finds in each database, the coordinator's own first.

        :raises ReliabilityError: a database cannot be read; it is named
        """
        return [row for database in self.all for row in database.all(statement, **parameters)]
