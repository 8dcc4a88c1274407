"""Take changed definitions of states while nothing of the topology has committed (C10).

1. compare the code's definitions with those of the ledger, in every database
2. fence every live attempt: what it has staged is for the old definitions
3. drop the tables of the states that differ; they must be empty, and nothing may depend on them

The second step commits before the third: the fenced Spark tasks then release the tables, which they
lock while they copy. `declare` creates the new tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reliability.core.checkpoint import COORDINATOR
from reliability.core.definitions import Topology
from reliability.core.errors import LedgerBusy, StateDefinitionChanged
from reliability.core.state import State
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.locks import lock_mirror, lock_topology
from reliability.states import attempt_table
from reliability.states.migration import inspect
from reliability.states.tables import StateTables
from reliability.transaction.topology.databases import TopologyDatabases, naming_another_database

WHY = "the definitions of the states have changed"


def has_changed_freely(connection: LedgerConnection, topology: Topology) -> bool:
    """Say whether the code's states differ from the ledger's and nothing has committed yet."""
    with connection.transaction() as tx:
        if not _is_free(tx, topology.name):
            return False
    with TopologyDatabases(connection, topology.name, topology.databases) as databases:
        return any(_differs(databases, topology, name) for name in databases.all)


def forget_changed_states(connection: LedgerConnection, topology: Topology) -> None:
    """Remove the states that differ from the code's, if nothing has committed; safe to repeat.

    :raises StateDefinitionChanged: a table that has to be dropped has rows, or something depends on
        it
    :raises LedgerBusy: an attempt with the old definitions began meanwhile, or a commit is decided
    """
    if not has_changed_freely(connection, topology):
        return
    with TopologyDatabases(connection, topology.name, topology.databases) as databases:
        _in_each_free(databases, lambda tx, _: _fence(tx, topology.name))
        _in_each_free(databases, lambda tx, name: _forget(tx, topology, name))


def _in_each_free(
    databases: TopologyDatabases, change: Callable[[DatabaseTransaction, str], None]
) -> None:
    """Change each database in which nothing has committed, in a transaction of its own."""
    for name in databases.all:
        with naming_another_database(name), databases.connection_of(name).transaction() as tx:
            lock_at_rest(tx, databases.topology, name)
            if _is_free(tx, databases.topology):
                change(tx, name)


def _fence(tx: DatabaseTransaction, topology: str) -> None:
    _check_nothing_empty_waits(tx, topology)
    tx.run("fence_live_attempts", topology=topology, reason=WHY)


def empty_that_waits(tx: DatabaseTransaction, topology: str) -> str:
    """Name the parked and skipped txids that still have to commit as empty; empty if none.

    Their attempts are for the old definitions. Nobody would begin them again after a fence.
    """
    rows = tx.all("waiting_empty_attempts", topology=topology)
    return ", ".join(
        f"txid {row['txid']} ({row['verdict'].lower()}: {row['verdict_reason']})" for row in rows
    )


def lock_at_rest(tx: DatabaseTransaction, topology: str, database: str) -> None:
    """Lock the topology in a database.

    :raises LedgerBusy: a change of its states is in progress
    """
    if database == COORDINATOR:
        lock_topology(tx, topology)
        if tx.one("checkpoint", topology=topology)["phase"] != "COMMITTED":
            raise LedgerBusy(f"{topology}: a change of its states is in progress")
    else:
        lock_mirror(tx, topology)


def _check_nothing_empty_waits(tx: DatabaseTransaction, topology: str) -> None:
    if waiting := empty_that_waits(tx, topology):
        raise StateDefinitionChanged(
            f"the states of {topology} have changed before its first commit, and {waiting} still "
            "has to commit as empty",
            remedy="restore the old definitions until that has committed, then run `reliability "
            f"alter {topology}`; or, if nothing of it is needed, `reliability drop {topology}`.",
        )


def _is_free(tx: DatabaseTransaction, topology: str) -> bool:
    return bool(tx.one("topology_position", topology=topology)["commit_number"] == 0)


def _differs(databases: TopologyDatabases, topology: Topology, database: str) -> bool:
    with naming_another_database(database), databases.connection_of(database).transaction() as tx:
        recorded = tx.all("state_definitions", topology=topology.name)
        wanted = {state.name for state in topology.states if state.database == database}
        has_other = bool(recorded) and wanted != {row["state"] for row in recorded}
        return has_other or bool(_changed(tx, topology, database))


def _changed(tx: DatabaseTransaction, topology: Topology, database: str) -> list[StateTables]:
    """Return the recorded states that the code no longer has, or whose tables are not as it says.

    A table that a person has dropped or altered is made anew, too.
    """
    wanted = {s.name: s.digest() for s in topology.states if s.database == database}
    found = []
    for row in tx.all("state_definitions", topology=topology.name):
        tables = StateTables(topology.name, State.from_definition(row["definition"]))
        if wanted.get(row["state"]) != row["definition_digest"] or _is_altered(tx, tables):
            found.append(tables)
    return found


def _is_altered(tx: DatabaseTransaction, tables: StateTables) -> bool:
    return (
        inspect(
            tables,
            target=tx.all("table_columns", table=tables.target_name),
            contribution=tx.all("table_columns", table=tables.contribution_name),
            keys=tx.all("unique_keys", table=tables.target_name),
        )
        is not None
    )


def _forget(tx: DatabaseTransaction, topology: Topology, database: str) -> None:
    if tx.one("live_attempts_of", topology=topology.name)["attempts"]:
        raise LedgerBusy(f"{topology.name}: an attempt began while its states were changed")
    for tables in _changed(tx, topology, database):
        if dependents := dependents_of(tx, tables):
            raise StateDefinitionChanged(
                f"state {tables.state.name} of {topology.name} has changed before its first "
                f"commit, and its table {tables.target_name} cannot be made anew: "
                f"{', '.join(dependents)} depends on it",
                remedy="drop what depends on the table and create it again afterwards, or restore "
                "the old definition.",
            )
        if count_rows(tx, tables):
            raise StateDefinitionChanged(
                f"state {tables.state.name} of {topology.name} has changed before its first "
                f"commit, but its table {tables.target_name} has rows that no txid has added",
                remedy=f"TRUNCATE {tables.target_name}, or restore the old definition.",
            )
        attempt_table.drop_all(tx, tables)
        tx.run(tables.drop())
        tx.one("forget_state", topology=topology.name, state=tables.state.name)


def dependents_of(tx: DatabaseTransaction, tables: StateTables) -> Sequence[str]:
    """Return the views and foreign keys of others that depend on a state's table."""
    return [row["dependent"] for row in tx.all("dependents_of_table", table=tables.target_name)]


def count_rows(tx: DatabaseTransaction, tables: StateTables) -> int:
    """Count the rows of a state's table; 0 if a person has dropped it."""
    if not tx.one("table_exists", table=tables.target_name)["exists"]:
        return 0
    return int(tx.one(tables.count())["rows"])
