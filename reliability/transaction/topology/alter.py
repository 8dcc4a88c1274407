"""Take changed definitions of states after the topology's first commit (C11).

1. compare the code's definitions with the ledger's, and refuse what would not keep history
2. fence every live attempt, in every database: what it has staged has the old shape
3. in one transaction, under the topology's lock: alter the tables, record the new definitions

The second step commits before the third, as in lifecycle.py. Requests stay open, so their tasks
begin new attempts by themselves.

A value that was added lacks the txids that had committed before, until they are replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from reliability.core.checkpoint import COORDINATOR
from reliability.core.definitions import Topology
from reliability.core.errors import (
    AlterNotPossible,
    LedgerBusy,
    ReliabilityError,
    StateDefinitionChanged,
    TargetTableTaken,
)
from reliability.core.names import source_of_table
from reliability.core.state import History, State, replay_refusal
from reliability.core.statement_key import StateKey
from reliability.core.texts import as_json
from reliability.core.txids import format_txids, with_noun
from reliability.ledger.connection import DatabaseTransaction, Ledger, LedgerConnection, Row
from reliability.ledger.locks import holding_at_rest
from reliability.ledger.roles import act_as_owner
from reliability.states import attempt_table
from reliability.states.alteration import StateChange, count_values
from reliability.states.headers import compacted_through
from reliability.states.kinds import stored_state
from reliability.states.tables import StateTables
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.declare import (
    check_table_is_free,
    check_tables,
    declare_state,
    declared_tables,
    keep_history,
    recorded_definition,
    recorded_states,
    statements_to_create,
    states_of,
)
from reliability.transaction.topology.lifecycle import (
    check_table_may_go,
    count_rows,
    dependents_of,
    empty_that_waits,
    fence_in,
)

if TYPE_CHECKING:
    from psycopg2.sql import Composable

# Attempts of other processes may begin between the second step and the third.
_ROUNDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredState:
    """One state whose definition differs.

    :param old: as the ledger has it, None for a state that the code adds
    :param new: as the code has it, None for a state that the code no longer has
    :param steps: what changes its tables; `statements`: what runs in the ledger's database
    :param goes: what is lost, or has to be created again
    :param refusal: why it cannot be done and what to do instead; empty if it can
    """

    old: StateTables | None = field(repr=False)
    new: StateTables | None = field(repr=False)
    steps: Sequence[Composable] = field(default=(), repr=False)
    statements: tuple[str, ...] = ()
    goes: tuple[str, ...] = ()
    refusal: str = ""

    @property
    def tables(self) -> StateTables:
        tables = self.new or self.old
        assert tables is not None
        return tables

    @property
    def state(self) -> str:
        return self.tables.name

    @property
    def table(self) -> str:
        return self.tables.target_name

    @property
    def differences(self) -> list[str]:
        if self.old is None or self.new is None:
            return [f"the state is {'added' if self.old is None else 'removed'}"]
        return StateChange(self.old, self.new).differences()

    @property
    def added(self) -> list[str]:
        """Return the values that the committed txids know nothing of."""
        had = self.old.state.values if self.old else ()
        return [name for name in (self.new.state.values if self.new else ()) if name not in had]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """What differs between the code and the ledger, and what the change takes.

    :param differs: the code has other states than the ledger
    :param states: while nothing has committed, only those whose tables cannot be made again
    :param kept: how the horizons differ; these need no alteration
    :param fenced: how many live attempts are fenced, or would be
    :param counts_from: the next txid that commits; added values count from there on
    :param fillable: committed txids that a replay adds to the added values
    :param unfillable: committed txids that can no longer be replayed
    """

    topology: str
    differs: bool
    states: tuple[AlteredState, ...]
    kept: tuple[str, ...]
    fenced: int
    commit_number: int
    counts_from: int
    fillable: tuple[int, ...] = ()
    unfillable: tuple[int, ...] = ()

    @property
    def is_free(self) -> bool:
        """Say whether nothing has committed: the next emission or attempt takes the new states."""
        return self.commit_number == 0

    @property
    def refused(self) -> tuple[AlteredState, ...]:
        return tuple(state for state in self.states if state.refusal)

    @property
    def loses_nothing(self) -> bool:
        """Say whether it can be made, and no value, row or view goes with it."""
        return not any(state.refusal or state.goes for state in self.states)


def plan_alteration(connection: LedgerConnection, topology: Topology) -> Alteration:
    """Return what `alter` would do; change nothing.

    :raises StateDefinitionChanged: a table is not as the ledger's definition says
    """
    with (
        TopologyDatabases.of_known(connection, topology.name) as databases,
        connection.transaction() as tx,
    ):
        return _plan(tx, databases, topology)


def alter(connection: LedgerConnection, topology: Topology, reason: str) -> Alteration:
    """Take the code's definitions of the states; return what was done.

    :raises AlterNotPossible: a change is refused; nothing was changed
    :raises StateDefinitionChanged: see plan_alteration
    :raises LedgerBusy: attempts went on beginning, a change of the states is in progress, or
        somebody reads or writes the tables
    """
    planned = plan_alteration(connection, topology)
    _check_possible(planned)
    if not planned.differs:
        return planned
    if planned.is_free:
        _check_none_waits(connection, topology.name)
        return planned
    with TopologyDatabases.of_known(connection, topology.name) as databases:
        fenced = 0
        for _ in range(_ROUNDS):
            fenced += _fence(databases)
            with holding_at_rest(connection, databases.topology) as (tx, _):
                if tx.one("live_attempts_of", topology=topology.name)["attempts"]:
                    continue
                done = _plan(tx, databases, topology, fenced)
                _check_possible(done)
                act_as_owner(tx, topology.name, "alter")
                for altered in done.states:
                    _alter_state(tx, altered, reason)
                tx.run("grant_rights")
                for state in topology.states:
                    if state.database == COORDINATOR:
                        keep_history(tx, stored_state(topology.name, state))
                return done
    raise LedgerBusy(
        f"{topology.name}: attempts went on beginning while its states were to change",
        remedy=f"run `reliability pause {topology.name} --reason '…'`, alter again, then "
        f"`reliability resume {topology.name}`.",
    )


def _check_possible(planned: Alteration) -> None:
    if planned.refused:
        refused = "; ".join(f"state {s.state}: {s.refusal}" for s in planned.refused)
        raise AlterNotPossible(f"{planned.topology}: {refused}").about(topology=planned.topology)


def _check_none_waits(ledger: Ledger, topology: str) -> None:
    if waiting := empty_that_waits(ledger, topology):
        raise AlterNotPossible(
            f"{topology}: {waiting} still has to commit as empty, for the states as they are",
            remedy="let the txids before it commit, and alter again.",
        )


def _fence(databases: TopologyDatabases) -> int:
    """Fence every live attempt in every database; return how many the coordinator had.

    One that begins meanwhile goes on: `alter` looks again.
    """
    fenced = 0
    for connection in databases.all:
        with holding_at_rest(connection, databases.topology) as (tx, _):
            if connection is databases.coordinator:  # it comes first, and decides for all
                _check_none_waits(tx, databases.topology)
            count = fence_in(databases, connection, tx)
            fenced += count if connection is databases.coordinator else 0
    return fenced


# --- the plan ------------------------------------------------------------------------------------


def _plan(
    tx: DatabaseTransaction,
    databases: TopologyDatabases,
    topology: Topology,
    fenced: int | None = None,
) -> Alteration:
    position = tx.one("topology_position", topology=topology.name)
    reached = {name: position[name] for name in ("curr_txid", "commit_number")}
    is_free = reached["commit_number"] == 0
    lacking: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    here = _differing(declared_tables(tx, topology.name), topology, COORDINATOR)
    elsewhere = _elsewhere(databases, topology, is_free=is_free)
    look_at = _look_at_free if is_free else _look_at
    states = [*(look_at(tx, state) for state in here), *elsewhere]
    if is_free:
        states = [state for state in states if state.refusal]
    if any(state.added for state in states):
        lacking = _lacking_txids(tx, topology.name, topology.states, **reached)
    if fenced is None:
        fenced = tx.one("live_attempts_of", topology=topology.name)["attempts"]
    return Alteration(
        topology=topology.name,
        differs=bool(here or elsewhere),
        states=tuple(states),
        kept=tuple(_kept(tx, topology)),
        fenced=fenced,
        commit_number=reached["commit_number"],
        counts_from=reached["curr_txid"],
        fillable=lacking[0],
        unfillable=lacking[1],
    )


def _differing(
    declared: Iterable[StateTables], topology: Topology, database: str
) -> list[AlteredState]:
    """Return the states of a database that differ between the ledger and the code."""
    have = {tables.name: tables for tables in declared}
    want = {
        state.name: stored_state(topology.name, state)
        for state in topology.states
        if state.database == database
    }
    pairs = [(have.get(name), want.get(name)) for name in sorted(have.keys() | want.keys())]
    return [
        AlteredState(old=old, new=new)
        for old, new in pairs
        if old is None or new is None or old.state.digest() != new.state.digest()
    ]


def _look_at(tx: DatabaseTransaction, altered: AlteredState) -> AlteredState:
    old, new = altered.old, altered.new
    steps: Sequence[Composable]
    goes: Sequence[str] = ()
    try:
        if old is None:
            check_table_is_free(tx, altered.tables)
            steps = statements_to_create(tx, altered.tables)
        elif new is None:
            steps, goes = [old.drop()], [_going_with(tx, old)]
        else:
            change = StateChange(old, new)
            _check_change(tx, change)
            steps, goes = change.statements(), _lost_by(tx, change)
    except (AlterNotPossible, TargetTableTaken) as error:
        return _refused(altered, error)
    statements = tuple(tx.text_of(step) for step in steps)
    return replace(altered, steps=steps, statements=statements, goes=tuple(goes))


def _look_at_free(tx: DatabaseTransaction, altered: AlteredState) -> AlteredState:
    """Look at a state that nothing has committed to: its table is made again, if it can be.

    Whether it has rows that no txid has added is not asked: who plans may read no tables.
    """
    old, new = altered.old, altered.new
    try:
        if old is not None:
            check_table_may_go(tx, old)
        if new is not None and (old is None or old.target_name != new.target_name):
            check_table_is_free(tx, new)
    except (StateDefinitionChanged, TargetTableTaken) as error:
        return _refused(altered, error)
    return altered


def _refused(altered: AlteredState, error: ReliabilityError) -> AlteredState:
    return replace(altered, refusal=f"{error.what}; {error.what_to_do.rstrip('.')}")


def _going_with(tx: DatabaseTransaction, old: StateTables) -> str:
    """Return what goes with a state; raise AlterNotPossible if something uses its table."""
    source = source_of_table(COORDINATOR, old.state.target)
    readers = tx.all("topologies_that_read_table", source=source, topology=old.topology)
    users = [*dependents_of(tx, old), *(f"topology {row['topology']}" for row in readers)]
    if users:
        what = f"{', '.join(users)} uses its table {old.target_name}"
        raise AlterNotPossible(what, remedy="drop what uses it first")
    return f"table {old.target_name} with {count_rows(tx, old):,} rows, and all its contributions"


def _lost_by(tx: DatabaseTransaction, change: StateChange) -> list[str]:
    lost: list[str] = []
    if values := change.dropped_values():
        counted = tx.one(count_values(change.old, values))
        lost = [f"value {name}, which {counted[name]:,} rows have" for name in values]
    gone_with = _dependents(tx, change.old, change.dropped_columns())
    return lost + [str(row["dependent"]) for row in gone_with if row["goes_with_it"]]


def _check_change(tx: DatabaseTransaction, change: StateChange) -> None:
    if (obstacle := change.obstacle()) is not None:
        name, topology = change.old.name, change.old.topology
        raise AlterNotPossible(
            obstacle,
            remedy=f"keep {name} as it is and give the code a state of another name beside it; "
            f"`reliability alter {topology} --yes --reason TEXT` creates it, `reliability replay "
            f"{topology} TXIDS` fills it; then remove {name} from the code, and alter again",
        )
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
        way = "drop what uses the columns, and create it again afterwards"
        raise AlterNotPossible(", ".join(blocking), remedy=way)
    there = {row["name"] for row in tx.all("table_columns", table=change.old.target_name)}
    own = there - change.old.target_columns().keys()
    if taken := sorted(own & change.new.target_columns().keys()):
        what = f"{change.old.target_name} has a column {', '.join(taken)} of somebody's own"
        raise AlterNotPossible(what, remedy="rename or drop it, or give the value another name")


def _dependents(
    tx: DatabaseTransaction, tables: StateTables, columns: Sequence[str]
) -> Sequence[Row]:
    if not columns:
        return ()
    return tx.all(
        "dependents_of_columns",
        table=tables.target_name,
        columns=list(columns),
        own=list(tables.target_columns()),
    )


def _kept(tx: DatabaseTransaction, topology: Topology) -> list[str]:
    recorded = recorded_states(tx, topology.name)
    differing = []
    for state in topology.states:
        row = recorded.get(state.name)
        if row is None:
            continue
        keep = state.keep
        have = (row["keep_txids"], row["keep_days"])
        if have != ((keep.txids, keep.days) if keep else (None, None)):
            old = "for ever" if have == (None, None) else History(txids=have[0], days=have[1])
            differing.append(f"state {state.name}: keep: {old} becomes {keep or 'for ever'}")
    return differing


def _elsewhere(
    databases: TopologyDatabases, topology: Topology, *, is_free: bool
) -> list[AlteredState]:
    """Return the states in other databases that differ, all refused unless nothing has committed.

    Several databases would have to be altered at one moment: between two of them an attempt could
    be sealed for the old shape of one state and the new shape of another.
    """
    differing: list[AlteredState] = []
    for name in sorted({*databases.others, *topology.databases}):
        database = databases.connection_of(name) if name in databases.others else None
        declared = declared_tables(database, topology.name) if database else ()
        there = _differing(declared, topology, name)
        if is_free and database:
            with database.transaction() as tx:
                differing += [_look_at_free(tx, state) for state in there]
        else:
            refusal = (
                f"it is in database {name}, and only states in the ledger's database can be "
                "altered; restore its old definition, or give the new one to a topology of "
                "another name"
            )
            differing += [replace(state, refusal=refusal) for state in there]
    return differing


# --- the change ----------------------------------------------------------------------------------


def _alter_state(tx: DatabaseTransaction, altered: AlteredState, reason: str) -> None:
    old, new = altered.old, altered.new
    key = StateKey(altered.tables.topology, altered.state)
    digest_before = old and old.state.digest()
    if old is None:
        declare_state(tx, altered.tables)
        tx.run("insert_empty_contributions", **key)
    else:
        if new is None:
            attempt_table.drop_all(tx, old)
        for step in altered.steps:
            tx.run(step)
        if new is None:
            tx.one("remove_state", digest_before=digest_before, **key)
        else:
            tx.one("redefine_state", digest_before=digest_before, **recorded_definition(new))
            check_tables(tx, new)
    tx.one(
        "record_alteration",
        reason=reason,
        differences=altered.differences,
        statements=list(altered.statements),
        added=altered.added,
        definition_before=old and as_json(old.state.definition()),
        digest_before=digest_before,
        definition_after=new and as_json(new.state.definition()),
        digest_after=new and new.state.digest(),
        **key,
    )


# --- values that were added ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LackingValue:
    """A value that was added later, and the committed txids that it does not contain.

    :param counts_from: the first txid that committed after it was added
    :param fillable: txids that a replay adds to it
    :param unfillable: txids that can no longer be replayed
    :param next_step: how it gets the fillable ones
    """

    state: str
    value: str
    counts_from: int
    fillable: tuple[int, ...]
    unfillable: tuple[int, ...]
    next_step: str

    def to_json(self) -> dict[str, Any]:
        txids = {n: format_txids(getattr(self, n)) for n in ("fillable", "unfillable")}
        return {**asdict(self), **txids}


def lacking_values(connection: LedgerConnection, topology: str) -> list[LackingValue]:
    """Return the values that do not contain every committed txid.

    :raises LedgerUnavailable: a database with states of the topology does not answer
    """
    added = connection.all("added_values", topology=topology)
    if not added:
        return []
    with TopologyDatabases.of_known(connection, topology) as databases:
        states = states_of(databases)
    values = []
    with connection.transaction() as tx:
        curr_txid = tx.one("topology_position", topology=topology)["curr_txid"]
        for row in added:
            fillable, unfillable = _lacking_txids(
                tx, topology, states, curr_txid=curr_txid, commit_number=row["commit_number"]
            )
            values.append(
                LackingValue(
                    state=row["state"],
                    value=row["value"],
                    counts_from=row["counts_from"],
                    fillable=fillable,
                    unfillable=unfillable,
                    next_step=how_to_fill(topology, fillable, unfillable),
                )
            )
    return [value for value in values if value.fillable or value.unfillable]


def _lacking_txids(
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
    txids: dict[bool, list[int]] = {True: [], False: []}
    for row in tx.all("txids_committed_through", topology=topology, commit_number=commit_number):
        refusal = replay_refusal(states, row["txid"], curr_txid, through)
        txids[refusal is None].append(row["txid"])
    return tuple(txids[True]), tuple(txids[False])


def how_to_fill(topology: str, fillable: Iterable[int], unfillable: Iterable[int]) -> str:
    """Say how values that were added later get the txids that they lack; empty if they lack none.

    >>> how_to_fill("shop", [4, 5], [1, 2, 3])
    '`reliability replay shop 4..5` fills it in; txids 1..3 cannot be replayed any more'
    """
    fills, lost = format_txids(fillable), format_txids(unfillable)
    return "; ".join(
        [
            *([f"`reliability replay {topology} {fills}` fills it in"] if fills else []),
            *([f"{with_noun(lost)} cannot be replayed any more"] if lost else []),
        ]
    )
