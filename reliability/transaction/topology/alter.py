"""Take changed definitions of states after the topology's first commit (C11).

1. compare the code's definitions with the ledger's, and refuse what would not keep history
2. fence every live attempt, in every database: what it has staged has the old shape
3. in one transaction, under the topology's lock: alter the tables, record the new definitions

The second step commits before the third: the fenced Spark tasks then release the tables, which they
lock while they copy. Requests stay open, so their tasks begin new attempts by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reliability.core.checkpoint import COORDINATOR
from reliability.core.definitions import Topology
from reliability.core.errors import AlterNotPossible, LedgerBusy, TargetTableTaken
from reliability.core.history import History
from reliability.core.state import State, replay_refusal
from reliability.core.texts import as_json
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.states import attempt_table
from reliability.states.alteration import StateChange, count_values
from reliability.states.headers import compacted_through
from reliability.states.tables import StateTables
from reliability.transaction.topology.databases import TopologyDatabases, naming_another_database
from reliability.transaction.topology.declare import (
    check_table_is_free,
    check_tables,
    declare_state,
    declared_tables,
    keep_history,
)
from reliability.transaction.topology.redeclare import (
    WHY,
    count_rows,
    dependents_of,
    empty_that_waits,
    lock_at_rest,
)

# Attempts of other processes may begin between the second step and the third.
_ROUNDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredState:
    """One state whose definition differs.

    :param statements: what runs in the ledger's database
    :param added: values that the committed txids know nothing of
    :param goes: what is lost, or has to be created again
    :param refusal: why it cannot be done and what to do instead; empty if it can
    """

    state: str
    table: str
    differences: tuple[str, ...]
    statements: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    goes: tuple[str, ...] = ()
    refusal: str = ""
    change: StateChange = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """What differs between the code and the ledger, and what the change takes.

    :param kept: how the horizons differ; these need no alteration
    :param is_free: nothing has committed: the next emission or attempt takes the code's states
    :param fenced: how many live attempts are fenced, or would be
    :param counts_from: the next txid that commits; added values count from there on
    :param fillable: committed txids that a replay adds to the added values
    :param unfillable: committed txids that can no longer be replayed
    """

    topology: str
    states: tuple[AlteredState, ...]
    kept: tuple[str, ...]
    is_free: bool
    fenced: int
    commit_number: int
    counts_from: int
    fillable: tuple[int, ...] = ()
    unfillable: tuple[int, ...] = ()

    @property
    def refused(self) -> tuple[AlteredState, ...]:
        return tuple(state for state in self.states if state.refusal)


def plan_alteration(connection: LedgerConnection, topology: Topology) -> Alteration:
    """Return what `alter` would do; change nothing.

    :raises StateDefinitionChanged: a table is not as the ledger's definition says
    """
    with TopologyDatabases.of_known(connection, topology.name) as databases:
        elsewhere = _elsewhere(databases, topology)
        with connection.transaction() as tx:
            return _plan(tx, topology, elsewhere)


def alter(connection: LedgerConnection, topology: Topology, reason: str) -> Alteration:
    """Take the code's definitions of the states; return what was done.

    :raises AlterNotPossible: a change is refused; nothing was changed, and nothing was fenced
    :raises StateDefinitionChanged: see plan_alteration
    :raises LedgerBusy: attempts went on beginning, a change of the states is in progress, or
        somebody reads or writes the tables
    """
    planned = plan_alteration(connection, topology)
    _check_possible(planned)
    if planned.is_free or not planned.states:
        return planned
    with connection.transaction() as tx:
        _check_nothing_empty_waits(tx, topology.name)
    with TopologyDatabases.of_known(connection, topology.name) as databases:
        elsewhere = _elsewhere(databases, topology)
        fenced = 0
        for _ in range(_ROUNDS):
            fenced += _fence(databases)
            with connection.transaction() as tx:
                lock_at_rest(tx, topology.name, COORDINATOR)
                if tx.one("live_attempts_of", topology=topology.name)["attempts"]:
                    continue
                found = _plan(tx, topology, elsewhere, fenced)
                _check_possible(found)
                for state in found.states:
                    _alter_state(tx, topology.name, state, reason)
                for one in topology.states:
                    if one.database == COORDINATOR:
                        keep_history(tx, StateTables(topology.name, one))
                return found
    raise LedgerBusy(
        f"{topology.name}: attempts went on beginning while its states were to change",
        remedy=f"run `reliability pause {topology.name} --reason '…'`, alter again, then "
        f"`reliability resume {topology.name}`.",
    )


def _check_nothing_empty_waits(tx: DatabaseTransaction, topology: str) -> None:
    if waiting := empty_that_waits(tx, topology):
        raise AlterNotPossible(
            f"{topology}: {waiting} still has to commit as empty, for the states as they are",
            remedy="let the txids before it commit, and alter again.",
        )


def _check_possible(planned: Alteration) -> None:
    if planned.refused:
        refused = "; ".join(f"state {s.state}: {s.refusal}" for s in planned.refused)
        raise AlterNotPossible(f"{planned.topology}: {refused}").fill_in(topology=planned.topology)


def _fence(databases: TopologyDatabases) -> int:
    """Fence every live attempt in every database; return how many the coordinator had."""
    fenced = 0
    for name in databases.all:
        with naming_another_database(name), databases.connection_of(name).transaction() as tx:
            lock_at_rest(tx, databases.topology, name)
            count = tx.run("fence_live_attempts", topology=databases.topology, reason=WHY)
            fenced += count if name == COORDINATOR else 0
    return fenced


# --- the plan ------------------------------------------------------------------------------------


def _plan(
    tx: DatabaseTransaction,
    topology: Topology,
    elsewhere: Iterable[AlteredState],
    fenced: int | None = None,
) -> Alteration:
    position = tx.one("topology_position", topology=topology.name)
    live = tx.one("live_attempts_of", topology=topology.name)["attempts"]
    is_free = position["commit_number"] == 0
    changes = _changes(
        topology.name,
        {tables.state.name: tables.state for tables in declared_tables(tx, topology.name)},
        {state.name: state for state in topology.states if state.database == COORDINATOR},
    )
    states = [*elsewhere] if is_free else [*(_look_at(tx, c) for c in changes), *elsewhere]
    fillable: tuple[int, ...] = ()
    unfillable: tuple[int, ...] = ()
    if any(state.added for state in states):
        fillable, unfillable = lacking_txids(
            tx,
            topology.name,
            topology.states,
            curr_txid=position["curr_txid"],
            commit_number=position["commit_number"],
        )
    return Alteration(
        topology=topology.name,
        states=() if is_free else tuple(states),
        kept=tuple(_kept(tx, topology)),
        is_free=is_free,
        fenced=live if fenced is None else fenced,
        commit_number=position["commit_number"],
        counts_from=position["curr_txid"],
        fillable=fillable,
        unfillable=unfillable,
    )


def lacking_txids(
    tx: DatabaseTransaction,
    topology: str,
    states: Sequence[State],
    *,
    curr_txid: int,
    commit_number: int,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the txids that have not committed since `commit_number`: replayable ones, and others.

    :param states: those of the topology, in all databases (H5)
    """
    through = compacted_through(tx, topology)
    found: dict[bool, list[int]] = {True: [], False: []}
    for row in tx.all("txids_committed_through", topology=topology, commit_number=commit_number):
        refusal = replay_refusal(states, row["txid"], curr_txid, through)
        found[refusal is None].append(row["txid"])
    return tuple(found[True]), tuple(found[False])


