"""Declare states: the tables of a topology in one database, and their definitions (init_state)."""

from __future__ import annotations

from reliability.core.checkpoint import COORDINATOR
from reliability.core.definitions import Topology
from reliability.core.errors import StateDefinitionChanged, TargetTableTaken
from reliability.core.state import State
from reliability.core.texts import as_json
from reliability.ledger.connection import DatabaseTransaction
from reliability.states.migration import TableMigration, inspect, migration, obstacle
from reliability.states.tables import StateTables


def declare_states(
    tx: DatabaseTransaction, topology: Topology, database: str, *, has_committed: bool
) -> None:
    """Create the topology's states in one database, or check them; safe to repeat.

    :param has_committed: something has committed, so the topology's states are fixed (C10)
    :raises StateDefinitionChanged: a state no longer has the shape of its table
    :raises TargetTableTaken: a state's table belongs to another state, or existed before
    """
    if has_committed:
        check_states(tx, topology, database)
    for state in topology.states:
        if state.database == database:
            init_state(tx, StateTables(topology.name, state))


def init_state(tx: DatabaseTransaction, tables: StateTables) -> None:
    """Create a state's tables, or check that they match its definition.

    :raises StateDefinitionChanged: the definition differs from the ledger's, or a table was
        altered; the error contains the statements to run
    :raises TargetTableTaken: its table belongs to another state, or existed before (H7)
    """
    if _is_declared(tx, tables.topology, tables.state):
        _check_tables(tx, tables)
    else:
        _declare_state(tx, tables)
    _keep_history(tx, tables)


def check_states(tx: DatabaseTransaction, topology: Topology, database: str = COORDINATOR) -> None:
    """Raise unless the code's states in this database are exactly those of its ledger.

    A txid is processed for the states of the code and committed into those of the ledger: a state
    that only one of them has could never be committed.
    """
    states = [state for state in topology.states if state.database == database]
    undeclared = [s.name for s in states if not _is_declared(tx, topology.name, s)]
    names = {state.name for state in states}
    declared = {row["state"] for row in tx.all("state_definitions", topology=topology.name)}
    if undeclared or declared != names:
        raise StateDefinitionChanged(
            f"{topology.name} was declared with the states {sorted(declared)}, and now has "
            f"{sorted(names)}"
        ).fill_in(topology=topology.name)


def declared_tables(tx: DatabaseTransaction, topology: str) -> list[StateTables]:
    """Return the topology's states from the ledger alone, sorted in the order of their locks."""
    return [
        StateTables(topology, State.from_definition(row["definition"]))
        for row in tx.all("state_definitions", topology=topology)
    ]


def _is_declared(tx: DatabaseTransaction, topology: str, state: State) -> bool:
    row = tx.first("state_definition", topology=topology, state=state.name)
    if row is not None and row["definition_digest"] != state.digest():
        raise _changed(tx, topology, State.from_definition(row["definition"]), state)
    return row is not None


def _changed(
    tx: DatabaseTransaction, topology: str, old: State, new: State
) -> StateDefinitionChanged:
    what = (
        f"state {new.name} of {topology} was declared as {as_json(old.definition())} "
        f"and is now {as_json(new.definition())}"
    )
    why_not = obstacle(old, new)
    if why_not is not None:
        remedy = f"{StateDefinitionChanged.remedy} ALTER TABLE cannot make this change: {why_not}."
        return StateDefinitionChanged(what, remedy=remedy).fill_in(topology=topology)
    steps = _to_run(tx, migration(topology, old, new))
    return StateDefinitionChanged(what, remedy=f"restore the old definition; or {steps}")


def _check_tables(tx: DatabaseTransaction, tables: StateTables) -> None:
    """Compare the tables of a declared state, as the catalogs show them, with its definition."""
    found = inspect(
        tables,
        target=tx.all("table_columns", table=tables.target_name),
        contribution=tx.all("table_columns", table=tables.contribution_name),
        keys=tx.all("unique_keys", table=tables.target_name),
    )
    if found is not None:
        problems, repair = found
        raise StateDefinitionChanged(
            f"state {tables.state.name} of {tables.topology}: {problems}",
            remedy=f"restore the table from a backup, or {_to_run(tx, repair)}",
        )


def _keep_history(tx: DatabaseTransaction, tables: StateTables) -> None:
    """Record the horizon, which is not part of the definition and may change."""
    keep = tables.state.keep
    tx.run(
        "keep_history",
        topology=tables.topology,
        state=tables.state.name,
        txids=keep and keep.txids,
        days=keep and keep.days,
    )


def _to_run(tx: DatabaseTransaction, steps: TableMigration) -> str:
    return (
        "pause the topology, let txids in flight commit, and run in the database of the state:\n"
        + steps.text(tx.cursor)
    )


def _declare_state(tx: DatabaseTransaction, tables: StateTables) -> None:
    owner = tx.first("owner_of_target_table", target_table=tables.target_name)
    if owner is not None:
        raise TargetTableTaken(
            f"table {tables.target_name} belongs to state {owner['state']} of {owner['topology']}",
            remedy=f"give the state another name or table; if {owner['topology']} is no longer "
            f"needed, `reliability drop {owner['topology']}` removes it with its tables.",
        )
    if tx.one("table_exists", table=tables.target_name)["exists"]:
        raise TargetTableTaken(
            f"table {tables.target_name} exists and belongs to no state",
            remedy="rename or drop the table, or give the state another one: "
            'State(…, table="schema.table").',
        )
    schema = tables.state.target[0]
    if not tx.one("schema_exists", schema=schema)["exists"]:
        tx.run(tables.create_schema())
    tx.run(tables.create())
    tx.one(
        "declare_state",
        topology=tables.topology,
        state=tables.state.name,
        target_table=tables.target_name,
        definition=as_json(tables.state.definition()),
        definition_digest=tables.state.digest(),
    )
