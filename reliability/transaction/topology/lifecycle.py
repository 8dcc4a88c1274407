"""A topology as a whole: declare it before its first emission, pause it, resume it.

While nothing of it has committed, changed definitions of states are taken at once (C10):

1. compare the code's definitions with those of the ledger, in every database
2. fence every live attempt: what it has staged is for the old definitions
3. drop the tables of the states that differ, and make the new ones; they must be empty and not
   adopted, and nothing may depend on them

The second step commits before the third: the fenced Spark tasks then release the tables, which they
lock while they copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from reliability.core.checkpoint import COORDINATOR
from reliability.core.definitions import Topology
from reliability.core.errors import LedgerBusy, StateDefinitionChanged
from reliability.core.statement_key import StateKey
from reliability.ledger.connection import DatabaseTransaction, Ledger, LedgerConnection, Row
from reliability.ledger.locks import (
    HOLDERS_PATIENCE_SECONDS,
    PATIENCE_SECONDS,
    holding,
    holding_at_rest,
    lock_topology,
)
from reliability.ledger.roles import act_as_owner
from reliability.states import attempt_table
from reliability.states.migration import inspect
from reliability.states.tables import StateTables
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.declare import (
    declare_states,
    declared_tables,
    recorded_states,
)
from reliability.transaction.topology.participants import declare_participants, fence_ended

_CHANGED = "the definitions of the states have changed"


def declare(connection: LedgerConnection, topology: Topology) -> None:
    """Record the topology and create its states in every database; safe to repeat.

    :raises StateDefinitionChanged: see declare_states; or, while nothing has committed, a table
        that has to be dropped has rows, or something depends on it
    :raises TargetTableTaken: see declare_states
    :raises ParticipantTaken, CheckpointMismatch: see declare_participants
    :raises LedgerBusy: an attempt with the old definitions began meanwhile, or a commit is decided
    """
    # its lock may wait for a commit of millions of rows (A3)
    with connection.transaction(patience=PATIENCE_SECONDS) as tx:
        record_topology(tx, topology)
    with TopologyDatabases.of_code(connection, topology) as databases:
        declare_participants(databases, partial(_leave, topology))
        if _has_changed_freely(databases, topology):
            _change_states(databases, topology)
        for database in databases.all:
            with holding(database, topology.name) as (tx, row):
                has_committed = row["commit_number"] > 0
                declare_states(tx, topology, database.database, has_committed=has_committed)


def adopt_definitions(connection: LedgerConnection, topology: Topology) -> None:
    """Take the code's definitions of the states if nothing has committed; if not, do nothing (C10).

    :raises: see declare
    """
    with TopologyDatabases.of_code(connection, topology) as databases:
        has_changed = _has_changed_freely(databases, topology)
    if has_changed:
        declare(connection, topology)


def record_topology(tx: DatabaseTransaction, topology: Topology) -> Row:
    """Record the topology, lock its row and return it; raise if another database has its ledger."""
    tx.run(
        "declare_topology",
        topology=topology.name,
        max_spout_pending=topology.max_spout_pending,
        max_replay_pending=topology.replay_window,
        module=topology.module,
        spout_kind=topology.spout.kind.value,
        emit_interval=topology.emit_interval_seconds,
        checkpoint_interval=topology.checkpoint_interval_seconds,
        groups_commits=topology.groups_commits,
        blocked_timeout=topology.blocked_timeout_seconds,
    )
    return lock_topology(tx, topology.name)


def pause(connection: LedgerConnection, topology: str, reason: str) -> None:
    """Begin no more attempts; txids in flight are processed and committed.

    Storm's deactivate does the same: the coordinator emits no more batches, but still syncs.
    """
    with connection.transaction() as tx:
        lock_topology(tx, topology)
        tx.run("pause_topology", topology=topology, reason=reason)


def resume(connection: LedgerConnection, topology: str) -> None:
    """Let attempts begin again; does nothing if the topology is not paused."""
    with connection.transaction() as tx:
        lock_topology(tx, topology)
        tx.run("resume_topology", topology=topology)


# --- changed definitions, while nothing has committed --------------------------------------------


def _has_changed_freely(databases: TopologyDatabases, topology: Topology) -> bool:
    """Say whether the code's states differ from the ledger's and nothing has committed yet."""
    is_free = _is_free(databases.coordinator, topology.name)
    return is_free and any(_differs(database, topology) for database in databases.all)


def _change_states(databases: TopologyDatabases, topology: Topology) -> None:
    name = topology.name
    for database in databases.all:
        with holding_at_rest(database, name) as (tx, _):
            if _is_free(tx, name):
                _check_none_waits(tx, name)
                fence_in(databases, database, tx)
    # held until each has the new states: a skip would commit, and fix those that are there. The
    # ledger's come first, as others commit theirs before it: if one refuses, none has changed
    with holding_at_rest(databases.coordinator, name) as (held, _):
        for database in databases:
            with holding(database, name, HOLDERS_PATIENCE_SECONDS) as (tx, _):
                _check_may_go(tx, topology, database.database)
        _make_again(held, topology, COORDINATOR)
        for database in databases:
            with holding(database, name, HOLDERS_PATIENCE_SECONDS) as (tx, _):
                _make_again(tx, topology, database.database)


def _make_again(tx: DatabaseTransaction, topology: Topology, database: str) -> None:
    if _is_free(tx, topology.name):
        _forget(tx, topology, database)
        declare_states(tx, topology, database, has_committed=False)


def _check_none_waits(tx: DatabaseTransaction, name: str) -> None:
    if waiting := empty_that_waits(tx, name):
        raise StateDefinitionChanged(
            f"the states of {name} have changed before its first commit, and {waiting} still "
            "has to commit as empty",
            remedy="restore the old definitions until that has committed, then run `reliability "
            f"alter {name}`; or, if nothing of it is needed, `reliability drop {name}`.",
        )


def fence_in(
    databases: TopologyDatabases, connection: LedgerConnection, tx: DatabaseTransaction
) -> int:
    """Fence what is live in one database, the coordinator's before others; return how many.

    Of a participant, only what has ended in the coordinator's.
    """
    if connection is databases.coordinator:
        return fence_all(tx, databases.topology)
    return fence_ended(tx, databases.coordinator, databases.topology, _CHANGED)


def fence_all(tx: DatabaseTransaction, topology: str) -> int:
    key = {"topology": topology, "txid": None, "attempt_id": None}
    return tx.run("fence_live_attempts", reason=_CHANGED, **key)


def empty_that_waits(ledger: Ledger, topology: str) -> str:
    """Name the parked and skipped txids that still have to commit as empty; empty if none.

    Their attempts are for the old definitions. Nobody would begin them again after a fence.
    """
    rows = ledger.all("waiting_empty_attempts", topology=topology)
    return ", ".join(
        f"txid {row['txid']} ({row['verdict'].lower()}: {row['verdict_reason']})" for row in rows
    )


def _is_free(ledger: Ledger, topology: str) -> bool:
    return bool(ledger.one("topology_position", topology=topology)["commit_number"] == 0)


def _differs(connection: LedgerConnection, topology: Topology) -> bool:
    with connection.transaction() as tx:
        recorded = recorded_states(tx, topology.name)
        wanted = {s.name for s in topology.states if s.database == connection.database}
        has_other = bool(recorded) and wanted != recorded.keys()
        return has_other or bool(_changed(tx, topology, connection.database))


def _changed(tx: DatabaseTransaction, topology: Topology, database: str) -> list[StateTables]:
    """Return the recorded states that the code no longer has, or whose tables are not as it says.

    A table that a person has dropped or altered is made again, too.
    """
    wanted = {s.name: s.digest() for s in topology.states if s.database == database}
    return [
        tables
        for tables in declared_tables(tx, topology.name)
        if wanted.get(tables.name) != tables.state.digest() or inspect(tx, tables) is not None
    ]


def _check_may_go(tx: DatabaseTransaction, topology: Topology, database: str) -> list[StateTables]:
    """Return the recorded states that have changed, whose tables nobody has begun to use."""
    if tx.one("live_attempts_of", topology=topology.name)["attempts"]:
        raise LedgerBusy(f"{topology.name}: an attempt began while its states were changed")
    changed = _changed(tx, topology, database)
    for tables in changed:
        act_as_owner(tx, topology.name)
        check_table_may_go(tx, tables)
        if count_rows(tx, tables):
            way = f"TRUNCATE {tables.target_name}"
            raise _not_made_again(tables, "has rows that no txid has added", way)
    return changed


def _forget(tx: DatabaseTransaction, topology: Topology, database: str) -> None:
    for tables in _check_may_go(tx, topology, database):
        attempt_table.drop_all(tx, tables)
        tx.run(tables.drop())
        tx.one("forget_state", **StateKey(topology.name, tables.name))


def _leave(topology: Topology, tx: DatabaseTransaction, database: str) -> None:
    """Take a topology out of a database in which none of its states is any more."""
    _forget(tx, topology, database)
    tx.run("forget_topology", topology=topology.name)


def check_table_may_go(tx: DatabaseTransaction, tables: StateTables) -> None:
    """Raise StateDefinitionChanged if the table was adopted, or something depends on it (C10)."""
    state, topology = tables.state.name, tables.topology
    if dependents := dependents_of(tx, tables):
        raise StateDefinitionChanged(
            f"state {state} of {topology} has changed before its first commit, and its table "
            f"{tables.target_name} cannot be made again: {', '.join(dependents)} depends on it",
            remedy="drop what depends on the table and create it again afterwards, or restore "
            "the old definition.",
        )
    if tx.first("adoption", **StateKey(topology, tables.name)) is not None:
        way = f"run `reliability drop {topology} --keep-tables` and adopt it again"
        raise _not_made_again(tables, "was adopted", way)


def _not_made_again(tables: StateTables, why: str, way: str) -> StateDefinitionChanged:
    return StateDefinitionChanged(
        f"state {tables.state.name} of {tables.topology} has changed before its first commit, but "
        f"its table {tables.target_name} {why}",
        remedy=f"{way}, or restore the old definition.",
    )


def dependents_of(tx: DatabaseTransaction, tables: StateTables) -> Sequence[str]:
    """Return what depends on a state's table, such as a view or a foreign key of another one."""
    return [row["dependent"] for row in tx.all("dependents_of_table", table=tables.target_name)]


def count_rows(tx: DatabaseTransaction, tables: StateTables) -> int:
    """Count the rows of a state's table; 0 if a person has dropped it."""
    if not tx.one("table_exists", table=tables.target_name)["exists"]:
        return 0
    return int(tx.one(tables.count())["rows"])
