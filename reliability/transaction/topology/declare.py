"""Declare states: the tables of a topology in one database, and their definitions (init_state)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import timezone
from typing import Any

from reliability.core.checkpoint import COORDINATOR
from reliability.core.definitions import Topology
from reliability.core.errors import StateDefinitionChanged, TargetTableTaken
from reliability.core.state import State
from reliability.core.texts import as_json
from reliability.ledger.connection import DatabaseTransaction
from reliability.states.alteration import StateChange
from reliability.states.migration import TableMigration, inspect
from reliability.states.tables import StateTables, check_rights

logger = logging.getLogger(__name__)

_VIEW_PATIENCE_SECONDS = 1


def declare_states(
    tx: DatabaseTransaction, topology: Topology, database: str, *, has_committed: bool
) -> None:
    """Create the topology's states in one database, or check them; safe to repeat.

    :param has_committed: something has committed, so the topology's states are fixed (C10)
    :raises StateDefinitionChanged: a state no longer has the shape of its table
    :raises TargetTableTaken: a state's table belongs to another state, or existed before
    :raises RightMissing: this role may not create or change a table
    """
    if has_committed:
        check_states(tx, topology, database)
    tables = [StateTables(topology.name, s) for s in topology.states if s.database == database]
    for one in tables:
        init_state(tx, one)
    check_rights(tx, tables)


def init_state(tx: DatabaseTransaction, tables: StateTables) -> None:
    """Create a state's tables, or check that they match its definition.

    :raises StateDefinitionChanged: the definition differs from the ledger's; or a table was
        altered; the error contains the statements to run
    :raises TargetTableTaken: its table belongs to another state, or existed before (H7)
    """
    if _is_declared(tx, tables.topology, tables.state):
        check_tables(tx, tables)
    else:
        declare_state(tx, tables)
    keep_history(tx, tables)


def check_states(tx: DatabaseTransaction, topology: Topology, database: str = COORDINATOR) -> None:
    """Raise unless the code's states in this database are exactly those of its ledger.

    A txid is processed for the states of the code and committed into those of the ledger: a state
    that only one of them has could never be committed.
    """
    states = [state for state in topology.states if state.database == database]
    names = {state.name for state in states}
    declared = {row["state"] for row in tx.all("state_definitions", topology=topology.name)}
    if declared != names:
        what = f"{topology.name} was declared with the states {sorted(declared)}, and now has "
        raise _changed(tx, topology.name, states, declared | names, what + str(sorted(names)))
    for state in states:
        _is_declared(tx, topology.name, state)


def declared_tables(tx: DatabaseTransaction, topology: str) -> list[StateTables]:
    """Return the topology's states from the ledger alone, sorted in the order of their locks."""
    rows = tx.all("state_definitions", topology=topology)
    return tables_of(topology, [row["definition"] for row in rows])


def tables_of(topology: str, definitions: Iterable[Any]) -> list[StateTables]:
    """Return the states that the ledger has these definitions of."""
    return [StateTables(topology, State.from_definition(one)) for one in definitions]


def _is_declared(tx: DatabaseTransaction, topology: str, state: State) -> bool:
    row = tx.first("state_definition", topology=topology, state=state.name)
    if row is not None and row["definition_digest"] != state.digest():
        old = StateTables(topology, State.from_definition(row["definition"]))
        change = StateChange(old, StateTables(topology, state))
        what = f"state {state.name} of {topology} has changed: {'; '.join(change.differences())}"
        raise _changed(tx, topology, [state], {state.name}, what)
    return row is not None


def _changed(
    tx: DatabaseTransaction, topology: str, states: Sequence[State], differing: set[str], what: str
) -> StateDefinitionChanged:
    """Return the error; it says if the code has a definition that was altered since (C11)."""
    digests = {state.name: state.digest() for state in states}
    altered = tx.first(
        "alteration_after_code",
        topology=topology,
        states=sorted(differing),
        digests=as_json(digests),
    )
    if altered is None:
        return StateDefinitionChanged(what).fill_in(topology=topology)
    when = f"{altered['altered_at'].astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC"
    return StateDefinitionChanged(
        f"{what}. This code is older than the ledger's definitions: state {altered['state']} was "
        f"altered at {when} ({altered['reason']})",
        remedy="deploy the code with the new definition here, and clear the task; if the old "
        "definition is wanted again, `reliability alter TOPOLOGY`.",
    ).fill_in(topology=topology)


def check_tables(tx: DatabaseTransaction, tables: StateTables) -> None:
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


def keep_history(tx: DatabaseTransaction, tables: StateTables) -> None:
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


def declare_state(tx: DatabaseTransaction, tables: StateTables) -> None:
    """Create the tables of a new state, and record its definition.

    :raises TargetTableTaken: see check_table_is_free
    """
    check_table_is_free(tx, tables)
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


def check_table_is_free(tx: DatabaseTransaction, tables: StateTables) -> None:
    """Check that a state's table belongs to nobody.

    :raises TargetTableTaken: it belongs to another state, or exists (H7)
    """
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
