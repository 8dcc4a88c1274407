"""Declare states: the tables of a topology in one database, and their definitions (init_state)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timezone
from shlex import quote
from typing import TYPE_CHECKING, Any

from reliability.core.checkpoint import COORDINATOR
from reliability.core.definitions import Topology
from reliability.core.errors import StateDefinitionChanged, TargetTableTaken
from reliability.core.state import State
from reliability.core.statement_key import StateKey
from reliability.core.texts import as_json
from reliability.ledger.connection import DatabaseTransaction, Ledger, Row
from reliability.ledger.roles import act_as_owner
from reliability.states.alteration import StateChange
from reliability.states.kinds import StoredState, stored_state
from reliability.states.migration import inspect
from reliability.states.tables import StateTables, check_rights
from reliability.transaction.topology.databases import TopologyDatabases

if TYPE_CHECKING:
    from psycopg2.sql import Composed


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
    tables = [stored_state(topology.name, s) for s in topology.states if s.database == database]
    init_states(tx, topology.name, tables)
    check_rights(tx, tables)


def init_states(tx: DatabaseTransaction, topology: str, states: Iterable[StateTables]) -> None:
    """Create the tables of a topology's states, or check that they match their definitions.

    :raises StateDefinitionChanged: the definition differs from the ledger's; or a table was
        altered; the error contains the statements to run
    :raises TargetTableTaken: its table belongs to another state, or existed before (H7)
    """
    recorded = recorded_states(tx, topology)
    for tables in states:
        if tables.name in recorded:
            _check_definition(tx, topology, tables.state, recorded[tables.name])
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
    recorded = recorded_states(tx, topology.name)
    if recorded.keys() != names:
        what = f"{topology.name} was declared with the states {sorted(recorded)}, and now has "
        raise _changed(tx, topology.name, states, names.union(recorded), what + str(sorted(names)))
    for state in states:
        _check_definition(tx, topology.name, state, recorded[state.name])


def declared_tables(ledger: Ledger, topology: str) -> list[StoredState]:
    """Return the topology's states from the ledger alone, sorted in the order of their locks."""
    rows = ledger.all("states", topology=topology)
    return tables_of(topology, [row["definition"] for row in rows])


def states_of(databases: TopologyDatabases) -> list[State]:
    """Return the topology's states in all its databases, as the ledgers have them."""
    rows = databases.rows_of_all("states", topology=databases.topology)
    return [State.from_definition(row["definition"]) for row in rows]


def tables_of(topology: str, definitions: Iterable[Any]) -> list[StoredState]:
    return [stored_state(topology, State.from_definition(definition)) for definition in definitions]


def recorded_states(tx: DatabaseTransaction, topology: str) -> dict[str, Row]:
    """Return what the ledger has of each state of a topology in this database, by its name."""
    return {row["state"]: row for row in tx.all("states", topology=topology)}


def _check_definition(tx: DatabaseTransaction, topology: str, state: State, recorded: Row) -> None:
    if recorded["definition_digest"] != state.digest():
        old = stored_state(topology, State.from_definition(recorded["definition"]))
        change = StateChange(old, stored_state(topology, state))
        what = f"state {state.name} of {topology} has changed: {'; '.join(change.differences())}"
        raise _changed(tx, topology, [state], {state.name}, what)


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
        return StateDefinitionChanged(what, topology=topology)
    when = f"{altered['altered_at'].astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC"
    return StateDefinitionChanged(
        f"{what}. This code is older than the ledger's definitions: state {altered['state']} was "
        f"altered at {when} ({altered['reason']})",
        remedy="deploy the code with the new definition here, and clear the task; if the old "
        f"definition is wanted again, `reliability alter {topology}`.",
    )


def check_tables(tx: DatabaseTransaction, tables: StateTables) -> None:
    """Compare the tables of a declared state, as the catalogs show them, with its definition."""
    if (altered := inspect(tx, tables)) is not None:
        raise StateDefinitionChanged(
            f"state {tables.name} of {tables.topology}: {altered.problems}",
            remedy=altered.remedy,
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


def declare_state(tx: DatabaseTransaction, tables: StateTables) -> None:
    """Create the tables of a new state, and record its definition; the owner's role does it.

    :raises RightMissing: see act_as_owner
    """
    check_table_is_free(tx, tables)
    act_as_owner(tx, tables.topology)
    for statement in statements_to_create(tx, tables):
        tx.run(statement)
    record_state(tx, tables)


def record_state(tx: DatabaseTransaction, tables: StateTables) -> None:
    """Record the definition of a new state."""
    tx.one(
        "declare_state",
        target_table=tables.target_name,
        contribution_table=tables.contribution_table,
        **recorded_definition(tables),
    )
    tx.run("grant_rights")


def recorded_definition(tables: StateTables) -> dict[str, Any]:
    """Return the definition of a state as the parameters of a statement."""
    state = tables.state
    digest, definition = state.digest(), as_json(state.definition())
    key = StateKey(tables.topology, state.name)
    return {"definition": definition, "definition_digest": digest, **key}


def statements_to_create(tx: DatabaseTransaction, tables: StateTables) -> list[Composed]:
    """Return the statements that create the tables of a state, and their schema if it lacks."""
    schema = tables.state.target[0]
    if tx.one("schema_exists", schema=schema)["exists"]:
        return [tables.create()]
    return [tables.create_schema(), tables.create()]


def check_table_is_free(tx: DatabaseTransaction, tables: StateTables) -> None:
    """Check that a state's table belongs to nobody.

    :raises TargetTableTaken: it belongs to another state, or exists (H7)
    """
    check_table_is_nobodys(tx, tables)
    if tx.one("table_exists", table=tables.target_name)["exists"]:
        raise TargetTableTaken(
            f"table {tables.target_name} exists and belongs to no state",
            remedy=f"`reliability adopt {tables.topology} {quote(tables.name)} --table "
            f"{quote(tables.target_name)}` takes it over with its rows. Otherwise rename or drop "
            'it, or give the state another table: State(…, table="schema.table").',
        )


def check_table_is_nobodys(tx: DatabaseTransaction, tables: StateTables) -> None:
    """Raise TargetTableTaken if a state's table belongs to another state."""
    owner = tx.first("owner_of_target_table", target_table=tables.target_name)
    if owner is not None:
        raise TargetTableTaken(
            f"table {tables.target_name} belongs to state {owner['state']} of {owner['topology']}",
            remedy=f"give the state another name or table; if {owner['topology']} is no longer "
            f"needed, `reliability drop {owner['topology']}` removes it with its tables.",
        )
