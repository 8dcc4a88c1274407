"""Compaction: fold contributions beyond a state's horizon to one row a key (H2).

1. read which states, in which databases, have a horizon
2. under the topology's lock, decide through which txid each of them compacts, and make it durable:
   from then on none of these txids can be replayed, in any database, and no rollback can go behind
   them
3. in each database, move their rows out of attempts' own tables
4. in each database, under the lock that its commits take, fold them: some txids per transaction

The next call completes what a dead process left unfinished. Compaction changes no row of a target,
and no result of a later replay or rollback.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reliability.core.checkpoint import COORDINATOR
from reliability.core.errors import LedgerCorruption
from reliability.core.progress import UNSEEN, StateProgress
from reliability.core.statement_key import StateKey
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
from reliability.ledger.locks import PATIENCE_SECONDS, lock_mirror, lock_topology
from reliability.states.fold_history import (
    crowded_rows,
    fold_crowded,
    forget,
    patterns_of_touched,
    touched_keys,
)
from reliability.states.headers import check_headers
from reliability.states.tables import StateTables
from reliability.transaction.commit.saved_checkpoint import read_checkpoint
from reliability.transaction.maintain.merge import merge_tables_of
from reliability.transaction.topology.databases import TopologyDatabases, naming_database
from reliability.transaction.topology.declare import declared_tables

# Rows that one transaction folds; it holds the topology's lock meanwhile.
MAX_ROWS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The result for one state that has a horizon.

    :param through: no txid up to this one can be replaced in it any more
    :param txids: how many this call has folded
    :param rows_before: rows of the keys that had several rows; `rows_after`: their rows now
    :param held_up_by: a txid beyond the horizon that may still change, None if there is none
    """

    state: str
    database: str
    through: int
    txids: int = 0
    rows_before: int = 0
    rows_after: int = 0
    held_up_by: int | None = None

    def __bool__(self) -> bool:
        return self.txids > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Horizon:
    """How far one state is compacted, and how far it will be."""

    state: str
    database: str
    after: int
    through: int
    held_up_by: int | None


def compact(
    connection: LedgerConnection,
    topology: str,
    *,
    patience: int = PATIENCE_SECONDS,
    progress: StateProgress = UNSEEN,
) -> list[Compacted]:
    """Fold what is beyond the horizon in every state that has one; safe to repeat.

    :param patience: how long to wait for the topology
    :raises LedgerBusy: another process held it for longer, or a reader held an attempt's own table
    :raises LedgerCorruption: rows that a header records are missing; folding of this state stops
    """
    with TopologyDatabases.of_known(connection, topology) as participants:
        horizons = _decide(participants, _horizons(participants), patience)
        progress.more(len(horizons))
        found: list[Compacted] = []
        for horizon in horizons:
            progress.now(horizon.state)
            found.append(_compact(participants, horizon, patience))
        return found


# --- horizons ------------------------------------------------------------------------------------


def _horizons(participants: TopologyDatabases) -> list[Row]:
    found: list[Row] = []
    for database in participants.all:
        with naming_database(database), participants.connection_of(database).transaction() as tx:
            rows = tx.all("horizons", topology=participants.topology)
        found += [{**row, "database": database} for row in rows]
    return found


def _decide(
    participants: TopologyDatabases, states: Sequence[Row], patience: int
) -> list[_Horizon]:
    """Decide for all states at once, while no attempt can begin and no change is in progress.

    A checkpoint that is not COMMITTED may be a rollback that other databases have applied already.
    """
    topology = participants.topology
    if not states:
        return []
    with participants.coordinator.transaction() as tx:
        lock_topology(tx, topology, patience)
        if not read_checkpoint(tx, topology).state.is_at_rest:
            return []
        horizons = [_horizon(tx, topology, state) for state in states]
        furthest = max(horizon.through for horizon in horizons)
        tx.run("decide_compaction", topology=topology, through=furthest)
    return horizons


