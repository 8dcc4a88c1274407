"""Drop a topology: its tables, its contributions, and its rows of the ledger, in all databases.

Nothing can bring it back. Its tables may stay as ordinary tables, without history. The other
databases come first, each in a transaction of its own, while the topology is locked in the ledger;
a call that was interrupted can be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reliability.core.errors import DropNotPossible
from reliability.core.names import COMMAND_LINE, source_of_table
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.locks import HOLDERS_PATIENCE_SECONDS, check_at_rest, holding, lock_topology
from reliability.ledger.roles import act_as_owner
from reliability.states import attempt_table
from reliability.states.migration import is_of_other_kind
from reliability.states.tables import StateTables
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.declare import declared_tables
from reliability.transaction.topology.lifecycle import count_rows, dependents_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedTable:
    """A table that goes with its contributions, or stays without.

    :param database: the name of its database; "" is the ledger's own
    """

    database: str
    state: str
    table: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedTopology:
    """What a drop removes; the tables stay if `keeps_tables`."""

    emitted: int
    committed: int
    keeps_tables: bool
    tables: tuple[DroppedTable, ...]
    dags: tuple[str, ...]


def what_would_go(
    connection: LedgerConnection, topology: str, *, keep_tables: bool = False
) -> DroppedTopology:
    """Return what `drop_topology` would remove.

    :raises DropNotPossible: see drop_topology
    """
    with TopologyDatabases.of_known(connection, topology) as databases:
        with connection.transaction() as tx:
            position = tx.one("topology_position", topology=topology)
            topology_id = tx.one("mirrored_topology", topology=topology)["topology_id"]
            _check_idle(tx, topology)
            dags = dags_of(tx, topology)
        tables: list[DroppedTable] = []
        sources: dict[str, str] = {}  # of each table that goes
        for database in (connection, *databases.taking_part(topology_id)):
            name = database.database
            with database.transaction() as tx:
                for own in declared_tables(tx, topology):
                    _check_unused(tx, own, keep_tables=keep_tables)
                    table, rows = own.target_name, count_rows(tx, own)
                    dropped = DroppedTable(database=name, state=own.name, table=table, rows=rows)
                    tables.append(dropped)
                    if not keep_tables:
                        sources[source_of_table(name, own.state.target)] = table
        for source, table in sources.items():
            readers = connection.all("topologies_that_read_table", source=source, topology=topology)
            if readers:
                raise _used(topology, table, [f"topology {r['topology']}" for r in readers])
    return DroppedTopology(
        emitted=position["next_txid"] - 1,
        committed=position["curr_txid"] - 1,
        keeps_tables=keep_tables,
        tables=tuple(tables),
        dags=tuple(dags),
    )


def dags_of(tx: DatabaseTransaction, topology: str) -> list[str]:
    """Return the DAGs in Airflow whose runs emit a topology."""
    rows = tx.all("dags_of_topology", topology=topology)
    return [row["dag_id"] for row in rows if row["dag_id"] != COMMAND_LINE]


def drop_topology(
    connection: LedgerConnection, topology: str, *, keep_tables: bool = False
) -> None:
    """Drop a topology with all that it has, in all its databases.

    :param keep_tables: let the tables stay, without the ledger's columns and history
    :raises DropNotPossible: an attempt is at work, a view or a foreign key depends on what goes, or
        another topology has read a table that goes
    :raises LedgerBusy: tables that should stay are being changed, or another database is busy
    """
    # refuse before the first database has changed
    what_would_go(connection, topology, keep_tables=keep_tables)
    with (
        TopologyDatabases.of_known(connection, topology) as databases,
        connection.transaction() as tx,
    ):
        locked = lock_topology(tx, topology)
        if keep_tables:  # they would stay half changed
            check_at_rest(locked, topology)
        _check_idle(tx, topology)
        tx.run("let_idle")  # a large view there becomes a table
        for participant in databases.taking_part(locked["topology_id"]):
            # a commit that is decided may be on its way there
            with holding(participant, topology, HOLDERS_PATIENCE_SECONDS) as (there, _):
                _drop_in(there, topology, keep_tables=keep_tables)
        _drop_in(tx, topology, keep_tables=keep_tables)


def _check_idle(tx: DatabaseTransaction, topology: str) -> None:
    """Raise while a process works for an attempt.

    What is PROCESSED goes with the topology: it may wait for ever for a txid before it.
    """
    if at_work := tx.one("live_attempts_of", topology=topology)["at_work"]:
        pause = ", ".join(f"`airflow dags pause {dag_id}`" for dag_id in dags_of(tx, topology))
        raise DropNotPossible(
            f"{topology} has {at_work} attempts at work",
            remedy=f"pause its DAG in Airflow with {pause}, wait until its runs have ended, and "
            "call it again.",
        )


def _check_unused(tx: DatabaseTransaction, tables: StateTables, *, keep_tables: bool) -> None:
    """Raise if something depends on what goes: the table, or only the ledger's columns of it.

    Raise, too, if it is not there: something of a person's may be in its place.
    """
    _check_there(tx, tables, keep_tables=keep_tables)
    if keep_tables and not tables.is_view:
        hidden, own = tables.hidden_columns(), list(tables.target_columns())
        rows = tx.all("dependents_of_columns", table=tables.target_name, columns=hidden, own=own)
        users = [
            f"{row['dependent']} (column {row['name']})" for row in rows if not row["goes_with_it"]
        ]
    else:
        users = [*dependents_of(tx, tables)]
    if users:
        raise _used(tables.topology, tables.target_name, users)


def _check_there(tx: DatabaseTransaction, tables: StateTables, *, keep_tables: bool) -> None:
    name, kind = tables.target_name, "view" if tables.is_view else "table"
    columns = tx.all("table_columns", table=name)
    if is_of_other_kind(tables, columns):
        raise DropNotPossible(
            f"{name} is no {kind} any more: somebody has put something else in its place",
            remedy="rename or drop what is there now. Then repeat `reliability drop "
            f"{tables.topology}`.",
        )
    if keep_tables and not columns:
        raise DropNotPossible(
            f"{kind} {name} does not exist, so it cannot stay",
            remedy=f"`reliability declare {tables.topology}` says how to mend it. Without "
            "--keep-tables, what is left of the topology goes.",
        )


def _used(topology: str, table: str, users: Sequence[str]) -> DropNotPossible:
    return DropNotPossible(
        f"table {table} of {topology} is used by {', '.join(users)}",
        remedy="drop what uses it first.",
    )


def _drop_in(tx: DatabaseTransaction, topology: str, *, keep_tables: bool) -> None:
    act_as_owner(tx, topology, "drop")
    declared = declared_tables(tx, topology)
    for tables in declared:
        _check_unused(tx, tables, keep_tables=keep_tables)
    if keep_tables:  # the rows of a view are in attempts' tables, too
        for tables in declared:
            there = [column["name"] for column in tx.all("table_columns", table=tables.target_name)]
            for statement in tables.make_ordinary(there):
                tx.run(statement)
    for row in tx.all("tables_of_attempts", topology=topology, state=None):
        attempt_table.drop(tx, row["table_id"])
    for tables in declared:
        tx.run(tables.drop_contributions() if keep_tables else tables.drop())
    tx.run("forget_topology", topology=topology)
