"""Declare a topology: make it known to the ledger, and its states' tables (init_state)."""

from __future__ import annotations

import json

from reliability.core.definitions import State, Topology
from reliability.core.errors import StateDefinitionChanged, TargetTableTaken
from reliability.ledger.door import Door, Transaction
from reliability.ledger.locks import lock_topology
from reliability.states.tables import StateTables


def declare(door: Door, topology: Topology) -> None:
    """Create what is missing and check what is there; harmless when repeated.

    :raises StateDefinitionChanged: a state no longer has the shape of its table
    :raises TargetTableTaken: a state's table belongs to another state, or was there before
    """
    with door.transaction() as tx:
        tx.run(
            "declare_topology",
            topology=topology.name,
            max_spout_pending=topology.max_spout_pending,
        )
        has_emitted = lock_topology(tx, topology.name)["next_txid"] > 1
        if has_emitted:
            return check_states(tx, topology)
        for state in topology.states:
            if not _is_declared(tx, topology.name, state):
                _declare_state(tx, StateTables(topology.name, state))


def check_states(tx: Transaction, topology: Topology) -> None:
    """Raise unless the states of the code are those of the ledger, in number and in shape.

    A txid is processed for the states of the code and committed into those of the ledger: one
    that only either knows could never be committed.
    """
    undeclared = [s.name for s in topology.states if not _is_declared(tx, topology.name, s)]
    names = {state.name for state in topology.states}
    declared = {row["state"] for row in tx.all("state_definitions", topology=topology.name)}
    if undeclared or declared != names:
        raise StateDefinitionChanged(
            f"{topology.name} emitted txids for the states {sorted(declared)}, and has "
            f"{sorted(names)} now"
        )


def declared_tables(tx: Transaction, topology: str) -> list[StateTables]:
    """Return the topology's states from the ledger alone, sorted: the order of their locks."""
    return [
        StateTables(topology, State.from_definition(row["definition"]))
        for row in tx.all("state_definitions", topology=topology)
    ]


def _is_declared(tx: Transaction, topology: str, state: State) -> bool:
    row = tx.first("state_definition", topology=topology, state=state.name)
    if row is not None and row["definition_digest"] != state.digest():
        raise StateDefinitionChanged(
            f"state {state.name} of {topology} was declared as {json.dumps(row['definition'])} "
            f"and is now {json.dumps(state.definition())}"
        )
    return row is not None


def _declare_state(tx: Transaction, tables: StateTables) -> None:
    owner = tx.first("owner_of_target_table", target_table=tables.target_name)
    if owner is not None:
        raise TargetTableTaken(
            f"table {tables.target_name} belongs to state {owner['state']} of {owner['topology']}"
        )
    if tx.one("table_exists", table=tables.target_name)["exists"]:
        raise TargetTableTaken(f"table {tables.target_name} exists and belongs to no state")
    tx.run(tables.create())
    tx.one(
        "declare_state",
        topology=tables.topology,
        state=tables.state.name,
        target_table=tables.target_name,
        definition=json.dumps(tables.state.definition()),
        definition_digest=tables.state.digest(),
    )