def _horizon(tx: DatabaseTransaction, topology: str, state: Row) -> _Horizon:
    row = tx.one("horizon", topology=topology, **state)
    return _Horizon(
        state=state["state"],
        database=state["database"],
        after=state["after"],
        through=max(row["through"], state["after"]),  # it never decreases
        held_up_by=row["held_up_by"],
    )


# --- one state -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedTxids:
    """What one transaction has folded of one state."""

    through: int
    txids: int
    rows_before: int
    rows_after: int


def _compact(participants: TopologyDatabases, horizon: _Horizon, patience: int) -> Compacted:
    _merge_tables(participants, horizon)
    steps = list(_steps(participants, horizon, patience))
    return Compacted(
        state=horizon.state,
        database=horizon.database,
        through=max([horizon.after, *(step.through for step in steps)]),
        txids=sum(step.txids for step in steps),
        rows_before=sum(step.rows_before for step in steps),
        rows_after=sum(step.rows_after for step in steps),
        held_up_by=horizon.held_up_by,
    )


def _merge_tables(participants: TopologyDatabases, horizon: _Horizon) -> None:
    with naming_database(horizon.database):
        connection = participants.connection_of(horizon.database)
        with connection.transaction() as tx:
            tables = _tables(tx, participants.topology, horizon)
        merge_tables_of(connection, tables, horizon.through)


def _steps(
    participants: TopologyDatabases, horizon: _Horizon, patience: int
) -> Iterator[FoldedTxids]:
    at = horizon.after
    while at < horizon.through:
        with (
            naming_database(horizon.database),
            participants.connection_of(horizon.database).transaction() as tx,
        ):
            _lock(tx, participants.topology, horizon.database, patience)
            step = fold_step(tx, _tables(tx, participants.topology, horizon), horizon.through)
        if step is None:  # another process has folded them
            return
        yield step
        at = step.through


def _lock(tx: DatabaseTransaction, topology: str, database: str, patience: int) -> None:
    if database == COORDINATOR:
        lock_topology(tx, topology, patience)
    else:
        lock_mirror(tx, topology, patience)


def _tables(tx: DatabaseTransaction, topology: str, horizon: _Horizon) -> StateTables:
    return next(t for t in declared_tables(tx, topology) if t.state.name == horizon.state)


def fold_step(
    tx: DatabaseTransaction, tables: StateTables, through: int, max_rows: int = MAX_ROWS
) -> FoldedTxids | None:
    """Fold the next txids up to `through`, limited by their rows; None if there is none.

    Requires the topology's lock, and that nothing up to `through` can be replayed.

    :raises LedgerCorruption: the rows are not those that the headers record (H2)
    """
    key = StateKey(tables.topology, tables.state.name)
    row = tx.first("txids_to_compact", through=through, most=max_rows, **key)
    if row is None:
        return None
    span = {"after": row["after"], "through": row["through"]}
    _check_whole(tx, tables, row)
    tx.run("mark_compacted", **span, **key)
    tx.run(touched_keys(tables), **span)
    patterns = tx.all(patterns_of_touched(tables)) or [dict.fromkeys(tables.key, False)]
    tx.run(crowded_rows(tables, patterns), **span)
    folded = tx.one(fold_crowded(tables))
    tx.run(forget())
    tx.one("compact_state", **span, **key)
    return FoldedTxids(
        through=row["through"],
        txids=row["txids"],
        rows_before=folded["taken"],
        rows_after=folded["stored"],
    )


def _check_whole(tx: DatabaseTransaction, tables: StateTables, row: Row) -> None:
    # Folding would count missing rows as zero and hide the loss for ever (H2).
    after, through = row["after"], row["through"]
    if row["txids"] != through - after:
        raise LedgerCorruption(
            f"{tables.contribution_table}: {row['txids']} of the txids {after + 1} to {through} "
            "are recorded"
        )
    check_headers(tx, tables, after=after, through=through)