def _changes(
    topology: str, have: Mapping[str, State], want: Mapping[str, State]
) -> list[StateChange]:
    def tables(state: State | None) -> StateTables | None:
        return StateTables(topology, state) if state else None

    return [
        StateChange(tables(have.get(name)), tables(want.get(name)))
        for name in sorted(have.keys() | want.keys())
        if name not in have or name not in want or have[name].digest() != want[name].digest()
    ]


def _look_at(tx: DatabaseTransaction, change: StateChange) -> AlteredState:
    refusal = _refusal(tx, change)
    return AlteredState(
        state=change.name,
        table=change.tables.target_name,
        differences=tuple(change.differences()),
        statements=() if refusal else _statements(tx, change),
        added=tuple(change.added_values()),
        goes=() if refusal else tuple(_goes(tx, change)),
        refusal=refusal,
        change=change,
    )


def _statements(tx: DatabaseTransaction, change: StateChange) -> tuple[str, ...]:
    statements = change.statements()
    schema = change.tables.state.target[0]
    if change.old is None and not tx.one("schema_exists", schema=schema)["exists"]:
        statements.insert(0, change.tables.create_schema())
    return tuple(statement.as_string(tx.cursor) for statement in statements)


def _refusal(tx: DatabaseTransaction, change: StateChange) -> str:
    tables = change.tables
    if change.old is None:
        try:
            check_table_is_free(tx, tables)
        except TargetTableTaken as error:
            return f"{error.what}; {error.remedy}"
        return ""
    if change.new is None:
        return _refusal_to_drop(tx, tables)
    if (obstacle := change.obstacle()) is not None:
        return f"{obstacle}; {_way(change.old)}"
    check_tables(tx, change.old)
    blocking = [
        f"{row['dependent']} uses its column {row['name']}"
        for columns, blocks in (
            (change.dropped_columns(), lambda row: not row["goes_with_it"]),
            (change.retyped_columns(), lambda row: row["fixes_type"]),
        )
        for row in _dependents(tx, change.old, columns)
        if blocks(row)
    ]
    if blocking:
        return f"{', '.join(blocking)}; drop what uses the columns, and create it again afterwards"
    return ""


