"""Drop a topology: its tables, its contributions, and its rows of the ledger, in all databases.

For development: nothing can bring it back. The other databases come first, each in a transaction of
its own, while the topology is locked in the ledger; a call that was interrupted can be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reliability.core.errors import DropNotPossible
from reliability.core.names import COMMAND_LINE
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.locks import lock_topology
from reliability.states import attempt_table
from reliability.states.tables import StateTables
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.declare import declared_tables
from reliability.transaction.topology.lifecycle import count_rows, dependents_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedTable:
    """A table that goes, with its contributions.

    :param database: the name of its database; "" is the ledger's own
    """

    database: str
    state: str
    table: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedTopology:
    """What a drop removes."""

    emitted: int
    committed: int
    tables: tuple[DroppedTable, ...]
    dags: tuple[str, ...]


def what_would_go(connection: LedgerConnection, topology: str) -> DroppedTopology:
    """Return what `drop_topology` would remove.

    :raises DropNotPossible: see drop_topology
    """
    with TopologyDatabases.of_known(connection, topology) as databases:
        with connection.transaction() as tx:
            position = tx.one("topology_position", topology=topology)
            _check_idle(tx, topology)
            dags = dags_of(tx, topology)
        tables: list[DroppedTable] = []
        sources: list[tuple[str, str]] = []
        for database in databases.all:
            with database.transaction() as tx:
                declared = declared_tables(tx, topology)
                for one in declared:
                    _check_unused(tx, topology, one)
                tables += [
                    DroppedTable(
                        database=database.database,
                        state=one.name,
                        table=one.target_name,
                        rows=count_rows(tx, one),
                    )
                    for one in declared
                ]
                sources += [
                    (one.target_name, f"table:{database.database}/{'.'.join(one.state.target)}")
                    for one in declared
                ]
        for table, source in sources:  # as TableSpout.source
            readers = connection.all("topologies_that_read_table", source=source, topology=topology)
            if readers:
                raise _used(topology, table, [f"topology {r['topology']}" for r in readers])
    return DroppedTopology(
        emitted=position["next_txid"] - 1,
        committed=position["curr_txid"] - 1,
        tables=tuple(tables),
        dags=tuple(dags),
    )


def dags_of(tx: DatabaseTransaction, topology: str) -> list[str]:
    """Return the DAGs in Airflow whose runs emit a topology."""
    rows = tx.all("dags_of_topology", topology=topology)
    return [row["dag_id"] for row in rows if row["dag_id"] != COMMAND_LINE]


def drop_topology(connection: LedgerConnection, topology: str) -> None:
    """Drop a topology with all that it has, in all its databases.

    :raises DropNotPossible: an attempt is live, a view or a foreign key depends on a table, or
        another topology has read one
    """
    what_would_go(connection, topology)  # refuse before the first database has changed
    with (
        TopologyDatabases.of_known(connection, topology) as databases,
        connection.transaction() as tx,
    ):
        lock_topology(tx, topology)
        _check_idle(tx, topology)
        for participant in databases:
            with participant.transaction() as there:
                _drop_in(there, topology)
        _drop_in(tx, topology)


def _check_idle(tx: DatabaseTransaction, topology: str) -> None:
    if live := tx.one("live_attempts_of", topology=topology)["attempts"]:
        pause = ", ".join(f"`airflow dags pause {dag_id}`" for dag_id in dags_of(tx, topology))
        raise DropNotPossible(
            f"{topology} has {live} live attempts",
            remedy=f"pause its DAG in Airflow with {pause}, wait until its runs have ended, and "
            "call it again.",
        )


def _check_unused(tx: DatabaseTransaction, topology: str, tables: StateTables) -> None:
    if users := dependents_of(tx, tables):
        raise _used(topology, tables.target_name, users)


def _used(topology: str, table: str, users: Sequence[str]) -> DropNotPossible:
    return DropNotPossible(
        f"table {table} of {topology} is used by {', '.join(users)}",
        remedy="drop what uses it first.",
    )


def _drop_in(tx: DatabaseTransaction, topology: str) -> None:
    for row in tx.all("tables_of_attempts", topology=topology, state=None):
        attempt_table.drop(tx, row["table_id"])
    for tables in declared_tables(tx, topology):
        _check_unused(tx, topology, tables)
        tx.run(tables.drop())
    tx.run("forget_topology", topology=topology)