def _way(tables: StateTables) -> str:
    """Return how to get what no ALTER TABLE can do."""
    return (
        f"keep {tables.state.name} as it is and give the code a state of another name beside it; "
        f"`reliability alter {tables.topology} --yes --reason TEXT` creates it, `reliability "
        f"replay {tables.topology} TXIDS` fills it; then remove {tables.state.name} from the code, "
        "and alter again"
    )


def _refusal_to_drop(tx: DatabaseTransaction, tables: StateTables) -> str:
    source = f"table:{COORDINATOR}/{tables.target_name}"  # as TableSpout.source
    readers = tx.all("topologies_that_read_table", source=source, topology=tables.topology)
    users = [*dependents_of(tx, tables), *(f"topology {row['topology']}" for row in readers)]
    if users:
        return f"{', '.join(users)} uses its table {tables.target_name}; drop what uses it first"
    return ""


def _dependents(
    tx: DatabaseTransaction, tables: StateTables, columns: list[str]
) -> list[dict[str, object]]:
    if not columns:
        return []
    own = list(tables.target_columns())
    return [
        dict(row)
        for row in tx.all(
            "dependents_of_columns", table=tables.target_name, columns=columns, own=own
        )
    ]


def _goes(tx: DatabaseTransaction, change: StateChange) -> list[str]:
    """Return what is lost with the change."""
    if change.old is None:
        return []
    tables = change.old
    if change.new is None:
        rows = count_rows(tx, tables)
        return [f"table {tables.target_name} with {rows:,} rows, and all its contributions"]
    found: list[str] = []
    if values := change.dropped_values():
        counted = tx.one(count_values(tables, values))
        found += [f"value {name}, which {counted[name]:,} rows have" for name in values]
    return found + [
        f"{row['dependent']}"
        for row in _dependents(tx, tables, change.dropped_columns())
        if row["goes_with_it"]
    ]


def _kept(tx: DatabaseTransaction, topology: Topology) -> list[str]:
    recorded = {row["state"]: row for row in tx.all("kept_history", topology=topology.name)}
    found = []
    for state in topology.states:
        row = recorded.get(state.name)
        if row is None:
            continue
        keep = state.keep
        have = (row["keep_txids"], row["keep_days"])
        if have != ((keep.txids, keep.days) if keep else (None, None)):
            old = "for ever" if have == (None, None) else History(txids=have[0], days=have[1])
            found.append(f"state {state.name}: keep: {old} becomes {keep or 'for ever'}")
    return found


def _elsewhere(databases: TopologyDatabases, topology: Topology) -> list[AlteredState]:
    """Return the states in other databases that differ, all refused.

    Several databases would have to be altered at one moment: between two of them an attempt could
    be sealed for the old shape of one state and the new shape of another.
    """
    found: list[AlteredState] = []
    for name in sorted({*databases.others, *topology.databases}):
        have: dict[str, State] = {}
        if name in databases.others:
            with naming_another_database(name), databases.connection_of(name).transaction() as tx:
                tables = declared_tables(tx, topology.name)
            have = {one.state.name: one.state for one in tables}
        want = {state.name: state for state in topology.states if state.database == name}
        found += [
            AlteredState(
                state=change.name,
                table=change.tables.target_name,
                differences=tuple(change.differences()),
                refusal=f"it is in database {name}, and only states in the ledger's database can "
                "be altered; restore its old definition, or give the new one to a topology of "
                "another name",
                change=change,
            )
            for change in _changes(topology.name, have, want)
        ]
    return found


# --- the change ----------------------------------------------------------------------------------


def _alter_state(tx: DatabaseTransaction, topology: str, state: AlteredState, reason: str) -> None:
    old, new = state.change.old, state.change.new
    key = {"topology": topology, "state": state.state}
    before = {"digest_before": old and old.state.digest()}
    after = {
        "definition": new and as_json(new.state.definition()),
        "definition_digest": new and new.state.digest(),
    }
    if old is None:
        assert new is not None
        declare_state(tx, new)
        tx.run("insert_empty_contributions", **key)
    else:
        if state.change.new is None:
            attempt_table.drop_all(tx, state.change.tables)
        for statement in state.change.statements():
            tx.run(statement)
        if new is None:
            tx.one("remove_state", **key, **before)
        else:
            tx.one("redefine_state", **key, **before, **after)
            check_tables(tx, new)
    tx.one(
        "record_alteration",
        reason=reason,
        differences=list(state.differences),
        statements=list(state.statements),
        added=list(state.added),
        definition_before=old and as_json(old.state.definition()),
        definition_after=after["definition"],
        digest_after=after["definition_digest"],
        **key,
        **before,
    )
